"""What differs between two images was touched by the records between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import histories
from histories import batch_of, batches_of, encoded, folded, through_snapshot
from quorate.metadata import records as r
from quorate.metadata.diff import diff
from quorate.metadata.image import ClusterImage
from quorate.metadata.touched import Touched
from quorate.protocol.types import Uuid

SETS = ("brokers", "controllers", "configs", "features", "quotas", "acls", "scram", "tokens")
ID = Uuid(b"a topic".ljust(16))


def check_contained(different: Touched, touched: Touched) -> None:
    for name in SETS:
        assert getattr(different, name) <= getattr(touched, name), name
    assert different.topics_added.items() <= touched.topics_added.items()
    assert different.topics_removed.items() <= touched.topics_removed.items()
    assert different.producer_ids <= touched.producer_ids
    assert set(different.partitions()) <= set(touched.partitions())


def values_of(touched):
    topic_ids, partition_ids = touched.partition_columns()
    return {(Uuid(one.tobytes()), two) for one, two in zip(topic_ids, partition_ids.tolist(), strict=True)}


@given(histories.histories(steps_max=12), st.integers(0, 400), st.sampled_from([1, 20, 500]))
def test_what_differs_was_touched(values, cut, size):
    before = folded(values[:cut])
    after = before.copy()
    after.touched = Touched()
    for batch in batches_of(values[cut:], [size], cut):
        after.apply_batch(batch)
    found = diff(before, after)
    check_contained(found, after.touched)
    assert values_of(found) == set(found.partitions())
    assert values_of(after.touched) == set(after.touched.partitions())


@given(histories.histories(steps_max=12), st.integers(0, 400))
def test_the_same_is_noted_in_bulk_and_one_by_one(values, cut):
    bulk, single = folded(values[:cut]), folded(values[:cut])
    bulk.touched, single.touched = Touched(), Touched()
    rest = values[cut:]
    if rest:
        bulk.apply_batch(batch_of(rest, cut))
        folded(rest, single, cut)
    for name in (*SETS, "topics_added", "topics_removed", "producer_ids"):
        assert getattr(bulk.touched, name) == getattr(single.touched, name)
    assert set(bulk.touched.partitions()) == set(single.touched.partitions())
    assert bool(bulk.touched) == bool(single.touched)


@given(histories.histories(steps_max=12, with_transactions=False), st.integers(0, 400))
def test_a_difference_is_complete(values, cut):
    """Whoever takes over what the difference names has the other image."""
    before, after = folded(values[:cut]), through_snapshot(folded(values))
    found = diff(before, after)
    partitions = {
        (topic.id, one): partition
        for topic in before.topics
        if topic.id not in found.topics_removed
        for one, partition in before.partitions_of(topic.id)
    }
    for topic_id, one in found.partitions():
        partitions[topic_id, one] = after.partition(topic_id, one)
    assert partitions == {
        (topic.id, one): partition
        for topic in after.topics
        for one, partition in after.partitions_of(topic.id)
    }
    for name in SETS:
        old, new = getattr(before, name), getattr(after, name)
        same = (old.keys() | new.keys()) - getattr(found, name)
        if name != "brokers":
            assert all(old[key] == new[key] for key in same)
        assert same <= old.keys() & new.keys()


@given(histories.histories(), st.integers(0, 400))
def test_there_is_no_difference_between_an_image_and_itself(values, cut):
    image = folded(values[:cut])
    assert not diff(image, image.copy())
    assert image.equals(image.copy())


def test_topics_that_are_added_and_removed():
    values = [encoded(r.TopicRecord(name=name, topic_id=Uuid(name.encode() * 16))) for name in "ab"]
    found = diff(folded(values[:1]), folded(values[1:]))
    assert found.topics_added == {Uuid(b"b" * 16): "b"}
    assert found.topics_removed == {Uuid(b"a" * 16): "a"}


@pytest.mark.parametrize("count", [1, 40])
def test_partitions_of_a_new_topic_differ(count):
    values = [encoded(r.TopicRecord(name="t", topic_id=ID))]
    for one in range(count):
        record = r.PartitionRecord(
            partition_id=one,
            topic_id=ID,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        values.append(encoded(record))
    found = diff(ClusterImage(), folded(values))
    assert set(found.partitions()) == {(ID, one) for one in range(count)}
    gone = diff(folded(values), folded(values[:1]))
    assert set(gone.partitions()) == set(found.partitions())


def test_nothing_is_noted_unless_somebody_asks():
    image = folded([encoded(r.NoOpRecord())])
    assert image.touched is None
    assert not Touched()
