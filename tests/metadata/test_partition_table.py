"""The table of partitions against a dict of partitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.metadata.blocks import mask_type
from quorate.metadata.directory_ids import DirectoryIds
from quorate.metadata.distinct_ids import are_distinct, as_words, distinct, numbers_of
from quorate.metadata.errors import ImageError
from quorate.metadata.partition_changes import NO_CHANGE, UNCHANGED_STATE, PartitionChanges
from quorate.metadata.partitions import (
    MIGRATING,
    NO_LEADER,
    REPLICAS_MAX,
    UNASSIGNED,
    NewPartitions,
    Partition,
    PartitionTable,
    Rows,
    bits_of,
    mask_of,
)
from quorate.protocol.types import Uuid

BROKERS = range(12)


def directory(number):
    return Uuid(b"directory".ljust(12) + number.to_bytes(4))


@st.composite
def partitions(draw):
    replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.sampled_from([1, 2, 3, 3, 3, 4, 5, 9, 12]))])
    some = st.lists(st.sampled_from(replicas), unique=True, max_size=len(replicas))
    in_order = some.map(lambda ids: tuple(one for one in replicas if one in ids))
    return Partition(
        replicas=replicas,
        directories=tuple(draw(st.sampled_from([MIGRATING, UNASSIGNED, directory(1)])) for _ in replicas),
        isr=draw(in_order),
        leader=draw(st.sampled_from([NO_LEADER, *replicas])),
        leader_epoch=draw(st.integers(0, 5)),
        partition_epoch=draw(st.integers(0, 5)),
        removing=draw(in_order),
        adding=draw(in_order),
        elr=draw(in_order),
        last_known_leader=draw(st.sampled_from([NO_LEADER, 3])),
        is_recovering=draw(st.booleans()),
    )


TOPICS = st.integers(0, 5)
PUT = st.tuples(st.just("put"), TOPICS, st.integers(0, 9), partitions())
PUT_MANY = st.tuples(
    st.just("put many"), st.dictionaries(st.tuples(TOPICS, st.integers(0, 9)), partitions(), min_size=1)
)
REMOVE = st.tuples(st.just("remove"), TOPICS)
CLEAR = st.tuples(st.just("clear"), st.none() | TOPICS)
COPY = st.tuples(st.just("copy"))


@given(st.lists(PUT | PUT | PUT_MANY | REMOVE | CLEAR | COPY, max_size=25))
def test_the_table_agrees_with_a_dict(steps):
    table, model = PartitionTable(), {}
    for name, *about in steps:
        if name == "put":
            topic, partition_id, partition = about
            table.put(topic, partition_id, partition)
            model[topic, partition_id] = partition
        elif name == "put many":
            table.put_many(columns_of(about[0], table))
            model |= about[0]
        elif name == "remove":
            table.remove(about[0])
            model = {key: one for key, one in model.items() if key[0] != about[0]}
        elif name == "clear":
            table.clear_elr(about[0])
            model = {
                key: without_elr(one) if about[0] in (None, key[0]) else one for key, one in model.items()
            }
        else:
            table = table.copy()
        check(table, model)


def without_elr(partition):
    if not partition.elr and partition.last_known_leader == NO_LEADER:
        return partition
    columns = {name: getattr(partition, name) for name in Partition.__slots__}
    columns |= {"elr": (), "last_known_leader": NO_LEADER, "partition_epoch": partition.partition_epoch + 1}
    return Partition(**columns)


def columns_of(model, table):
    """Groups of new partitions with equally many replicas."""
    groups = {}
    for (topic, partition_id), partition in model.items():
        groups.setdefault(len(partition.replicas), []).append((topic, partition_id, partition))
    number = table.directory_ids.number

    def column(rows, kind, value):
        return np.array([value(one) for _, _, one in rows], kind)

    return [
        NewPartitions(
            topics=np.array([topic for topic, _, _ in rows], np.int32),
            partition_ids=np.array([partition_id for _, partition_id, _ in rows], np.int32),
            replicas=column(rows, np.int32, lambda one: one.replicas),
            directories=column(rows, np.uint16, lambda one: list(map(number, one.directories))),
            isr=column(rows, mask_type(width), lambda one: mask_of(one.replicas, one.isr)),
            elr=column(rows, mask_type(width), lambda one: mask_of(one.replicas, one.elr)),
            adding=column(rows, mask_type(width), lambda one: mask_of(one.replicas, one.adding)),
            removing=column(rows, mask_type(width), lambda one: mask_of(one.replicas, one.removing)),
            leader=column(rows, np.int32, lambda one: one.leader),
            leader_epoch=column(rows, np.int32, lambda one: one.leader_epoch),
            partition_epoch=column(rows, np.int32, lambda one: one.partition_epoch),
            is_recovering=column(rows, np.bool_, lambda one: one.is_recovering),
            last_known_leader=column(rows, np.int32, lambda one: one.last_known_leader),
        )
        for width, rows in groups.items()
    ]


def check(table, model):
    assert len(table) == len(model)
    for topic in range(6):
        expected = {partition_id: one for (t, partition_id), one in model.items() if t == topic}
        assert dict(table.of(topic)) == expected
        assert table.count_of(topic) == (max(expected) + 1 if expected else 0)
        assert table.get(topic, 10) is None
    for broker_id in (0, 3):
        for find, members in (
            (table.hosted_by, lambda one: one.replicas),
            (table.led_by, lambda one: (one.leader,)),
            (table.in_sync_on, lambda one: one.isr),
            (table.eligible_on, lambda one: one.elr),
        ):
            expected = {key for key, one in model.items() if broker_id in members(one)}
            assert keys(table, find(broker_id)) == expected
        assert table.is_leading(broker_id) == any(one.leader == broker_id for one in model.values())
        for rows in table.hosted_by(broker_id):
            bits = bits_of(rows.block, broker_id)
            assert bits[rows.index].all()
            assert np.count_nonzero(bits) == len(rows)
    assert keys(table, table.led_by(-1)) == {key for key, one in model.items() if one.leader == -1}


def keys(table, groups):
    found = [
        (topic, partition_id)
        for rows in groups
        for topic, partition_id in zip(
            rows.block.topic[rows.index].tolist(), table.partition_ids(rows).tolist(), strict=True
        )
    ]
    assert len(found) == len(set(found))
    return set(found)


def a_partition(replicas=(1, 2, 3)):
    return Partition(replicas, (UNASSIGNED,) * len(replicas), replicas, replicas[0])


def test_partitions_are_found_where_they_are_and_nowhere_else():
    table = PartitionTable()
    table.put(3, 2, a_partition())
    table.put(20, 0, a_partition(tuple(range(9))))
    topics, ids = np.array([3, 3, 3, 20, 4, -1, 999]), np.array([2, 0, 3, 0, 0, 0, 0])
    widths, rows = table.locate(topics, ids)
    assert widths.tolist() == [3, 0, 0, 16, 0, 0, 0]
    assert rows[0] == table.runs[3].start + 2


def test_rows_of_removed_topics_are_used_again():
    table = PartitionTable()
    for topic in range(10):
        for partition_id in range(7):
            table.put(topic, partition_id, a_partition())
    end = table.blocks[3].end
    for topic in (3, 4, 5, 8):
        table.remove(topic)
    table.reserve(20, 3 * 7, 3)
    table.reserve(21, 5, 3)
    assert table.blocks[3].end <= end
    for topic in list(table.runs):
        table.remove(topic)
    assert table.blocks[3].end == 0
    assert len(table) == 0


def test_a_topic_that_widens_moves_and_keeps_its_partitions():
    table = PartitionTable()
    narrow, wide = a_partition(), a_partition(tuple(range(20)))
    for partition_id in range(5):
        table.put(0, partition_id, narrow)
    table.put(0, 5, wide)
    assert [one for _, one in table.of(0)] == [narrow] * 5 + [wide]
    assert table.runs[0].width == 32
    assert len(table.blocks[3].topic[table.blocks[3].topic >= 0]) == 0


def test_a_partition_takes_at_most_64_bytes_however_it_came():
    table = PartitionTable()
    for topic in range(20):
        for partition_id in range(100):
            table.put(topic, partition_id, a_partition())
    assert table.size_bytes / len(table) <= 2 * 64  # one by one, runs have room to grow
    table = PartitionTable()
    model = {(topic, one): a_partition() for topic in range(20) for one in range(100)}
    table.put_many(columns_of(model, table))
    assert table.size_bytes / len(table) <= 43
    table.put_many(columns_of({(20, 0): a_partition()}, table))
    table.put(21, 0, a_partition())
    assert table.size_bytes / len(table) <= 64


@pytest.mark.parametrize(
    ("partition_id", "partition"),
    [
        (0, a_partition(tuple(range(REPLICAS_MAX + 1)))),
        (-1, a_partition()),
        (1 << 20, a_partition()),
        (0, a_partition((1, -1))),
        (0, Partition((1, 2), (UNASSIGNED,), (1,), 1)),
        (0, Partition((1, 2), (UNASSIGNED,) * 2, (3,), 1)),
        (0, Partition((1, 2), (UNASSIGNED,) * 2, (1,), 1, elr=(3,))),
    ],
)
def test_what_the_table_cannot_hold(partition_id, partition):
    table = PartitionTable()
    table.put(0, 0, a_partition())
    with pytest.raises(ImageError):
        table.put(0, partition_id, partition)
    assert dict(table.of(0)) == {0: a_partition()}


def test_64_replicas_are_possible():
    table = PartitionTable()
    replicas = tuple(range(REPLICAS_MAX))
    table.put(0, 0, a_partition(replicas))
    assert table.get(0, 0).isr == replicas
    assert keys(table, table.in_sync_on(63)) == {(0, 0)}


def test_changes_of_rows():
    table = PartitionTable()
    for partition_id in range(4):
        table.put(0, partition_id, a_partition())
    rows = Rows(table.blocks[3], np.array([0, 2]) + table.runs[0].start)
    table.change(
        PartitionChanges(
            rows=rows,
            topic_ids=np.zeros(2, "V16"),
            partition_ids=table.partition_ids(rows),
            replicas=rows.block.replicas[rows.index],
            has_isr=np.array([True, False]),
            isr=np.array([0b110, 0], np.uint8),
            leader=np.array([2, NO_CHANGE], np.int32),
            has_elr=np.array([False, True]),
            elr=np.array([0, 0b001], np.uint8),
            last_known_leader=np.array([NO_CHANGE, 1], np.int32),
            recovery_state=np.array([1, UNCHANGED_STATE], np.int8),
        )
    )
    first, second, third, _ = (one for _, one in table.of(0))
    assert (first.isr, first.leader, first.leader_epoch, first.partition_epoch) == ((2, 3), 2, 1, 1)
    assert first.is_recovering
    assert (third.isr, third.leader, third.leader_epoch, third.partition_epoch) == ((1, 2, 3), 1, 0, 1)
    assert (third.elr, third.last_known_leader, third.is_recovering) == ((1,), 1, False)
    assert second == a_partition()


# Directories


def test_numbers_of_directories_that_nobody_uses_are_given_out_again():
    table = PartitionTable()
    table.directory_ids = DirectoryIds(numbers_max=9)
    kept = Partition((1, 2), (directory(1), directory(2)), (1,), 1)
    table.put(0, 0, kept)
    for number in range(10, 40, 2):
        fresh = Partition((1, 2), (directory(number), directory(number + 1)), (1,), 1)
        table.put(1, 0, fresh)
        assert table.get(0, 0) == kept
        assert table.get(1, 0) == fresh
    copy = table.copy()
    copy.put(2, 0, Partition((1, 2), (directory(7), directory(8)), (1,), 1))
    assert table.get(0, 0) == copy.get(0, 0) == kept
    with pytest.raises(ImageError, match="more than 9 log directories"):
        table.put(2, 0, Partition((1, 2, 3), (directory(50), directory(51), directory(52)), (1,), 1))


# Ids


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.sampled_from([1, 2**30, 2**60]))
def test_ids_are_numbered_each_once(values, spread):
    ids = np.frombuffer(b"".join((value * spread).to_bytes(16) for value in values), "V16")
    first, numbers = distinct(ids)
    assert len(first) == len(set(values))
    assert (as_words(ids[first[numbers]]) == as_words(ids)).all()
    asked = []

    def ask(one):
        asked.append(one)
        return int.from_bytes(one) // spread

    assert numbers_of(ids, ask).tolist() == values
    assert len(asked) == len(set(asked)) == len(set(values))


def test_ids_that_meet_in_a_bucket_stay_apart():
    ids = np.frombuffer(np.random.default_rng(1).bytes(16 * 200_000), "V16")
    ids = np.concatenate([ids, ids])
    first, numbers = distinct(ids)
    assert len(first) == 200_000
    assert (as_words(ids[first[numbers]]) == as_words(ids)).all()


@given(st.lists(st.tuples(st.sampled_from([0, 1, 9999]), st.sampled_from([0, 5, 10**6])), max_size=12))
def test_pairs_that_stand_twice_are_noticed(pairs):
    rows, columns = (np.array([pair[at] for pair in pairs], np.int32) for at in (0, 1))
    assert are_distinct(rows, columns) == (len(set(pairs)) == len(pairs))
