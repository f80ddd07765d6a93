"""The image of a cluster: what a partition costs in memory, and what bulk gains over a record at a time.

Partitions have three replicas on a hundred brokers, a thousand in a topic; the records are those of a
snapshot, and 60,000 such as the fencing of a broker comes to. Both sides of a ratio run in this process, one
after the other, on the same records; where a side is too slow for all of them it gets a part, and its time is
multiplied. QUORATE_BENCH_PARTITIONS=10000,100000 chooses other sizes.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bench.timing import Row
from quorate.metadata.diff import diff
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.partition_changes import NO_CHANGE, UNCHANGED_STATE, PartitionChanges
from quorate.metadata.partition_records import read_rectangles
from quorate.metadata.partitions import NewPartitions, Rows
from quorate.metadata.record_stream import read_stream
from quorate.metadata.records import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from quorate.metadata.sections import Section, encode_sections
from quorate.metadata.versions import METADATA_VERSION, METADATA_VERSION_LATEST, record_version
from quorate.protocol import record as in_batch
from quorate.protocol.batch import build_encoded, read_header, records
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid

SIZES = (10_000, 100_000, 1_000_000, 2_000_000)
BROKERS = 100
REPLICAS = 3
PARTITIONS_PER_TOPIC = 1000
CHANGES = 60_000
ALONE_MAX = 100_000  # records that a side may take one by one
ROUNDS = 5

T = TypeVar("T")


def section() -> Iterator[Row]:
    chosen = os.environ.get("QUORATE_BENCH_PARTITIONS")
    sizes = [int(one) for one in chosen.split(",")] if chosen else SIZES
    for size in sizes:
        yield from _at_size(size)


def _at_size(size: int) -> Iterator[Row]:
    image = cluster(size)
    label = f"{size:>9,} partitions"
    yield Row(f"{label}: bytes of the table for each", image.partitions.size_bytes / size, at_most=64)
    yield from _scans(label, image)
    yield from _changes(label, image)
    yield from _snapshot(label, image, size)


def _scans(label: str, image: ClusterImage) -> Iterator[Row]:
    hosted = best(lambda: image.partitions.hosted_by(7))
    in_sync = best(lambda: image.partitions.in_sync_on(7))
    copied = best(image.copy)
    yield Row(f"{label}: ms to find those on a broker", hosted.ms)
    yield Row(f"{label}: ms to find those in sync on a broker", in_sync.ms)
    yield Row(f"{label}: ms to copy the image", copied.ms)
    other = image.copy()
    yield Row(f"{label}: ms to find that two images are the same", best(lambda: diff(image, other)).ms)


# What a fencing writes


def _changes(label: str, image: ClusterImage) -> Iterator[Row]:
    changes = losses(image, CHANGES)
    count = len(changes)
    label = f"{label}, {count:,} changes"
    single = list(changes.records())
    mixed = np.random.default_rng(3).permutation(count).tolist()
    version = record_version(PartitionChangeRecord, METADATA_VERSION_LATEST)

    encoded = best(lambda: encode_sections([changes], METADATA_VERSION_LATEST))
    alone = best(lambda: encode_alone(single, version), rounds=2)
    yield Row(f"{label}, encode: one by one / bulk", alone.ms / encoded.ms, at_least=15, note=encoded.text)
    built = best(lambda: batches_of(encoded.result))
    yield Row(f"{label}, header and checksum: ms", built.ms)

    unordered = batches_of(encode_alone([single[at] for at in mixed], version))
    for batches, order, target in ((built.result, "sorted by shape", 15), (unordered, "any order", 8)):
        decoded = best(lambda batches=batches: decode_in_bulk(batches))
        alone = best(lambda batches=batches: decode_alone(batches), rounds=2)
        note = decoded.text
        yield Row(
            f"{label}, decode, {order}: one by one / bulk", alone.ms / decoded.ms, at_least=target, note=note
        )

    batches = built.result
    applied = best(lambda copy: apply_all(copy, batches), before=image.copy)
    direct = best(lambda copy: copy.apply_changes([own(changes, copy)], 0), before=image.copy)
    yield Row(f"{label}, decode and apply: ms", applied.ms)
    yield Row(f"{label}, apply what was decided: ms", direct.ms)
    total = encoded.ms + built.ms + applied.ms
    yield Row(f"{label}, encode, checksum, decode and apply: ms", total, at_most=40)


def losses(image: ClusterImage, count_max: int) -> PartitionChanges:
    """What fencing comes to: partitions lose one of their three replicas, some of them the leader."""
    random = np.random.default_rng(11)
    block = image.partitions.blocks[REPLICAS]
    index = np.sort(random.permutation(block.end)[:count_max])
    rows = Rows(block, index)
    count = len(index)
    replicas = block.replicas[index]
    position = random.integers(0, REPLICAS, count)
    isr = block.isr[index] & ~(1 << position).astype(block.isr.dtype)
    nothing = np.full(count, NO_CHANGE, np.int32)
    return PartitionChanges(
        rows=rows,
        topic_ids=image.topics.ids[block.topic[index]],
        partition_ids=image.partitions.partition_ids(rows),
        replicas=replicas,
        has_isr=np.ones(count, np.bool_),
        isr=isr,
        leader=np.where(position == 0, replicas[:, 2], nothing).astype(np.int32),
        has_elr=np.zeros(count, np.bool_),
        elr=np.zeros_like(isr),
        last_known_leader=nothing,
        recovery_state=np.full(count, UNCHANGED_STATE, np.int8),
    )


def own(changes: PartitionChanges, image: ClusterImage) -> PartitionChanges:
    """The same changes, of the rows of a copy."""
    block = image.partitions.blocks[changes.rows.block.width]
    columns = {name: getattr(changes, name) for name in PartitionChanges.__slots__ if name != "rows"}
    return PartitionChanges(rows=Rows(block, changes.rows.index), **columns)


# Snapshots


def _snapshot(label: str, image: ClusterImage, size: int) -> Iterator[Row]:
    part = min(size, ALONE_MAX)
    rounds = 3 if size > ALONE_MAX else ROUNDS
    encoded = best(lambda: image.freeze().sections(), rounds=rounds)
    sections = encoded.result
    some = list(_partition_records(image, part))
    version = record_version(PartitionRecord, METADATA_VERSION_LATEST)
    alone = best(lambda: encode_alone(some, version), rounds=1)
    ratio = alone.ms * (size / part) / encoded.ms
    yield Row(f"{label}, encode a snapshot: one by one / bulk", ratio, at_least=20, note=encoded.text)

    batches = batches_of(sections)
    loaded = best(lambda: ClusterImage.load(batches, 0), rounds=rounds)
    topics = [encode_record(TopicRecord(name=one.name, topic_id=one.id), 0) for one in image.topics]
    values = topics + [encode_record(one, version) for one in some]
    alone = best(lambda: load_alone(values), rounds=1)
    ratio = alone.ms * (size / part) / loaded.ms
    yield Row(f"{label}, load a snapshot: one by one / bulk", ratio, at_least=15, note=loaded.text)
    small = batches_of(_cut(sections, 1024))
    loaded = best(lambda: ClusterImage.load(small, 0), rounds=rounds)
    yield Row(f"{label}, load a snapshot in batches of 1024: ms", loaded.ms)
    assert loaded.result.equals(image)


def _partition_records(image: ClusterImage, count: int) -> Iterator[PartitionRecord]:
    left = count
    for topic in image.topics:
        for partition_id, one in image.partitions.of(topic.slot):
            if not left:
                return
            left -= 1
            yield PartitionRecord(
                partition_id=partition_id,
                topic_id=topic.id,
                replicas=list(one.replicas),
                isr=list(one.isr),
                removing_replicas=[],
                adding_replicas=[],
                leader=one.leader,
                leader_epoch=one.leader_epoch,
                partition_epoch=one.partition_epoch,
                directories=list(one.directories),
            )


def _cut(sections: Sequence[Section], count: int) -> list[Section]:
    """The same records in sections of at most `count`, as Apache Kafka writes them."""
    found = []
    for batch in batches_of(sections):
        values = [one.value or b"" for one in records(batch, read_header(batch))]
        for start in range(0, len(values), count):
            some = values[start : start + count]
            data = [
                in_batch.encode_record(in_batch.Record(at, 0, None, value), 0, 0)
                for at, value in enumerate(some)
            ]
            found.append(Section(len(some), b"".join(data)))
    return found


# The sides


def encode_alone(single: Sequence[Record], version: int) -> list[Section]:
    sections = []
    for start in range(0, len(single), 10_000):
        some = single[start : start + 10_000]
        data = [
            in_batch.encode_record(in_batch.Record(at, 0, None, encode_record(one, version)), 0, 0)
            for at, one in enumerate(some)
        ]
        sections.append(Section(len(some), b"".join(data)))
    return sections


def decode_alone(batches: Sequence[bytearray]) -> list[Record]:
    return [
        decode_record(one.value or b"")[0] for batch in batches for one in records(batch, read_header(batch))
    ]


def decode_in_bulk(batches: Sequence[bytearray]) -> None:
    for batch in batches:
        stream = read_stream([batch], [read_header(batch)])
        assert stream is not None
        stream.kinds()
        rectangles, rest = read_rectangles(stream, np.arange(len(stream)))
        assert not len(rest)
        for rectangle in rectangles:
            rectangle.numbers("partition_id", -1)
            rectangle.numbers("leader", -2)
            rectangle.ids("isr")
            _ = rectangle.topic_ids


def load_alone(values: Sequence[bytes]) -> ClusterImage:
    image = ClusterImage()
    for value in values:
        image.apply(decode_record(value)[0], 0)
    return image


def apply_all(image: ClusterImage, batches: Sequence[bytearray]) -> None:
    for batch in batches:
        image.apply_batch(batch)


def batches_of(sections: Sequence[Section]) -> list[bytearray]:
    return [
        build_encoded(one.data, one.count, base_offset=0, leader_epoch=1, timestamp=0) for one in sections
    ]


# A cluster


def cluster(size: int) -> ClusterImage:
    """An image with so many partitions; one in fifty has lost a replica."""
    random = np.random.default_rng(7)
    image = ClusterImage()
    image.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LATEST), 0)
    per_topic = min(PARTITIONS_PER_TOPIC, size)
    for number in range(-(-size // per_topic)):
        topic_id = Uuid(b"topic-%010d" % number)
        image.apply(TopicRecord(name=f"topic-{number:06}", topic_id=topic_id), number)
    directories = [
        image.partitions.directory_ids.number(Uuid(b"directory-%06d" % one)) for one in range(BROKERS)
    ]
    first = random.integers(0, BROKERS, size, np.int32)
    shift = random.integers(1, BROKERS // 2, size, np.int32)
    replicas = np.stack([first, (first + shift) % BROKERS, (first + 2 * shift) % BROKERS], axis=1)
    isr = np.where(random.random(size) < 0.02, 0b101, 0b111).astype(np.uint8)
    zeros = np.zeros(size, np.int32)
    image.partitions.put_many(
        [
            NewPartitions(
                topics=(np.arange(size) // per_topic).astype(np.int32),
                partition_ids=(np.arange(size) % per_topic).astype(np.int32),
                replicas=replicas,
                directories=np.array(directories, np.uint16)[replicas],
                isr=isr,
                elr=zeros.astype(np.uint8),
                adding=zeros.astype(np.uint8),
                removing=zeros.astype(np.uint8),
                leader=first,
                leader_epoch=zeros,
                partition_epoch=zeros,
                is_recovering=zeros == 1,
                last_known_leader=zeros - 1,
            )
        ]
    )
    return image


class Best(NamedTuple):
    """The fastest of some rounds, and what came out of the last."""

    ms: float
    result: object

    @property
    def text(self) -> str:
        return f"{self.ms:,.1f} ms in bulk"


def best(side: Callable[..., T], *, rounds: int = ROUNDS, before: Callable[[], object] | None = None) -> Best:
    fastest, result = float("inf"), None
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            given = () if before is None else (before(),)
            began = time.perf_counter()
            result = side(*given)
            fastest = min(fastest, time.perf_counter() - began)
    finally:
        gc.enable()
    return Best(fastest * 1000, result)
