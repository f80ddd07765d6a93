"""What brokers are told, and which of them."""

from quorate.metadata.brokers import Listener
from quorate.protocol.api.zookeeper_era import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from quorate.protocol.types import Uuid
from quorate.zookeeper import batch as batches
from quorate.zookeeper.batch import Batch
from quorate.zookeeper.broker_changes import compare
from quorate.zookeeper.context import Context, Status
from quorate.zookeeper.deletion import Deletion, ReplicaState
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import PartitionAssignment, PartitionState, TopicNode

ID = Uuid(bytes(range(16)))


def member(broker_id, epoch=None, port=None):
    listener = Listener("PLAINTEXT", "h", 9000 + broker_id if port is None else port)
    return Member(broker_id, (listener,), epoch=10 * broker_id if epoch is None else epoch)


def context(count=2, members=(1, 2, 3)):
    found = Context(1, 7)
    found.put_members({one: member(one) for one in members})
    node = TopicNode(ID, {number: PartitionAssignment((1, 2)) for number in range(count)})
    found.put_topic("t", node, 0)
    for number in range(count):
        found.states["t", number] = PartitionState(1, 4, (1, 2), 6, partition_epoch=5)
    return found


def kinds(requests):
    return [type(one) for one in requests]


def test_replicas_are_told_what_to_do_and_everybody_of_it():
    batch = Batch(context(), "PLAINTEXT")
    batch.lead_or_follow([1, 2], ("t", 0))
    batch.stop(2, ("t", 1), 4, is_deleted=True)
    found = batch.requests()
    assert kinds(found[1]) == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert kinds(found[2]) == [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
    assert kinds(found[3]) == [UpdateMetadataRequest]
    told = found[2][0]
    assert (told.controller_id, told.controller_epoch, told.broker_epoch) == (1, 7, 20)
    (state,) = told.topic_states[0].partition_states
    assert (told.topic_states[0].topic_id, state.leader, state.leader_epoch) == (ID, 1, 4)
    assert (state.partition_epoch, state.controller_epoch, state.isr) == (5, 6, [1, 2])
    assert [(one.broker_id, one.port) for one in told.live_leaders] == [(1, 9001)]
    metadata = found[3][0]
    assert [one.id for one in metadata.live_brokers] == [1, 2, 3]
    assert metadata.broker_epoch == 30
    (stop,) = found[2][2].topic_states[0].partition_states
    assert (stop.partition_index, stop.leader_epoch, stop.delete_partition) == (1, 4, True)


def test_a_replica_that_was_new_stays_new_within_a_batch():
    batch = Batch(context(), "PLAINTEXT")
    batch.lead_or_follow([1], ("t", 0), is_new=True)
    batch.lead_or_follow([1], ("t", 0))
    assert batch.requests()[1][0].topic_states[0].partition_states[0].is_new


def test_replicas_of_brokers_that_are_gone_are_offline_in_the_metadata():
    batch = Batch(context(members=(1, 3)), "PLAINTEXT")
    batch.tell_everyone([("t", 0)])
    found = batch.requests()
    assert set(found) == {1, 3}
    assert found[3][0].topic_states[0].partition_states[0].offline_replicas == [2]


def test_partitions_without_a_state_are_not_told_of_but_deleted_ones_are():
    known = context()
    del known.states["t", 1]
    batch = Batch(known, "PLAINTEXT")
    batch.tell_everyone([("t", 0), ("t", 1)])
    assert len(batch.requests()[1][0].topic_states[0].partition_states) == 1
    batch = Batch(known, "PLAINTEXT")
    batch.forget([("t", 0), ("t", 1)])
    (request,) = batch.requests()[2]
    assert [one.leader for one in request.topic_states[0].partition_states] == [-2, -2]


def test_only_those_who_are_meant_are_told_of_brokers():
    batch = Batch(context(), "PLAINTEXT")
    batch.tell([1], [])
    batch.tell([2], [("t", 0)])
    found = batch.requests()
    assert set(found) == {1, 2}
    assert found[1][0].topic_states == []
    assert len(found[2][0].topic_states) == 1


def test_a_request_has_its_limit(monkeypatch):
    monkeypatch.setattr(batches, "PARTITIONS_MAX", 3)
    batch = Batch(context(count=8), "PLAINTEXT")
    for number in range(8):
        batch.lead_or_follow([2], ("t", number))
    found = batch.requests()[2]
    assert kinds(found) == [LeaderAndIsrRequest] * 3 + [UpdateMetadataRequest] * 3
    numbers = [
        one.partition_index for request in found[:3] for one in request.topic_states[0].partition_states
    ]
    assert numbers == list(range(8))


# What is known


def test_states_follow_from_what_is_known():
    known = context()
    assert known.status(("t", 0)) is Status.ONLINE
    known.put_members({2: member(2)})
    assert known.status(("t", 0)) is Status.OFFLINE
    assert known.leaderless(known.keys()) == [("t", 0), ("t", 1)]
    known.states.clear()
    assert known.status(("t", 0)) is Status.NEW
    known.put_members({1: member(1), 2: member(2)})
    known.states["t", 0] = PartitionState(1, 0, (1, 2), 0)
    known.failed_replicas[1] = {("t", 0)}
    assert known.status(("t", 0)) is Status.OFFLINE
    assert known.is_online(1, ("t", 1))


def test_who_has_what_is_known_without_looking_at_everything():
    known = context()
    assert known.hosted_by(2) == [("t", 0), ("t", 1)]
    known.assign(("t", 0), PartitionAssignment((1, 3), (3,), ()))
    assert known.hosted_by(2) == [("t", 1)]
    assert known.hosted_by(3) == [("t", 0)]
    assert known.moving == {("t", 0)}
    known.remove_topic("t")
    assert not known.hosts()
    assert not known.moving
    assert not known.states


def test_a_topic_that_was_made_again_is_another():
    known = context()
    known.put_topic("t", TopicNode(Uuid(bytes(16)[:15] + b"\7"), {0: PartitionAssignment((3,))}), 0)
    assert known.hosted_by(1) == []
    assert ("t", 0) not in known.states
    assert ID not in known.names


def test_comings_and_goings_follow_from_epochs():
    before = {1: member(1), 2: member(2), 3: member(3), 4: member(4)}
    after = {1: member(1), 2: member(2, epoch=99), 4: member(4, port=5), 5: member(5)}
    assert compare(before, after) == ([5], [3], [2], [4])


# Deletions


def test_a_deletion_goes_through_its_states():
    deletion = Deletion([(1, 0), (2, 0)])
    assert deletion.move((1, 0), ReplicaState.STARTED)
    assert not deletion.move((2, 0), ReplicaState.SUCCESSFUL)  # it has not begun
    assert deletion.move((2, 0), ReplicaState.STARTED)
    assert deletion.move((1, 0), ReplicaState.SUCCESSFUL)
    assert not deletion.move((1, 0), ReplicaState.STARTED)
    assert deletion.move((2, 0), ReplicaState.INELIGIBLE)
    assert not deletion.is_done()
    deletion.take_heart()
    assert deletion.replicas_in(ReplicaState.OFFLINE) == [(2, 0)]
    deletion.move((2, 0), ReplicaState.STARTED)
    deletion.move((2, 0), ReplicaState.SUCCESSFUL)
    assert deletion.is_done()
    assert not deletion.move((9, 9), ReplicaState.STARTED)
