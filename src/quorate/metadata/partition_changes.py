"""Changes of many partitions as columns: what a fencing comes to, decided, encoded and applied in bulk.

It stands for one PartitionChangeRecord per row, of those that only say who is in sync, who leads, who may
lead and whether the leader recovers. Changes of replicas and directories are rare, and are single records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from numpy.typing import NDArray

from quorate.metadata.partitions import Rows, chosen
from quorate.metadata.records import PartitionChangeRecord
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["NO_CHANGE", "PartitionChanges"]

Column = NDArray[Any]

NO_CHANGE: Final = -2  # of a leader or a last known leader
UNCHANGED_STATE: Final = -1  # of the recovery state


@dataclass(frozen=True, slots=True, eq=False)
class PartitionChanges:
    """Changes of partitions of one block, each of which appears once. All columns are as long as `rows`.

    `isr` and `elr` are bits over positions of the replicas and count only where `has_isr` and `has_elr` are
    true; `leader` and `last_known_leader` are ids, -1 for none, `NO_CHANGE` for no change; `recovery_state`
    is 1, 0, or -1 for no change. `topic_ids` (V16), `partition_ids` and `replicas` are those of the rows when
    the changes were decided: with them they can be encoded without the table.
    """

    rows: Rows
    topic_ids: Column
    partition_ids: Column
    replicas: Column
    has_isr: Column
    isr: Column
    leader: Column
    has_elr: Column
    elr: Column
    last_known_leader: Column
    recovery_state: Column

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> Iterator[PartitionChangeRecord]:
        """The same as records, one by one."""
        for at in range(len(self)):
            replicas = [one for one in self.replicas[at].tolist() if one >= 0]
            last_known = int(self.last_known_leader[at])
            yield PartitionChangeRecord(
                partition_id=int(self.partition_ids[at]),
                topic_id=Uuid(self.topic_ids[at].tobytes()),
                isr=list(chosen(replicas, int(self.isr[at]))) if self.has_isr[at] else None,
                leader=int(self.leader[at]),
                leader_recovery_state=int(self.recovery_state[at]),
                eligible_leader_replicas=(
                    list(chosen(replicas, int(self.elr[at]))) if self.has_elr[at] else None
                ),
                last_known_elr=(None if last_known == NO_CHANGE else [] if last_known < 0 else [last_known]),
            )
