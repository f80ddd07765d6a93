"""Old records, which are not in the page cache, are waited for by who wants them and nobody else."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from pathlib import Path

import pytest
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, turns, wanted
from test_fetch import NEWEST, only

from quorate.protocol.errors import ErrorCode
from quorate.storage.file_ranges import FileRange


class Disk:
    """Files that are cached once they were read, which lasts until the test allows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded: set[int] = set()  # positions
        self.loading: list[int] = []
        self.may_load = threading.Event()
        self.fails = False
        disk = self

        def is_cached(part: FileRange) -> bool:
            return part.position in disk.loaded

        def load(part: FileRange) -> None:
            disk.loading.append(part.position)
            assert disk.may_load.wait(30)
            if disk.fails:
                raise OSError(5, "it is gone")
            disk.loaded.add(part.position)

        monkeypatch.setattr(FileRange, "is_cached", is_cached)
        monkeypatch.setattr(FileRange, "load", load)


async def with_records(directory: Path, partitions: int = 1) -> Serving:
    broker = Serving(directory)
    await broker.topic("t", partitions=partitions)
    for partition_id in range(partitions):
        for _ in range(partition_id + 1):
            await broker.ask(produce(("t", partition_id, a_batch())), 9)
    return broker


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    while not condition():
        await asyncio.sleep(0)


def test_who_wants_old_records_waits_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    @in_loop
    async def scenario() -> None:
        broker = await with_records(tmp_path)
        disk = Disk(monkeypatch)
        answer = broker.park(fetch(wanted("t"), version=NEWEST), NEWEST)
        await until(lambda: disk.loading)
        await turns()
        assert not answer.done()
        await broker.ask(produce(("t", 0, a_batch())), 9)  # the loop is free
        disk.may_load.set()
        part = only(await answer)
        assert offsets_in(part.records) == [0]
        part.records.release()
        await broker.close()

    scenario()


@pytest.mark.parametrize("gives_up", [False, True])
def test_who_has_waited_for_records_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_up: bool
):
    @in_loop
    async def scenario() -> None:
        broker = await with_records(tmp_path)
        disk = Disk(monkeypatch)
        answer = broker.park(fetch(wanted("t", 0, 1), version=NEWEST, max_wait_ms=100_000), NEWEST)
        await broker.ask(produce(("t", 0, a_batch())), 9)
        await until(lambda: disk.loading)
        assert not answer.done()
        if gives_up:
            answer.cancel()
        disk.may_load.set()
        if gives_up:
            await turns()
            assert answer.cancelled()
        else:
            part = only(await answer)
            assert offsets_in(part.records) == [1]
            part.records.release()
        assert not any(partition.data_waits for partition in broker.replicas)
        await broker.close()

    scenario()


def test_few_wait_for_the_disk_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Syncs are done by the same threads, and membership depends on them."""

    @in_loop
    async def scenario() -> None:
        broker = await with_records(tmp_path)
        disk = Disk(monkeypatch)
        answers = [broker.park(fetch(wanted("t"), version=NEWEST), NEWEST) for _ in range(5)]
        await until(lambda: len(disk.loading) == 2)
        await turns(20)
        assert len(disk.loading) == 2
        disk.may_load.set()
        for answer in answers:
            assert offsets_in(only(await answer).records) == [0]
        await broker.close()

    scenario()


def test_a_disk_that_fails_while_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    @in_loop
    async def scenario() -> None:
        broker = await with_records(tmp_path)
        disk = Disk(monkeypatch)
        disk.fails = True
        disk.may_load.set()
        answer = only(await broker.ask(fetch(wanted("t"), version=NEWEST), NEWEST))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.partition("t").failure is not None
        broker.shelf.close()

    scenario()


def test_what_was_just_written_is_not_waited_for(tmp_path: Path):
    @in_loop
    async def scenario() -> None:
        broker = await with_records(tmp_path)
        answer = broker.begin(fetch(wanted("t"), version=NEWEST), NEWEST)
        assert not inspect.isawaitable(answer), "answered at once"
        await broker.close()

    scenario()


def test_what_the_system_has_dropped_is_found_out_and_loaded(tmp_path: Path):
    @in_loop
    async def scenario() -> None:
        broker = Serving(tmp_path)
        await broker.topic("t")
        for _ in range(5):
            await broker.ask(produce(("t", 0, a_batch(value_bytes=900_000))), 9)
        log = broker.partition("t").log
        await log.flush()
        some = log.range(0, 10 << 20)
        assert some is not None
        assert some.is_cached()
        os.posix_fadvise(some.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if some.is_cached():
            pytest.skip("this file system does not drop its pages, or does not tell")
        answer = broker.park(fetch(wanted("t", max_bytes=10 << 20), version=NEWEST), NEWEST)
        part = only(await answer)
        assert part.records.is_cached()
        assert some.is_cached()
        assert offsets_in(part.records) == [0, 1, 2, 3, 4]
        part.records.release()
        some.release()
        await broker.close()

    scenario()
