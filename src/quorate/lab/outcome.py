"""What a simulated run comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quorate.values import dataclass

__all__ = ["Outcome", "Violation", "innermost"]


class Violation(AssertionError):  # noqa: N818  # it is an event, not an error of its raiser
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to. `violation` is None if every promise was kept."""

    seed: int
    digest: str
    steps: int
    acknowledged: int
    elections: int
    violation: str | None
    trace: tuple[str, ...] = ()
    simulated_ns: int = 0
    checks: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)  # how many of each kind
    excused: int = 0  # acknowledged records whose every holder has crashed since


def innermost(error: BaseException | None) -> BaseException | None:
    """What is at the bottom of groups of exceptions, the first of each."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
