"""Brokers of Apache Kafka 3.9, the last with ZooKeeper, in one cluster with ours: under our controller, and
ours under theirs. Two brokers of ours and one of theirs; every topic has a replica on each."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_brokers import ApacheBrokers
from apache_oracle import ZOOKEEPER_ERA
from apache_programs import ApachePrograms
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kazoo.client import KazooClient

from node.broker_processes import Load
from node.processes import DEADLINE_S, HOST
from node.zookeeper_processes import ZooKeeperProcesses, check_java
from quorate.net.client import ConnectionLost
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.api.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID

pytestmark = [pytest.mark.interop, pytest.mark.zookeeper]

OURS = (101, 102)
THEIRS = 201
ALL = (*OURS, THEIRS)
SETTINGS = {
    "broker_session_timeout_ms": "4000",
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
    "replica_lag_time_max_ms": "3000",
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "leader_imbalance_check_interval_seconds": "2",
}
OF_APACHE = {
    "process_roles": None,
    "node_id": None,
    "controller_listener_names": None,
    "broker_id": str(THEIRS),
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "2",
}


@dataclass
class Mixed:
    """A cluster of both. `first` is who was the controller at the beginning."""

    first: str
    ours: ZooKeeperProcesses
    theirs: ApacheBrokers
    znodes: KazooClient

    @property
    def controller_id(self) -> int:
        found = self.znodes.exists("/controller") and self.znodes.get("/controller")[0].decode()
        return int(found.partition('"brokerid":')[2].partition(",")[0].rstrip("}")) if found else -1

    def start(self, broker_id: int) -> None:
        (self.theirs if broker_id == THEIRS else self.ours).start(broker_id)
        self.wait_until_alive()

    def _is_told(self) -> bool:
        """Theirs listens before the controller has told it who is there; until then clients are told of
        nobody, and librdkafka's administrator does not ask again."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        try:
            found = self.ask(THEIRS, request, 0)
        except (ApiError, ConnectionLost):
            return False
        return {one.broker_id for one in found.brokers} == {*ALL} and found.controller_id in ALL

    def kill(self, broker_id: int) -> None:
        (self.theirs if broker_id == THEIRS else self.ours).kill(broker_id)

    def wait_until_alive(self) -> None:
        self.ours.wait(
            "all are alive for each of ours",
            lambda: all(self.ours.brokers_known_to(one).keys() == {*ALL} for one in OURS),
        )
        self.ours.wait("theirs knows of all", self._is_told)

    def ask(self, broker_id: int, request: Any, version: int) -> Any:
        if broker_id == THEIRS:
            return self.ours.ask(THEIRS, request, version)
        return self.ours.ask_broker(broker_id, request, version)

    def on_disk(self, broker_id: int, topic: str) -> Path:
        return self.ours.directory(broker_id) / f"{topic}-0"


