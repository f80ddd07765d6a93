"""Sessions that end, controllers that do not know that they are none any more, ZooKeepers that go and come
back; and what a broker says of a ZooKeeper that it cannot work with. On an ensemble of three servers."""

import asyncio
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from node.broker_processes import Load
from node.processes import DEADLINE_S, HOST, quorate
from node.zookeeper_processes import ZooKeeperProcesses, check_java
from quorate.net.connections import Connections
from quorate.protocol.api.topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request
from zookeeper.zookeeper_servers import Ensemble

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

SESSION_S = 3.0
SETTINGS = {
    "broker_session_timeout_ms": str(int(SESSION_S * 1000)),
    "replica_lag_time_max_ms": "2000",
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "leader_imbalance_check_interval_seconds": "1",
}
ALL = (101, 102, 103)
VERSIONS = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcesses]:
    """Three brokers, three servers. Every test leaves them running."""
    check_java()
    with ZooKeeperProcesses(tmp_path_factory.mktemp("cluster"), zookeepers=3, **SETTINGS) as running:
        yield running


@pytest.fixture
def znodes(cluster: ZooKeeperProcesses) -> Iterator[KazooClient]:
    client = KazooClient(hosts=cluster.connect, connection_retry={"max_tries": -1, "max_delay": 0.5})
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def rotated(count: int) -> list[tuple[int, ...]]:
    return [ALL[number:] + ALL[:number] for number in range(count)]


def epochs(znodes: KazooClient) -> dict[int, int]:
    """The epochs of the brokers that are registered."""
    found = {}
    for one in ALL:
        stat = znodes.exists(f"/brokers/ids/{one}")
        if stat is not None:
            found[one] = stat.czxid
    return found


def controller_epoch(znodes: KazooClient) -> tuple[int, int]:
    """And the version of the node that has it."""
    data, stat = znodes.get("/controller_epoch")
    return int(data), stat.version


def test_a_broker_that_is_stopped_past_its_session_comes_back_with_another_epoch(
    cluster: ZooKeeperProcesses, znodes: KazooClient
):
    cluster.create_topic("stopped", *rotated(3), min_insync_replicas=2)
    before = epochs(znodes)
    victim = next(one for one in ALL if one != cluster.controller_id)
    with Load(cluster, "stopped", partitions=3) as load:
        load.wait_for_more(50)
        cluster.pause(victim)
        try:
            cluster.wait("its node is gone", lambda: znodes.exists(f"/brokers/ids/{victim}") is None)
            cluster.wait_for_leader_of("stopped", ALL.index(victim), other_than=victim)
            load.wait_for_more(50)
        finally:
            cluster.resume(victim)
        cluster.wait_until_unfenced(victim)
        cluster.wait_until_in_sync("stopped")
        load.wait_for_more(50)
    load.check()
    after = epochs(znodes)
    assert after[victim] > before[victim]
    assert {one: after[one] for one in ALL if one != victim} == {
        one: before[one] for one in ALL if one != victim
    }


def test_a_controller_that_wakes_up_past_its_session_is_refused_everywhere(
    cluster: ZooKeeperProcesses, znodes: KazooClient
):
    cluster.create_topic("zombie", *rotated(3), min_insync_replicas=2)
    zombie = cluster.wait_for_leader()["leader_id"]
    old_epoch, old_version = controller_epoch(znodes)
    with Load(cluster, "zombie", partitions=3) as load:
        load.wait_for_more(50)
        cluster.pause(zombie)
        try:
            # It finds this when it wakes up, and still believes that it is to decide about it.
            asking = _asked_of_the_sleeping(cluster, zombie, _new_topic("of-a-zombie"))
            cluster.wait("another is controller", lambda: controller_epoch(znodes)[0] > old_epoch)
            cluster.wait_for_leader_of("zombie", ALL.index(zombie), other_than=zombie)
            load.wait_for_more(50)
        finally:
            cluster.resume(zombie)
        assert asking.result() is not ErrorCode.NONE
        cluster.wait_until_unfenced(zombie)
        cluster.wait_until_in_sync("zombie")
        load.wait_for_more(50)
    load.check()
    epoch = controller_epoch(znodes)[0]
    assert epoch == old_epoch + 1
    assert znodes.exists("/brokers/topics/of-a-zombie") is None
    # What it would have sent to brokers, and written: all of them, and ZooKeeper, know better.
    for one in ALL:
        for request in _of_a_deposed(zombie, old_epoch):
            found: Any = cluster.ask_broker(one, request, VERSIONS[type(request)])
            assert ErrorCode(found.error_code) is ErrorCode.STALE_CONTROLLER_EPOCH, (one, request)
        assert "reason=STALE_CONTROLLER_EPOCH" in cluster.logged(one)
    assert cluster.brokers_known_to(zombie).keys() == {*ALL}
    writing = znodes.transaction()
    writing.check("/controller_epoch", old_version)
    writing.set_data("/brokers/topics/zombie/partitions/0/state", b"{}")
    assert isinstance(writing.commit()[0], BadVersionError)


