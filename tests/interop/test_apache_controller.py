"""Apache's brokers, tools and clients judge our controllers: two brokers of Apache's live in a cluster of
three controllers of ours, and Apache's shell looks at the metadata that comes of it. And the other way round:
our image reads what Apache's controller wrote, and controllers of both kinds register with each other."""

import os
import re
import shutil
import time
from contextlib import closing
from pathlib import Path

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
from quorate.cli.brokers import CouldNotAsk, ask
from quorate.metadata.image import BROKER, TOPIC, ClusterImage
from quorate.node.admin import ADDRESS_FILE
from quorate.protocol.api.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from quorate.protocol.api.security import DescribeUserScramCredentialsRequest
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
QUIET = {"log_level": 2}  # brokers that come and go are nothing to report
PATIENCE = {f"controller_quorum_{what}_timeout_ms": "600000" for what in ("election", "fetch")}
# Without it Apache's brokers and controllers know no access control entries.
AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
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
    """Three controllers of ours, and brokers 11 and 12 of Apache's. All of them run when a test begins."""

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

    def start_all(self):
        self.cluster.start(*(one for one in CONTROLLERS if one not in self.cluster._running))
        self.brokers.start(*(one for one in (11, 12) if one not in self.brokers.running))
        self.cluster.wait_until_caught_up(*CONTROLLERS)
        self.wait_until_active(11, 12)

    def asked(self, path, node_id=None):
        """What the admin endpoint of a controller says, of the active one if it is not named."""

        def answer():
            asked_of = self.active if node_id is None else node_id
            try:
                address = (self.cluster.directory(asked_of) / ADDRESS_FILE).read_text().strip()
                return ask([address], path)
            except (OSError, CouldNotAsk):
                return None  # it has just been started, or does not lead any more

        return self.cluster.wait(f"an answer to {path}", answer)

    def broker(self, broker_id):
        return self.asked(f"/v1/brokers/{broker_id}")["broker"]

    def events(self):
        """What all controllers had to say, the oldest first."""
        found = [one for node in CONTROLLERS for one in self.asked("/v1/events?limit=1000", node)["events"]]
        return sorted(found, key=lambda one: one["time_ms"])

    def events_about(self, broker_id, *, since):
        """The events about a broker after some others."""
        return [one for one in self.events() if one.get("broker_id") == broker_id and one not in since]

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
def shared(programs, tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("mixed"), **SETTINGS) as cluster:
        servers = ",".join(f"{HOST}:{cluster.port(one)}" for one in CONTROLLERS)
        voters = [f"{one}@{HOST}:{cluster.port(one)}:{Uuid(b'controller %5d' % one)}" for one in CONTROLLERS]
        for one in CONTROLLERS:
            cluster.configure(one, controller_quorum_bootstrap_servers=servers, **AUTHORIZER)
            cluster.format(one, "--initial-controllers", ",".join(voters))
        cluster.start(*CONTROLLERS)
        with ApacheBrokers(programs, cluster) as brokers:
            for one in (11, 12):
                brokers.configure(one, controller_quorum_bootstrap_servers=servers, broker_rack=f"r{one}")
                brokers.format(one)
            yield Mixed(programs, cluster, brokers)


@pytest.fixture
def mixed(shared):
    shared.start_all()
    return shared


@pytest.fixture
def admin(mixed):
    return AdminClient(QUIET | {"bootstrap.servers": mixed.brokers.bootstrap_servers})


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
    assert {"orders", "placed", "doomed"} & set(image.topics.by_name) == {"orders", "placed"}
    assert image.configs[TOPIC, "orders"] == expected
    told = admin.describe_topics(TopicCollection(["orders"]))["orders"].result(DEADLINE_S)
    replicas = {one.id: [node.id for node in one.replicas] for one in told.partitions}
    partitions = image.partitions_of(image.topics.by_name["orders"].id)
    assert replicas == {partition_id: list(one.replicas) for partition_id, one in partitions}


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
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    whom = "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default"
    through_broker = (
        "--bootstrap-server",
        mixed.brokers.bootstrap_servers,
    )  # it does not ask controllers these
    mixed.programs.run(configs, *through_broker, *whom, "--alter", "--add-config", rates)
    image = mixed.image()
    assert image.configs[BROKER, ""]["log.retention.ms"] == "7000000"
    limits = image.quotas[("client-id", None), ("user", "alice")]
    assert limits == {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}


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


