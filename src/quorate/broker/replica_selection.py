"""From which replica a consumer should read: `replica.selector.class`.

Pure. Without a selector everybody reads from the leader. `RackAwareReplicaSelector` sends a consumer that
names its rack to a replica in that rack: the leader if it is there; else, of those in sync whose log has the
wanted offset, the one that is furthest; else the leader. The consumer then asks that follower, which answers
up to its own high watermark.
"""

from __future__ import annotations

from typing import Final

from quorate.broker.leadership import Leadership
from quorate.broker.listeners import endpoint_of
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.image import ClusterImage

__all__ = ["NO_PREFERENCE", "RACK_AWARE", "SELECTORS", "closest_replica"]

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
SELECTORS: Final = ("", LEADER_ONLY, RACK_AWARE)
NO_PREFERENCE: Final = -1  # the leader


def closest_replica(leading: Leadership, image: ClusterImage, listener: str, rack: str, offset: int) -> int:
    """The follower that a consumer of a rack should read an offset from, if there is a better one than us."""
    if not rack or _rack_of(image.brokers.get(leading.broker_id)) == rack:
        return NO_PREFERENCE
    best = None
    for broker_id, follower in leading.followers.items():
        if broker_id not in leading.isr or not follower.log_start_offset <= offset <= follower.end_offset:
            continue
        broker = image.brokers.get(broker_id)
        if _rack_of(broker) != rack or not _is_reachable(broker, listener):
            continue
        # As far as possible, as lately caught up as possible, and else the same one every time.
        worth = follower.end_offset, follower.last_caught_up_ms, broker_id
        best = worth if best is None else max(best, worth)
    return NO_PREFERENCE if best is None else best[2]


def _rack_of(broker: BrokerRegistration | None) -> str | None:
    return None if broker is None else broker.rack


def _is_reachable(broker: BrokerRegistration | None, listener: str) -> bool:
    return broker is not None and not broker.is_fenced and endpoint_of(broker, listener) is not None
