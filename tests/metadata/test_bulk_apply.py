"""However records come, one by one, in batches of any size or through a snapshot: the image is the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import histories
from histories import History, batch_of, batches_of, encoded, folded, through_snapshot
from quorate.metadata import records as r
from quorate.metadata.errors import ImageError
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.sections import encode_sections
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.protocol.batch import ControlType, Record, build, build_control, build_encoded
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Uuid

SIZES = st.lists(st.sampled_from([1, 7, 16, 40, 200, 2000]), min_size=1, max_size=4)
TOPIC = Uuid(b"a topic".ljust(16))


def test_every_kind_of_record_is_in_the_histories():
    seen = set()
    for seed in range(40):
        history = History(histories.Random(seed))
        steps = [*History.STEPS, *History.TRANSACTIONS]
        for _ in range(40):
            history.random.choice(steps)(history)
        for value in history.values:
            if value != histories.UNKNOWN:
                seen.add(value[1])
    declared = {cls.__key__ for cls in vars(r).values() if isinstance(cls, type) and hasattr(cls, "__key__")}
    assert seen == declared


@given(histories.histories(), SIZES)
def test_batches_give_the_same_image_as_records(values, sizes):
    expected = folded(values)
    image = ClusterImage()
    for batch in batches_of(values, sizes):
        image.apply_batch(batch)
    assert image.equals(expected)
    assert image.brokers == expected.brokers
    assert {one: list(image.partitions_of(one)) for one in image.topics.by_id} == {
        one: list(expected.partitions_of(one)) for one in expected.topics.by_id
    }


@given(histories.histories(), SIZES)
def test_a_snapshot_gives_the_same_image_as_records(values, sizes):
    expected = folded(values)
    image = through_snapshot(expected, 1234)
    assert image.equals(expected)
    assert all(broker.registration_offset == 1234 for broker in image.brokers.values())
    again = [one.value for batch in histories.snapshot_batches(expected) for one in histories.stored(batch)]
    assert ClusterImage.load(batches_of(again, sizes), 0).equals(expected)


@given(histories.histories(with_transactions=False), st.data())
@settings(max_examples=300)
def test_damage_is_an_error_or_the_same_as_for_the_plain_reader(values, data):
    """Bytes are changed at will, and no checksum tells: bulk must come to the plain reader's verdict."""
    cut = data.draw(st.integers(0, max(0, len(values) - 16)))
    before, rest = folded(values[:cut]), values[cut:]
    batch = batch_of(rest, cut)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    plain, bulk = before.copy(), before.copy()
    assert verdict(lambda: one_by_one(plain, batch)) == verdict(lambda: bulk.apply_batch(batch))
    if verdict(lambda: one_by_one(before.copy(), batch)) == "fine":
        assert bulk.equals(plain)


def one_by_one(image, batch):
    for one in histories.stored(batch):
        histories.apply_value(image, one.value or b"", one.offset)


def verdict(act):
    try:
        act()
    except (ImageError, ApiError, OverflowError):
        return "bad"
    return "fine"


def a_topic(count, **fields):
    values = [encoded(r.TopicRecord(name="t", topic_id=TOPIC))]
    return values + [encoded(a_partition(one, **fields)) for one in range(count)]


