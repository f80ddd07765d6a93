"""One fencing in its parts, in bulk and a record at a time: decided, encoded, applied, logged, and applied
again from the log, as a standby does."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.controller_cluster import VICTIM, settings
from quorate.controller import fencing
from quorate.controller.decision import Situation
from quorate.controller.partition_change import Candidates, Election, Wanted, build_change
from quorate.controller.sessions import Sessions
from quorate.controller.topic_settings import allows_unclean, min_isr
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.metadata.sections import Section, encode_sections
from quorate.metadata.versions import METADATA_VERSION_LATEST, version_of
from quorate.protocol import record as in_batch
from quorate.protocol.batch import build_encoded, read_header, records
from quorate.storage.files import RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.log import Log

ALONE_MAX = 100_000  # records that are made one by one; beyond that a part of them, and multiplied
BATCH_RECORDS = 10_000
WALL_MS = 1_700_000_000_000


class Fencing(NamedTuple):
    """How long the parts of it took, in seconds."""

    partitions: int
    decide: float
    encode: float
    apply: float
    build: float
    sync: float
    standby: float

    @property
    def total(self) -> float:
        return sum(self[1:])

    def __str__(self) -> str:
        return " ".join(f"{one * 1000:8.2f}" for one in (*self[1:], self.total))


Fence = Callable[[ClusterImage, ClusterImage, Log], Awaitable[Fencing]]


def fence_often(root: Path, image: ClusterImage, fence: Fence, rounds: int) -> tuple[Fencing, float]:
    """The fastest round, and the median of all."""
    return asyncio.run(_fence_often(root, image, fence, rounds))


async def _fence_often(root: Path, image: ClusterImage, fence: Fence, rounds: int) -> tuple[Fencing, float]:
    root.mkdir()
    log = await Log.open(RealFiles(), str(root), LogConfig(), now_ms=WALL_MS)
    found: list[Fencing] = []
    try:
        for _ in range(rounds):
            active, standby = image.copy(), image.copy()
            gc.collect()
            gc.disable()
            try:
                found.append(await fence(active, standby, log))
            finally:
                gc.enable()
            if rounds > 1:
                assert active.brokers[VICTIM].is_fenced
                assert standby.brokers[VICTIM].is_fenced
                assert not active.partitions.is_leading(VICTIM)
                assert not standby.partitions.is_leading(VICTIM)
    finally:
        log.abandon()
    return min(found, key=lambda one: one.total), statistics.median(one.total for one in found)


async def fence_in_bulk(active: ClusterImage, standby: ClusterImage, log: Log) -> Fencing:
    clock = time.perf_counter
    began = clock()
    found = fencing.fence(situation(active), VICTIM)
    decided = clock()
    sections = encode_sections(found.records, active.metadata_version)
    encoded = clock()
    active.apply_changes(found.records, log.end_offset)
    applied = clock()
    batches = batches_of(sections, log.end_offset)
    built = clock()
    log.append(batches, WALL_MS)
    await log.flush()
    synced = clock()
    for batch in batches:
        standby.apply_batch(batch)
    return Fencing(
        found.partitions,
        decided - began,
        encoded - decided,
        applied - encoded,
        built - applied,
        synced - built,
        clock() - synced,
    )


async def fence_one_by_one(active: ClusterImage, standby: ClusterImage, log: Log) -> Fencing:
    """The same with the rule for one partition, and a record at a time everywhere. The rows are found as in
    bulk, so that an index of which partitions a broker is in sync for costs nothing here."""
    clock = time.perf_counter
    configured = settings()
    rows = [(one.block, int(at)) for one in active.partitions.in_sync_on(VICTIM) for at in one.index]
    total = len(rows)
    rows = rows[:ALONE_MAX]
    factor = total / max(1, len(rows))
    found = []
    began = clock()
    candidates = Candidates(active, without=VICTIM)
    starts = active.partitions.runs
    for block, row in rows:
        slot = int(block.topic[row])
        topic = active.topics.at(slot)
        partition_id = row - starts[slot].start
        partition = active.partitions.get(slot, partition_id)
        assert partition is not None
        is_allowed = allows_unclean(active, configured, topic.name)
        wanted = Wanted(
            election=Election.UNCLEAN if is_allowed else Election.ONLINE,
            isr=[one for one in partition.isr if one != VICTIM],
        )
        least = min_isr(active, configured, topic.name)
        found.append(build_change(active, topic.id, partition_id, partition, wanted, candidates, least))
    epoch = active.brokers[VICTIM].epoch
    found.append(BrokerRegistrationChangeRecord(broker_id=VICTIM, broker_epoch=epoch, fenced=1))
    decided = clock()
    sections = []
    for start in range(0, len(found), BATCH_RECORDS):
        data = bytearray()
        for at, record in enumerate(found[start : start + BATCH_RECORDS]):
            value = encode_record(record, version_of(record, METADATA_VERSION_LATEST))
            data += in_batch.encode_record(in_batch.Record(at, 0, None, value), 0, 0)
        sections.append(Section(min(BATCH_RECORDS, len(found) - start), bytes(data)))
    encoded = clock()
    for at, record in enumerate(found):
        active.apply(record, at)
    applied = clock()
    batches = batches_of(sections, log.end_offset)
    built = clock()
    log.append(batches, WALL_MS)
    await log.flush()
    synced = clock()
    for batch in batches:
        for one in records(batch, read_header(batch)):
            standby.apply(decode_record(one.value or b"")[0], one.offset)
    return Fencing(
        total,
        (decided - began) * factor,
        (encoded - decided) * factor,
        (applied - encoded) * factor,
        (built - applied) * factor,
        (synced - built) * factor,
        (clock() - synced) * factor,
    )


def situation(image: ClusterImage) -> Situation:
    return Situation(
        image=image,
        sessions=Sessions(9000),
        settings=settings(),
        random=random.Random(1),
        now_ms=0.0,
        wall_ms=WALL_MS,
        next_offset=1,
    )


def batches_of(sections: Sequence[Section], base_offset: int) -> list[bytearray]:
    batches = []
    for one in sections:
        batches.append(
            build_encoded(one.data, one.count, base_offset=base_offset, leader_epoch=1, timestamp=WALL_MS)
        )
        base_offset += one.count
    return batches
