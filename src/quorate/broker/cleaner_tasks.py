"""What whoever compacts a log has to be told."""

from __future__ import annotations

from quorate.broker.cleaner_choice import DirtyPart
from quorate.broker.cleaner_parts import CleanerSettings
from quorate.broker.topic_config import TopicConfig
from quorate.storage.compaction import CompactionTask, SourceSegment
from quorate.storage.compaction_batches import LastOfProducer
from quorate.storage.partition_log import PartitionLog

__all__ = ["compaction_task"]


def compaction_task(
    log: PartitionLog, part: DirtyPart, config: TopicConfig, settings: CleanerSettings, now_ms: int
) -> CompactionTask:
    """Compaction of a part of a log, as it is now. The memory that is set is for all that work at the same
    time, and half of the buffer for what is read."""
    summaries = log.segments
    sources = [
        SourceSegment(
            one.base_offset,
            one.next_offset,
            one.size_bytes,
            one.index_bytes,
            one.time_index_bytes,
            one.largest_timestamp_ms,
        )
        for one in summaries
        if one.base_offset < part.upper_offset
    ]
    threads = max(1, settings.threads)
    return CompactionTask(
        directory=log.directory,
        segments=sources,
        later_base_offsets=[one.base_offset for one in summaries[len(sources) :]],
        dirty_offset=part.dirty_offset,
        upper_offset=part.upper_offset,
        producers=_producers(log, part.upper_offset),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.log.segment_bytes,
        index_bytes=config.log.index_bytes,
        index_interval_bytes=config.log.index_interval_bytes,
        map_bytes=settings.dedupe_buffer_bytes // threads,
        map_load_factor=settings.load_factor,
        io_bytes=settings.io_buffer_bytes // threads // 2,
    )


def _producers(log: PartitionLog, upper_offset: int) -> dict[int, LastOfProducer]:
    """What must stay of producers that are known, as far as it lies in what is compacted."""
    found = {}
    for state in log.producers:
        last_offset = state.batches[-1].last_offset if state.batches else None
        if last_offset is None or last_offset < upper_offset:
            found[state.producer_id] = LastOfProducer(last_offset, state.epoch)
    return found
