"""The cleaner of a broker: what it chooses, what it gives up, what it sets aside, and what it remembers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from serving import START_MS, Serving, in_loop

from quorate.broker.cleaner import ATTEMPTS_MAX, Cleaner
from quorate.broker.cleaner_parts import (
    CleanerSettings,
    CompactionFailedError,
    Compactor,
    CompactorLostError,
    Swap,
)
from quorate.broker.partition import Partition
from quorate.node.cleaner_workers import LocalCompactor
from quorate.node.host import Host
from quorate.protocol.batch import Record, batches, build, records
from quorate.storage.compaction import Compacted, CompactionTask
from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles
from quorate.storage.partition_log import PartitionLog

COMPACTED = {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": "0.5"}


class Offsets:
    """What is remembered, without a disk."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def of(self, log: PartitionLog) -> int | None:
        return self.found.get(log.directory)

    async def store(self, log: PartitionLog, offset: int) -> None:
        self.found[log.directory] = offset

    async def forget(self, log: PartitionLog) -> None:
        self.found.pop(log.directory, None)

    def carry_over(self, log: PartitionLog, offset: int) -> None:
        self.found[log.directory] = offset


class Gated:
    """A compactor that waits before it works, and can be made to fail."""

    def __init__(self, inner: Compactor) -> None:
        self._inner = inner
        self.may_work = asyncio.Event()
        self.may_work.set()
        self.tasks: list[CompactionTask] = []
        self.failures: list[Exception] = []
        self.before_swap: Callable[[], Any] = lambda: None
        self.closed = 0

    async def run(self, task: CompactionTask, swap: Swap, bytes_per_second: float) -> Compacted:
        self.tasks.append(task)
        await self.may_work.wait()
        if self.failures:
            raise self.failures.pop(0)

        async def watched(group: Any) -> None:
            found = self.before_swap()
            if found is not None:
                await found
            await swap(group)

        return await self._inner.run(task, watched, bytes_per_second)

    async def close(self) -> None:
        self.closed += 1


class Scene:
    """A broker and its cleaner."""

    def __init__(self, directory: Path) -> None:
        self.serving = Serving(directory)
        self.offsets = Offsets()
        self.settings = CleanerSettings(backoff_ms=5)
        self.failed: list[Partition] = []
        host = Host("1", RealFiles(), Random(1), lambda: START_MS, None)
        self.compactor = Gated(LocalCompactor(host))
        self.cleaner = Cleaner(
            1,
            self.serving.replicas,
            lambda: self.settings,
            lambda: self.compactor,
            self.offsets,
            now_ms=lambda: self.serving.now_ms,
            wall_ms=lambda: self.serving.wall_ms,
            when_disk_fails=lambda partition, _: self.failed.append(partition),
        )
        self.serving.replicas.before_removal.append(self.cleaner.forget)

    async def topic(self, name: str, **configs: Any) -> Partition:
        partition = await self.serving.topic(name, **{**COMPACTED, **configs})
        assert partition is not None
        return partition

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def a_scene(directory: Path) -> AsyncIterator[Scene]:
    scene = Scene(directory)
    running = asyncio.create_task(scene.cleaner.run())
    try:
        yield scene
    finally:
        running.cancel()
        await asyncio.wait([running])
        await scene.serving.close()


def fill(
    partition: Partition, count: int, *, keys: int = 5, timestamp: int = START_MS, value: bytes = b"x" * 50
) -> None:
    for number in range(count):
        key = b"k%d" % (number % keys)
        data = build([Record(0, timestamp, key, value + b"%d" % number)])
        partition.append(memoryview(data))


def kept(partition: Partition) -> dict[bytes | None, bytes | None]:
    found = {}
    for record in all_of(partition):
        found[record.key] = record.value
    return found


def all_of(partition: Partition) -> list[Record]:
    log, found = partition.log, []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20)
        for header in batches(data):
            found += records(data, header)
            offset = header.next_offset
    return found