def _new_topic(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=20_000)


class _Asking:
    """A request to a process that does not run, in a thread."""

    def __init__(self, address: tuple[str, int], request: CreateTopicsRequest) -> None:
        import threading

        self._address, self._request = address, request
        self._found: list[ErrorCode] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        async def ask() -> ErrorCode:
            # By this name it is taken for one that a broker has passed on, which must not be passed on again.
            connections = Connections(rng=random.Random(1), client_id="quorate-999")
            try:
                found = await connections.request(
                    self._address, self._request, 7, timeout_ms=DEADLINE_S * 1000
                )
            except (ApiError, OSError) as error:
                return getattr(error, "code", ErrorCode.NETWORK_EXCEPTION)
            finally:
                await connections.close()
            assert isinstance(found, CreateTopicsResponse)
            return ErrorCode(found.topics[0].error_code)

        self._found.append(asyncio.run(ask()))

    def result(self) -> ErrorCode:
        self._thread.join(DEADLINE_S)
        return self._found[0]


def _asked_of_the_sleeping(
    cluster: ZooKeeperProcesses, broker_id: int, request: CreateTopicsRequest
) -> _Asking:
    return _Asking((HOST, cluster.client_port(broker_id)), request)


def _of_a_deposed(controller_id: int, epoch: int) -> list[Request]:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=epoch,
        leader=controller_id,
        leader_epoch=1000,
        isr=[controller_id],
        partition_epoch=1000,
        replicas=list(ALL),
    )
    topic = LeaderAndIsrRequest.TopicState(topic_name="zombie", partition_states=[state])
    stop = StopReplicaRequest.TopicState.PartitionState(
        partition_index=0, leader_epoch=-2, delete_partition=True
    )
    stopped = StopReplicaRequest.TopicState(topic_name="zombie", partition_states=[stop])
    names: dict[str, Any] = {"controller_id": controller_id, "controller_epoch": epoch}
    return [
        LeaderAndIsrRequest(**names, topic_states=[topic], live_leaders=[]),
        StopReplicaRequest(**names, topic_states=[stopped]),
        UpdateMetadataRequest(**names, topic_states=[], live_brokers=[]),
    ]


def test_a_server_of_zookeeper_is_killed_and_nobody_notices(cluster: ZooKeeperProcesses, znodes: KazooClient):
    cluster.create_topic("server", *rotated(3), min_insync_replicas=2)
    before, term = epochs(znodes), controller_epoch(znodes)
    ensemble = cluster.zookeeper
    assert isinstance(ensemble, Ensemble)
    with Load(cluster, "server", partitions=3) as load:
        load.wait_for_more(50)
        leader = ensemble.leader
        leader.kill()
        cluster.wait("another leads", lambda: any(one.is_leader for one in ensemble.servers))
        load.wait_for_more(50)
        cluster.create_topic("without-one", (101, 102))
        leader.start()
        leader.wait()
        load.wait_for_more(50)
    load.check()
    assert epochs(znodes) == before
    assert controller_epoch(znodes) == term


def test_without_a_quorum_of_zookeeper_records_are_written_and_nothing_is_decided(
    cluster: ZooKeeperProcesses, znodes: KazooClient
):
    cluster.create_topic("alone", *rotated(3), min_insync_replicas=2)
    ensemble = cluster.zookeeper
    assert isinstance(ensemble, Ensemble)
    killed = ensemble.servers[:2]
    with Load(cluster, "alone", partitions=3) as load:
        load.wait_for_more(50)
        for one in killed:
            one.kill()
        lost_at = time.monotonic()
        while time.monotonic() < lost_at + 1.5 * SESSION_S:  # longer than a session, all the while served
            load.wait_for_more(20)
        for one in killed:
            one.start()
        for one in killed:
            one.wait()
        cluster.wait("everybody is registered", lambda: epochs(znodes).keys() == {*ALL})
        cluster.wait_until_unfenced(*ALL)
        cluster.create_topic("after-it", *rotated(1))
        cluster.wait_until_in_sync("alone")
        load.wait_for_more(50)
    load.check()


