"""Where records go."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner
from kafka.partitioner.default import murmur2 as theirs

from quorate.client.metadata import Partition, Topic
from quorate.client.partitioner import StickyPartitioner, murmur2, partition_for_key
from quorate.protocol.types import ZERO_UUID


@given(st.binary(max_size=200))
def test_the_hash_is_that_of_kafka_python(key):
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_the_partition_is_that_of_kafka_python(key, count):
    class Known:
        def topics(self) -> list[str]:
            return ["t"]

        def partitions_for_topic(self, _topic: str) -> range:
            return range(count)

        available_partitions_for_topic = partitions_for_topic

    chosen = DefaultPartitioner().partition("t", None, key, None, None, Known())
    assert partition_for_key(key, count) == chosen


def topic(*leaders: int) -> Topic:
    return Topic("t", ZERO_UUID, {i: Partition(i, leader, 0) for i, leader in enumerate(leaders)})


def test_records_without_a_key_stay_for_a_turn_and_then_go_elsewhere():
    sticky, three = StickyPartitioner(Random(1), bytes_per_turn=100), topic(1, 2, 3)
    chosen = [sticky.partition(three, 50) for _ in range(200)]
    turns = chosen[::2]
    assert chosen[1::2] == turns
    assert all(one != other for one, other in pairwise(turns))
    assert set(turns) == {0, 1, 2}


def test_partitions_without_a_leader_are_avoided_unless_none_has_one():
    sticky = StickyPartitioner(Random(1), bytes_per_turn=1)
    assert {sticky.partition(topic(-1, 5, -1), 1) for _ in range(20)} == {1}
    assert {sticky.partition(topic(-1, -1), 1) for _ in range(20)} == {0, 1}


def test_new_metadata_does_not_end_a_turn():
    sticky = StickyPartitioner(Random(1), bytes_per_turn=1000)
    first = sticky.partition(topic(1, 2, 3), 10)
    assert all(sticky.partition(topic(1, 2, 3), 10) == first for _ in range(50))
    gone = [1, 2, 3]
    gone[first] = -1
    assert sticky.partition(topic(*gone), 10) != first
