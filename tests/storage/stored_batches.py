"""Batches and logs to test with."""

from __future__ import annotations

from pathlib import Path

from quorate.protocol.batch import Record, batches, build
from quorate.protocol.types import Buffer
from quorate.storage.files import Files, RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.log import Log

FILES = RealFiles()

# Small enough that a test fills several segments, each with several index entries.
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def a_batch(
    base_offset: int, count: int = 1, *, epoch: int = 0, timestamp: int = 1000, value_bytes: int = 10
) -> bytes:
    """A batch of records that say where they are."""
    made = [
        Record(offset, timestamp + offset - base_offset, None, str(offset).encode().ljust(value_bytes, b"."))
        for offset in range(base_offset, base_offset + count)
    ]
    return bytes(build(made, base_offset=base_offset, leader_epoch=epoch))


def split(buffer: Buffer) -> list[bytes]:
    """The batches of a buffer, which must be whole."""
    headers = list(batches(buffer))
    assert not buffer or headers[-1].end == len(buffer), "a batch was cut"
    return [bytes(buffer[header.position : header.end]) for header in headers]


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[bytes]:
    """All batches of a log, read as a consumer would."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        some = split(log.read(offset, max_bytes))
        assert some, f"nothing at {offset}, before the end at {log.end_offset}"
        found += some
        offset = next(batches(some[-1])).next_offset
    return found


async def opened(
    directory: Path | str,
    config: LogConfig = SMALL,
    *,
    files: Files = FILES,
    recovery_point: int | None = 0,
    start_offset: int = 0,
) -> Log:
    return await Log.open(
        files, str(directory), config, now_ms=0, recovery_point=recovery_point, start_offset=start_offset
    )


async def filled(directory: Path | str, batch_count: int, config: LogConfig = SMALL, **batch: int) -> Log:
    """A log of batches of three records."""
    log = await opened(directory, config)
    for index in range(batch_count):
        log.append([a_batch(index * 3, 3, **batch)], 0)
    return log