@pytest.fixture(scope="module", params=["ours", "theirs"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    check_java()
    programs = ApachePrograms(ZOOKEEPER_ERA)
    cluster = ZooKeeperProcesses(tmp_path_factory.mktemp("mixed"), brokers=len(OURS), **SETTINGS)
    assert cluster.zookeeper is not None
    znodes = KazooClient(hosts=cluster.connect, connection_retry={"max_tries": -1, "max_delay": 0.5})
    theirs = ApacheBrokers(programs, cluster)
    theirs.configure(
        THEIRS, **OF_APACHE, zookeeper_connect=cluster.connect, zookeeper_session_timeout_ms="4000"
    )
    try:
        cluster.zookeeper.start()
        znodes.start(DEADLINE_S)
        cluster.prepare()
        found = Mixed(request.param, cluster, theirs, znodes)
        if request.param == "theirs":
            theirs.start(THEIRS)
            cluster.wait("it is the controller", lambda: found.controller_id == THEIRS)
            cluster.start(*OURS)
        else:
            cluster.start(*OURS)
            cluster.wait("one of ours is the controller", lambda: found.controller_id in OURS)
            theirs.start(THEIRS)
        found.wait_until_alive()
        yield found
    finally:
        theirs.kill(*theirs.running)
        znodes.stop()
        znodes.close()
        cluster.__exit__()


def a_topic(name: str, **configs: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    made = topic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            topic.CreatableReplicaAssignment(
                partition_index=number, broker_ids=[*ALL[number:], *ALL[:number]]
            )
            for number in range(len(ALL))
        ],
        configs=[
            topic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    return CreateTopicsRequest(topics=[made], timeout_ms=30_000)


def created(mixed: Mixed, name: str, asked: int | None = None, **configs: str) -> None:
    """A topic of three partitions, made by asking a broker, the controller unless it is said otherwise."""
    found = mixed.ask(mixed.controller_id if asked is None else asked, a_topic(name, **configs), 7)
    assert isinstance(found, CreateTopicsResponse)
    assert ErrorCode(found.topics[0].error_code) is ErrorCode.NONE, found.topics[0]
    for one in OURS:
        mixed.ours.wait(
            f"{name} is led, as {one} knows it",
            lambda one=one: (  # type: ignore[misc]
                len(known := mixed.ours.partitions(name, as_known_to=one)) == len(ALL)
                and all(each.leader_id >= 0 for each in known)
            ),
        )


def test_who_is_the_controller(mixed: Mixed):
    assert (mixed.controller_id == THEIRS) == (mixed.first == "theirs")


def test_topics_are_made_by_whoever_is_the_controller(mixed: Mixed):
    """Ours pass the request on if they are not; theirs say that they are not."""
    for asked in OURS:
        created(mixed, f"made-by-{asked}", asked)
    if mixed.controller_id != THEIRS:
        found = mixed.ask(THEIRS, a_topic("not-made"), 7)
        assert ErrorCode(found.topics[0].error_code) is ErrorCode.NOT_CONTROLLER
    assert {"made-by-101", "made-by-102"} <= set(mixed.znodes.get_children("/brokers/topics"))


def test_configurations_reach_both(mixed: Mixed):
    created(mixed, "configured", max_message_bytes="2000000")
    for asked in (THEIRS, OURS[0]):
        port = mixed.ours.port(THEIRS) if asked == THEIRS else mixed.ours.client_port(asked)
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        resource = ConfigResource(
            ResourceType.TOPIC,
            "configured",
            incremental_configs=[
                ConfigEntry("retention.ms", str(asked * 1000), incremental_operation=AlterConfigOpType.SET)
            ],
        )
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(DEADLINE_S)
        for one in ALL:
            mixed.ours.wait(
                f"{one} knows it",
                lambda one=one, asked=asked: described(mixed, one) == str(asked * 1000),  # type: ignore[misc]
            )


def described(mixed: Mixed, broker_id: int) -> str | None:
    from quorate.protocol.api.admin import DescribeConfigsRequest

    asked = DescribeConfigsRequest.Resource(
        resource_type=2, resource_name="configured", configuration_keys=["retention.ms"]
    )
    found = mixed.ask(broker_id, DescribeConfigsRequest(resources=[asked]), 4)
    values = [
        one.value for one in found.results[0].configs
    ]  # none from a broker that does not know the topic
    return values[0] if values else None


def test_records_are_written_and_read_by_a_group(mixed: Mixed):
    created(mixed, "written", min_insync_replicas="2")
    with Load(mixed.ours, "written", partitions=len(ALL)) as load:
        load.wait_for_more(200)
    load.check()
    consumer = Consumer(
        {
            "bootstrap.servers": mixed.ours.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(["written"])
        read: set[tuple[int | None, int | None]] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(read) < load.count:
            assert time.monotonic() < deadline, f"{len(read)} of {load.count}"
            read |= {
                (one.partition(), one.offset()) for one in consumer.consume(1000, 0.2) if not one.error()
            }
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("victim", [THEIRS, OURS[1]])
def test_a_broker_is_killed_and_comes_back(mixed: Mixed, victim: int):
    """Whether it is the controller or not; the others lead what it led, and take it in again."""
    name = f"killed-{victim}"
    created(mixed, name, min_insync_replicas="2")
    with Load(mixed.ours, name, partitions=len(ALL)) as load:
        load.wait_for_more(50)
        mixed.kill(victim)
        mixed.ours.wait("its session is over", lambda: mixed.znodes.exists(f"/brokers/ids/{victim}") is None)
        mixed.ours.wait(
            "others lead",
            lambda: all(one.leader_id not in (-1, victim) for one in mixed.ours.partitions(name)),
        )
        load.wait_for_more(50)
        mixed.start(victim)
        mixed.ours.wait_until_in_sync(name)
        load.wait_for_more(50)
    load.check()
    assert stored(mixed, OURS[0], name) == stored(mixed, victim, name)


def stored(mixed: Mixed, broker_id: int, topic: str) -> bytes:
    paths = sorted(mixed.on_disk(broker_id, topic).glob("*.log"))
    return b"".join(path.read_bytes().rstrip(b"\0") for path in paths)


@pytest.mark.parametrize("leaving", [THEIRS, OURS[0]])
def test_a_broker_leaves_in_order(mixed: Mixed, leaving: int):
    name = f"left-{leaving}"
    created(mixed, name, min_insync_replicas="2")
    with Load(mixed.ours, name, partitions=len(ALL)) as load:
        load.wait_for_more(50)
        if leaving == THEIRS:
            assert mixed.theirs.terminate(leaving) in (0, 143)
        else:
            assert mixed.ours.terminate(leaving) == 0
            assert "stopping reason=the controller has let it go" in mixed.ours.logged(leaving)
        load.wait_for_more(50)
        mixed.start(leaving)
        mixed.ours.wait_until_in_sync(name)
    load.check()


def test_a_topic_is_deleted_everywhere(mixed: Mixed):
    created(mixed, "deleted")
    assert all(mixed.on_disk(one, "deleted").exists() for one in ALL)
    state = DeleteTopicsRequest.DeleteTopicState(name="deleted", topic_id=ZERO_UUID)
    request = DeleteTopicsRequest(topics=[state], topic_names=["deleted"], timeout_ms=30_000)
    found = mixed.ask(mixed.controller_id, request, 6)
    assert isinstance(found, DeleteTopicsResponse)
    assert ErrorCode(found.responses[0].error_code) is ErrorCode.NONE
    mixed.ours.wait("it is gone", lambda: not any(mixed.on_disk(one, "deleted").exists() for one in ALL))
    mixed.ours.wait("nobody knows it", lambda: "deleted" not in mixed.znodes.get_children("/brokers/topics"))
