"""Apache's brokers, tools and clients judge our controllers: two brokers of Apache's live in a cluster of
three controllers of ours, and Apache's shell looks at the metadata that comes of it. And the other way round:
our image reads what Apache's controller wrote, and controllers of both kinds register with each other."""

import os
import re
import time
from contextlib import closing

import pytest
from apache_brokers import ApacheBrokers
from apache_oracle import missing
from apache_programs import ApachePrograms
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from metadata_shell import shown_by_shell, shown_by_us

from node.processes import CLUSTER_ID, DEADLINE_S, HOST, Processes, run_quorate
from quorate.cli.brokers import ask
from quorate.metadata.image import BROKER, TOPIC, ClusterImage
from quorate.node.admin import ADDRESS_FILE
from quorate.protocol.api.admin import AlterClientQuotasRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotReader

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools."
CONTROLLERS = (1, 2, 3)
SESSIONS = {"broker_session_timeout_ms": "5000", "broker_heartbeat_interval_ms": "500"}
SETTINGS = SESSIONS | {
    "controller_quorum_fetch_timeout_ms": "2000",
    "controller_quorum_request_timeout_ms": "2000",
    "metadata_max_idle_interval_ms": "100",
    "metadata_log_max_record_bytes_between_snapshots": "3000",
    "replica_lag_time_max_ms": "5000",
}


@pytest.fixture(scope="module")
def programs():
    """Apache's programs of the pinned release."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


# Apache's brokers in our cluster


class Mixed:
    """Three controllers of ours, and brokers 11 and 12 of Apache's. All of them run, but within a test."""

    def __init__(self, programs, cluster, brokers):
        self.programs = programs
        self.cluster = cluster
        self.brokers = brokers
        self.controllers = ",".join(f"{HOST}:{cluster.port(one)}" for one in CONTROLLERS)

    def tool(self, name, *arguments):
        """What a tool of Apache's prints that asks our controllers."""
        return self.programs.run(name, "--bootstrap-controller", self.controllers, *arguments)

    def refused(self, name, *arguments):
        """What it prints if it does not end well."""
        with pytest.raises(AssertionError) as caught:
            self.tool(name, *arguments)
        return str(caught.value)

    @property
    def active(self):
        return self.cluster.wait_for_leader()["leader_id"]

    def asked(self, path, node_id=None):
        """What the admin endpoint of a controller says, of the active one if it is not named."""
        node_id = self.active if node_id is None else node_id
        address = (self.cluster.directory(node_id) / ADDRESS_FILE).read_text().strip()
        return ask([address], path)

    def broker(self, broker_id):
        return self.asked(f"/v1/brokers/{broker_id}")["broker"]

    def events(self, node_id):
        return self.asked("/v1/events?limit=1000", node_id)["events"]

    def wait_until_active(self, *broker_ids):
        def are_active():
            found = {one["id"]: one["state"] for one in self.asked("/v1/brokers")["brokers"]}
            return all(found.get(one) == "active" for one in broker_ids)

        self.cluster.wait(f"brokers {broker_ids} to be active", are_active)

    def image(self):
        """The cluster as the log of the active controller describes it now, as far as it is committed."""
        quorum = self.cluster.wait_for_leader()
        return folded(self.cluster.committed(quorum["leader_id"], quorum["high_watermark"]))

    def partitions(self, topic):
        image = self.image()
        return dict(image.partitions_of(image.topics.by_name[topic].id))

    def wait_for_partitions(self, what, topic, condition):
        def met():
            found = self.partitions(topic)
            return condition(found) and found

        return self.cluster.wait(what, met)


@pytest.fixture(scope="module")
def mixed(programs, tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("mixed"), **SETTINGS) as cluster:
        servers = ",".join(f"{HOST}:{cluster.port(one)}" for one in CONTROLLERS)
        voters = [f"{one}@{HOST}:{cluster.port(one)}:{Uuid(b'controller %5d' % one)}" for one in CONTROLLERS]
        for one in CONTROLLERS:
            cluster.configure(one, controller_quorum_bootstrap_servers=servers)
            cluster.format(one, "--initial-controllers", ",".join(voters))
        cluster.start(*CONTROLLERS)
        with ApacheBrokers(programs, cluster) as brokers:
            for one in (11, 12):
                brokers.configure(one, controller_quorum_bootstrap_servers=servers, broker_rack=f"r{one}")
                brokers.format(one)
            brokers.start(11, 12)
            found = Mixed(programs, cluster, brokers)
            found.wait_until_active(11, 12)
            yield found


