"""Brokers as processes that are killed, stopped, paused, filled up and replaced, while producers go on: in
either mode."""

import signal
from collections.abc import Iterator

import pytest

from node.broker_processes import BrokerProcesses, Load
from node.zookeeper_processes import BOTH_MODES, cluster_of

pytestmark = pytest.mark.processes

SETTINGS = {
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "300",
    "replica_lag_time_max_ms": "1200",
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "replica_high_watermark_checkpoint_interval_ms": "500",
    "leader_imbalance_check_interval_seconds": "1",
}
ALL = (101, 102, 103)


@pytest.fixture(scope="module", params=BOTH_MODES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcesses]:
    """Three brokers, and three controllers or a ZooKeeper. Every test leaves them running."""
    with cluster_of(request.param, tmp_path_factory.mktemp("cluster"), **SETTINGS) as running:
        yield running


def rotated(ids: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    return [ids[number:] + ids[:number] for number in range(count)]


def test_a_leader_is_killed_and_comes_back(cluster: BrokerProcesses):
    cluster.create_topic("killed", *rotated(ALL, 3), min_insync_replicas=2)
    with Load(cluster, "killed", partitions=3) as load:
        load.wait_for_more(200)
        leader = cluster.leader_of("killed")
        cluster.kill(leader)
        cluster.wait_for_leader_of("killed", other_than=leader)
        load.wait_for_more(200)
        cluster.start(leader)
        cluster.wait_until_in_sync("killed")
        load.wait_for_more(200)
    load.check()


def test_all_brokers_are_rolled_and_nobody_notices(cluster: BrokerProcesses):
    cluster.create_topic("rolled", *rotated(ALL, 3), min_insync_replicas=2)
    with Load(cluster, "rolled", partitions=3) as load:
        for one in ALL:
            load.wait_for_more(100)
            assert cluster.terminate(one) == 0
            load.wait_for_more(100)
            cluster.start(one)
            cluster.wait_until_unfenced(one)
            cluster.wait_until_in_sync("rolled")
    load.check()


def test_the_active_controller_is_killed(cluster: BrokerProcesses):
    cluster.create_topic("governed", *rotated(ALL, 3), min_insync_replicas=2)
    with Load(cluster, "governed", partitions=3) as load:
        load.wait_for_more(100)
        before = cluster.wait_for_leader()["leader_id"]
        cluster.kill(before)
        cluster.wait_for_leader(other_than=before)
        load.wait_for_more(100)
        if before in ALL:  # it was a broker as well, and two must be in sync
            cluster.start(before)
            cluster.wait_until_unfenced(before)
            cluster.wait_until_in_sync("governed")
        # The new one knows the brokers, and lets one of them go.
        other = next(one for one in ALL if one != before)
        assert cluster.terminate(other) == 0
        load.wait_for_more(100)
        cluster.start(other, *({before} - {*ALL}))
        cluster.wait_until_unfenced(other)
        cluster.wait_until_in_sync("governed")
    load.check()


def test_a_follower_that_is_stopped_leaves_the_isr_and_comes_back(cluster: BrokerProcesses):
    cluster.create_topic("paused", (101, 102, 103), min_insync_replicas=2)
    with Load(cluster, "paused") as load:
        load.wait_for_more(100)
        cluster.pause(103)
        try:
            cluster.wait(
                "broker 103 is not in sync", lambda: 103 not in cluster.partitions("paused")[0].isr_nodes
            )
            load.wait_for_more(100)
        finally:
            cluster.resume(103)
        cluster.wait_until_unfenced(103)
        cluster.wait_until_in_sync("paused")
    load.check()
    assert cluster.stored(103, "paused") == cluster.stored(101, "paused")


def test_a_second_process_with_the_id_of_a_broker_is_refused(cluster: BrokerProcesses):
    cluster.create_topic("twins", (101, 102, 103), min_insync_replicas=2)
    with Load(cluster, "twins") as load:
        ended = cluster.run_twin(101, initial_broker_registration_timeout_ms="1500")
        load.wait_for_more(100)
    load.check()
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    if cluster.mode == "kraft":
        assert last.startswith("quorate: it was not registered within 1500 ms")
        assert "DUPLICATE_BROKER_REGISTRATION" in last
    else:
        assert "broker id 101 is taken: session 0x" in last
        assert f"PLAINTEXT://127.0.0.1:{cluster.client_port(101)} has it" in last
    assert "Traceback" not in ended.stderr
    assert cluster.leader_of("twins") == 101


def test_an_empty_broker_takes_the_place_of_a_dead_one_and_fills_itself(cluster: BrokerProcesses):
    cluster.create_topic("replaced", (102, 101, 103), min_insync_replicas=2)
    with Load(cluster, "replaced", padding=500) as load:
        load.wait_for_more(1000)
        cluster.kill(102)
        cluster.empty(102)
        cluster.start(102)
        load.wait_for_more(500)
        cluster.wait_until_unfenced(102)
        cluster.wait_until_in_sync("replaced")
    load.check()
    assert cluster.stored(102, "replaced") == cluster.stored(101, "replaced")
    cluster.wait("it leads again, as it is the preferred one", lambda: cluster.leader_of("replaced") == 102)


def test_a_full_disk_ends_a_broker_and_loses_nothing(cluster: BrokerProcesses):
    cluster.create_topic("filled", (103, 101, 102), min_insync_replicas=2)
    with Load(cluster, "filled", padding=1000) as load:
        load.wait_for_more(100)
        cluster.limit_files(103, len(cluster.stored(103, "filled")) + 300_000)
        assert cluster.wait_for_end(103) == 1
        load.wait_for_more(100)
        cluster.start(103)
        cluster.wait_until_unfenced(103)
        cluster.wait_until_in_sync("filled")
    load.check()
    said = cluster.logged(103)
    assert "log directory offline path=" in said
    assert "File too large" in said
    assert f"quorate: {cluster.directory(103)}: no log directory is left" in said
    assert "Traceback" not in said


def test_a_second_sigterm_is_immediate(cluster: BrokerProcesses):
    """Without controllers nobody lets a broker go."""
    governors = cluster.governors
    one = next(one for one in ALL if one not in governors)
    cluster.pause(*governors)
    try:
        cluster.signal(one, signal.SIGTERM)
        cluster.wait(
            "it asks for leave", lambda: "PENDING_CONTROLLED_SHUTDOWN" in cluster.logged(one)[-3000:]
        )
        cluster.signal(one, signal.SIGTERM)
        assert cluster.wait_for_end(one) == 0
    finally:
        cluster.resume(*governors)
    cluster.start(one)
    cluster.wait_until_unfenced(one)


def test_nodes_that_are_both(tmp_path_factory: pytest.TempPathFactory):
    with BrokerProcesses(tmp_path_factory.mktemp("both"), combined=3, **SETTINGS) as cluster:
        cluster.create_topic("both", *rotated((1, 2, 3), 3), min_insync_replicas=2)
        with Load(cluster, "both", partitions=3) as load:
            load.wait_for_more(100)
            leader = cluster.wait_for_leader()["leader_id"]
            cluster.kill(leader)
            cluster.wait_for_leader(other_than=leader)
            load.wait_for_more(100)
            cluster.start(leader)
            cluster.wait_until_unfenced(leader)
            cluster.wait_until_in_sync("both")
            for one in (1, 2, 3):
                assert cluster.terminate(one) == 0
                load.wait_for_more(50)
                cluster.start(one)
                cluster.wait_until_unfenced(one)
                cluster.wait_until_in_sync("both")
        load.check()
        for one in (1, 2, 3):
            said = cluster.logged(one)
            assert "stopping reason=the controller has let it go" in said
            assert "Traceback" not in said
