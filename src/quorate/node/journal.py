"""The state that is replicated: all metadata records that were committed, in their order.

What they mean is for the controller to say, which will put its image of the cluster in this place. Until then
the records themselves are the state: a snapshot is all of them, without those that say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.metadata.log_format import decode_record
from quorate.metadata.records import NoOpRecord
from quorate.protocol import batch as batches
from quorate.protocol.types import Buffer
from quorate.raft.effects import Leadership
from quorate.raft.positions import Position

__all__ = ["Journal"]


class Journal:
    """A `StateMachine`."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.position = Position(0, 0)  # how far it has got
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = 0
        self.leadership = Leadership(0, None)

    def load(self, snapshot: Position, data: Sequence[Buffer]) -> None:
        self.values = []
        for batch in data:
            self._take(batch)
        self.position = snapshot
        self.bytes_since_snapshot = 0

    def apply(self, batch: Buffer) -> None:
        header = batches.read_header(batch)
        self._take(batch)
        self.position = Position(header.next_offset, header.partition_leader_epoch)
        self.bytes_since_snapshot += header.size_bytes

    def lead(self, leadership: Leadership) -> None:
        self.leadership = leadership

    def _take(self, batch: Buffer) -> None:
        header = batches.read_header(batch)
        self.last_timestamp_ms = max(self.last_timestamp_ms, header.max_timestamp)
        if header.is_control:
            return
        for record in batches.records(batch, header):
            value = record.value or b""
            if not isinstance(decode_record(value)[0], NoOpRecord):
                self.values.append(value)
