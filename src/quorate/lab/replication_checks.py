"""What must hold of partitions and their replicas in every run.

- One broker leads in an epoch.
- The high watermark of a leader never goes back.
- Whoever begins to lead has everything that was committed, as long as one replica that was in sync at the
  time has not crashed since, and is still counted on. A broker crashes when its power fails, it is killed, or
  its disk loses something or is replaced: what it had not flushed may be gone, and it must not lead on the
  rest. A replica that has left the ISR is counted on only while fewer are in it than `min.insync.replicas`:
  these the controller remembers (KIP-966); one that left while enough others were in sync, it does not. If
  all others crash later, the last leader leads again, as in Apache Kafka, whatever the one that left has.
- Nobody commits anything in an old epoch beyond the offset where a later leader began: a producer would be
  told that something is safe which that leader does not have.

What is committed is judged at the leader, the moment its high watermark moves: from then on a producer may be
told. Where every holder of some records has crashed, their loss is excused, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

from quorate.broker.leadership import Leadership
from quorate.broker.partition import Partition
from quorate.lab.outcome import Violation
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord
from quorate.protocol import batch as batches
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Loss", "ReplicationChecks"]


class Loss(NamedTuple):
    """Committed records that nobody can be blamed for: every holder has crashed since."""

    topic: str
    partition_id: int
    begin: int
    end: int


@dataclass(slots=True)
class _Marks:
    """What is known of one partition."""

    epoch: int = -1  # the highest in which somebody led
    start_offset: int = 0  # where that leader began
    end_offset: int = 0  # everything below is committed
    held: dict[int, int] = field(default_factory=dict)
    """Brokers that are counted on and have not crashed since, and up to which offset they have everything."""
    crashed: dict[int, None] = field(default_factory=dict)
    """Brokers that have crashed, and that no leader has taken out of its ISR since."""
    counted_on: frozenset[int] = frozenset()
    """Who is in sync as far as the controller knows, and who left when too few others were."""


class ReplicationChecks:
    """Watches the leaders of all partitions."""

    def __init__(self, when_lost: Callable[[Loss], None], in_sync_min: int) -> None:
        """`in_sync_min` is the `min.insync.replicas` of every topic that matters."""
        self.leaders: dict[tuple[Uuid, int, int], int] = {}  # by topic, partition and epoch
        self.checks = 0
        self.losses: list[Loss] = []
        self._when_lost = when_lost
        self._in_sync_min = in_sync_min
        self._marks: dict[tuple[Uuid, int], _Marks] = {}
        self._high_watermarks: dict[tuple[Uuid, int, int], int] = {}
        self._seen: dict[tuple[tuple[Uuid, int], int], tuple[Leadership, int, tuple[int, ...]] | None] = {}

    def crashed(self, broker_id: int) -> None:
        """A broker may have lost what it had not flushed."""
        for marks in self._marks.values():
            marks.held.pop(broker_id, None)
            marks.crashed[broker_id] = None
        self._seen.clear()

    def committed(self, batch: bytes) -> None:
        """A batch of the metadata log is committed: it may say who is in sync."""
        header = batches.read_header(batch)
        if header.is_control:
            return
        messages = [decode_record(one.value or b"")[0] for one in batches.records(batch, header)]
        registered = {one.broker_id for one in messages if isinstance(one, RegisterBrokerRecord)}
        for one in messages:
            if not isinstance(one, (PartitionRecord, PartitionChangeRecord)):
                continue
            if one.isr is not None:
                self.in_sync(one.topic_id, one.partition_id, frozenset(one.isr))
            if one.eligible_leader_replicas is not None:
                self._taken_for_crashed(one, registered.difference(one.eligible_leader_replicas))

    def _taken_for_crashed(self, at: PartitionRecord | PartitionChangeRecord, brokers: set[int]) -> None:
        """A broker that registers, and does not name the epoch that the controller knows it by, may have lost
        something: it is not counted on any more. That can be wrong, if the request of an earlier life arrived
        late, but nobody can know."""
        marks = self._marks.setdefault((at.topic_id, at.partition_id), _Marks())
        marks.counted_on -= brokers
        for one in brokers:
            marks.held.pop(one, None)
        self._seen.clear()

    def in_sync(self, topic_id: Uuid, partition_id: int, isr: frozenset[int]) -> None:
        """The controller has decided who is in sync; its leader may be dead, and never hear of it."""
        marks = self._marks.setdefault((topic_id, partition_id), _Marks())
        marks.counted_on = isr if len(isr) >= self._in_sync_min else isr | marks.counted_on
        marks.held = {one: offset for one, offset in marks.held.items() if one in marks.counted_on}
        self._seen.clear()

    def look(self, replica: Partition, leading: Leadership) -> bool:
        """After a step of the broker that leads here. Whether anything has changed since the last look."""
        self.checks += 1
        if self._is_as_before(replica, leading):
            return False
        key = replica.key
        place = key.topic_id, key.partition_id
        at = *place, leading.leader_epoch
        leader = self.leaders.setdefault(at, replica.broker_id)
        if leader != replica.broker_id:
            raise Violation(
                f"two brokers lead {key} in epoch {leading.leader_epoch}: {leader} and {replica.broker_id}"
            )
        high_watermark = leading.high_watermark
        last = self._high_watermarks.get(at, 0)
        if high_watermark < last:
            raise Violation(
                f"the high watermark of {key} went back from {last} to {high_watermark}"
                f" in epoch {leading.leader_epoch}"
            )
        self._high_watermarks[at] = high_watermark
        marks = self._marks.setdefault(place, _Marks())
        if leading.leader_epoch > marks.epoch:
            self._begins(replica, leading.leader_epoch, leading.epoch_start_offset, marks)
        elif leading.leader_epoch < marks.epoch and high_watermark > max(marks.start_offset, last):
            raise Violation(
                f"broker {replica.broker_id} committed {key} up to {high_watermark} in epoch"
                f" {leading.leader_epoch}, but epoch {marks.epoch} began at {marks.start_offset}"
            )
        if leading.leader_epoch == marks.epoch:
            marks.end_offset = max(marks.end_offset, high_watermark)
            if marks.crashed:
                marks.crashed = {one: None for one in marks.crashed if one in leading.isr}
            for one in leading.isr:
                if one not in marks.crashed and one in marks.counted_on:
                    marks.held[one] = high_watermark
        self._seen[place, replica.broker_id] = (
            None if marks.crashed else (leading, high_watermark, leading.isr)
        )
        return True

    def _is_as_before(self, replica: Partition, leading: Leadership) -> bool:
        """Nearly every step changes nothing here. Where a crash has to be taken in, all is looked at."""
        key = replica.key
        seen = self._seen.get(((key.topic_id, key.partition_id), replica.broker_id))
        if seen is None:
            return False
        before, high_watermark, isr = seen
        return before is leading and high_watermark == leading.high_watermark and isr is leading.isr

    def _begins(self, replica: Partition, epoch: int, start_offset: int, marks: _Marks) -> None:
        """A leader whose log ends below what is committed is excused only if nobody has it any more."""
        for one, offset in marks.held.items():
            if offset > start_offset:
                raise Violation(
                    f"broker {replica.broker_id} leads {replica.key} in epoch {epoch} from offset"
                    f" {start_offset}, but everything below {offset} was committed, and broker {one} has it"
                )
        if start_offset < marks.end_offset:
            key = replica.key
            loss = Loss(key.topic, key.partition_id, start_offset, marks.end_offset)
            self.losses.append(loss)
            self._when_lost(loss)
        marks.epoch, marks.start_offset = epoch, start_offset
        marks.end_offset = min(marks.end_offset, start_offset)
