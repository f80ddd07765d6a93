"""What the controller has to say to the leaders of partitions, who ask it all the time."""

from __future__ import annotations

from quorate.metadata.event import Event
from quorate.values import dataclass

__all__ = ["AlterPartitionRefused"]


@dataclass(frozen=True, slots=True)
class AlterPartitionRefused(Event):
    """Proposals of a leader that failed the same check; the reason is that of the first of them.

    Most are ordinary: the leader and the controller changed the partition at the same time.
    """

    broker_id: int
    epoch: int
    error: str
    partitions: int
    reason: str

    def line(self) -> str:
        return (
            f"Rejecting AlterPartition request from node {self.broker_id}: {self.reason}"
            f" error={self.error} partitions={self.partitions} epoch={self.epoch}"
        )
