"""Which record is the first, or the latest, of a time."""

from __future__ import annotations

from typing import NamedTuple


class TimedOffset(NamedTuple):
    """A record: its time, its offset, the epoch of the leader that appended it (-1 if that is unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