@pytest.fixture(scope="module")
def admin(mixed):
    return AdminClient({"bootstrap.servers": mixed.brokers.bootstrap_servers})


def test_apache_brokers_become_members(mixed):
    config = str(mixed.cluster.configuration(mixed.active))
    listed = run_quorate("brokers", "list", "-c", config)
    assert listed.returncode == 0, listed.stderr
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows[0][:3] == ["ID", "STATE", "RACK"]
    assert [row[:3] for row in rows[1:]] == [["11", "active", "r11"], ["12", "active", "r12"]]
    for one in (11, 12):
        found = mixed.broker(one)
        assert found["epoch"] <= found["registration_offset"] <= found["metadata_offset"]
        assert [(at["host"], at["port"]) for at in found["listeners"]] == [mixed.cluster.address(one)]
        assert found["features"]["metadata.version"] == [7, 30]
    observers = mixed.cluster.wait_for_leader()["observers"]
    assert [one["id"] for one in observers] == [11, 12]
    assert all(one["log_end_offset"] > found["registration_offset"] for one in observers)


def test_clients_change_our_cluster_through_apache_brokers(mixed, admin):
    """Their requests come to our controller in envelopes."""
    made = admin.create_topics(
        [
            NewTopic("orders", 3, 2, config={"retention.ms": "1000000", "min.insync.replicas": "2"}),
            NewTopic("placed", 1, replica_assignment=[[12, 11]]),
            NewTopic("doomed", 1, 1),
            NewTopic("no such name", 1, 1),
            NewTopic("too.wide", 1, 9),
            NewTopic("misconfigured", 1, 1, config={"retention.ms": "soon"}),
        ]
    )
    assert {name: outcome(one) for name, one in made.items()} == {
        "orders": "NONE",
        "placed": "NONE",
        "doomed": "NONE",
        "no such name": "INVALID_TOPIC_EXCEPTION",
        "too.wide": "INVALID_REPLICATION_FACTOR",
        "misconfigured": "INVALID_CONFIG",
    }
    assert outcome(admin.create_topics([NewTopic("orders", 3, 2)])["orders"]) == "TOPIC_ALREADY_EXISTS"
    described = until_described(mixed, admin, "orders", lambda one: len(one.partitions) == 3)
    for one in described.partitions:
        assert sorted(node.id for node in one.replicas) == sorted(node.id for node in one.isr) == [11, 12]
        assert one.leader.id == one.replicas[0].id
    placed = until_described(mixed, admin, "placed", lambda one: one.partitions)
    assert [node.id for node in placed.partitions[0].replicas] == [12, 11]

    changes = [("retention.ms", "SET", "2000000"), ("cleanup.policy", "APPEND", "compact")]
    altered = admin.incremental_alter_configs([changed("orders", *changes)])
    assert [outcome(one) for one in altered.values()] == ["NONE"]
    expected = {"retention.ms": "2000000", "min.insync.replicas": "2", "cleanup.policy": "delete,compact"}
    mixed.cluster.wait("the new configuration", lambda: configured(admin, "orders") == expected)
    altered = admin.incremental_alter_configs([changed("nowhere", ("retention.ms", "SET", "1"))])
    assert [outcome(one) for one in altered.values()] == ["UNKNOWN_TOPIC_OR_PARTITION"]

    assert outcome(admin.create_partitions([NewPartitions("orders", 5)])["orders"]) == "NONE"
    assert outcome(admin.create_partitions([NewPartitions("orders", 4)])["orders"]) == "INVALID_PARTITIONS"
    until_described(mixed, admin, "orders", lambda one: len(one.partitions) == 5)
    assert outcome(admin.delete_topics(["doomed"])["doomed"]) == "NONE"
    assert outcome(admin.delete_topics(["doomed"])["doomed"]) == "UNKNOWN_TOPIC_OR_PARTITION"

    image = mixed.image()
    assert set(image.topics.by_name) == {"orders", "placed"}
    assert image.configs[TOPIC, "orders"] == expected
    assert image.partitions_of(image.topics.by_name["orders"].id)
    for partition_id, partition in image.partitions_of(image.topics.by_name["orders"].id):
        told = admin.describe_topics(TopicCollection(["orders"]))["orders"].result(DEADLINE_S)
        assert [node.id for node in told.partitions[partition_id].replicas] == list(partition.replicas)


def test_records_flow(mixed, admin):
    made = admin.create_topics([NewTopic("flow", 2, 2)])
    assert outcome(made["flow"]) == "NONE"
    produce(mixed, "flow", range(100))
    assert consume(mixed, "flow", 100) == set(range(100))
    assert mixed.image().next_producer_id > 0  # of an idempotent producer


