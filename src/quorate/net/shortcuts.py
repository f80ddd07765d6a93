"""Requests that are served without being decoded, because they look like one that was.

Clients say the same all their lives, but for a number here and there: that they still live, how far they have
read, what there is to be stored. What such a request means is known from the first of its kind. So a
connection keeps a `Shortcut` for each kind for which that is worth it, and that remembers requests that went
the long way. It is shown a request before anybody decodes it, and serves it, or does not know it.

A shortcut only ever serves what would be answered in the same way otherwise. What is unusual it leaves alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from quorate.net.routes import Answer, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.message import Response
from quorate.protocol.types import Buffer

__all__ = ["Said", "Shortcut", "Undecoded", "Usual"]

_ID: Final = Struct(">i")
_ID_AT: Final = 4  # in an answer, behind its size

# A buffer, a begin and an end: the request, without its size, is `buffer[begin:end]`.
Undecoded = tuple[bytearray | memoryview, int, int]


class Usual(NamedTuple):
    """What is nearly always answered, and how that looks. If an answer is this very object, it need not be
    encoded again."""

    answer: Response
    encoded: bytearray

    def with_id(self, correlation_id: int) -> bytes:
        _ID.pack_into(self.encoded, _ID_AT, correlation_id)
        return bytes(self.encoded)


class Said(NamedTuple):
    """What a handler has said to a request that was recognized: not encoded yet, or not even there."""

    header: RequestHeader
    answer: Answer | Awaitable[Answer]
    usual: Usual | None = None


class Shortcut(Protocol):
    """How requests of one kind, on one connection, can be served."""

    def learn(
        self,
        context: RequestContext,
        header: RequestHeader,
        request: Any,
        answer: object,
        frame: Undecoded,
    ) -> None:
        """A request was served the long way, and a handler has said something: a response or what will be
        one. Such requests may come again."""

    def serve(self, context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | Said | None:
        """Serves requests of the kind that are waiting, in their order: as many as it knows, from the first
        on. Their answers, as they leave; or what is said to the first one; None if it does not know that one.

        Views of the frames must not be kept: other requests come into the same memory. The client id of the
        context is that of the last request that was decoded.
        """
