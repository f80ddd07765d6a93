"""Quorums of real processes: elections, crashes, recovery, snapshots, changes of voters."""

import random
import shutil

import pytest

from node.processes import CLUSTER_ID, HOST, Processes, offsets_of
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.api.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, VoteRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.wire import METADATA_TOPIC

pytestmark = pytest.mark.processes

KILLS = 10
UNCOMMITTED = 5  # a parked fetch may still deliver the first ones


@pytest.fixture
def cluster(tmp_path):
    with Processes(tmp_path) as processes:
        yield processes


@pytest.fixture
def three(cluster):
    cluster.format_static(3)
    cluster.start(1, 2, 3)
    return cluster


def test_three_processes_elect_a_leader_and_commit(three):
    quorum = three.wait_until_caught_up(1, 2, 3, beyond=5)
    assert quorum["leader_id"] in (1, 2, 3)
    assert [one["id"] for one in quorum["voters"]] == [1, 2, 3]
    assert quorum["observers"] == []


def test_a_controller_says_where_the_controllers_are(three):
    three.wait_for_leader(above=0)
    response = three.ask(
        1, DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    )
    assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, CLUSTER_ID)
    assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
        (node_id, *three.address(node_id)) for node_id in (1, 2, 3)
    ]


def test_a_killed_leader_is_replaced_and_rejoins(three):
    before = three.wait_until_caught_up(1, 2, 3, beyond=5)
    old = before["leader_id"]
    committed = three.committed(old, before["high_watermark"])
    three.kill(old)
    after = three.wait_for_leader(other_than=old, above=before["high_watermark"])
    assert after["leader_epoch"] > before["leader_epoch"]
    three.start(old)
    caught_up = three.wait_until_caught_up(1, 2, 3)
    assert_same_logs(three, caught_up["high_watermark"], committed)


def test_what_was_not_committed_is_truncated(three):
    before = three.wait_until_caught_up(1, 2, 3, beyond=5)
    old = before["leader_id"]
    others = [one for one in (1, 2, 3) if one != old]
    three.pause(*others)
    stuck = three.describe(old)["high_watermark"]

    def has_uncommitted():
        now = three.describe(old)
        stored = three.batches(old)
        return now and now["high_watermark"] == stuck and max(stored) > stuck + UNCOMMITTED and stored

    stored = three.wait("records that only the leader has", has_uncommitted)
    three.kill(old)
    committed = {offset: batch for offset, batch in stored.items() if offset < stuck}
    three.resume(*others)
    after = three.wait_for_leader(other_than=old, above=stuck)
    assert "truncate end_offset" not in three.logged(old)
    three.start(old)
    caught_up = three.wait_until_caught_up(1, 2, 3, beyond=max(stored) + 1)
    assert "truncate end_offset" in three.logged(old)
    assert caught_up["leader_epoch"] >= after["leader_epoch"]
    assert_same_logs(three, caught_up["high_watermark"], committed)
    kept = three.batches(old)
    assert any(kept.get(offset) != batch for offset, batch in stored.items()), "nothing was uncommitted"


def test_kills_at_many_moments_lose_nothing_committed(three):
    """Leaders and followers, running and just starting, one and two at a time."""
    chance = random.Random(7)
    high_watermark = three.wait_until_caught_up(1, 2, 3)["high_watermark"]
    committed = {}
    for _ in range(KILLS):
        quorum = three.wait_for_leader(above=high_watermark + chance.randrange(1, 12))
        high_watermark, leader = quorum["high_watermark"], quorum["leader_id"]
        for offset, batch in three.committed(leader, high_watermark).items():
            assert committed.setdefault(offset, batch) == batch
        followers = [one for one in (1, 2, 3) if one != leader]
        victims = chance.choice([[leader], [leader, followers[0]], followers, [1, 2, 3]])
        three.kill(*victims)
        three.start(*victims)
        if chance.random() < 0.3:  # again, wherever it is by now
            three.kill(victims[0])
            three.start(victims[0])
    caught_up = three.wait_until_caught_up(1, 2, 3, beyond=high_watermark)
    assert_same_logs(three, caught_up["high_watermark"], committed)


def test_a_deleted_node_catches_up_through_a_snapshot(tmp_path):
    settings = {
        "metadata_log_max_record_bytes_between_snapshots": "2000",
        "metadata_max_retention_bytes": "2000",
    }
    with Processes(tmp_path, **settings) as cluster:
        cluster.format_static(3)
        cluster.start(1, 2, 3)
        quorum = cluster.wait_until_caught_up(1, 2, 3)
        lost = next(one for one in (1, 2, 3) if one != quorum["leader_id"])
        cluster.kill(lost)
        running = [one for one in (1, 2, 3) if one != lost]
        cluster.wait(
            "logs that begin with a snapshot",
            lambda: all("log starts at" in cluster.logged(one) for one in running),
        )
        shutil.rmtree(cluster.directory(lost))
        cluster.format(lost)
        cluster.start(lost)
        caught_up = cluster.wait_until_caught_up(1, 2, 3)
        assert "snapshot installed" in cluster.logged(lost)
        # each begins where its own last snapshot is, which may be at its end just now
        common = cluster.wait(
            "a part that all have", lambda: common_part(cluster, caught_up["high_watermark"])
        )
        assert min(common[0]) > 0
        assert common[0] == common[1] == common[2]