def test_apache_tools_ask_our_controllers(mixed):
    features = mixed.tool(TOOLS + "FeatureCommand", "describe")
    found = {line.split()[1]: line.split()[3:8:2] for line in features.splitlines()}
    assert found["metadata.version"] == ["3.3-IV3", "4.3-IV0", "4.3-IV0"]
    assert found["kraft.version"] == ["0", "1", "1"]
    assert found["transaction.version"] == ["0", "2", "2"]
    assert found["eligible.leader.replicas.version"] == ["0", "1", "1"]
    for arguments in (("upgrade", "--feature", "metadata.version=99"), ("downgrade", "--metadata", "4.0")):
        refused = mixed.refused(TOOLS + "FeatureCommand", *arguments)
        assert re.search(rf"Could not {arguments[0]} metadata.version to \d+\. \S", refused)
        assert "1 out of 1 operation(s) failed." in refused

    configs = "kafka.admin.ConfigCommand"
    everywhere = "--entity-type", "brokers", "--entity-default"
    mixed.tool(configs, *everywhere, "--alter", "--add-config", "log.retention.ms=7000000")
    assert "log.retention.ms=7000000" in mixed.tool(configs, *everywhere, "--describe")
    quota = "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"
    mixed.tool(configs, *quota, "--alter", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    image = mixed.image()
    assert image.configs[BROKER, ""]["log.retention.ms"] == "7000000"
    assert image.quotas == {
        (("client-id", None), ("user", "alice")): {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}
    }


def test_apache_cluster_tool_asks_our_controllers(mixed):
    controllers = "--bootstrap-controller", mixed.controllers
    endpoints = mixed.programs.run(TOOLS + "ClusterTool", "list-endpoints", *controllers)
    rows = [line.split() for line in endpoints.splitlines()]
    assert rows[1:] == [
        [str(one), HOST, str(mixed.cluster.port(one)), "null", "controller"] for one in CONTROLLERS
    ]
    assert CLUSTER_ID in mixed.programs.run(TOOLS + "ClusterTool", "cluster-id", *controllers)
    with pytest.raises(AssertionError, match="BrokerIdNotRegisteredException: broker 77 is not registered"):
        mixed.programs.run(TOOLS + "ClusterTool", "unregister", *controllers, "--id", "77")


def test_apache_reads_our_snapshots_as_we_do(mixed, admin):
    """With something in it of every kind that brokers and clients can make."""
    secure(admin)
    quota(mixed.cluster, 11, user="bob", values={"request_percentage": 50.0})
    made = admin.create_topics([NewTopic(f"many-{one}", 4, 2) for one in range(10)])
    assert {outcome(one) for one in made.values()} == {"NONE"}
    end_offset = mixed.cluster.wait_for_leader()["high_watermark"]
    snapshot = mixed.cluster.wait("a later snapshot", lambda: snapshot_from(mixed.cluster, 1, end_offset))
    dumped = mixed.programs.dump_log(snapshot)
    kinds = "REGISTER_BROKER REGISTER_CONTROLLER TOPIC PARTITION CONFIG CLIENT_QUOTA FEATURE_LEVEL"
    kinds += " ACCESS_CONTROL_ENTRY USER_SCRAM_CREDENTIAL PRODUCER_IDS"
    assert set(re.findall(r'"type":"(\w+)_RECORD"', dumped)) == set(kinds.split())

    image = loaded(snapshot)
    expected = shown_by_us(image)
    assert shown_by_shell(mixed.programs, snapshot) == expected
    assert len(image.topics.by_name) >= 12
    assert folded_up_to(mixed.cluster, 1, snapshot).equals(image)
    for prefix in ("acls/", "clientQuotas/", "scram/", "configs/BROKER/", "configs/TOPIC:orders/"):
        assert any(path.startswith(prefix) for path in expected), prefix


def test_apache_reads_our_log_as_we_do(mixed, tmp_path):
    """The shell reads logs too: here a copy, which does not grow meanwhile."""
    stored = mixed.cluster.batches(1)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(stored[offset] for offset in sorted(stored)))
    assert shown_by_shell(mixed.programs, log) == shown_by_us(folded(stored))


