"""What an event is: something that an operator may ask about later, as a value.

The controller, the coordinators and the broker each have events of their own; the log, the metrics and the
journal treat all of them alike.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from quorate.one_line import one_line
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened. Subclasses say what."""

    warns: ClassVar[bool] = False  # whether something is wrong when it happens

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def is_warning(self) -> bool:
        return self.warns

    def line(self) -> str:
        """What happened, in words. Names stand in it as they are: `told` is what people are shown."""
        raise NotImplementedError

    def told(self, untold: int = 0) -> str:
        """Its line for people, whatever clients call themselves; and how many like it were not told."""
        line = one_line(self.line())
        return f"{line} untold={untold}" if untold else line

    def to_json(self) -> dict[str, Any]:
        """Its fields, with ids as text."""
        return {
            each.name: str(value) if isinstance(value := getattr(self, each.name), Uuid) else value
            for each in fields(self)
        }
