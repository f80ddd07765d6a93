"""The process that compacts: started when it is needed, ended with its broker, replaced when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "storage"))
from compacted_logs import a_keyed, a_task, all_records, last_values, written

from quorate.broker.cleaner_parts import CompactionFailedError, CompactorLostError
from quorate.node.cleaner_workers import MODULE, ProcessCompactor
from quorate.node.host import real_host
from quorate.storage.cleaning import ReplacementRefusedError
from quorate.storage.compaction import CleanedGroup
from quorate.storage.partition_log import PartitionLog

pytestmark = pytest.mark.processes

DEADLINE_S = 60.0


def a_compactor() -> ProcessCompactor:
    start = real_host("1").start_process
    assert start is not None
    return ProcessCompactor(start, "1")


async def a_log(directory: Path, count: int = 200) -> PartitionLog:
    return await written(directory, [a_keyed([(f"k{n % 7}", str(n))]) for n in range(count)])


def swapping(log: PartitionLog) -> Callable[[CleanedGroup], Awaitable[None]]:
    async def swap(group: CleanedGroup) -> None:
        await log.replace_segments(
            group.old, group.new, cuts=log.cuts, largest_timestamp_ms=group.largest_timestamp_ms
        )

    return swap


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(limited())


def test_a_log_is_compacted_by_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, compactor = await a_log(tmp_path), a_compactor()
        before = last_values(all_records(log))
        assert compactor.process_id is None  # nothing runs before there is something to do
        done = await compactor.run(a_task(log), swapping(log), float("inf"))
        assert done.end_offset == log.segments[-1].base_offset
        assert 0 < done.records_kept < done.records_read
        assert last_values(all_records(log)) == before
        first = compactor.process_id
        assert first is not None
        await compactor.run(a_task(log), swapping(log), float("inf"))
        assert compactor.process_id == first
        await compactor.close()
        assert not _is_alive(first)
        assert not [path for path in tmp_path.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]

    run(scenario)


def test_another_process_takes_over_from_one_that_died(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, compactor = await a_log(tmp_path), a_compactor()
        before = last_values(all_records(log))

        async def kill(_group: CleanedGroup) -> None:
            assert compactor.process_id is not None
            os.kill(compactor.process_id, signal.SIGKILL)

        with pytest.raises(CompactorLostError):
            await compactor.run(a_task(log), kill, float("inf"))
        assert last_values(all_records(log)) == before
        await compactor.run(a_task(log), swapping(log), float("inf"))
        assert last_values(all_records(log)) == before
        await compactor.close()

    run(scenario)


def test_giving_up_leaves_nothing_behind_and_the_process_can_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, compactor = await a_log(tmp_path), a_compactor()
        began = asyncio.Event()

        async def wait(_group: CleanedGroup) -> None:
            began.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(compactor.run(a_task(log), wait, float("inf")))
        await began.wait()
        first = compactor.process_id
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        slow = asyncio.create_task(compactor.run(a_task(log), swapping(log), 1.0))  # a byte in a second
        for _ in range(20):
            await asyncio.sleep(0)
        slow.cancel()
        await asyncio.wait([slow])
        assert slow.cancelled()
        await compactor.run(a_task(log), swapping(log), float("inf"))
        assert compactor.process_id == first
        await compactor.close()

    run(scenario)


def test_what_is_refused_ends_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, compactor = await a_log(tmp_path), a_compactor()

        async def refuse(_group: CleanedGroup) -> None:
            raise ReplacementRefusedError("no")

        with pytest.raises(ReplacementRefusedError):
            await compactor.run(a_task(log), refuse, float("inf"))
        await compactor.run(a_task(log), swapping(log), float("inf"))
        await compactor.close()

    run(scenario)


def test_damage_and_other_failures_are_told_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, compactor = await a_log(tmp_path / "log"), a_compactor()
        path = tmp_path / "log" / f"{0:020d}.log"
        raw = bytearray(path.read_bytes())
        raw[50] ^= 1
        path.write_bytes(raw)
        with pytest.raises(CompactionFailedError, match="checksum") as found:
            await compactor.run(a_task(log), swapping(log), float("inf"))
        assert found.value.is_damaged
        with pytest.raises(CompactionFailedError, match="No such file") as found:
            await compactor.run(a_task(log, directory=str(tmp_path / "no")), swapping(log), float("inf"))
        assert not found.value.is_damaged
        await compactor.close()

    run(scenario)


def test_it_ends_when_its_broker_is_killed() -> None:
    """A process that starts one and is killed: the pipe closes, whatever the broker could not do."""
    code = (
        "import asyncio, sys\n"
        "from quorate.node.host import real_host\n"
        "async def main():\n"
        f"    process = await real_host('1').start_process({MODULE!r})\n"
        "    print(process.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    broker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        worker = int(broker.stdout.readline())
        assert _is_alive(worker)
        broker.kill()
        deadline = time.monotonic() + DEADLINE_S
        while _is_alive(worker):
            assert time.monotonic() < deadline, "it outlives its broker"
            time.sleep(0.01)
    finally:
        broker.kill()
        broker.wait()
        assert broker.stdout is not None
        broker.stdout.close()


def _is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
