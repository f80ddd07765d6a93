"""A request that a peer sends again in the same words, as members of groups do all their lives.

What such a request means is known, and most of the time it is answered as before. So its connection
remembers how it looks, how the answer was encoded, and how to find out whether that is still the answer
(`routes.Again`). If exactly that arrives again, but for its correlation id, that is all there is to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from quorate.net.routes import Again, FindAgain, RequestContext
from quorate.net.shortcuts import Undecoded
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.frame import encode_response
from quorate.protocol.message import Response
from quorate.protocol.types import Buffer

__all__ = ["REPEATED_BYTES_MAX", "REPEATED_MAX", "Repetitions"]

REPEATED_BYTES_MAX: Final = 1024
"""Larger requests are not remembered."""
REPEATED_MAX: Final = 32
"""Of each kind, on each connection: nearly always it is one, but some speak for several members."""

_ID_AT: Final = 4  # in a request, behind its key and its version
_SAME_FROM: Final = 8
_ANSWERED_ID: Final = slice(4, 8)  # in an answer, behind its size


class Repetitions:
    """A `Shortcut` for requests of which `find_again` says how they are recognized."""

    __slots__ = ("_find_again", "_known")

    def __init__(self, find_again: FindAgain) -> None:
        self._find_again = find_again
        self._known: dict[bytes, tuple[Again, bytearray]] = {}

    def learn(
        self, context: RequestContext, header: RequestHeader, request: Any, answer: object, frame: Undecoded
    ) -> None:
        buffer, begin, end = frame
        if not isinstance(answer, Response) or end - begin > REPEATED_BYTES_MAX:
            return
        again = self._find_again(context, header, request, answer)
        if again is None:
            return
        if len(self._known) >= REPEATED_MAX:
            self._known.clear()
        response = encode_response(answer, header.request_api_version, 0)
        self._known[bytes(buffer[begin + _SAME_FROM : end])] = again, response

    def serve(self, _context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | None:
        buffer, begin, end = frames[0]
        said = bytes(buffer[begin + _SAME_FROM : end])
        known = self._known.get(said)
        if known is None:
            return None
        again, response = known
        if not again():
            del self._known[said]
            return None
        response[_ANSWERED_ID] = buffer[begin + _ID_AT : begin + _SAME_FROM]
        return (bytes(response),)