def test_apache_reads_our_snapshots_as_we_do(mixed, admin, tmp_path):
    """With something in it of every kind that brokers and clients can make."""
    secure(mixed.cluster, admin)
    quota(mixed.cluster, 11, user="bob", values={"request_percentage": 50.0})
    configs = {"retention.ms": "1000000"}
    made = admin.create_topics([NewTopic(f"many-{one}", 4, 2, config=configs) for one in range(10)])
    assert {outcome(one) for one in made.values()} == {"NONE"}
    produce(mixed, "many-0", range(10))  # idempotently, which takes producer ids
    end_offset = mixed.cluster.wait_for_leader()["high_watermark"]
    snapshot = mixed.cluster.wait("a later snapshot", lambda: snapshot_from(mixed.cluster, 1, end_offset))
    with pytest.raises(AssertionError, match="Unable to lock"):
        shown_by_shell(mixed.programs, snapshot)  # it sees that the directory is in use
    snapshot = Path(shutil.copy(snapshot, tmp_path))
    dumped = mixed.programs.dump_log(snapshot)
    kinds = "REGISTER_BROKER REGISTER_CONTROLLER TOPIC PARTITION CONFIG CLIENT_QUOTA FEATURE_LEVEL"
    kinds += " ACCESS_CONTROL_ENTRY USER_SCRAM_CREDENTIAL PRODUCER_IDS"
    assert set(re.findall(r'"type":"(\w+)_RECORD"', dumped)) == set(kinds.split())

    image = loaded(snapshot)
    expected = shown_by_us(image)
    assert shown_by_shell(mixed.programs, snapshot) == expected
    assert len(image.topics.by_name) >= 10
    assert folded_up_to(mixed.cluster, 1, snapshot).equals(image)
    for prefix in ("acls/", "clientQuotas/", "scram/", "configs/TOPIC:many-0/"):
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
    cluster, since = mixed.cluster, mixed.events()
    before = {one: mixed.broker(one)["epoch"] for one in (11, 12)}
    old = mixed.active
    cluster.kill(old)
    cluster.wait_for_leader(other_than=old)
    cluster.wait(
        "heartbeats", lambda: all((mixed.broker(one)["metadata_offset"] or -1) >= 0 for one in before)
    )
    made = admin.create_topics([NewTopic("after.failover", 2, 2)])
    assert outcome(made["after.failover"]) == "NONE"
    produce(mixed, "after.failover", range(10))
    assert consume(mixed, "after.failover", 10) == set(range(10))
    mixed.start_all()
    assert {one: mixed.broker(one)["epoch"] for one in (11, 12)} == before
    assert not [*mixed.events_about(11, since=since), *mixed.events_about(12, since=since)]


def test_an_apache_broker_shuts_down_in_order_and_comes_back(mixed, admin):
    topics = [NewTopic("handed.over", 1, replica_assignment=[[12, 11]])]
    topics.append(NewTopic("left.alone", 1, replica_assignment=[[12]]))
    assert {outcome(one) for one in admin.create_topics(topics).values()} == {"NONE"}
    produce(mixed, "handed.over", range(10))
    produce(mixed, "left.alone", range(10))
    before, since = mixed.broker(12), mixed.events()
    assert mixed.brokers.terminate(12) == 143  # 128 and the number of SIGTERM: it ended by itself
    about = [one for one in mixed.events_about(12, since=since) if one["kind"] != "ShutdownWaiting"]
    assert [one["kind"] for one in about] == ["ShutdownStarted", "ShutdownGranted", "BrokerFenced"]
    assert {one["epoch"] for one in about} == {before["epoch"]}
    assert about[-1]["check"] == "shut down"
    handed_over, left_alone = mixed.partitions("handed.over")[0], mixed.partitions("left.alone")[0]
    assert (handed_over.leader, handed_over.isr) == (11, (11,))
    assert (left_alone.leader, left_alone.isr, left_alone.elr) == (-1, (), (12,))

    since = mixed.events()
    mixed.brokers.start(12)
    mixed.wait_until_active(11, 12)
    assert mixed.broker(12)["epoch"] > before["epoch"]
    about = mixed.events_about(12, since=since)
    (registered,) = [one for one in about if one["kind"] == "BrokerRegistered"]
    assert (registered["previous_epoch"], registered["is_clean"]) == (before["epoch"], True)
    mixed.wait_for_partitions("it to lead again", "left.alone", lambda found: found[0].leader == 12)
    mixed.wait_for_partitions("it to be in sync", "handed.over", lambda found: len(found[0].isr) == 2)
    assert consume(mixed, "handed.over", 10) == consume(mixed, "left.alone", 10) == set(range(10))


