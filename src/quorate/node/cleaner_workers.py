"""Who compacts logs: a process of its own, or this one where there are no others.

The process is started when there is something to do for the first time, and again if it has died. It is told
what to do through a pipe (`compaction_worker`), and ends when that is closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from typing import Any, Final

from quorate.broker.cleaner_parts import CompactionFailedError, CompactorLostError, Swap
from quorate.node.host import Host
from quorate.protocol.errors import ApiError
from quorate.storage.compaction import CleanedGroup, Compacted, CompactionTask, Moved, Run, Step, compact
from quorate.storage.compaction_keys import SECRET_BYTES
from quorate.storage.compaction_pace import Pace
from quorate.storage.errors import StorageError

__all__ = ["LocalCompactor", "ProcessCompactor"]

MODULE: Final = "quorate.node.compaction_worker"
STOP_S_MAX: Final = 10.0  # for a step to end; whoever takes longer is ended
_RATE_MAX: Final = 1e300  # JSON knows no infinity


class ProcessCompactor:
    """A `broker.cleaner.Compactor` in a process of its own."""

    def __init__(self, start: Callable[[str], Awaitable[Process]], name: str) -> None:
        self._start = start
        self._process: Process | None = None
        self._logger = logging.getLogger(f"quorate.broker.{name}")

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self, task: CompactionTask, swap: Swap, bytes_per_second: float) -> Compacted:
        process = await self._running()
        try:
            rate = min(bytes_per_second, _RATE_MAX)
            await self._send(process, {"task": task.to_json(), "bytes_per_second": rate})
            while True:
                line = await self._receive(process)
                if "group" not in line:
                    return _outcome(line)
                await swap(CleanedGroup(**line["group"]))
                await self._send(process, {"go": True})
        except CompactionFailedError:
            raise
        except CompactorLostError:
            await self._end(process)
            raise
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._stop(process)))
            raise

    async def close(self) -> None:
        if self._process is not None:
            await asyncio.shield(asyncio.ensure_future(self._end(self._process)))

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await self._start(MODULE)
            except OSError as error:
                raise CompactorLostError(f"no process can be started: {error}") from error
            self._logger.info("compaction process started pid=%d", self._process.pid)
        return self._process

    async def _send(self, process: Process, line: dict[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            await process.stdin.drain()
        except OSError as error:
            raise CompactorLostError(f"process {process.pid} does not listen: {error}") from error

    async def _receive(self, process: Process) -> dict[str, Any]:
        assert process.stdout is not None
        try:
            data = await process.stdout.readline()
        except (OSError, ValueError) as error:
            raise CompactorLostError(f"process {process.pid}: {error}") from error
        if not data.endswith(b"\n"):
            await process.wait()
            raise CompactorLostError(f"process {process.pid} ended with {process.returncode}")
        found: dict[str, Any] = json.loads(data)
        return found

    async def _stop(self, process: Process) -> None:
        """Ends what is under way, so that nothing more is written; by force if need be."""
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self._send(process, {"stop": True})
                while "group" in await self._receive(process):
                    pass  # which it wrote before it heard, and deletes when it begins again
        except (TimeoutError, CompactorLostError):
            await self._end(process)

    async def _end(self, process: Process) -> None:
        self._process = None
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _outcome(line: dict[str, Any]) -> Compacted:
    if "done" in line:
        return Compacted(**line["done"])
    raise CompactionFailedError(line.get("failed", f"{line}"), is_damaged=line.get("is_damaged", True))


class LocalCompactor:
    """A `broker.cleaner.Compactor` in this process, step by step in the host's executor."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def run(self, task: CompactionTask, swap: Swap, bytes_per_second: float) -> Compacted:
        loop = asyncio.get_running_loop()
        run = compact(self._host.files, task, self._host.random.randbytes(SECRET_BYTES))
        pace = Pace(bytes_per_second)
        try:
            while True:
                step = await self._step(run)
                if isinstance(step, Compacted):
                    return step
                if isinstance(step, CleanedGroup):
                    await swap(step)
                elif isinstance(step, Moved):
                    await asyncio.sleep(pace.delay_s(step.read_bytes + step.written_bytes, loop.time()))
        finally:
            run.close()

    async def close(self) -> None:
        pass

    async def _step(self, run: Run) -> Step | Compacted:
        """One step, to its end."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._host.executor, _next, run)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                await asyncio.wait([future])
            raise
        except (StorageError, ApiError) as error:
            raise CompactionFailedError(str(error), is_damaged=True) from error
        except OSError as error:
            raise CompactionFailedError(str(error), is_damaged=False) from error


def _next(run: Run) -> Step | Compacted:
    try:
        return next(run)
    except StopIteration as end:
        value: Compacted = end.value
        return value