def test_all_sessions_expire_at_once_and_nothing_is_lost(cluster: ZooKeeperProcesses, znodes: KazooClient):
    cluster.create_topic("storm", *rotated(3), min_insync_replicas=2)
    before = epochs(znodes)
    old_epoch = controller_epoch(znodes)[0]
    with Load(cluster, "storm", partitions=3) as load:
        load.wait_for_more(50)
        cluster.pause(*ALL)  # none of them is heard of until all are forgotten
        try:
            cluster.wait("nobody is left", lambda: not epochs(znodes))
        finally:
            cluster.resume(*ALL)
        cluster.wait("everybody is registered", lambda: epochs(znodes).keys() == {*ALL})
        cluster.wait_until_unfenced(*ALL)
        cluster.wait_until_in_sync("storm")
        load.wait_for_more(50)
    load.check()
    after = epochs(znodes)
    assert all(after[one] > before[one] for one in ALL)
    assert controller_epoch(znodes)[0] > old_epoch


# Starting


def _started(path: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            quorate("node", str(path)), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _file(cluster: ZooKeeperProcesses, name: str, **changes: str) -> Path:
    values = {
        "zookeeper.connect": cluster.connect,
        "zookeeper.session.timeout.ms": "3000",
        "listeners": f"PLAINTEXT://{HOST}:0",
        "log.dirs": str(cluster.root / name),
        "quorate.events.publish": "false",
        **{key.replace("_", "."): value for key, value in changes.items()},
    }
    path = cluster.root / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        quorate("node", str(path)), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_a_broker_without_a_number_gets_one_and_keeps_it(cluster: ZooKeeperProcesses, znodes: KazooClient):
    path, log = _file(cluster, "numberless"), cluster.root / "numberless.log"
    for _ in range(2):  # the second time it is the same
        process = _started(path, log)
        try:
            cluster.wait("it is registered", lambda: znodes.exists("/brokers/ids/1001") is not None)
            cluster.wait_until_unfenced(1001)
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0, log.read_text()
        assert znodes.exists("/brokers/ids/1001") is None
    meta = (cluster.root / "numberless" / "meta.properties").read_text()
    assert "version=0" in meta
    assert "broker.id=1001" in meta
    assert znodes.get("/brokers/seqid")[1].version == 1


def test_a_directory_of_another_cluster_is_refused(cluster: ZooKeeperProcesses):
    directory = cluster.root / "foreign"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=0\ncluster.id=q8K3yH5ASs2mFvAaEvJ0QA\nbroker.id=9\n")
    ended = _run(_file(cluster, "foreign"))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert re.search(r"this directory belongs to cluster q8K3yH5ASs2mFvAaEvJ0QA, and ZooKeeper at", last)
    assert "Traceback" not in ended.stderr


def test_a_chroot_that_is_not_there_is_made(cluster: ZooKeeperProcesses, znodes: KazooClient):
    path = _file(cluster, "rooted", broker_id="7", zookeeper_connect=f"{cluster.connect}/some/where")
    process = _started(path, cluster.root / "rooted.log")
    try:
        cluster.wait("it is registered", lambda: znodes.exists("/some/where/brokers/ids/7") is not None)
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert znodes.exists("/brokers/ids/7") is None


def test_a_zookeeper_that_is_not_there_is_waited_for(cluster: ZooKeeperProcesses):
    with socket.create_server((HOST, 0)) as nobody:
        port = nobody.getsockname()[1]
    path = _file(cluster, "waiting", broker_id="8", zookeeper_connect=f"{HOST}:{port}")
    log = cluster.root / "waiting.log"
    process = _started(path, log)
    try:
        cluster.wait("it says so", lambda: "trying again" in log.read_text() or None)
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0, log.read_text()
    assert f"{HOST}:{port}" in log.read_text()
    assert "Traceback" not in log.read_text()