def test_an_apache_broker_that_crashes_is_fenced_and_comes_back(mixed, admin):
    topic = NewTopic("crashed", 2, replica_assignment=[[12, 11], [11, 12]])
    assert outcome(admin.create_topics([topic])["crashed"]) == "NONE"
    produce(mixed, "crashed", range(10))
    before, since = mixed.broker(12), mixed.events()
    mixed.brokers.kill(12)
    produce(mixed, "crashed", range(10, 20))  # waits for the new leader
    found = mixed.wait_for_partitions(
        "all led by one", "crashed", lambda found: all(one.isr == (11,) for one in found.values())
    )
    assert [one.leader for one in found.values()] == [11, 11]
    (fenced,) = mixed.events_about(12, since=since)
    assert (fenced["kind"], fenced["epoch"]) == ("BrokerFenced", before["epoch"])
    assert fenced["check"] == "missed heartbeats"
    assert fenced["ms_since_heartbeat"] >= fenced["session_timeout_ms"] == 5000

    mixed.brokers.start(12)
    mixed.wait_until_active(11, 12)
    about = mixed.events_about(12, since=since)
    (registered,) = [one for one in about if one["kind"] == "BrokerRegistered"]
    assert (registered["previous_epoch"], registered["is_clean"]) == (before["epoch"], False)
    mixed.wait_for_partitions(
        "both in sync", "crashed", lambda found: all(len(one.isr) == 2 for one in found.values())
    )
    assert consume(mixed, "crashed", 20) == set(range(20))


def test_apache_brokers_had_nothing_to_complain_about(mixed):
    """But that others were not reachable when they were not."""
    complaints = re.compile(
        r"^.* (?:ERROR|FATAL) .*$|^.*(?:UnsupportedVersion|FaultHandler).*$", re.MULTILINE
    )
    found = [one for broker in (11, 12) for one in complaints.findall(mixed.cluster.logged(broker))]
    # What a broker always says of a partition that comes to it after its topic.
    assert not [one for one in found if "to exist, but it was missing. Creating..." not in one]


# Our image of Apache's cluster


class Theirs:
    """What a cluster of Apache's left on the disk of its controller, and what its clients had been told."""

    def __init__(self, cluster, snapshot, told):
        self.cluster = cluster
        self.snapshot = snapshot
        self.told = told


@pytest.fixture(scope="module")
def theirs(programs, tmp_path_factory):
    """A controller of Apache's and two brokers, of which one was stopped in the end."""
    with Processes(tmp_path_factory.mktemp("theirs"), **SETTINGS) as cluster:
        voters = f"1@{HOST}:{cluster.port(1)}"
        directory = str(cluster.directory(1))
        cluster.configure(1, controller_quorum_voters=voters, log_dirs=directory, **AUTHORIZER)
        config = cluster.configuration(1)
        programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        controller = programs.node(config, cluster.root / "node-1.log")
        with controller, ApacheBrokers(programs, cluster) as brokers:
            for one in (11, 12):
                brokers.configure(one, controller_quorum_voters=voters, **AUTHORIZER)
                brokers.format(one)
            brokers.start(11, 12)
            admin = AdminClient(QUIET | {"bootstrap.servers": brokers.bootstrap_servers})
            change_everything(cluster, brokers, admin)
            told = told_by(cluster, admin, brokers.bootstrap_servers)
            end_offset = cluster.describe(1)["high_watermark"]
            snapshot = cluster.wait("a later snapshot", lambda: snapshot_from(cluster, 1, end_offset))
            yield Theirs(cluster, snapshot, told)


