"""Words for the costliest requests (`costliest`) that a node does not refuse at first sight."""

import struct
from collections.abc import Mapping
from typing import Final

from costliest import Words

__all__ = ["Sensible"]

# Other numbers are 0, and other texts are the name of a topic.
_NUMBERS: Final[Mapping[str, int]] = {
    "acks": 1,
    "committed_offset": 1,
    "count": 3,
    "current_leader_epoch": -1,
    "endpoint_type": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "leader_epoch": -1,
    "max_bytes": 1 << 20,
    "num_partitions": 1,
    "rebalance_timeout_ms": 1000,
    "replica_id": -1,
    "replication_factor": 1,
    "request_timeout_ms": 10_000,
    "resource_type": 2,
    "response_partition_limit": 2000,
    "session_epoch": -1,
    "session_timeout_ms": 6000,
    "timeout_ms": 10_000,
    "timestamp": -1,
    "upgrade_type": 1,
    "validate_only": 1,  # ten thousand topics that are made cost later
}
_TEXTS: Final[Mapping[str, bytes | None]] = {
    "group_id": b"g",
    "member_id": b"",
    "group_instance_id": None,
    "protocol_type": b"consumer",
    "subscribed_topic_regex": None,
    "transactional_id": None,
}


class Sensible(Words):
    """`topic` is one that there is. Items are called by its name, or each by a name of its own."""

    def __init__(self, topic: str, topic_id: bytes, *, are_distinct: bool) -> None:
        self._topic, self._topic_id = topic.encode(), topic_id
        self.are_distinct = are_distinct

    def text(self, name: str) -> bytes | None:
        if name in _TEXTS:
            return _TEXTS[name]
        return b"%x" % self.number if self.are_distinct else self._topic

    def fixed(self, name: str, code: str) -> bytes:
        if code == "16s":
            return self.number.to_bytes(16, "big") if self.are_distinct else self._topic_id
        default = self.number if self.are_distinct and code in "iIq" else name.startswith("include_")
        return struct.pack(">" + code, _NUMBERS.get(name, default))
