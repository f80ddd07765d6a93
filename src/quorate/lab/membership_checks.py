"""What must hold in the committed image after every batch, whatever happens to whom."""

from __future__ import annotations

from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import NO_LEADER, Partition
from quorate.protocol.types import Uuid

__all__ = ["MembershipChecks"]


class MembershipChecks:
    """Compares an image with what it was after the batch before."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._broker_epochs: dict[int, int] = {}
        self._partitions: dict[tuple[Uuid, int], Partition] = {}

    def after_batch(self) -> str | None:
        """The promise that was broken, if one was."""
        return self._check_brokers() or self._check_partitions()

    def _check_brokers(self) -> str | None:
        for broker in self._image.brokers.values():
            last = self._broker_epochs.get(broker.id, -1)
            if broker.epoch < last:
                return f"the epoch of broker {broker.id} went back from {last} to {broker.epoch}"
            if broker.epoch > broker.registration_offset:
                return (
                    f"broker {broker.id} has epoch {broker.epoch}, registered at {broker.registration_offset}"
                )
            self._broker_epochs[broker.id] = broker.epoch
        return None

    def _check_partitions(self) -> str | None:
        brokers = self._image.brokers
        seen = {}
        for topic in self._image.topics:
            for partition_id, partition in self._image.partitions_of(topic.id):
                seen[topic.id, partition_id] = partition
                name = f"{topic.name}-{partition_id}"
                leader = partition.leader
                if leader != NO_LEADER:
                    known = brokers.get(leader)
                    if known is None or known.is_fenced:
                        return f"{name} is led by {leader}, which is fenced"
                    if leader not in partition.isr:
                        return f"{name} is led by {leader}, which is not in sync"
                before = self._partitions.get((topic.id, partition_id))
                problem = None if before is None else _step(before, partition)
                if problem is not None:
                    return f"{name} {problem}"
        self._partitions = seen
        return None


def _step(before: Partition, after: Partition) -> str | None:
    if after.partition_epoch < before.partition_epoch or after.leader_epoch < before.leader_epoch:
        return "went back to an earlier epoch"
    if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        return f"got leader {after.leader} in the epoch of leader {before.leader}"
    if after != before and after.partition_epoch == before.partition_epoch:
        return "changed without a new partition epoch"
    return None