def test_a_partition_moves_between_apache_brokers(mixed, admin):
    made = admin.create_topics([NewTopic("moving", 2, replica_assignment=[[11], [11]])])
    assert outcome(made["moving"]) == "NONE"
    produce(mixed, "moving", range(100))
    moved = {TopicPartition("moving", 0): [12], TopicPartition("moving", 1): [12, 11]}
    with closing(KafkaAdminClient(bootstrap_servers=mixed.brokers.bootstrap_servers)) as other:
        assert set(other.alter_partition_reassignments(moved).values()) == {None}
        mixed.cluster.wait("no reassignment", lambda: not other.list_partition_reassignments())

        def are_there(found):
            return found[0].replicas == (12,) == found[0].isr and found[1].replicas == (12, 11)

        found = mixed.wait_for_partitions("replicas at their new places", "moving", are_there)
        assert not any(one.is_reassigning for one in found.values())
        assert found[0].leader == 12
        mixed.wait_for_partitions("both in sync", "moving", lambda found: len(found[1].isr) == 2)
        mixed.cluster.wait("a preferred leader", lambda: elected(mixed, other, TopicPartition("moving", 1)))
    assert consume(mixed, "moving", 100) == set(range(100))


def test_brokers_stay_when_the_active_controller_is_killed(mixed, admin):
    cluster = mixed.cluster
    before = {one: mixed.broker(one)["epoch"] for one in (11, 12)}
    old = mixed.active
    cluster.kill(old)
    new = cluster.wait_for_leader(other_than=old)["leader_id"]
    cluster.wait(
        "heartbeats", lambda: all((mixed.broker(one)["metadata_offset"] or -1) >= 0 for one in before)
    )
    made = admin.create_topics([NewTopic("after.failover", 2, 2)])
    assert outcome(made["after.failover"]) == "NONE"
    produce(mixed, "after.failover", range(10))
    assert consume(mixed, "after.failover", 10) == set(range(10))
    cluster.start(old)
    cluster.wait_until_caught_up(*CONTROLLERS)
    mixed.wait_until_active(11, 12)
    assert {one: mixed.broker(one)["epoch"] for one in (11, 12)} == before
    kinds = [one["kind"] for one in mixed.events(new)]
    assert "BrokerFenced" not in kinds[kinds.index("ControllerActivated") :]


def test_an_apache_broker_shuts_down_in_order_and_comes_back(mixed, admin):
    made = admin.create_topics([NewTopic("handed.over", 2, replica_assignment=[[12, 11], [12]])])
    assert outcome(made["handed.over"]) == "NONE"
    produce(mixed, "handed.over", range(10))
    controller, before = mixed.active, mixed.broker(12)
    seen = len(mixed.events(controller))
    assert mixed.brokers.terminate(12) == 143  # 128 and the number of SIGTERM: it ended by itself
    assert mixed.active == controller
    about = [one for one in mixed.events(controller)[seen:] if one.get("broker_id") == 12]
    kinds = [one["kind"] for one in about if one["kind"] != "ShutdownWaiting"]
    assert kinds == ["ShutdownStarted", "ShutdownGranted", "BrokerFenced"]
    assert {one["epoch"] for one in about} == {before["epoch"]}
    assert about[-1]["check"] == "shut down"
    found = mixed.partitions("handed.over")
    assert (found[0].leader, found[0].isr) == (11, (11,))
    assert (found[1].leader, found[1].isr, found[1].elr) == (-1, (), (12,))

    mixed.brokers.start(12)
    mixed.wait_until_active(11, 12)
    after = mixed.broker(12)
    assert after["epoch"] > before["epoch"]
    (registered,) = [one for one in mixed.events(controller)[seen:] if one["kind"] == "BrokerRegistered"]
    assert (registered["previous_epoch"], registered["is_clean"]) == (before["epoch"], True)
    mixed.wait_for_partitions(
        "its partitions", "handed.over", lambda found: found[1].leader == 12 and len(found[0].isr) == 2
    )
    assert consume(mixed, "handed.over", 10) == set(range(10))


def test_an_apache_broker_that_crashes_is_fenced_and_comes_back(mixed, admin):
    topic = NewTopic("crashed", 2, replica_assignment=[[12, 11], [11, 12]], config={"min.insync.replicas": "1"})
    assert outcome(admin.create_topics([topic])["crashed"]) == "NONE"
    produce(mixed, "crashed", range(10))
    controller, before = mixed.active, mixed.broker(12)
    seen = len(mixed.events(controller))
    mixed.brokers.kill(12)
    produce(mixed, "crashed", range(10, 20))  # waits for the new leader
    found = mixed.wait_for_partitions(
        "all led by one", "crashed", lambda found: all(one.isr == (11,) for one in found.values())
    )
    assert [one.leader for one in found.values()] == [11, 11]
    (fenced,) = [one for one in mixed.events(controller)[seen:] if one["kind"] == "BrokerFenced"]
    assert (fenced["broker_id"], fenced["epoch"]) == (12, before["epoch"])
    assert fenced["check"] == "missed heartbeats"
    assert fenced["ms_since_heartbeat"] >= fenced["session_timeout_ms"] == 5000

    mixed.brokers.start(12)
    mixed.wait_until_active(11, 12)
    (registered,) = [one for one in mixed.events(controller)[seen:] if one["kind"] == "BrokerRegistered"]
    assert (registered["previous_epoch"], registered["is_clean"]) == (before["epoch"], False)
    mixed.wait_for_partitions(
        "both in sync", "crashed", lambda found: all(len(one.isr) == 2 for one in found.values())
    )
    assert consume(mixed, "crashed", 20) == set(range(20))