def test_a_leader_that_is_told_to_stop_hands_over(three):
    before = three.wait_until_caught_up(1, 2, 3)
    old = before["leader_id"]
    assert three.terminate(old) == 0
    after = three.wait_for_leader(above=before["high_watermark"])
    assert after["leader_id"] != old
    assert after["leader_epoch"] > before["leader_epoch"]
    assert "role=Resigned" in three.logged(old)


def test_a_whole_quorum_stops_and_goes_on(three):
    before = three.wait_until_caught_up(1, 2, 3, beyond=5)
    committed = three.committed(before["leader_id"], before["high_watermark"])
    assert [three.terminate(one) for one in (1, 2, 3)] == [0, 0, 0]
    three.start(1, 2, 3)
    after = three.wait_until_caught_up(1, 2, 3, beyond=before["high_watermark"] + 1)
    assert after["leader_epoch"] > before["leader_epoch"]
    assert_same_logs(three, after["high_watermark"], committed)


def test_voters_can_be_added_and_removed(cluster):
    bootstrap = {"controller_quorum_bootstrap_servers": f"{HOST}:{cluster.port(1)}"}
    for node_id, option in ((1, "--standalone"), (2, "--no-initial-controllers")):
        cluster.configure(node_id, **bootstrap)
        cluster.format(node_id, option)
    cluster.start(1)
    cluster.wait_for_leader(above=0)
    cluster.start(2)
    observed = cluster.wait("an observer that is caught up", lambda: observers_caught_up(cluster))
    assert [one["id"] for one in observed["voters"]] == [1]
    assert [one["id"] for one in observed["observers"]] == [2]
    directory = Uuid.parse(observed["observers"][0]["directory_id"])

    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=HOST, port=cluster.port(2))
    add = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=5000,
        voter_id=2,
        voter_directory_id=directory,
        listeners=[listener],
    )
    added = cluster.ask(1, add)
    assert added.error_code == ErrorCode.NONE, added.error_message
    quorum = cluster.wait_until_caught_up(1, 2)
    assert [one["id"] for one in quorum["voters"]] == [1, 2]
    assert quorum["observers"] == []
    assert cluster.ask(1, add).error_code == ErrorCode.DUPLICATE_VOTER

    remove = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=2, voter_directory_id=directory)
    removed = cluster.ask(1, remove)
    assert removed.error_code == ErrorCode.NONE, removed.error_message
    assert [one["id"] for one in cluster.wait_for_leader()["voters"]] == [1]
    assert cluster.ask(1, remove).error_code == ErrorCode.VOTER_NOT_FOUND


def test_a_leader_that_is_removed_leaves_the_rest_to_another(cluster):
    bootstrap = {"controller_quorum_bootstrap_servers": f"{HOST}:{cluster.port(1)},{HOST}:{cluster.port(2)}"}
    directories = {node_id: str(Uuid(random.Random(node_id).randbytes(16))) for node_id in (1, 2)}
    initial = ",".join(f"{one}@{HOST}:{cluster.port(one)}:{directories[one]}" for one in (1, 2))
    for node_id in (1, 2):
        cluster.configure(node_id, **bootstrap)
        cluster.format(node_id, "--initial-controllers", initial)
    cluster.start(1, 2)
    old = cluster.wait_until_caught_up(1, 2)["leader_id"]
    remove = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=old, voter_directory_id=Uuid.parse(directories[old])
    )
    assert cluster.ask(old, remove).error_code == ErrorCode.NONE
    after = cluster.wait_for_leader(other_than=old)
    assert [one["id"] for one in after["voters"]] == [3 - old]


@pytest.mark.parametrize(
    ("cluster_id", "voter_id", "expected"),
    [("AAAAAAAAAAAAAAAAAAAAAQ", 1, "INCONSISTENT_CLUSTER_ID"), (CLUSTER_ID, 9, "INVALID_VOTER_KEY")],
)
def test_requests_that_were_meant_for_others_are_refused(cluster, cluster_id, voter_id, expected):
    cluster.format_static(1)
    cluster.start(1)
    cluster.wait_for_leader(above=0)
    partition = VoteRequest.TopicData.PartitionData(
        partition_index=0, replica_epoch=1, replica_id=1, last_offset_epoch=0, last_offset=10**6
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    response = cluster.ask(1, VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic]))
    codes = [response.error_code] + [one.error_code for part in response.topics for one in part.partitions]
    assert ErrorCode[expected] in codes
    assert cluster.wait_for_leader()["leader_epoch"] == 1


def common_part(cluster, after_offset):
    """What the logs of the three have from an offset on, as far as all have it; None if that is nothing."""
    end = cluster.wait_until_caught_up(1, 2, 3, beyond=after_offset)["high_watermark"]
    logs = [cluster.committed(one, end) for one in (1, 2, 3)]
    if not all(logs):
        return None
    first = max(min(log) for log in logs)
    common = [{at: batch for at, batch in log.items() if at >= first} for log in logs]
    return common if all(common) else None


def observers_caught_up(cluster):
    found = cluster.describe(1)
    return found if found and any(one["last_caught_up_timestamp"] > 0 for one in found["observers"]) else None


def assert_same_logs(cluster, high_watermark, committed):
    """Below the high watermark all logs are the same, without gaps, and hold what was once committed."""
    logs = [cluster.committed(one, high_watermark) for one in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert offsets_of(logs[0]) == list(range(high_watermark))
    assert committed
    assert {offset: logs[0].get(offset) for offset in committed} == committed
