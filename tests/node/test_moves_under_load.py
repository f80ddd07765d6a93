"""Partitions move, moves are taken back, and leaderships go home, while a producer and a consumer go on."""

import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from node.broker_processes import BrokerProcesses, Load
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.processes

SETTINGS = {
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "replica_lag_time_max_ms": "5000",
    "leader_imbalance_check_interval_seconds": "1",
}
PARTITIONS = 100
ALL = (101, 102, 103)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), **SETTINGS) as running:
        yield running


def reassign(cluster: BrokerProcesses, topic: str, moves: Mapping[int, Sequence[int] | None]) -> list[int]:
    """Asks for moves, None to take one back; the code of each."""
    part = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [
        part.ReassignablePartition(partition_index=one, replicas=None if ids is None else list(ids))
        for one, ids in moves.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=60_000, topics=[part(name=topic, partitions=partitions)]
    )
    answer = cluster.ask_broker(101, request)
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0
    said = {one.partition_index: one.error_code for one in answer.responses[0].partitions}
    return [said[one] for one in moves]


def moving(cluster: BrokerProcesses) -> dict[int, list[int]]:
    """The brokers that partitions on their way are being added to."""
    answer = cluster.ask_broker(101, ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None))
    assert isinstance(answer, ListPartitionReassignmentsResponse)
    return {
        one.partition_index: list(one.adding_replicas) for each in answer.topics for one in each.partitions
    }


def test_a_hundred_partitions_move_and_half_of_them_are_called_back(cluster: BrokerProcesses):
    chance = random.Random(7)
    before = [chance.sample(ALL, 2) for _ in range(PARTITIONS)]
    cluster.create_topic("moving", *before, min_insync_replicas=1)
    target = [chance.sample(ALL, 2) for _ in range(PARTITIONS)]
    called_back = range(0, PARTITIONS, 2)
    with Load(cluster, "moving", partitions=PARTITIONS) as load:
        load.wait_for_more(5)
        codes = reassign(cluster, "moving", dict(enumerate(target)))
        assert codes == [0] * PARTITIONS
        codes = reassign(cluster, "moving", dict.fromkeys(called_back))
        # Some have arrived already, and some were where they should be: there is nothing to call back.
        assert set(codes) <= {0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        was_called_back = {one for one, code in zip(called_back, codes, strict=True) if code == 0}
        assert was_called_back, "they were all too fast to be called back"
        cluster.wait("nothing moves any more", lambda: not moving(cluster))
        cluster.wait_until_in_sync("moving")
        load.wait_for_more(5)
    for one, found in enumerate(cluster.partitions("moving")):
        if one in was_called_back:  # which keeps the order of whatever was wanted last
            assert set(found.replica_nodes) == set(before[one]), f"partition {one}"
        else:
            assert list(found.replica_nodes) == target[one], f"partition {one}"
    load.check()


def test_leaderships_go_home_while_clients_work(cluster: BrokerProcesses):
    """A broker leaves and comes back; the controller gives it its leaderships back on its own."""
    replicas = [(*ALL[one % 3 :], *ALL[: one % 3]) for one in range(12)]
    cluster.create_topic("balanced", *replicas, min_insync_replicas=2)
    with Load(cluster, "balanced", partitions=12) as load:
        load.wait_for_more(10)
        for one in ALL:
            assert cluster.terminate(one) == 0
            load.wait_for_more(5)
            cluster.start(one)
            cluster.wait_until_unfenced(*ALL)
            cluster.wait(
                "every preferred replica leads",
                lambda: (
                    [each.leader_id for each in cluster.partitions("balanced")]
                    == [ids[0] for ids in replicas]
                ),
            )
        load.wait_for_more(10)
    load.check()