def a_partition(partition_id, replicas=(1, 2, 3), **fields):
    about = {
        "partition_id": partition_id,
        "topic_id": TOPIC,
        "replicas": list(replicas),
        "isr": list(replicas),
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return r.PartitionRecord(**{**about, **fields})


def a_change(partition_id, **fields):
    return r.PartitionChangeRecord(partition_id=partition_id, topic_id=TOPIC, **fields)


@pytest.mark.parametrize(
    "spoilt",
    [
        a_partition(7, isr=[1, 9]),
        a_partition(7, replicas=[1, -1, 2], isr=[1]),
        a_partition(7, replicas=range(65)),
        a_partition(7, directories=[TOPIC]),
        a_partition(7, last_known_elr=[1, 2]),
        a_partition(-1),
        a_partition(1 << 20),
        a_partition(7, topic_id=Uuid(b"another".ljust(16))),
    ],
)
def test_what_a_new_partition_cannot_be(spoilt):
    for at in (1, 20, 40):
        values = a_topic(40)
        values.insert(at, encoded(spoilt))
        with pytest.raises(ImageError):
            folded(values)
        with pytest.raises(ImageError):
            ClusterImage().apply_batch(batch_of(values))
        with pytest.raises(ImageError):
            ClusterImage.load([batch_of(values)], 0)


@pytest.mark.parametrize(
    "spoilt",
    [
        a_change(7, isr=[1, 9]),
        a_change(7, isr=[-1]),
        a_change(7, last_known_elr=[1, 2]),
        a_change(40, isr=[1]),
        a_change(-1, isr=[1]),
        r.PartitionChangeRecord(partition_id=7, topic_id=Uuid(b"another".ljust(16)), isr=[1]),
    ],
)
def test_what_a_change_of_a_partition_cannot_be(spoilt):
    before = folded(a_topic(40))
    for at in (0, 20, 39):
        values = [encoded(a_change(one, isr=[1])) for one in range(40)]
        values[at] = encoded(spoilt)
        with pytest.raises(ImageError):
            folded(values, before.copy())
        with pytest.raises(ImageError):
            before.copy().apply_batch(batch_of(values))


def test_partitions_before_their_topic_are_an_error():
    values = a_topic(40)
    values.append(values.pop(0))
    with pytest.raises(ImageError, match="does not exist"):
        ClusterImage().apply_batch(batch_of(values))
    with pytest.raises(ImageError, match="does not exist"):
        ClusterImage.load([batch_of(values)], 0)


def test_a_partition_changed_twice_in_a_batch_is_changed_in_order():
    image = folded(a_topic(40))
    values = [encoded(a_change(one, isr=[1], leader=1)) for one in range(40)]
    values += [encoded(a_change(5, isr=[2], leader=2)), encoded(a_change(5, isr=[3], leader=3))]
    image.apply_batch(batch_of(values, 41))
    partition = image.partition(TOPIC, 5)
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (
        3,
        (3,),
        3,
        3,
    )


def test_of_a_partition_described_twice_the_last_counts():
    values = [*a_topic(40), encoded(a_partition(5, leader=2)), encoded(a_partition(5, replicas=[4, 5, 6, 7]))]
    image = ClusterImage()
    image.apply_batch(batch_of(values))
    assert image.partition(TOPIC, 5).replicas == (4, 5, 6, 7)
    loaded = ClusterImage.load([batch_of(values[:1]), batch_of(values[1:])], 0)
    assert loaded.equals(image)


def test_more_shapes_than_the_bulk_decoder_tries():
    values = [encoded(r.TopicRecord(name="t", topic_id=TOPIC))]
    for one in range(300):
        replicas = range(1 + one % 60)
        values.append(encoded(a_partition(one, replicas=replicas, isr=list(replicas)[: one % 7])))
    image = ClusterImage()
    image.apply_batch(batch_of(values))
    assert image.equals(folded(values))


def test_tags_that_we_do_not_know_are_passed_over():
    values = a_topic(40)
    record = a_change(3, isr=[1])
    record.__unknown_tags__ = {77: b"from the future"}
    values += [encoded(a_change(one, isr=[1])) for one in range(3)] + [encoded(record)]
    values += [encoded(a_change(one, isr=[1])) for one in range(4, 40)]
    image = ClusterImage()
    image.apply_batch(batch_of(values))
    assert image.equals(folded(values))
    assert image.partition(TOPIC, 3).isr == (1,)


@pytest.mark.parametrize("count", [16, 70, 9000])
def test_what_was_decided_is_what_is_read(count):
    """Random changes of all partitions: applied as they are, and out of the batches that hold them."""
    decided = ClusterImage()
    decided.apply_batch(batch_of(a_topic(count)))
    read = decided.copy()
    random = np.random.default_rng(count)
    (rows,) = decided.partitions.hosted_by(1)
    changes = PartitionChanges(
        rows=rows,
        topic_ids=decided.topics.ids[rows.block.topic[rows.index]],
        partition_ids=decided.partitions.partition_ids(rows),
        replicas=rows.block.replicas[rows.index],
        has_isr=random.random(count) < 0.8,
        isr=random.integers(0, 8, count).astype(np.uint8),
        leader=random.choice([-2, -1, 1, 2], count).astype(np.int32),
        has_elr=random.random(count) < 0.2,
        elr=random.integers(0, 8, count).astype(np.uint8),
        last_known_leader=random.choice([-2, -2, -1, 3], count).astype(np.int32),
        recovery_state=random.choice([-1, -1, 0, 1], count).astype(np.int8),
    )
    sections = encode_sections([changes], METADATA_VERSION_LATEST)
    decided.apply_changes([changes], 0)
    for section in sections:
        batch = build_encoded(section.data, section.count, base_offset=0, leader_epoch=1, timestamp=1)
        read.apply_batch(batch)
    assert read.equals(decided)


def test_control_batches_are_passed_over():
    image = ClusterImage()
    image.apply_batch(build_control([(ControlType.LEADER_CHANGE, b"")], timestamp=0))
    assert image.equals(ClusterImage())


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_batches_that_are_compressed(codec):
    values = a_topic(40)
    batch = build([Record(one, 0, None, value) for one, value in enumerate(values)], codec=codec)
    image = ClusterImage()
    image.apply_batch(batch)
    assert image.equals(folded(values))


def test_batches_with_times_keys_and_gaps_are_read_too():
    values = a_topic(40)
    stored = [Record(2 * one, one * 77, b"key", value) for one, value in enumerate(values)]
    image = ClusterImage()
    image.apply_batch(build(stored))
    assert image.equals(folded(values))


def test_epochs_cannot_wrap_around():
    values = a_topic(40, partition_epoch=2**31 - 1)
    changes = [encoded(a_change(one, isr=[1])) for one in range(40)]
    with pytest.raises((ImageError, OverflowError)):
        folded(values).apply_batch(batch_of(changes, 41))


def test_topics_get_the_rows_that_they_need_and_no_more():
    topic, *partitions = a_topic(600)
    read, decided = ClusterImage(), ClusterImage()
    read.apply_batch(batch_of([topic, *partitions[::-1]]))
    decided.apply_changes([decode_record(value)[0] for value in (topic, *partitions)], 0)
    for image in (read, decided):
        assert image.partitions.runs[0].capacity == 600
        assert image.partitions.size_bytes == 600 * 43