# What is asked of clients


def outcome(future):
    """The name of the error that a request ended with."""
    try:
        future.result(DEADLINE_S)
    except KafkaException as error:
        return ErrorCode(error.args[0].code()).name
    return "NONE"


def until_described(mixed, admin, topic, condition):
    """What a client is told of a topic, once it is as it should be: brokers learn of changes a bit later."""

    def described():
        try:
            found = admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
        except KafkaException:
            return None
        return found if condition(found) else None

    return mixed.cluster.wait(f"{topic} as it was changed", described)


def changed(topic, *changes):
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
        for name, operation, value in changes
    ]
    return ConfigResource("topic", topic, incremental_configs=entries)


def configured(admin, topic):
    """The configuration that a topic has of its own."""
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def secure(admin):
    """Access control entries and credentials, one of each taken away again."""
    entries = [acl(name) for name in ("User:alice", "User:bob", "User:eve")]
    assert {outcome(one) for one in admin.create_acls(entries).values()} == {"NONE"}
    gone = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:eve",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert [outcome(one) for one in admin.delete_acls([gone]).values()] == ["NONE"]
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        users = [
            UserScramCredentialUpsertion(
                one, ScramCredentialInfo(mechanism, 4096), f"{one}'s secret".encode()
            )
            for one in ("alice", "bob")
        ]
        assert {outcome(one) for one in admin.alter_user_scram_credentials(users).values()} == {"NONE"}
    gone = [UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)]
    assert outcome(admin.alter_user_scram_credentials(gone)["bob"]) == "NONE"


def acl(principal):
    return AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.PREFIXED,
        principal,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def quota(cluster, broker_id, *, user, values):
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntryData.EntityData(entity_type="user", entity_name=user)],
        ops=[request.EntryData.OpData(key=key, value=value, remove=False) for key, value in values.items()],
    )
    (answer,) = cluster.ask(broker_id, request(entries=[entry], validate_only=False)).entries
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def elected(mixed, other, partition):
    """Asks for an election of the preferred leader, until there is nothing to elect."""
    other.elect_leaders(0, {partition.topic: [partition.partition]}, raise_errors=False)
    found = mixed.partitions(partition.topic)[partition.partition]
    return found.leader == found.replicas[0]


def produce(mixed, topic, numbers):
    servers = mixed.brokers.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    failures = []
    for one in numbers:
        producer.produce(topic, str(one), on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def consume(mixed, topic, count):
    """The distinct numbers in a topic, as soon as there are so many."""
    settings = {"bootstrap.servers": mixed.brokers.bootstrap_servers, "group.id": f"of-{topic}"}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    found = set()
    deadline = time.monotonic() + DEADLINE_S
    with closing(consumer):
        consumer.subscribe([topic])
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.add(int(message.value()))
    return found


# Images


def folded(batches):
    image = ClusterImage(is_strict=True)
    for offset in sorted(batches):
        image.apply_batch(batches[offset])
    return image


def loaded(snapshot):
    """Our image of a snapshot's file."""
    end_offset, epoch = map(int, snapshot.stem.split("-"))
    with SnapshotReader(RealFiles(), str(snapshot), epoch) as reader:
        found = [data[header.position : header.end] for header, data in reader.batches()]
    return ClusterImage.load(found, end_offset - 1, is_strict=True)


def folded_up_to(cluster, node_id, snapshot):
    """Our image of a node's log, up to where a snapshot of it was taken."""
    end_offset = int(snapshot.stem.partition("-")[0])
    return folded(cluster.committed(node_id, end_offset))


def snapshot_from(cluster, node_id, offset):
    """A snapshot that contains everything below an offset."""
    found = cluster.snapshots(node_id)
    return found[-1] if found and int(found[-1].stem.partition("-")[0]) >= offset else None
