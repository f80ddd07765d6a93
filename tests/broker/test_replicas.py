"""Replicas of a broker: opened, led, followed and removed as the cluster says, whatever is going on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serving import BROKER_ID, START_MS, Serving, a_batch, in_loop, produce, topic_id, turns

from quorate.broker.control_plane import Changes
from quorate.broker.partition import Partition
from quorate.broker.replicas import Replicas
from quorate.metadata import records as r
from quorate.metadata.image import TOPIC
from quorate.protocol.errors import ErrorCode
from quorate.storage.errors import StorageError

THREE = (1, 2, 3)


class Fetchers:
    """Remembers whom it was told to follow, in which epoch."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def follow(self, partition: Partition) -> None:
        self.told.append(f"follow {partition.leader_id} in {partition.leader_epoch}")

    def forget(self, _partition: Partition) -> None:
        if not self.told or self.told[-1] != "forget":
            self.told.append("forget")


class Broker(Serving):
    """A broker whose fetchers only remember."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self.fetchers = Fetchers()
        given, around = self.broker.settings, self.replicas._around
        self.replicas = self.broker.replicas = Replicas(
            given,
            around,
            self.shelf,
            self.fetchers,
            self.proposals,  # type: ignore[arg-type]
        )

    async def write(self, topic: str, records: int = 1) -> None:
        answer = await self.ask(produce((topic, 0, a_batch(records))), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    async def written(self, topic: str, acks: int = 1) -> ErrorCode:
        answer = await self.ask(produce((topic, 0, a_batch()), acks=acks), 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def remove(self, topic: str) -> None:
        self.apply(r.RemoveTopicRecord(topic_id=topic_id(topic)))
        await self.replicas.apply(Changes(self.image, removed=[(topic_id(topic), 0)]))


def has_role(partition: Partition) -> str:
    return f"{'leads' if partition.leading else 'follows'} {partition.leader_epoch}"


# Roles by epoch


@in_loop
async def test_a_role_comes_with_its_epoch(tmp_path: Path):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=THREE)
    assert has_role(partition) == "leads 0"
    await broker.assign("t", replicas=THREE, leader=2, leader_epoch=1)
    assert has_role(partition) == "follows 1"
    await broker.assign("t", replicas=THREE, leader=3, leader_epoch=2)
    await broker.assign("t", replicas=THREE, leader=3, leader_epoch=2, partition_epoch=3, isr=(1, 3))
    await broker.assign("t", replicas=THREE, leader=1, leader_epoch=3, partition_epoch=4)
    assert has_role(partition) == "leads 3"
    assert broker.fetchers.told == ["forget", "follow 2 in 1", "forget", "follow 3 in 2", "forget"]
    await broker.close()


@in_loop
async def test_the_same_leader_in_another_epoch_is_followed_anew(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.topic("t", replicas=THREE, leader=2)
    await broker.assign("t", replicas=THREE, leader=2, leader_epoch=1)
    assert broker.fetchers.told == ["forget", "follow 2 in 0", "forget", "follow 2 in 1"]
    await broker.close()


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "partition_epoch"),
    [(1, 4, 9), (2, 4, 9), (1, 5, 6), (2, 5, 6)],
)
@in_loop
async def test_what_is_older_is_ignored(tmp_path: Path, leader: int, leader_epoch: int, partition_epoch: int):
    """It may come late: an answer of the controller was quicker than the metadata."""
    broker = Broker(tmp_path)
    for name, now_leader in (("led", 1), ("followed", 2)):
        partition = await broker.topic(name, replicas=THREE, leader=now_leader)
        await broker.assign(name, replicas=THREE, leader=now_leader, leader_epoch=5, partition_epoch=7)
        role, told = has_role(partition), list(broker.fetchers.told)
        await broker.assign(
            name,
            replicas=THREE,
            isr=(1,),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
        assert (has_role(partition), partition.partition_epoch) == (role, 7)
        assert broker.fetchers.told == told
        assert partition.leading is None or partition.leading.isr == THREE
    await broker.close()


@in_loop
async def test_whoever_has_no_leader_waits_for_one(tmp_path: Path):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=THREE)
    await broker.assign("t", replicas=THREE, isr=(1,), leader=-1, leader_epoch=1)
    assert (partition.leading, partition.leader_id) == (None, -1)
    assert await broker.written("t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await broker.close()


@in_loop
async def test_a_leader_begins_its_epoch_where_its_log_ends(tmp_path: Path):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=THREE)
    await broker.write("t", 3)
    await broker.assign("t", replicas=THREE, leader=1, leader_epoch=6)
    assert partition.log.end_offset_of(0) == (0, 3)
    assert partition.leading.epoch_start_offset == 3
    assert partition.high_watermark == 0, "nobody has fetched in this epoch"
    await broker.close()


# What is under way when a role changes


class Gate:
    """Holds up the truncation of a log until it is opened."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached = asyncio.Event()
        self._may_pass = asyncio.Event()
        truncate_to = partition.log.truncate_to

        async def held_up(offset: int) -> int:
            self.is_reached.set()
            await self._may_pass.wait()
            return await truncate_to(offset)

        monkeypatch.setattr(partition.log, "truncate_to", held_up)

    def open(self) -> None:
        self._may_pass.set()


