"""Events of a node's journal, in words."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Final

from quorate.controller import events

__all__ = ["event_line"]

_DETAIL: Final = re.compile(r" \w+=\S*")


def event_line(event: dict[str, Any]) -> str | None:
    """What the controller did, without the numbers that only a log needs; None for other people's events."""
    kind = str(event.get("kind"))
    known = getattr(events, kind, None) if kind in events.__all__ else None
    if known is None:
        return None
    names = {one.name for one in fields(known)}
    try:
        line: str = known(**{name: value for name, value in event.items() if name in names}).told()
    except (TypeError, ValueError, AttributeError):
        return kind
    return _DETAIL.sub("", line)
