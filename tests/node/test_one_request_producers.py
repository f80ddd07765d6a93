"""Producer ids that somebody makes up: a node remembers so many, and forgets those that wrote nothing for
longest, as Kafka forgets those that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from node.broker_processes import BrokerProcesses
from node.one_request import MIB, Peer, Watched
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.api.transactions import DescribeProducersRequest
from quorate.protocol.batch import Record, build
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.processes

NODE = 1
IN_A_PARTITION = 1500
IN_ALL = 2500
MADE_UP = 4000
FIRST_ID = 1 << 40
AT_ONCE = 50  # requests that wait for their answers
VALUE_BYTES = 700  # so that segments end while it goes on
GROWTH_BYTES_MAX = 24 * MIB
PRODUCE, DESCRIBE = 9, 0  # versions


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(
        tmp_path_factory.mktemp("cluster"),
        combined=1,
        quorate_producer_ids_max=str(IN_ALL),
        quorate_producer_ids_per_partition_max=str(IN_A_PARTITION),
    ) as running:
        running.create_topic("orders", [NODE], [NODE], segment_bytes=1 << 20)
        yield running


def written(producer_id: int, sequence: int, partition: int) -> ProduceRequest:
    batch = build(
        [Record(0, 1_700_000_000_000, None, bytes(VALUE_BYTES))],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name="orders", partition_data=[part])])


def write(peer: Peer, producer_id: int, sequence: int, partition: int = 0) -> tuple[int, int]:
    """The error, and the offset."""
    answer = peer.ask(written(producer_id, sequence, partition), PRODUCE).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def make_up(peer: Peer, ids: Sequence[int], partition: int) -> int:
    """Each writes its first batch. How many bytes that takes."""
    request = written(0, 0, partition)
    sent_bytes = 0
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        for producer_id in some:
            request = written(producer_id, 0, partition)
            sent_bytes += peer.say(request, PRODUCE)
        for _ in some:
            answer = peer.hear(request, PRODUCE).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NONE, answer
    return sent_bytes


def remembered(peer: Peer, partition: int) -> set[int]:
    topic = DescribeProducersRequest.TopicRequest(name="orders", partition_indexes=[partition])
    found = peer.ask(DescribeProducersRequest(topics=[topic]), DESCRIBE).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return {one.producer_id for one in found.active_producers}


def test_made_up_producers_are_forgotten_and_those_that_write_are_not(
    cluster: BrokerProcesses, record_property: Callable[[str, object], None]
) -> None:
    ids = range(FIRST_ID, FIRST_ID + MADE_UP)
    with Peer(cluster) as peer, Peer(cluster) as steady:
        idle = FIRST_ID - 1
        assert write(peer, idle, 0)[0] == ErrorCode.NONE
        with Watched(cluster) as watched:
            for count, first in enumerate(range(0, MADE_UP, 500)):
                assert write(steady, 7, count)[0] == ErrorCode.NONE
                make_up(peer, ids[first : first + 500], 0)
            make_up(peer, ids[:IN_A_PARTITION], 1)
        record_property("bystander_waited_ms", watched.waited_ms)
        assert watched.grown_bytes <= GROWTH_BYTES_MAX
        in_both = [remembered(peer, 0), remembered(peer, 1)]
        assert all(len(one) <= IN_A_PARTITION for one in in_both)
        assert sum(map(len, in_both)) <= IN_ALL
        assert 7 in in_both[0]
        assert idle not in in_both[0]
        # Who writes is told of a batch that comes twice, and of one that is missing.
        last = len(range(0, MADE_UP, 500)) - 1
        first_time = write(steady, 7, last)
        assert first_time == write(steady, 7, last)
        assert write(steady, 7, last + 5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # Who was forgotten may go on with any number, as with Kafka after `producer.id.expiration.ms`.
        assert write(peer, idle, 17)[0] == ErrorCode.NONE
        assert write(peer, idle, 19)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    directory = cluster.partition_directory(NODE, "orders")
    cluster.wait("two ends of segments are saved", lambda: len(list(directory.glob("*.snapshot"))) >= 2)
    known = in_both[0]
    cluster.kill(NODE)
    cluster.start(NODE)
    cluster.wait_until_unfenced(NODE)
    with Peer(cluster) as peer:
        assert remembered(peer, 0) >= {7, max(known)}
        assert len(remembered(peer, 0)) <= IN_A_PARTITION
        assert write(peer, 7, last) == first_time
    assert cluster.terminate(NODE) == 0
