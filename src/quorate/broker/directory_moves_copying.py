"""What moves between log directories consist of: a piece of a log is copied, or a cut is followed.

Whoever calls sees to it that nothing is taken away from the log meanwhile; appends go on. A piece is read
away from the loop, because old ones are not in memory; the last few bytes are read on it, because nothing may
come in between.

A disk that fails is told to the shelf, the right one of the two, and then raised as a `StorageError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from quorate.broker.directory_moves_stages import common_end
from quorate.protocol.batch import HEADER_BYTES, read_header
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.storage.errors import AppendError, StorageError
from quorate.storage.partition_log import PartitionLog

__all__ = ["Copied", "Copying", "SourceDamagedError"]

PIECE_BYTES: Final = 256 << 10
REST_BYTES_MAX: Final = 1 << 20  # that are copied while everybody waits


class Failing(Protocol):
    def fail(self, log: PartitionLog, error: StorageError) -> None: ...


class SourceDamagedError(Exception):
    """What was read is no log, or none that goes on where the copy ends. Both stay as they are."""


class Copied(NamedTuple):
    size_bytes: int
    is_all: bool  # that there was when it was read


class Copying:
    """Copies for one broker. `executor` is where files are read; None is the loop's own."""

    def __init__(
        self, now_ms: Callable[[], float], wall_ms: Callable[[], int], executor: Executor | None = None
    ) -> None:
        self.now_ms = now_ms
        self._wall_ms = wall_ms
        self._executor = executor

    async def follow_cuts(self, log: PartitionLog, copy: PartitionLog, shelf: Failing) -> bool:
        """Takes away from a copy what its original does not have, or not any more. Whether there was
        anything."""
        with _told(shelf, copy):
            common = min(common_end(log.epochs, log.end_offset, copy.epochs, copy.end_offset), log.end_offset)
            if log.start_offset < copy.start_offset or log.start_offset > copy.end_offset:
                await copy.restart_at(log.start_offset, self._wall_ms())
            elif common < copy.end_offset:
                await copy.truncate_to(common)
            elif log.start_offset > copy.start_offset:
                await copy.delete_until(log.start_offset, self._wall_ms())
            else:
                return False
            return True

    async def piece(self, log: PartitionLog, copy: PartitionLog, shelf: Failing) -> Copied:
        """Copies what comes next, a bounded part of it."""
        end_offset = log.end_offset
        with _told(shelf, log):
            found = log.range(copy.end_offset, min(PIECE_BYTES, log.config.segment_bytes))
            if found is None:
                if copy.end_offset < end_offset:
                    self._skip(log, copy, shelf)
                return Copied(0, is_all=True)
            try:
                loop = asyncio.get_running_loop()
                data = await loop.run_in_executor(self._executor, found.read)
            except OSError as error:
                raise StorageError.of(found.file.path, error) from error
            finally:
                next_offset, size_bytes = found.next_offset, found.size_bytes
                found.release()
        if len(data) < size_bytes:
            raise SourceDamagedError(f"{log.directory}: {len(data)} bytes where {size_bytes} should be")
        await self._begin_with(copy, data, shelf)
        self._append(copy, memoryview(data), shelf)
        return Copied(size_bytes, is_all=next_offset >= end_offset)

    def rest(self, log: PartitionLog, copy: PartitionLog, shelf: Failing) -> bool:
        """Copies all that is left in one go. Whether it was little enough, and the two are the same now. They
        are not if something was taken away from the log since it was looked at."""
        if log.start_offset != copy.start_offset:
            return False
        if common_end(log.epochs, log.end_offset, copy.epochs, copy.end_offset) < copy.end_offset:
            return False
        left_bytes = REST_BYTES_MAX
        while copy.end_offset < log.end_offset:
            with _told(shelf, log):
                data = log.read(copy.end_offset, PIECE_BYTES)
            left_bytes -= len(data)
            if left_bytes < 0:
                return False
            if len(data):
                self._append(copy, data, shelf)
            else:
                self._skip(log, copy, shelf)
        return copy.end_offset == log.end_offset

    async def flush(self, copy: PartitionLog, shelf: Failing) -> None:
        with _told(shelf, copy):
            await copy.flush()

    async def _begin_with(self, copy: PartitionLog, data: Buffer, shelf: Failing) -> None:
        """An empty copy begins where its first batch does, which may be before the log's start."""
        if copy.start_offset == copy.end_offset and len(data) >= HEADER_BYTES:
            base_offset = read_header(data).base_offset
            if base_offset < copy.end_offset:
                with _told(shelf, copy):
                    await copy.restart_at(base_offset, self._wall_ms())

    def _append(self, copy: PartitionLog, data: memoryview, shelf: Failing) -> None:
        before = copy.end_offset
        try:
            with _told(shelf, copy):
                copy.append_replicated(data, self._wall_ms())
        except (ApiError, AppendError) as error:
            raise SourceDamagedError(f"what comes at offset {before} cannot be copied: {error}") from error
        if copy.end_offset == before:
            raise SourceDamagedError(f"{len(data)} bytes at offset {before} are no batch")

    def _skip(self, log: PartitionLog, copy: PartitionLog, shelf: Failing) -> None:
        with _told(shelf, copy):
            copy.skip_to(log.end_offset, self._wall_ms())


@contextmanager
def _told(shelf: Failing, log: PartitionLog) -> Iterator[None]:
    """The disk under a log is to blame for what goes wrong here."""
    try:
        yield
    except StorageError as error:
        shelf.fail(log, error)
        raise
