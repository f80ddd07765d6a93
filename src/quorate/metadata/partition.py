"""One partition as a value, what records make of it, and subsets of its replicas as bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.metadata.errors import ImageError
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = [
    "LOST",
    "MIGRATING",
    "NO_LEADER",
    "UNASSIGNED",
    "Partition",
    "changed_by",
    "chosen",
    "mask_of",
    "partition_from",
]

NO_LEADER: Final = -1

# What stands for a directory that has no id of its own, or none that is known.
MIGRATING: Final = Uuid(bytes(16))
UNASSIGNED: Final = Uuid(bytes(15) + b"\1")
LOST: Final = Uuid(bytes(15) + b"\2")


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, as a value. The subsets of the replicas are in the order of the replicas."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    is_recovering: bool = False

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, broker_id: int) -> Uuid:
        return self.directories[self.replicas.index(broker_id)]


def partition_from(record: PartitionRecord) -> Partition:
    """A partition as its record describes it. Without directories, it is from before there were any."""
    return Partition(
        replicas=tuple(record.replicas),
        directories=tuple(record.directories) or (MIGRATING,) * len(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing=tuple(record.removing_replicas),
        adding=tuple(record.adding_replicas),
        elr=_among(record.replicas, record.eligible_leader_replicas or ()),
        last_known_leader=_last_known(record.last_known_elr),
        is_recovering=record.leader_recovery_state == 1,
    )


def changed_by(before: Partition, record: PartitionChangeRecord) -> Partition:
    """A partition after a change: what the record leaves out stays; a leader that it names, even if it is the
    same one or none, begins a new leader epoch."""
    replicas = before.replicas if record.replicas is None else tuple(record.replicas)
    directories = before.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        # from before there were directories
        directories = (MIGRATING,) * len(replicas)
    removing, adding = record.removing_replicas, record.adding_replicas
    elr, recovering = record.eligible_leader_replicas, record.leader_recovery_state
    return Partition(
        replicas=replicas,
        directories=directories,
        isr=before.isr if record.isr is None else tuple(record.isr),
        leader=before.leader if record.leader == -2 else record.leader,
        leader_epoch=before.leader_epoch + (record.leader != -2),
        partition_epoch=before.partition_epoch + 1,
        removing=before.removing if removing is None else tuple(removing),
        adding=before.adding if adding is None else tuple(adding),
        elr=_among(replicas, before.elr if elr is None else elr),
        last_known_leader=(
            before.last_known_leader if record.last_known_elr is None else _last_known(record.last_known_elr)
        ),
        is_recovering=before.is_recovering if recovering == -1 else recovering == 1,
    )


def _among(replicas: Sequence[int], some: Sequence[int]) -> tuple[int, ...]:
    """Apache's controllers may keep a replica eligible that a reassignment has taken away."""
    return tuple(one for one in some if one in replicas)


def _last_known(members: list[int] | None) -> int:
    if not members:
        return NO_LEADER
    if len(members) > 1:
        raise ImageError(f"more than one last known leader: {members}")
    return members[0]


def mask_of(replicas: Sequence[int], some: Sequence[int]) -> int:
    """The positions of some of the replicas as bits.

    >>> mask_of((7, 5, 9), (9, 7))
    5
    """
    mask = 0
    for one in some:
        if one not in replicas:
            raise ImageError(f"{list(some)} are not all among the replicas {list(replicas)}")
        mask |= 1 << replicas.index(one)
    return mask


def chosen(replicas: Sequence[int], mask: int) -> tuple[int, ...]:
    """The replicas at the positions of the bits.

    >>> chosen((7, 5, 9), 5)
    (7, 9)
    """
    return tuple(one for position, one in enumerate(replicas) if mask >> position & 1)
