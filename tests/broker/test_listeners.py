"""Where clients and brokers are told that a broker is."""

import numpy as np
import pytest

from controller_cluster import Cluster, directory, incarnation
from quorate.broker.listeners import Reachable, address_of, endpoint_of
from quorate.metadata.brokers import Listener
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED, Partition
from quorate.metadata.records import RegisterBrokerRecord

LARGE = 2_000_000_000


def register(cluster, broker_id, listeners, *, fenced=False, directories=1):
    cluster.apply(
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation(broker_id),
            broker_epoch=cluster.next_offset,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(name=name, host=host, port=port, security_protocol=0)
                for name, host, port in listeners
            ],
            features=[],
            rack=None,
            fenced=fenced,
            log_dirs=[directory(broker_id, number) for number in range(directories)],
        )
    )


@pytest.fixture
def cluster():
    cluster = Cluster()
    register(cluster, 1, [("PLAINTEXT", "one", 9092), ("INTERNAL", "10.0.0.1", 9093)])
    register(cluster, 2, [("INTERNAL", "10.0.0.2", 9093)])
    register(cluster, 3, [("plaintext", "three", 9092)], fenced=True)
    return cluster


def test_a_broker_has_an_address_for_each_listener(cluster):
    image = cluster.image
    assert endpoint_of(image.brokers[1], "INTERNAL") == Listener("INTERNAL", "10.0.0.1", 9093)
    assert endpoint_of(image.brokers[1], "internal") == Listener("INTERNAL", "10.0.0.1", 9093)
    assert endpoint_of(image.brokers[2], "PLAINTEXT") is None


@pytest.mark.parametrize(
    ("broker_id", "listener", "address"),
    [
        (1, "INTERNAL", ("10.0.0.1", 9093)),
        (1, "PLAINTEXT", ("one", 9092)),
        (2, "PLAINTEXT", None),  # it has not this one
        (3, "PLAINTEXT", ("three", 9092)),  # fenced, and yet there
        (4, "PLAINTEXT", None),  # nobody has heard of it
    ],
)
def test_brokers_find_each_other(cluster, broker_id, listener, address):
    assert address_of(cluster.image, broker_id, listener) == address


def test_clients_see_those_who_are_alive_and_have_their_listener(cluster):
    reachable = Reachable(cluster.image, "PLAINTEXT")
    assert reachable.alive == [1]
    assert list(reachable.endpoints) == [1, 3]
    assert Reachable(cluster.image, "INTERNAL").alive == [1, 2]
    assert Reachable(cluster.image, "ELSE").alive == []


@pytest.mark.parametrize("more", [(), (LARGE,)], ids=["small ids", "a large id"])
def test_many_are_looked_up_at_once(cluster, more):
    for one in more:
        register(cluster, one, [("PLAINTEXT", "large", 1)])
    reachable = Reachable(cluster.image, "PLAINTEXT")
    ids = np.array([[-1, 1, 2], [3, 65_536, LARGE], [4, 65_535, 1]], np.int32)
    for found, expected in (
        (reachable.alive_among(ids), {1, *more}),
        (reachable.reachable_among(ids), {1, 3, *more}),
    ):
        assert found.tolist() == [[one in expected for one in row] for row in ids.tolist()]


@pytest.mark.parametrize(
    ("where", "is_offline"),
    [
        (directory(1, 0), False),
        (directory(1, 9), True),  # it has failed
        (LOST, True),
        (UNASSIGNED, False),
        (MIGRATING, False),
    ],
)
def test_a_replica_is_offline_with_its_directory(cluster, where, is_offline):
    cluster.create(1, [Partition((1,), (where,), (1,), 1)] * 20)
    image = cluster.image
    reachable = Reachable(image, "PLAINTEXT")
    assert reachable.is_offline(1, where) is is_offline
    (rows,) = image.partitions.hosted_by(1)
    found = reachable.offline_among(rows, rows.block.replicas[rows.index])
    assert found.tolist() == [[is_offline]] * 20


def test_before_there_were_directories_all_were_well():
    cluster = Cluster()
    register(cluster, 1, [("PLAINTEXT", "one", 9092)], directories=0)
    reachable = Reachable(cluster.image, "PLAINTEXT")
    assert not reachable.is_offline(1, directory(1, 5))
    assert reachable.is_offline(1, LOST)
    assert reachable.is_offline(2, MIGRATING)
