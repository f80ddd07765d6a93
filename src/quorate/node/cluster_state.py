"""The state that a controller replicates: the image of the cluster, folded from what is committed.

Where no log is read, because an elected controller sends the metadata, the same image is folded from the
records that its requests stand for; an offset then counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorate.metadata.image import ClusterImage
from quorate.protocol import batch as batches
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer
from quorate.raft.effects import Leadership
from quorate.raft.positions import Position

__all__ = ["ClusterState"]


class ClusterState:
    """A `StateMachine`. A controller's image is strict: it must not skip what it would have to act on."""

    def __init__(self, *, is_strict: bool = True) -> None:
        self.image = ClusterImage(is_strict=is_strict)
        self.position = Position(0, 0)  # how far it has got
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = 0
        self.leadership = Leadership(0, None)
        # Who is told of what happens, in this order:
        self.when_applied: list[Callable[[int], None]] = []
        self.when_led: list[Callable[[Leadership], None]] = []

    def load(self, snapshot: Position, data: Sequence[Buffer]) -> None:
        self.image = ClusterImage.load(data, snapshot.offset - 1, is_strict=self.image.is_strict)
        self.position = snapshot
        self.bytes_since_snapshot = 0
        for batch in data:
            self.last_timestamp_ms = max(self.last_timestamp_ms, batches.read_header(batch).max_timestamp)
        self._tell(snapshot.offset)

    def apply(self, batch: Buffer) -> None:
        header = batches.read_header(batch)
        self.image.apply_batch(batch)
        self.position = Position(header.next_offset, header.partition_leader_epoch)
        self.last_timestamp_ms = max(self.last_timestamp_ms, header.max_timestamp)
        self.bytes_since_snapshot += header.size_bytes
        self._tell(header.next_offset)

    def apply_records(self, records: Sequence[Record], timestamp_ms: int) -> None:
        """Records that come from nowhere but a request, in the order in which they are to count."""
        if not records:
            return
        offset = self.position.offset
        self.image.apply_changes(records, offset)
        self.position = Position(offset + len(records), self.position.epoch)
        self.last_timestamp_ms = max(self.last_timestamp_ms, timestamp_ms)
        self._tell(self.position.offset)

    def lead(self, leadership: Leadership) -> None:
        self.leadership = leadership
        for tell in self.when_led:
            tell(leadership)

    def _tell(self, offset: int) -> None:
        for tell in self.when_applied:
            tell(offset)
