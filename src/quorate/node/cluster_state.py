"""The state that a controller replicates: the image of the cluster, folded from what is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorate.metadata.image import ClusterImage
from quorate.protocol import batch as batches
from quorate.protocol.types import Buffer
from quorate.raft.effects import Leadership
from quorate.raft.positions import Position

__all__ = ["ClusterState"]


class ClusterState:
    """A `StateMachine`. The image is strict: a controller must not skip what it would have to act on."""

    def __init__(self) -> None:
        self.image = ClusterImage(is_strict=True)
        self.position = Position(0, 0)  # how far it has got
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = 0
        self.leadership = Leadership(0, None)
        self.when_applied: Callable[[int], None] | None = None
        self.when_led: Callable[[Leadership], None] | None = None

    def load(self, snapshot: Position, data: Sequence[Buffer]) -> None:
        self.image = ClusterImage.load(data, snapshot.offset - 1, is_strict=True)
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

    def lead(self, leadership: Leadership) -> None:
        self.leadership = leadership
        if self.when_led is not None:
            self.when_led(leadership)

    def _tell(self, offset: int) -> None:
        if self.when_applied is not None:
            self.when_applied(offset)
