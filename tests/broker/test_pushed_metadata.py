"""Metadata that a controller sends becomes an image like any other."""

from typing import Any

import pytest

from quorate.broker.pushed_metadata import AT_ONCE, BEING_DELETED, FULL, PushedMetadata
from quorate.metadata.image import ClusterImage
from quorate.protocol.api.zookeeper_era import UpdateMetadataPartitionState, UpdateMetadataRequest
from quorate.protocol.types import ZERO_UUID, Uuid


def uuid(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b".")[:16])


def state(index: int, leader: int, *, epoch: int = 0, version: int = 0, **more: Any) -> Any:
    replicas = more.get("replicas", [1, 2, 3])
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=more.get("isr", replicas),
        zk_version=version,
        replicas=replicas,
    )


def topic(name: str, *states: Any, id_: str | None = None) -> UpdateMetadataRequest.TopicState:
    return UpdateMetadataRequest.TopicState(
        topic_name=name, topic_id=uuid(id_ or name), partition_states=list(states)
    )


def broker(id_: int, port: int = 9092, rack: str | None = None) -> UpdateMetadataRequest.Broker:
    endpoint = UpdateMetadataRequest.Broker.Endpoint(
        port=port, host=f"host-{id_}", listener="PLAINTEXT", security_protocol=0
    )
    return UpdateMetadataRequest.Broker(id=id_, endpoints=[endpoint], rack=rack)


class Cluster:
    """An image, and the controller's requests for it."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._pushed = PushedMetadata()
        self._offset = 0

    def push(self, *topics: Any, brokers: Any = (), type_: int = 0) -> list[str]:
        """What became of a request: the names of the records, in order."""
        request = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            type=type_,
            topic_states=list(topics),
            live_brokers=list(brokers),
        )
        names = []
        for records in self._pushed.records(self.image, request):
            self.image.apply_changes(records, self._offset)
            self._offset += len(records)
            names += [type(one).__name__.removesuffix("Record") for one in records]
        return names


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_brokers_are_those_of_the_last_request(cluster: Cluster):
    cluster.push(brokers=[broker(1), broker(2, rack="a")])
    assert sorted(cluster.image.brokers) == [1, 2]
    assert cluster.image.brokers[2].rack == "a"
    assert cluster.image.brokers[1].is_active
    cluster.push(brokers=[broker(2, rack="a"), broker(3)])
    assert sorted(cluster.image.brokers) == [2, 3]


def test_brokers_that_are_as_they_were_are_no_change(cluster: Cluster):
    assert cluster.push(brokers=[broker(1), broker(2)]) == ["RegisterBroker"] * 2
    assert cluster.push(brokers=[broker(1), broker(2)]) == []
    assert cluster.push(brokers=[broker(1, port=9999), broker(2)]) == ["RegisterBroker"]
    assert cluster.image.brokers[1].listeners[0].port == 9999


def test_a_partition_is_what_was_said_last(cluster: Cluster):
    cluster.push(topic("t", state(0, 1), state(1, 2)))
    cluster.push(topic("t", state(1, 3, epoch=4, version=7, isr=[3, 2])))
    first = cluster.image.partition(uuid("t"), 0)
    second = cluster.image.partition(uuid("t"), 1)
    assert first is not None
    assert second is not None
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (1, 0, 0)
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (3, 4, 7)
    assert set(second.isr) == {2, 3}


def test_a_partition_without_a_leader_stays(cluster: Cluster):
    cluster.push(topic("t", state(0, 1)))
    cluster.push(topic("t", state(0, -1, epoch=1)))
    found = cluster.image.partition(uuid("t"), 0)
    assert found is not None
    assert found.leader == -1


def test_one_who_is_in_sync_and_no_replica_any_more_has_no_place(cluster: Cluster):
    cluster.push(topic("t", state(0, 2, replicas=[2, 3], isr=[1, 2, 3])))
    found = cluster.image.partition(uuid("t"), 0)
    assert found is not None
    assert found.isr == (2, 3)


def test_a_topic_is_gone_when_its_last_partition_is(cluster: Cluster):
    cluster.push(topic("t", state(0, 1), state(1, 1)))
    assert cluster.push(topic("t", state(0, BEING_DELETED))) == []
    assert "t" in cluster.image.topics.by_name
    assert cluster.push(topic("t", state(1, BEING_DELETED))) == ["RemoveTopic"]
    assert cluster.push(topic("t", state(1, BEING_DELETED))) == []  # told again


def test_a_topic_of_the_same_name_is_another_one(cluster: Cluster):
    cluster.push(topic("t", state(0, 1, epoch=9), id_="old"))
    cluster.push(topic("t", state(0, 2), id_="new"))
    assert cluster.image.topics.by_name["t"].id == uuid("new")
    assert cluster.push(topic("t", state(0, BEING_DELETED), id_="old")) == []
    assert "t" in cluster.image.topics.by_name


def test_a_full_request_leaves_nothing_out(cluster: Cluster):
    cluster.push(topic("a", state(0, 1)), topic("b", state(0, 1)))
    cluster.push(topic("b", state(0, 2)), type_=FULL)
    assert list(cluster.image.topics.by_name) == ["b"]


def test_topics_without_ids_are_not_taken(cluster: Cluster):
    nameless = UpdateMetadataRequest.TopicState(
        topic_name="t", topic_id=ZERO_UUID, partition_states=[state(0, 1)]
    )
    assert cluster.push(nameless) == []


def test_many_partitions_come_some_at_a_time(cluster: Cluster):
    many = [state(one, 1) for one in range(AT_ONCE + 1)]
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, topic_states=[topic("t", *many)], live_brokers=[]
    )
    sizes = []
    for records in PushedMetadata().records(cluster.image, request):
        cluster.image.apply_changes(records, 0)
        sizes.append(len(records))
    assert sizes == [0, 1, AT_ONCE, 1]
    assert cluster.image.partition(uuid("t"), AT_ONCE) is not None
