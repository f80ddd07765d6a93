"""A cluster's log told step by step: who registered, who was fenced, which partitions moved, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from histories import encoded
from quorate.metadata import records as r
from quorate.protocol.batch import ControlType, build, build_control
from quorate.protocol.batch import Record as Stored
from quorate.protocol.codec import encode
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid
from quorate.raft.records import LeaderChangeMessage
from quorate.spark.metadata_columns import record_batch

NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC


def clock(seconds: float) -> datetime:
    """So many seconds after noon."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=NOON_MS + round(seconds * 1000))


class Story:
    """Times are seconds after noon, and what one call writes is one batch."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.tables: list[pa.RecordBatch] = []
        self.next_offset = 0
        self.epoch = 0
        self.broker_epochs: dict[int, int] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.replicas: dict[tuple[str, int], list[int]] = {}

    def elect(self, seconds: float, controller_id: int) -> None:
        self.epoch += 1
        message = LeaderChangeMessage(version=0, leader_id=controller_id, voters=[], granting_voters=[])
        batch = build_control(
            [(ControlType.LEADER_CHANGE, bytes(encode(message, 0)))],
            timestamp=self._ms(seconds),
            base_offset=self.next_offset,
            leader_epoch=self.epoch,
        )
        self.tables.append(record_batch(self.cluster_id, batch))
        self.next_offset += 1

    def write(self, seconds: float, *records: Record) -> int:
        """The offset of the last one."""
        stored = [
            Stored(self.next_offset + at, self._ms(seconds), None, encoded(record))
            for at, record in enumerate(records)
        ]
        batch = build(stored, base_offset=self.next_offset, leader_epoch=self.epoch)
        self.tables.append(record_batch(self.cluster_id, batch))
        self.next_offset += len(records)
        return self.next_offset - 1

    def register(self, seconds: float, broker_id: int, *before: Record) -> int:
        epoch = self.next_offset + len(before)
        self.broker_epochs[broker_id] = epoch
        endpoint = r.RegisterBrokerRecord.BrokerEndpoint(
            name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0
        )
        record = r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=Uuid(epoch.to_bytes(16)),
            broker_epoch=epoch,
            end_points=[endpoint],
            features=[],
            rack=None,
            fenced=True,
        )
        return self.write(seconds, *before, record)

    def unfence(self, seconds: float, broker_id: int, *after: Record) -> int:
        return self.write(seconds, self._change(broker_id, fenced=-1), *after)

    def fence(self, seconds: float, broker_id: int, *before: Record) -> int:
        return self.write(seconds, *before, self._change(broker_id, fenced=1))

    def begin_shutdown(self, seconds: float, broker_id: int, *after: Record) -> int:
        return self.write(seconds, self._change(broker_id, in_controlled_shutdown=1), *after)

    def unregister(self, seconds: float, broker_id: int) -> int:
        epoch = self.broker_epochs[broker_id]
        return self.write(seconds, r.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))

    def create(self, seconds: float, name: str, *replicas: Sequence[int], **configs: str) -> None:
        topic_id = self.topic_ids[name] = Uuid(f"topic {name} {self.next_offset}".encode().ljust(16)[:16])
        partitions = [
            r.PartitionRecord(
                partition_id=at,
                topic_id=topic_id,
                replicas=list(these),
                isr=list(these),
                removing_replicas=[],
                adding_replicas=[],
                leader=these[0],
                leader_epoch=0,
                partition_epoch=0,
            )
            for at, these in enumerate(replicas)
        ]
        settings = [self.set(name, key.replace("_", "."), value) for key, value in configs.items()]
        self.write(seconds, r.TopicRecord(name=name, topic_id=topic_id), *settings, *partitions)

    def remove(self, seconds: float, name: str) -> None:
        self.write(seconds, r.RemoveTopicRecord(topic_id=self.topic_ids[name]))

    def set(self, name: str, key: str, value: str | None) -> r.ConfigRecord:
        """A record that sets a config of a topic; of the cluster if the name is empty."""
        kind = 2 if name else 4
        return r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)

    def change(
        self, name: str, partition: int, leader: int = -2, isr: Sequence[int] | None = None
    ) -> r.PartitionChangeRecord:
        return r.PartitionChangeRecord(
            partition_id=partition,
            topic_id=self.topic_ids[name],
            leader=leader,
            isr=None if isr is None else list(isr),
        )

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.tables)

    def _change(self, broker_id: int, **what: int) -> r.BrokerRegistrationChangeRecord:
        epoch = self.broker_epochs[broker_id]
        return r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **what)

    def _ms(self, seconds: float) -> int:
        return NOON_MS + round(seconds * 1000)


def bad_day() -> Story:
    """Three brokers. Broker 2 is fenced and comes back; the controller changes; then all are restarted in
    turn: broker 1 by the book, broker 2 too early and still leading, broker 3 by killing it."""
    story = Story("bad-day")
    story.elect(0, 3000)
    for broker_id in (1, 2, 3):
        story.register(0, broker_id)
        story.unfence(1, broker_id)
    story.create(2, "orders", [1, 2, 3], [2, 3, 1], [3, 1, 2], min_insync_replicas="2")
    story.create(3, "solo", [2])
    story.fence(
        100,
        2,
        story.change("orders", 0, isr=[1, 3]),
        story.change("orders", 1, leader=3, isr=[3, 1]),
        story.change("orders", 2, isr=[3, 1]),
        story.change("solo", 0, leader=-1),
    )
    story.unfence(110, 2, story.change("solo", 0, leader=2))
    story.write(112, *[story.change("orders", at, isr=[1, 2, 3]) for at in range(3)])
    story.elect(200, 3001)
    # by the book
    story.begin_shutdown(
        300,
        1,
        story.change("orders", 0, leader=2, isr=[2, 3]),
        story.change("orders", 1, isr=[2, 3]),
        story.change("orders", 2, isr=[2, 3]),
    )
    story.fence(302, 1)
    story.register(305, 1)
    story.unfence(306, 1)
    story.write(308, *[story.change("orders", at, isr=[1, 2, 3]) for at in range(3)])
    # still leads what nobody else has
    story.begin_shutdown(
        310,
        2,
        story.change("orders", 0, leader=3, isr=[1, 3]),
        story.change("orders", 1, isr=[1, 3]),
        story.change("orders", 2, isr=[1, 3]),
    )
    story.fence(312, 2, story.change("solo", 0, leader=-1))
    story.register(315, 2)
    story.unfence(316, 2, story.change("solo", 0, leader=2))
    # killed, and back before anybody noticed
    story.register(
        320,
        3,
        *[story.change("orders", at, leader=1, isr=[1]) for at in range(3)],
    )
    story.unfence(322, 3)
    story.write(325, *[story.change("orders", at, isr=[1, 2, 3]) for at in range(3)])
    story.write(400, r.NoOpRecord())
    return story


def flappy_day() -> Story:
    """Broker 5 is fenced three times in half an hour, broker 6 goes for good, and a topic is deleted."""
    story = Story("flappy-day")
    story.elect(0, 3000)
    for broker_id in (5, 6):
        story.register(0, broker_id)
        story.unfence(1, broker_id)
    story.create(2, "short", [5, 6])
    for minutes in (10, 20, 30):
        story.fence(minutes * 60, 5, story.change("short", 0, leader=6, isr=[6]))
        story.unfence(minutes * 60 + 15, 5)
        story.write(minutes * 60 + 20, story.change("short", 0, leader=5, isr=[5, 6]))
    story.remove(2000, "short")
    story.unregister(2400, 6)
    return story