def change_everything(cluster, brokers, admin):
    """Of every kind of record something, some of it taken away again; a broker leaves, and with it a replica
    that stays eligible to lead, also where it is no replica any more."""
    cluster.wait("two brokers", lambda: len(admin.list_topics(timeout=DEADLINE_S).brokers) == 2)
    topics = [
        NewTopic("orders", 3, 2, config={"min.insync.replicas": "2", "retention.ms": "1000000"}),
        NewTopic("placed", 2, replica_assignment=[[12], [11]]),
        NewTopic("doomed", 1, 1, config={"retention.ms": "1000000"}),
        *(NewTopic(f"many-{one}", 5, 2) for one in range(10)),
    ]
    assert {outcome(one) for one in admin.create_topics(topics).values()} == {"NONE"}
    assert outcome(admin.create_partitions([NewPartitions("placed", 4)])["placed"]) == "NONE"
    changes = [("retention.ms", "DELETE", None), ("cleanup.policy", "SET", "compact")]
    (altered,) = admin.incremental_alter_configs([changed("orders", *changes)]).values()
    assert outcome(altered) == "NONE"
    assert outcome(admin.delete_topics(["doomed"])["doomed"]) == "NONE"
    secure(cluster, admin)
    quota(cluster, 11, user="alice", values={"producer_byte_rate": 1024.0, "request_percentage": 50.0})
    quota(cluster, 11, user=None, values={"consumer_byte_rate": 2048.0})
    produce_to(brokers.bootstrap_servers, "placed", range(10))
    assert brokers.terminate(12) == 143
    with closing(KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)) as other:
        narrower = {TopicPartition("orders", one): [11] for one in (0, 1)}
        assert set(other.alter_partition_reassignments(narrower).values()) == {None}
        cluster.wait("no reassignment", lambda: not other.list_partition_reassignments())


