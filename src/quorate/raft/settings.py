"""What a replica is given from outside: its timeouts, the time, and chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from quorate.values import dataclass

__all__ = ["Chance", "Now", "QuorumSettings"]

_T = TypeVar("_T")


class Chance(Protocol):
    """Where random numbers come from: a `random.Random`, seeded by whoever runs this."""

    def randrange(self, stop: int, /) -> int: ...
    def choice(self, options: Sequence[_T], /) -> _T: ...


class Now(NamedTuple):
    """Deadlines use the monotonic time; the wall clock only gets into records and reports."""

    ms: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """The timeouts under `controller.quorum.`, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    is_flushed_before_fetch: bool = True  # a broker's fetch promises nothing, and need not wait

    @property
    def check_quorum_ms(self) -> float:
        """How long a leader goes on without hearing from a majority."""
        return 1.5 * self.fetch_timeout_ms
