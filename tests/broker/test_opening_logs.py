"""A broker opens and closes its logs a few at a time in each directory, and says how far it has come."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from serving import Serving, Shelf, in_loop, topic_id, turns

from quorate.broker.control_plane import Assignment, Changes
from quorate.broker.partition import TopicPartition
from quorate.metadata import records as r
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog


class GatedShelf(Shelf):
    """Even partitions are on one disk and odd ones on another; logs open when the test says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.gate = asyncio.Semaphore(0)
        self.opening: list[int] = []  # that wait
        self.bad: set[int] = set()

    def path_holding(self, key: TopicPartition) -> str:
        return f"disk-{key.partition_id % 2}"

    async def open_log(self, key: TopicPartition, config: Any, directory_id: Uuid) -> PartitionLog:
        self.opening.append(key.partition_id)
        await self.gate.acquire()
        self.opening.remove(key.partition_id)
        if key.partition_id in self.bad:
            raise StorageError(str(key), "it is damaged")
        return await super().open_log(key, config, directory_id)


class Broker(Serving):
    def __init__(self, directory: Path, partitions: int) -> None:
        super().__init__(directory)
        self.gated = self.shelf = self.replicas._shelf = GatedShelf(directory)  # type: ignore[assignment]
        self.apply(r.TopicRecord(name="t", topic_id=topic_id("t")))
        for partition_id in range(partitions):
            self.apply(
                r.PartitionRecord(
                    partition_id=partition_id,
                    topic_id=topic_id("t"),
                    replicas=[1],
                    isr=[1],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )

    def begin(self) -> asyncio.Task[None]:  # type: ignore[override]
        assigned = [
            Assignment(TopicPartition("t", topic_id("t"), partition_id), state)
            for partition_id, state in self.image.partitions_of(topic_id("t"))
        ]
        return asyncio.create_task(self.replicas.apply(Changes(self.image, assigned)))


@in_loop
async def test_two_logs_of_each_directory_are_opened_at_a_time(tmp_path: Path):
    broker = Broker(tmp_path, 8)
    applying = broker.begin()
    await turns()
    assert sorted(broker.gated.opening) == [0, 1, 2, 3]
    broker.gated.gate.release()
    while len(broker.replicas) < 1:
        await asyncio.sleep(0)
    await turns()
    assert broker.partition("t", 0).leading is not None, "it leads before the others are opened"
    assert sorted(broker.gated.opening) == [1, 2, 3, 4]
    for _ in range(7):
        broker.gated.gate.release()
    await applying
    assert len(broker.replicas) == 8
    await broker.close()


@in_loop
async def test_one_log_that_cannot_be_opened_leaves_the_others(tmp_path: Path):
    broker = Broker(tmp_path, 6)
    broker.gated.bad = {2}
    for _ in range(6):
        broker.gated.gate.release()
    await broker.begin()
    assert [one for one in range(6) if broker.replicas.named("t", one) is None] == [2]
    await broker.close()


@in_loop
async def test_logs_are_closed_several_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broker = Broker(tmp_path, 6)
    for _ in range(6):
        broker.gated.gate.release()
    await broker.begin()
    closing, gate = 0, asyncio.Semaphore(0)
    close = PartitionLog.close

    async def gated_close(log: PartitionLog) -> None:
        nonlocal closing
        closing += 1
        await gate.acquire()
        await close(log)

    monkeypatch.setattr(PartitionLog, "close", gated_close)
    ending = asyncio.create_task(broker.replicas.close())
    await turns(10)
    assert closing == 2, "they are in one directory here"
    for _ in range(6):
        gate.release()
    await ending
    assert closing == 6
    broker.shelf.close()


def test_who_opens_many_logs_says_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    @in_loop
    async def scenario() -> None:
        broker = Broker(tmp_path, 8)
        applying = broker.begin()
        await turns()
        with caplog.at_level(logging.INFO, "quorate.broker.1"):
            for count in range(1, 9):
                broker.now_ms += 2000
                broker.gated.gate.release()
                while len(broker.replicas) < count:
                    await asyncio.sleep(0)
                await turns()
        await applying
        await broker.close()

    scenario()
    said = [one.message for one in caplog.records if one.message.startswith("opening")]
    assert said == ["opening logs done=3 of=8", "opening logs done=6 of=8"]


@in_loop
async def test_too_many_open_files_take_nothing_offline(tmp_path: Path):
    broker = Serving(tmp_path)
    partition = await broker.topic("t")
    assert partition is not None
    error = StorageError("t-0", "too many open files")
    error.__cause__ = OSError(errno.EMFILE, "too many open files")
    broker.replicas.offline(partition, error)
    assert (partition.failure, broker.shelf.failed) == (None, [])
    await broker.close()