def told_by(cluster, admin, servers):
    """What clients are told of everything."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as other:
        names = sorted(admin.list_topics(timeout=DEADLINE_S).topics)
        described = other.describe_topic_partitions(names)
        topics = {one["name"]: one for one in described["topics"]}
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    quotas = cluster.ask(11, DescribeClientQuotasRequest(components=[], strict=False))
    return {
        "topics": topics,
        "configs": {one: configured(admin, one) for one in topics},
        "acls": sorted(one.principal for one in admin.describe_acls(every).result(DEADLINE_S)),
        "scram": credentials(cluster, 11),
        "quotas": {
            tuple((one.entity_type, one.entity_name) for one in entry.entity): {
                one.key: one.value for one in entry.values
            }
            for entry in quotas.entries
        },
    }


def test_apaches_log_and_its_snapshot_give_one_image(theirs):
    image = loaded(theirs.snapshot)
    assert folded_up_to(theirs.cluster, 1, theirs.snapshot).equals(image)
    assert not image.unknown


def test_our_image_is_what_apaches_clients_are_told(theirs):
    image, told = loaded(theirs.snapshot), theirs.told
    assert set(image.topics.by_name) == set(told["topics"])
    for name, described in told["topics"].items():
        topic = image.topics.by_name[name]
        partitions = dict(image.partitions_of(topic.id))
        assert sorted(partitions) == sorted(one["partition_index"] for one in described["partitions"])
        for one in described["partitions"]:
            found = partitions[one["partition_index"]]
            assert list(found.replicas) == one["replica_nodes"]
            assert sorted(found.isr) == sorted(one["isr_nodes"])
            assert (found.leader, found.leader_epoch) == (one["leader_id"], one["leader_epoch"])
            eligible = one["eligible_leader_replicas"] or []
            assert sorted(found.elr) == sorted(set(eligible) & set(one["replica_nodes"]))
    narrowed = [one["eligible_leader_replicas"] for one in told["topics"]["orders"]["partitions"]]
    assert narrowed == [[12]] * 3  # though two of them have no replica there any more
    for name in told["topics"]:
        assert image.configs.get((TOPIC, name), {}) == told["configs"][name]
    assert sorted(one.principal for one in image.acls.values()) == told["acls"]
    known = {(user, mechanism): one.iterations for (user, mechanism), one in image.scram.items()}
    assert known == {
        (user, mechanism): iterations
        for user, found in told["scram"].items()
        for mechanism, iterations in found.items()
    }
    assert image.quotas == told["quotas"]


def test_our_image_is_what_apaches_shell_shows(programs, theirs, tmp_path):
    snapshot = Path(shutil.copy(theirs.snapshot, tmp_path))
    assert shown_by_shell(programs, snapshot) == shown_by_us(loaded(snapshot))


# Controllers of both kinds


def test_controllers_of_both_kinds_register_with_each_other(programs, tmp_path):
    """First ours leads, then Apache's: node 2 leaves it to others to begin an election."""
    with Processes(tmp_path, controller_quorum_fetch_timeout_ms="3000") as cluster:
        voters = ",".join(f"{one}@{HOST}:{cluster.port(one)}" for one in CONTROLLERS)
        for one in CONTROLLERS:
            patience = PATIENCE if one == 2 else {}
            directory = str(cluster.directory(one))
            cluster.configure(one, controller_quorum_voters=voters, log_dirs=directory, **patience)
            cluster.format(one)
        cluster.start(1, 2)
        cluster.wait_until_caught_up(1, 2)
        log = tmp_path / "node-3.log"
        with programs.node(cluster.configuration(3), log):
            first = cluster.wait("all registered", lambda: registered(cluster, 1))
            assert cluster.wait_for_leader()["leader_id"] == 1
            cluster.kill(2)
            ends = [one["log_end_offset"] for one in cluster.wait_for_leader(1)["voters"]]
            cluster.wait_until_caught_up(1, 3, beyond=max(ends))  # or 3 could not win the vote of 2
            cluster.kill(1)
            cluster.start(2)
            assert cluster.wait_for_leader(2, 3)["leader_id"] == 3
            cluster.start(1)
            second = cluster.wait(
                "ours registered anew",
                lambda: (
                    (found := registered(cluster, 3))
                    and all(found[one] != first[one] for one in (1, 2))
                    and found
                ),
            )
            assert second[3] == first[3]
            quorum = cluster.wait_until_caught_up(1, 2, 3)
            images = [folded(cluster.committed(one, quorum["high_watermark"])) for one in CONTROLLERS]
            assert images[0].equals(images[1])
            assert images[0].equals(images[2])
        assert "UnsupportedVersionException" not in log.read_text()


def registered(cluster, node_id):
    """The incarnations of the controllers, once all are in the log of a node."""
    found = folded(cluster.batches(node_id)).controllers
    return {one: found[one].incarnation_id for one in found} if set(found) == set(CONTROLLERS) else None


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


def secure(cluster, admin):
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
    # A broker of Apache's that learns of both at once, what was put and what was removed, may lose all of it.
    cluster.wait(
        "credentials at the brokers",
        lambda: all(len(credentials(cluster, at).get("bob", ())) == 2 for at in (11, 12)),
    )
    gone = [UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)]
    assert outcome(admin.alter_user_scram_credentials(gone)["bob"]) == "NONE"


def credentials(cluster, broker_id):
    """How often passwords are hashed, by user and mechanism, as a broker knows it."""
    answer = cluster.ask(broker_id, DescribeUserScramCredentialsRequest(users=None))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return {one.user: {of.mechanism: of.iterations for of in one.credential_infos} for one in answer.results}


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
    produce_to(mixed.brokers.bootstrap_servers, topic, numbers)


def produce_to(servers, topic, numbers):
    producer = Producer(QUIET | {"bootstrap.servers": servers, "enable.idempotence": True})
    failures = []
    for one in numbers:
        producer.produce(topic, str(one), on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def consume(mixed, topic, count):
    """The distinct numbers in a topic, as soon as there are so many."""
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": mixed.brokers.bootstrap_servers,
            "group.id": f"of-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
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