async def cutting(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> tuple[Partition, Gate, asyncio.Task[None]]:
    """A follower with three records, of which one is being cut off."""
    await broker.topic("t", replicas=THREE)
    partition = broker.partition("t")
    for _ in range(3):
        await broker.write("t")
    await broker.assign("t", replicas=THREE, leader=2, leader_epoch=1)
    gate = Gate(partition, monkeypatch)
    cut = asyncio.create_task(partition.truncate_to(2))
    await gate.is_reached.wait()
    return partition, gate, cut


@in_loop
async def test_nobody_leads_with_a_log_that_is_being_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broker = Broker(tmp_path)
    partition, gate, cut = await cutting(broker, monkeypatch)
    elected = asyncio.create_task(broker.assign("t", replicas=THREE, leader=1, leader_epoch=2))
    await turns()
    assert broker.fetchers.told[-1] == "forget", "it is not followed any more"
    assert has_role(partition) == "follows 1"
    assert await broker.written("t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    gate.open()
    await elected
    await cut
    assert (has_role(partition), partition.leading.epoch_start_offset) == ("leads 2", 2)
    assert await broker.written("t") is ErrorCode.NONE
    assert partition.log.end_offset_of(0) == (0, 2)
    assert not broker.shelf.failed
    await broker.close()


@in_loop
async def test_nor_with_one_that_is_about_to_be_cut(tmp_path: Path):
    """The cut has been decided, and nothing of it was done yet. Done later, it would cut a leader's log."""
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=THREE)
    for _ in range(3):
        await broker.write("t")
    await broker.assign("t", replicas=THREE, leader=2, leader_epoch=1)
    cut = asyncio.create_task(partition.truncate_to(2))
    await asyncio.sleep(0)
    await broker.assign("t", replicas=THREE, leader=1, leader_epoch=2)
    assert partition.leading.epoch_start_offset == 2
    assert await broker.written("t") is ErrorCode.NONE
    await cut
    assert partition.log.end_offset == 3
    await broker.close()


@in_loop
async def test_a_cut_is_done_to_its_end_whoever_gives_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The high watermark, too, must not be left beyond the end."""
    broker = Broker(tmp_path)
    partition, gate, cut = await cutting(broker, monkeypatch)
    partition._high_watermark = 3
    cut.cancel()
    await turns()
    gate.open()
    await broker.assign("t", replicas=THREE, leader=1, leader_epoch=2)
    assert (partition.log.end_offset, partition.high_watermark) == (2, 2)
    await broker.close()


@in_loop
async def test_a_replica_is_removed_while_its_log_is_being_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broker = Broker(tmp_path)
    _, gate, cut = await cutting(broker, monkeypatch)
    removed = asyncio.create_task(broker.remove("t"))
    await turns()
    assert broker.replicas.named("t", 0) is None
    gate.open()
    await removed
    await cut
    assert not broker.shelf.failed
    await broker.close()


@in_loop
async def test_errors_of_a_replica_that_is_gone_concern_nobody(tmp_path: Path):
    """It is retained, read or followed while its topic is deleted: its log is closed, its disk is not."""
    broker = Broker(tmp_path, retention_check_ms=1)
    gone = await broker.topic("gone")
    kept = await broker.topic("kept")
    await broker.write("gone")
    retaining = asyncio.create_task(broker.replicas.enforce_retention())
    held_up, may_pass = asyncio.Event(), asyncio.Event()

    async def hold_up() -> None:
        held_up.set()
        await may_pass.wait()
        raise StorageError("gone-0", "the log is closed")

    gone.retain = hold_up
    await held_up.wait()
    await broker.remove("gone")
    may_pass.set()
    await turns()
    retaining.cancel()
    assert not broker.shelf.failed
    assert kept.failure is None
    assert await broker.written("kept") is ErrorCode.NONE
    await broker.close()


# Disks


@in_loop
async def test_a_disk_that_fails_takes_all_its_replicas(tmp_path: Path):
    broker = Broker(tmp_path)
    partitions = [
        await broker.topic(name, replicas=replicas) for name, replicas in (("t", THREE), ("u", (1,)))
    ]
    waiting = asyncio.ensure_future(broker.ask(produce(("t", 0, a_batch()), acks=-1), 9))
    await turns()
    broker.replicas.offline(partitions[1], StorageError("u-0", "it is gone"))
    answer = await waiting
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [one.failure for one in partitions] == ["u-0: it is gone"] * 2
    assert await broker.written("t") is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.shelf.failed == [partitions[1].log]
    await broker.close()


@pytest.mark.parametrize("leader", [1, 2])
@in_loop
async def test_an_offline_replica_takes_no_role(tmp_path: Path, leader: int):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=THREE)
    broker.replicas.offline(partition, StorageError("t-0", "it is gone"))
    told = list(broker.fetchers.told)
    await broker.assign("t", replicas=THREE, leader=leader, leader_epoch=1)
    assert partition.leading is None
    assert broker.fetchers.told == told
    assert await broker.written("t") is ErrorCode.KAFKA_STORAGE_ERROR
    await broker.close()


@in_loop
async def test_a_log_that_cannot_be_opened_keeps_no_other_from_it(tmp_path: Path):
    broker = Broker(tmp_path)
    (tmp_path / "t-0").write_text("this is no directory")
    assert await broker.topic("t") is None
    assert await broker.topic("u") is not None
    await broker.close()


@in_loop
async def test_a_log_that_cannot_be_closed_is_told(tmp_path: Path):
    """Its directory must not count as left in order."""
    broker = Broker(tmp_path)
    bad, good = await broker.topic("bad"), await broker.topic("good")

    async def close() -> None:
        raise StorageError("bad-0", "no room")

    original, bad.log.close = bad.log.close, close
    await broker.replicas.close()
    assert broker.shelf.failed == [bad.log]
    with pytest.raises(StorageError, match="closed"):
        good.log.assign_epoch(9)
    await original()
    broker.shelf.close()


@in_loop
async def test_full_segments_are_synced(tmp_path: Path):
    """Else a long life would mean a long recovery."""
    broker = Broker(tmp_path, high_watermark_checkpoint_ms=1)
    partition = await broker.topic("t", segment_bytes=200)
    for _ in range(4):
        await broker.write("t")
    assert partition.log.flushed_offset == 0
    saving = asyncio.create_task(broker.replicas.save_high_watermarks())
    while partition.log.flushed_offset < partition.log.segments[-1].base_offset:
        await asyncio.sleep(0.001)
    saving.cancel()
    await broker.close()


# Duties


@in_loop
async def test_retention_deletes_what_is_committed_and_too_much(tmp_path: Path):
    broker = Broker(tmp_path, retention_check_ms=1)
    settings = {"segment_bytes": 200, "retention_bytes": 150}
    alone = await broker.topic("alone", **settings)
    waits = await broker.topic("waits", replicas=THREE, **settings)
    for _ in range(9):
        await broker.write("alone")
        await broker.write("waits")
    retaining = asyncio.create_task(broker.replicas.enforce_retention())
    while alone.log.start_offset < 3:
        await asyncio.sleep(0.001)
    retaining.cancel()
    assert waits.log.start_offset == 0, "nothing of it is committed"
    await broker.close()


@in_loop
async def test_producers_that_are_gone_are_forgotten(tmp_path: Path):
    broker = Broker(tmp_path, producer_expiration_check_ms=1)
    partition = await broker.topic("t")
    await broker.ask(produce(("t", 0, a_batch(producer_id=7, producer_epoch=0, base_sequence=0))), 9)
    retaining = asyncio.create_task(broker.replicas.forget_producers())
    await asyncio.sleep(0.01)
    assert len(partition.log.producers) == 1
    broker.wall_ms = START_MS + 2000
    await asyncio.sleep(0.01)
    assert len(partition.log.producers) == 1
    broker.producer_expiration_ms = 1000  # it can be set while the broker runs
    while len(partition.log.producers):
        await asyncio.sleep(0.001)
    retaining.cancel()
    await broker.close()


@in_loop
async def test_followers_that_fall_behind_are_proposed_to_leave(tmp_path: Path):
    broker = Broker(tmp_path, replica_lag_time_max_ms=10)
    partition = await broker.topic("t", replicas=THREE)
    await broker.write("t")
    broker.now_ms = 5.0
    partition.fetched_by(2, 1, 0, 102)
    broker.now_ms = 12.0
    watching = asyncio.create_task(broker.replicas.watch_followers())
    while not broker.proposals.added:
        await asyncio.sleep(0.001)
    watching.cancel()
    (_, proposal), *more = broker.proposals.added
    assert (proposal.isr, more) == ((1, 2), [])
    assert partition.high_watermark == 0, "the one who is to leave still counts"
    partition.isr_answered((1, 2), 1, is_recovering=False)
    assert partition.high_watermark == 1
    await broker.close()


@in_loop
async def test_settings_reach_those_whom_they_concern(tmp_path: Path):
    broker = Broker(tmp_path)
    one, other = await broker.topic("t", replicas=THREE), await broker.topic("u", replicas=THREE)
    assert (one.min_isr, other.min_isr) == (1, 1)
    for name in ("t", "u"):
        broker.apply(
            r.ConfigRecord(resource_type=TOPIC, resource_name=name, name="min.insync.replicas", value="2")
        )
    await broker.replicas.apply(Changes(broker.image, configured=["t"]))
    assert (one.min_isr, other.min_isr) == (2, 1)
    await broker.replicas.apply(Changes(broker.image, is_configured_all=True))
    assert (one.min_isr, other.min_isr) == (2, 2)
    await broker.close()


@pytest.mark.parametrize("names", [("t",), ("t", "u")])
@in_loop
async def test_what_is_removed_is_not_found_any_more(tmp_path: Path, names: Sequence[str]):
    broker = Broker(tmp_path)
    for name in ("t", "u"):
        await broker.topic(name)
    for name in names:
        waiting = broker.partition(name)
        await broker.remove(name)
        await broker.replicas.apply(Changes(broker.image, removed=[(topic_id(name), 0)]))  # once more
        assert broker.replicas.named(name, 0) is None
        assert broker.replicas.of_topic(topic_id(name), 0) is None
        assert waiting.leading is None
    assert len(broker.replicas) == 2 - len(names)
    assert {one.broker_id for one in broker.replicas} <= {BROKER_ID}
    await broker.close()


# Garbage


@in_loop
async def test_nobody_looks_for_garbage_while_many_replicas_change_their_roles(tmp_path, monkeypatch):
    monkeypatch.setattr("quorate.broker.replicas._FEW_MAX", 0)  # so that one is many
    broker = Broker(tmp_path)
    await broker.topic("t", replicas=THREE, leader=2)
    looks = []
    broker.replicas.when_led = lambda _: looks.append(gc.isenabled())
    await broker.assign("t", replicas=THREE, leader_epoch=1)
    assert (looks, gc.isenabled()) == ([False], True)
    await broker.close()


@in_loop
async def test_garbage_is_looked_for_while_a_few_change_theirs(tmp_path):
    broker = Broker(tmp_path)
    await broker.topic("t", replicas=THREE, leader=2)
    looks = []
    broker.replicas.when_led = lambda _: looks.append(gc.isenabled())
    await broker.assign("t", replicas=THREE, leader_epoch=1)
    assert looks == [True]
    await broker.close()


@in_loop
async def test_garbage_is_looked_for_while_logs_are_opened(tmp_path):
    broker = Broker(tmp_path)
    looks = []
    broker.replicas.when_led = lambda _: looks.append(gc.isenabled())
    await broker.topic("t", replicas=THREE)
    assert looks == [True]
    await broker.close()
