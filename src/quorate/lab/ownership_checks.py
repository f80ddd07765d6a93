"""What must hold of the owners of partitions in a group, by what its coordinators have written and committed.

- Consumer groups: at no point of the log do two members have the same partition, where a member that was told
  to give a partition back has it until the log says that it did, or that it is a member no more.
- Classic groups: of the assignments of one generation, no two have the same partition, and the generation of
  a group never goes back.

A coordinator answers only when what it answers is committed, so this is judged before any member hears of it.
The records are read from the leader of each partition of `__consumer_offsets` as its high watermark moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import singledispatchmethod
from typing import Final

from quorate.broker.partition import Partition
from quorate.coordinator import log_format
from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from quorate.lab.outcome import Violation
from quorate.protocol import batch as batches
from quorate.protocol.codec import decode
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer, Uuid
from quorate.storage.errors import StorageError
from quorate.values import dataclass

__all__ = ["OwnershipChecks"]

READ_BYTES: Final = 1 << 20

_Owned = tuple[Uuid | str, int]  # a topic and the number of a partition


@dataclass(slots=True)
class _Member:
    """One member of a consumer group."""

    since_offset: int  # where the log first speaks of it, so that who comes back can be told from who stayed
    holds: frozenset[_Owned] = frozenset()


@dataclass(slots=True)
class _Log:
    """What one partition of the log has said so far."""

    epoch: int = -1  # of the leader that was read
    end_offset: int = 0
    members: dict[str, dict[str, _Member]] = field(default_factory=dict)  # by group and member
    generations: dict[str, int] = field(default_factory=dict)


class OwnershipChecks:
    """Follows the committed log of the group coordinators."""

    def __init__(self) -> None:
        self.checks = 0
        self._logs: dict[int, _Log] = {}

    def look(self, replica: Partition) -> None:
        """After a step of the broker of this replica: reads what is committed and was not read yet."""
        leading = replica.leading
        if leading is None:
            return
        log = self._logs.setdefault(replica.key.partition_id, _Log())
        if leading.leader_epoch < log.epoch:
            return  # one that does not know yet that it was replaced
        log.epoch = leading.leader_epoch
        while log.end_offset < leading.high_watermark:
            try:
                data = replica.log.read(log.end_offset, READ_BYTES, before_offset=leading.high_watermark)
            except StorageError:
                return  # its disk has failed, and another will lead
            if not data:
                return
            for header in batches.batches(data):
                if not header.is_control:
                    self._read(replica.key.partition_id, data, header)
                log.end_offset = header.next_offset

    def lost(self, partition_id: int) -> None:
        """The end of a log is gone with every broker that had it: what is left is read anew."""
        self._logs[partition_id] = _Log(epoch=self._logs.get(partition_id, _Log()).epoch)

    def member_since(self, group: str, member_id: str) -> int | None:
        """Since which offset somebody is a member of a consumer group without a break; None if it is not."""
        for log in self._logs.values():
            if group in log.members and member_id in log.members[group]:
                return log.members[group][member_id].since_offset
        return None

    def applied(self, partition_id: int, offset: int, key: Record, value: Record | None) -> None:
        """A record is committed at an offset."""
        self._take(key, value, self._logs.setdefault(partition_id, _Log()), offset)

    def _read(self, partition_id: int, data: memoryview, header: batches.BatchHeader) -> None:
        end_offset = self._logs[partition_id].end_offset
        for record in batches.records(data, header):
            if record.offset >= end_offset and record.key is not None:
                known = log_format.decode(record.key, record.value)
                if known is not None:
                    self.applied(partition_id, record.offset, known.key, known.value)

    @singledispatchmethod
    def _take(self, key: Record, value: Record | None, log: _Log, offset: int) -> None:
        """Of most records nothing is to be known here."""

    @_take.register
    def _(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: Record | None, log: _Log, offset: int
    ) -> None:
        members = log.members.setdefault(key.group_id, {})
        if value is None:
            members.pop(key.member_id, None)
            return
        assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        self.checks += 1
        member = members.setdefault(key.member_id, _Member(offset))
        member.holds = frozenset(
            (one.topic_id, partition)
            for one in (*value.assigned_partitions, *value.partitions_pending_revocation)
            for partition in one.partitions
        )
        for other_id, other in members.items():
            both = member.holds & other.holds
            if both and other is not member:
                _, partition = min(both, key=str)
                raise Violation(
                    f"the log of group {key.group_id} gives partition {partition} to {key.member_id},"
                    f" at offset {offset}, while {other_id} has not given it back"
                )

    @_take.register
    def _(self, key: ConsumerGroupMemberMetadataKey, value: Record | None, log: _Log, offset: int) -> None:
        members = log.members.setdefault(key.group_id, {})
        if value is None:
            members.pop(key.member_id, None)
        else:
            members.setdefault(key.member_id, _Member(offset))

    @_take.register
    def _(self, key: ConsumerGroupMetadataKey, value: Record | None, log: _Log, _offset: int) -> None:
        if value is None:
            log.members.pop(key.group_id, None)

    @_take.register
    def _(self, key: GroupMetadataKey, value: Record | None, log: _Log, offset: int) -> None:
        if value is None:
            log.generations.pop(key.group, None)
            return
        assert isinstance(value, GroupMetadataValue)
        self.checks += 1
        highest = log.generations.get(key.group, 0)
        if value.generation < highest:
            raise Violation(
                f"the log of group {key.group} goes back from generation {highest} to {value.generation}"
            )
        log.generations[key.group] = value.generation
        owners: dict[_Owned, str] = {}
        for member in value.members:
            for at in _assigned(member.assignment):
                owner = owners.setdefault(at, member.member_id)
                if owner != member.member_id:
                    raise Violation(
                        f"the log of group {key.group} gives {at[0]}-{at[1]} to {owner} and to"
                        f" {member.member_id} in generation {value.generation}, at offset {offset}"
                    )


def _assigned(assignment: Buffer) -> Iterable[_Owned]:
    """What the leader of a classic group gave to a member; nothing until it has."""
    if not assignment:
        return ()
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.__versions__[-1])
    found = decode(ConsumerProtocolAssignment, version, memoryview(assignment)[2:])
    return [(one.topic, partition) for one in found.assigned_partitions for partition in one.partitions]
