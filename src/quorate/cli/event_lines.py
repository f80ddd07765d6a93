"""Events of a node's journal, in words."""

from __future__ import annotations

import re
from typing import Any, Final

from quorate.controller import events
from quorate.node.event_words import words_of

__all__ = ["event_line"]

_DETAIL: Final = re.compile(r" (?!untold=)\w+=\S*")


def event_line(event: dict[str, Any]) -> str | None:
    """What the controller did, without the numbers that only a log needs; None for other people's events.

    >>> event_line({"kind": "HeartbeatTimedOut", "broker_id": 1, "epoch": 5, "waited_ms": 9, "untold": 7})
    'Heartbeat of broker 1 at epoch 5 timed out in the queue untold=7'
    """
    kind = event.get("kind")
    if not isinstance(kind, str) or kind not in events.__all__:
        return None
    words = words_of(event)
    return kind if words is None else _DETAIL.sub("", words)
