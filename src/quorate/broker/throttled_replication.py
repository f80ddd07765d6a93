"""How much replication may take, while a cluster has other work to do: a throttle for each side.

A leader gives, and a follower takes, only so many bytes in a second of the replicas that their topic lists:

    leader.replication.throttled.rate      leader.replication.throttled.replicas
    follower.replication.throttled.rate    follower.replication.throttled.replicas

The rates are set for a broker while it runs, the lists for a topic: `partition:broker, ...` or `*`. Replicas
that are in sync are never held up, or they would fall out of sync; but what they move counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from quorate.broker.quotas_rates import Rate, Window, span_of_replicas

__all__ = ["FOLLOWER_RATE", "LEADER_RATE", "NO_REPLICAS", "ReplicationThrottle", "throttled_partitions"]

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_LISTED: Final = re.compile(r"(?:^|,)\s*(\d+)\s*:\s*(\d+)\s*(?=,|$)")
UNLIMITED: Final = (1 << 63) - 1  # what Kafka writes for it


class _All(frozenset[int]):
    """Every partition that there is."""

    def __contains__(self, _partition_id: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


NO_REPLICAS: Final[Collection[int]] = frozenset[int]()
ALL_REPLICAS: Final[Collection[int]] = _All()


def throttled_partitions(text: str, broker_id: int) -> Collection[int]:
    """The partitions of a topic whose replica on a broker is listed.

    >>> sorted(throttled_partitions("0:1, 1:2,2:1", 1)), 7 in throttled_partitions("*", 1)
    ([0, 2], True)
    """
    listed = text.strip()
    if not listed:
        return NO_REPLICAS
    if listed == "*":
        return ALL_REPLICAS
    pairs = _LISTED.findall(listed)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationThrottle:
    """One side of a broker."""

    def __init__(self, window: Window | None = None) -> None:
        self.limit: float = UNLIMITED  # bytes in a second
        self.held_up = 0  # how often a replica was left out
        self.total_bytes = 0
        self._rate = Rate(window or Window(), span_of_replicas)

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Something of a listed replica was moved."""
        self.total_bytes += size_bytes
        self._rate.record(size_bytes, now_ms)

    def delay_ms(self, now_ms: float) -> float:
        """For how long nothing may be moved that is not in sync; 0 if it may be now."""
        return 0.0 if self.limit >= UNLIMITED else self._rate.delay_ms(self.limit, now_ms)

    def is_exceeded(self, now_ms: float) -> bool:
        return self.limit < UNLIMITED and self._rate.delay_ms(self.limit, now_ms) > 0

    def per_second(self, now_ms: float) -> float:
        return self._rate.per_second(now_ms)
