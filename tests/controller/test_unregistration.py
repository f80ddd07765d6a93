"""An administrator makes the cluster forget a broker."""

import pytest

from broker_requests import beat, register, start
from controller_cluster import Cluster, directory
from quorate.controller.events import BrokerUnregistered
from quorate.controller.refusal import Refusal
from quorate.controller.unregistration import decide_unregistration
from quorate.metadata.partitions import Partition
from quorate.metadata.records import UnregisterBrokerRecord
from quorate.protocol.api.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse
from quorate.protocol.errors import ApiError, ErrorCode


def unregister(cluster: Cluster, broker_id: int):
    return cluster.decide(decide_unregistration, UnregisterBrokerRequest(broker_id=broker_id))


def test_a_broker_is_forgotten():
    cluster = Cluster()
    epoch = start(cluster, 1)

    decision = unregister(cluster, 1)

    assert 1 not in cluster.image.brokers
    assert cluster.sessions.of(1) is None
    assert decision.reply == UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None)
    assert list(decision.events) == [BrokerUnregistered(1, epoch, 0, 0)]


@pytest.mark.parametrize(("registered", "named"), [([], "none"), ([3, 2], "2, 3")])
def test_who_is_not_registered_cannot_be_forgotten(registered, named):
    cluster = Cluster(registered)

    with pytest.raises(ApiError) as caught:
        unregister(cluster, 1)

    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert named in caught.value.message


def test_a_broker_that_serves_can_be_forgotten():
    cluster = Cluster([1, 2])
    cluster.create(1, [(1, 2), (2, 1), (1,)])

    decision = unregister(cluster, 1)

    assert [cluster.partition(1, number).leader for number in range(3)] == [2, 2, -1]
    assert [cluster.partition(1, number).isr for number in range(3)] == [(2,), (2,), (1,)]
    assert cluster.partition(1).replicas == (1, 2)  # until it is reassigned
    assert isinstance(decision.records[-1], UnregisterBrokerRecord)
    event = decision.events[0]
    assert (event.partitions, event.leaderless) == (3, 1)


def test_a_fenced_broker_can_be_forgotten():
    cluster = Cluster([1])
    cluster.fence(1)

    unregister(cluster, 1)

    assert not cluster.image.brokers


def test_a_broker_that_was_forgotten_while_it_ran_has_a_stale_epoch():
    cluster = Cluster()
    epoch = start(cluster, 1)
    unregister(cluster, 1)

    with pytest.raises(Refusal) as caught:
        beat(cluster, 1, epoch=epoch)

    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert caught.value.event.registered_epoch == -1


def test_a_forgotten_id_can_be_registered_by_another_at_once():
    cluster = Cluster()
    epoch = start(cluster, 1)
    unregister(cluster, 1)

    register(cluster, 1, run=1)

    assert cluster.image.brokers[1].epoch > epoch


def test_too_many_partitions_for_one_request_are_refused():
    cluster = Cluster([1, 2])
    cluster.create(1, [(1, 2)] * 10_001)

    with pytest.raises(ApiError) as caught:
        unregister(cluster, 1)

    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert 1 in cluster.image.brokers


def test_a_directory_is_free_after_its_broker_was_forgotten():
    cluster = Cluster()
    start(cluster, 1)
    unregister(cluster, 1)

    register(cluster, 2, log_dirs=[directory(1)])

    assert cluster.image.brokers[2].directories == (directory(1),)


def test_who_is_forgotten_is_not_in_sync_where_eligible_replicas_are_on():
    cluster = Cluster([1, 2], elr=True, topic_defaults={"min.insync.replicas": "2"})
    directories = (directory(1), directory(2))
    cluster.create(
        1, [Partition((1, 2), directories, (1, 2), 1), Partition((1, 2), directories, (2,), 2, elr=(1,))]
    )

    unregister(cluster, 1)

    assert [cluster.partition(1, number).isr for number in range(2)] == [(2,), (2,)]
    assert cluster.partition(1, 0).leader == 2
