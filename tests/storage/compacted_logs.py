"""Logs to compact, and what compaction should make of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from partition_logs import opened_partition, produce

from quorate.protocol.batch import BatchHeader, Record, batches, build, records
from quorate.protocol.compression import Codec
from quorate.storage.compaction import CleanedGroup, Compacted, CompactionTask, SourceSegment, compact
from quorate.storage.compaction_batches import LastOfProducer
from quorate.storage.compaction_keys import SECRET_BYTES
from quorate.storage.files import Files
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog

SMALL_COMPACTED = LogConfig(segment_bytes=600, index_interval_bytes=100, is_compacted=True)
NOW_MS = 1_000_000
SECRET = random.Random(7).randbytes(SECRET_BYTES)


def a_keyed(
    pairs: Iterable[tuple[str | None, str | None]],
    *,
    timestamp: int = 1000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int | None = None,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of keys and values; None as a value says that the key is deleted."""
    made = [
        Record(
            index,
            timestamp + index,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            [("h", b"1")] if index % 3 == 2 else (),
        )
        for index, (key, value) in enumerate(pairs)
    ]
    return build(
        made,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if epoch is not None else (0 if producer_id >= 0 else -1),
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def all_batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of a log, as a reader gets it who goes on where the last one ended."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = bytes(log.read(offset, 1 << 20))
        if not data:
            break
        for header in batches(data):
            found.append((header, data))
            offset = header.next_offset
    return found


def all_records(log: PartitionLog) -> list[Record]:
    found = []
    for header, data in all_batches(log):
        if not header.is_control:
            found += [one for one in records(data, header) if one.offset >= log.start_offset]
    return found


def a_task(
    log: PartitionLog, *, dirty_offset: int = 0, upper_offset: int | None = None, **changes: object
) -> CompactionTask:
    """What to do for everything before the active segment, or up to a segment that begins at an offset."""
    summaries = log.segments
    upper = summaries[-1].base_offset if upper_offset is None else upper_offset
    task = CompactionTask(
        directory=log.directory,
        segments=[
            SourceSegment(
                one.base_offset,
                one.next_offset,
                one.size_bytes,
                one.index_bytes,
                one.time_index_bytes,
                one.largest_timestamp_ms,
            )
            for one in summaries
            if one.base_offset < upper
        ],
        later_base_offsets=[one.base_offset for one in summaries if one.base_offset >= upper],
        dirty_offset=dirty_offset,
        upper_offset=upper,
        producers={
            one.producer_id: LastOfProducer(one.batches[-1].last_offset if one.batches else None, one.epoch)
            for one in log.producers
        },
        now_ms=NOW_MS,
        delete_retention_ms=1000,
        segment_bytes=log.config.segment_bytes,
        index_bytes=log.config.index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=1 << 20,
        map_load_factor=0.9,
        io_bytes=1 << 14,
    )
    return replace(task, **changes)  # type: ignore[arg-type]


async def compacted(files: Files, log: PartitionLog, task: CompactionTask) -> Compacted:
    """Does it, and puts the segments in place."""
    cuts = log.cuts
    run = compact(files, CompactionTask.from_json(_through_json(task)), SECRET)
    while True:
        try:
            step = next(run)
        except StopIteration as end:
            assert isinstance(end.value, Compacted)
            return end.value
        if isinstance(step, CleanedGroup):
            await log.replace_segments(
                step.old, step.new, cuts=cuts, largest_timestamp_ms=step.largest_timestamp_ms
            )


def _through_json(task: CompactionTask) -> dict[str, object]:
    import json

    found = json.loads(json.dumps(task.to_json()))
    assert isinstance(found, dict)
    return found


async def written(
    directory: Path | str, batches: Sequence[bytearray], config: LogConfig = SMALL_COMPACTED
) -> PartitionLog:
    log = await opened_partition(directory, config)
    for one in batches:
        produce(log, one)
    return log


def last_values(found: Iterable[Record]) -> dict[bytes | None, bytes | None]:
    """What a reader of everything believes in the end."""
    state: dict[bytes | None, bytes | None] = {}
    for record in found:
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state
