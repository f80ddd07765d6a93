"""Recovery reads aside: the loop is free meanwhile, and files stay open as long as somebody reads them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from stored_batches import FILES, filled, opened, read_all

from quorate.storage import segment
from quorate.storage.files import to_its_end


def test_the_loop_is_free_while_a_log_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[str] = []
    scan = segment.scan

    def watched(file):  # type: ignore[no-untyped-def]
        for batch in scan(file):
            steps.append(threading.current_thread().name)
            yield batch

    async def scenario() -> None:
        log = await filled(tmp_path / "t-0", 20)
        await log.flush()
        before = read_all(log)
        log.abandon()
        monkeypatch.setattr(segment, "scan", watched)
        log = await opened(tmp_path / "t-0")
        assert read_all(log) == before
        log.abandon()

    asyncio.run(scenario())
    assert len(steps) == 20
    assert threading.main_thread().name not in steps


def test_a_large_segment_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    aside: list[object] = []
    monkeypatch.setattr(segment, "_RECOVERY_STEP_BYTES", 300)

    class Watched(type(FILES)):  # type: ignore[misc]
        async def aside(self, work):  # type: ignore[no-untyped-def]
            aside.append(work)
            return await super().aside(work)

    async def scenario() -> None:
        log = await filled(tmp_path / "t-0", 20)
        before = read_all(log)
        log.abandon()
        log = await opened(tmp_path / "t-0", files=Watched())
        assert read_all(log) == before
        log.abandon()

    asyncio.run(scenario())
    assert len(aside) > 6


def test_who_is_cancelled_waits_for_what_is_being_read():
    async def scenario() -> None:
        begun, may_end = threading.Event(), threading.Event()
        ended: list[bool] = []

        def work() -> None:
            begun.set()
            may_end.wait(30)
            ended.append(True)

        task = asyncio.create_task(FILES.aside(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended

    asyncio.run(scenario())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_fails_aside_fails_here(is_cancelled: bool):
    async def scenario() -> None:
        work = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(to_its_end(work))
        await asyncio.sleep(0)
        if is_cancelled:
            task.cancel()
        work.set_exception(OSError("gone"))
        with pytest.raises(asyncio.CancelledError if is_cancelled else OSError):
            await task

    asyncio.run(scenario())
