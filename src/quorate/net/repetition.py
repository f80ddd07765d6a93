"""A request that a peer sends again in the same words, as members of groups do all their lives.

What such a request means is known, and most of the time it is answered as before. So its connection remembers
the last one: how it looks, what it was decoded to, and how the answer was encoded. If exactly that arrives
again, but for its correlation id, only its handler is asked; and if that gives the very same answer, an
object that nobody changes, then its bytes are the same, too.
"""

from __future__ import annotations

from typing import Final

from quorate.net.routes import Handler, RequestContext, RouteTable
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.frame import encode_response
from quorate.protocol.message import Request, Response

__all__ = ["REPEATED_BYTES_MAX", "Repetition"]

REPEATED_BYTES_MAX: Final = 1024
"""Larger requests are not remembered: every connection may have one."""

_SIZE_BYTES: Final = 4
_CORRELATION_ID: Final = slice(8, 12)  # of a request: behind its size, its key and its version
_ANSWERED_ID: Final = slice(4, 8)  # of an answer: behind its size


class Repetition:
    """A request that was answered at once, and may come again."""

    __slots__ = (
        "_begins",
        "_ends",
        "_response",
        "answer",
        "context",
        "handler",
        "header",
        "request",
        "routes",
        "size_bytes",
    )

    def __init__(
        self,
        data: bytearray,
        context: RequestContext,
        header: RequestHeader,
        request: Request,
        routes: RouteTable,
        handler: Handler,
        answer: Response,
    ) -> None:
        """`data` is what came, without its size; `routes` is where the handler was found."""
        frame = len(data).to_bytes(_SIZE_BYTES, "big") + data
        self._begins = bytes(frame[: _CORRELATION_ID.start])
        self._ends = bytes(frame[_CORRELATION_ID.stop :])
        self.size_bytes = len(frame)
        self.context = context
        self.header = header
        self.request = request
        self.routes = routes
        self.handler = handler
        self.answer = answer
        self._response = encode_response(answer, header.request_api_version, 0)

    def is_in(self, scratch: memoryview, size_bytes: int) -> bool:
        """Whether what was read is this request and nothing else. Its header is that of the new one then."""
        if size_bytes != self.size_bytes:
            return False
        frame = bytes(scratch[:size_bytes])
        if not (frame.endswith(self._ends) and frame.startswith(self._begins)):
            return False
        correlation_id = frame[_CORRELATION_ID]
        self.header.correlation_id = int.from_bytes(correlation_id, "big", signed=True)
        self._response[_ANSWERED_ID] = correlation_id
        return True

    def response(self) -> bytes:
        """The answer to the one that was found last."""
        return bytes(self._response)
