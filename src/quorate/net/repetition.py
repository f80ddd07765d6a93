"""A request that a peer sends again in the same words, as members of groups do all their lives.

What such a request means is known, and most of the time it is answered as before. So its connection remembers
it: how it looks, what it was decoded to, and how the answer was encoded. If exactly that arrives again, but
for its correlation id, only its handler is asked; and if that gives the very same answer, an object that
nobody changes, then its bytes are the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from quorate.net.routes import Handler, RequestContext
from quorate.net.shortcuts import Said, Undecoded
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.frame import encode_response
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer

__all__ = ["REPEATED_BYTES_MAX", "REPEATED_MAX", "Repetitions"]

REPEATED_BYTES_MAX: Final = 1024
"""Larger requests are not remembered."""
REPEATED_MAX: Final = 32
"""Of each kind, on each connection: nearly always it is one, but some speak for several members."""

_ID_AT: Final = 4  # in a request, behind its key and its version
_SAME_FROM: Final = 8
_ANSWERED_ID: Final = slice(4, 8)  # in an answer, behind its size


class _Known:
    """A request that was answered at once."""

    __slots__ = ("answer", "context", "header", "request", "response")

    def __init__(
        self, context: RequestContext, header: RequestHeader, request: Request, answer: Response
    ) -> None:
        self.context = context
        self.header = header
        self.request = request
        self.answer = answer
        self.response = encode_response(answer, header.request_api_version, 0)


class Repetitions:
    """A `Shortcut` for requests of which `repeats` says that they may come again."""

    __slots__ = ("_handler", "_known", "_repeats")

    def __init__(self, handler: Handler, repeats: Callable[[Any], bool]) -> None:
        self._handler = handler
        self._repeats = repeats
        self._known: dict[bytes, _Known] = {}

    def learn(
        self,
        context: RequestContext,
        header: RequestHeader,
        request: Request,
        answer: object,
        frame: Undecoded,
    ) -> None:
        buffer, begin, end = frame
        if not isinstance(answer, Response) or end - begin > REPEATED_BYTES_MAX or not self._repeats(request):
            return
        if len(self._known) >= REPEATED_MAX:
            self._known.clear()
        self._known[bytes(buffer[begin + _SAME_FROM : end])] = _Known(context, header, request, answer)

    def serve(self, _context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | Said | None:
        buffer, begin, end = frames[0]
        known = self._known.get(bytes(buffer[begin + _SAME_FROM : end]))
        if known is None:
            return None
        header = known.header
        correlation_id = bytes(buffer[begin + _ID_AT : begin + _SAME_FROM])
        header.correlation_id = int.from_bytes(correlation_id, "big", signed=True)
        answer = self._handler(known.context, header, known.request)
        if answer is not known.answer:
            return Said(header, answer)
        known.response[_ANSWERED_ID] = correlation_id
        return (bytes(known.response),)