@in_loop
async def test_a_log_is_compacted_and_that_is_remembered(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        fill(partition, 200)
        before, size_bytes = kept(partition), partition.log.size_bytes
        await scene.until(lambda: scene.cleaner.stats.runs)
        assert kept(partition) == before
        assert partition.log.size_bytes < size_bytes / 4
        active = partition.log.segments[-1].base_offset
        assert scene.offsets.found == {partition.log.directory: active}
        await scene.until(lambda: scene.cleaner.stats.dirty_ratio_max == 0)
        assert scene.cleaner.stats.runs == 1  # nothing is left to do
        stats = scene.cleaner.stats
        assert 0 < stats.records_kept < stats.records_read
        assert stats.last_run_ms == START_MS


@in_loop
async def test_topics_that_do_not_want_it_are_left_alone(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        other = await scene.topic("other", cleanup_policy="delete")
        fill(other, 200)
        fill(partition := await scene.topic("t", cleanup_policy="compact,delete"), 200)
        await scene.until(lambda: scene.cleaner.stats.runs)
        assert [one.directory for one in scene.compactor.tasks] == [partition.log.directory]
        assert len(all_of(other)) == 200


@in_loop
async def test_the_dirtiest_log_comes_first(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.compactor.may_work.clear()
        names = {}
        for name, clean in (("a", 100), ("b", 20), ("c", 60)):
            partition = names[name] = await scene.topic(name)
            scene.offsets.found[partition.log.directory] = clean
            await scene.cleaner.pause(partition)
            fill(partition, 220)
        for partition in names.values():
            scene.cleaner.resume(partition)
        scene.compactor.may_work.set()
        await scene.until(lambda: scene.cleaner.stats.runs == 3)
        assert [one.directory[-3] for one in scene.compactor.tasks] == ["b", "c", "a"]


@in_loop
async def test_what_is_not_committed_is_not_compacted(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t", replicas=(1, 2), isr=(1, 2))
        fill(partition, 200)
        await scene.until(lambda: scene.cleaner.stats.last_look_ms)
        assert partition.high_watermark == 0
        assert scene.compactor.tasks == []


@in_loop
async def test_pausing_gives_up_what_is_under_way(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        scene.compactor.may_work.clear()
        fill(partition, 200)
        await scene.until(lambda: scene.compactor.tasks)
        await scene.cleaner.pause(partition)
        await scene.cleaner.pause(partition)
        assert scene.cleaner.stats.given_up == 1
        scene.compactor.may_work.set()
        scene.cleaner.resume(partition)
        looked = scene.serving.wall_ms = START_MS + 1
        await scene.until(lambda: scene.cleaner.stats.last_look_ms == looked)
        assert len(scene.compactor.tasks) == 1  # it was paused twice
        scene.cleaner.resume(partition)
        await scene.until(lambda: scene.cleaner.stats.runs)
        assert not list(Path(partition.log.directory).glob("*.cleaned"))


@in_loop
async def test_a_log_that_is_cut_meanwhile_is_not_harmed(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        fill(partition, 200)
        before = all_of(partition)
        cut: list[int] = []

        async def cut_once() -> None:
            if not cut:
                cut.append(await partition.log.truncate_to(150))

        scene.compactor.before_swap = cut_once
        await scene.until(lambda: scene.cleaner.stats.given_up)
        assert scene.offsets.found == {}
        assert all_of(partition) == before[:150]
        await scene.until(lambda: scene.cleaner.stats.runs)
        assert kept(partition) == {one.key: one.value for one in before[:150]}


@in_loop
async def test_a_replica_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        fill(partition, 200)
        await scene.until(lambda: scene.cleaner.stats.runs)
        scene.compactor.may_work.clear()
        fill(partition, 400)
        await scene.until(lambda: len(scene.compactor.tasks) == 2)
        from quorate.broker.control_plane import Changes

        await scene.serving.replicas.apply(
            Changes(scene.serving.image, [], removed=[(partition.key.topic_id, 0)])
        )
        assert scene.offsets.found == {}
        assert scene.cleaner.stats.given_up == 1
        assert scene.failed == []


@in_loop
async def test_a_damaged_log_is_set_aside_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with a_scene(tmp_path) as scene:
        scene.compactor.may_work.clear()
        bad, good = await scene.topic("bad"), await scene.topic("good")
        fill(bad, 300)
        fill(good, 200)
        path = Path(bad.log.directory) / f"{0:020d}.log"
        raw = bytearray(path.read_bytes())
        raw[100] ^= 1
        path.write_bytes(raw)
        scene.compactor.may_work.set()
        await scene.until(lambda: scene.cleaner.stats.runs and scene.cleaner.uncleanable)
        assert list(scene.cleaner.uncleanable) == [bad.key]
        assert [one.message for one in caplog.records if "uncleanable" in one.message] == [
            f"uncleanable partition=bad-0 reason={path}: position 0: batch at offset 0:"
            " its checksum does not match its bytes"
        ]
        assert len(all_of(bad)) == 300
        assert bad.failure is None


@in_loop
async def test_what_may_pass_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        full = CompactionFailedError("No space left on device", is_damaged=False)
        scene.compactor.failures = [full, CompactorLostError("process 7 ended with -9")]
        fill(partition, 200)
        await scene.until(lambda: scene.cleaner.stats.runs)
        assert scene.cleaner.stats.failures == 2
        assert scene.cleaner.uncleanable == {}
        scene.compactor.failures = [full] * ATTEMPTS_MAX
        fill(partition, 400)
        await scene.until(lambda: scene.cleaner.uncleanable)
        assert scene.cleaner.uncleanable == {partition.key: "No space left on device"}


@in_loop
async def test_a_disk_that_fails_while_segments_are_replaced(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        fill(partition, 200)

        async def fails() -> None:
            raise StorageError("t-0", "Input/output error")

        scene.compactor.before_swap = fails
        await scene.until(lambda: scene.failed)
        assert scene.failed[0] is partition


@in_loop
async def test_a_log_that_was_moved_is_as_clean_as_before(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        partition = await scene.topic("t")
        fill(partition, 200)
        await scene.until(lambda: scene.cleaner.stats.runs)
        offset = scene.offsets.found.pop(partition.log.directory)
        scene.offsets.found[partition.log.directory] = offset
        await scene.cleaner.pause(partition)
        scene.offsets.found.clear()  # the new directory knows nothing
        scene.cleaner.resume(partition)
        scene.cleaner.moved(partition, "/a", "/b")
        assert scene.offsets.found == {partition.log.directory: offset}


@in_loop
async def test_more_and_fewer_at_work(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.compactor.may_work.clear()
        for name in "abc":
            fill(await scene.topic(name), 200)
        await scene.until(lambda: len(scene.compactor.tasks) == 1)
        assert scene.compactor.tasks[0].map_bytes == scene.settings.dedupe_buffer_bytes
        scene.settings = replace(scene.settings, threads=3)
        scene.cleaner.settings_changed()
        await scene.until(lambda: len(scene.compactor.tasks) == 3)
        assert scene.compactor.tasks[2].map_bytes == scene.settings.dedupe_buffer_bytes // 3
        scene.settings = replace(scene.settings, threads=1)
        scene.cleaner.settings_changed()
        scene.compactor.may_work.set()
        await scene.until(lambda: scene.cleaner.stats.runs == 3)
        await scene.until(lambda: scene.compactor.closed == 2)
