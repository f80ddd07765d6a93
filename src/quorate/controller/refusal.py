"""A request that is refused, and what there is to say about it."""

from __future__ import annotations

from quorate.controller.events import Event
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Refusal"]


class Refusal(ApiError):  # noqa: N818  # it is what the controller answers, not a failure
    """An error for whoever asked, and an event for whoever wants to know why."""

    def __init__(self, code: ErrorCode, message: str, event: Event) -> None:
        super().__init__(code, message)
        self.event = event
