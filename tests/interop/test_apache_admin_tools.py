"""Apache's tools administer our cluster of three controllers and three brokers: what they say is done."""

import json
import os
import re

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from confluent_kafka import Producer
from trogdor_program import run_task

from node.broker_processes import BrokerProcesses
from node.processes import CLUSTER_ID
from quorate.protocol.api.admin import DescribeConfigsRequest
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.interop

ALL = (101, 102, 103)
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SETTINGS = {
    "auto_leader_rebalance_enable": "false",
    "replica_fetch_wait_max_ms": "200",
    "offsets_topic_num_partitions": "3",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), **SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools():
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with ApacheTools.start(ApachePrograms()) as tools:
        yield tools


@pytest.fixture
def ask(cluster, tools):
    """Runs a tool against the brokers."""
    return lambda name, *words, **about: tools.run(
        name, *words, "--bootstrap-server", cluster.bootstrap, **about
    )


@pytest.fixture
def refused(cluster, tools):
    return lambda name, *words: tools.refused(name, *words, "--bootstrap-server", cluster.bootstrap)


def described(cluster, kind, name, broker=101):
    """Value and source of what is set for a resource, as a broker tells."""
    asked = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = cluster.ask_broker(broker, DescribeConfigsRequest(resources=[asked], include_synonyms=False))
    (result,) = answer.results
    assert result.error_code == 0, result
    return {one.name: (one.value, one.config_source) for one in result.configs}


def until_set(cluster, kind, name, key, expected, broker=101):
    cluster.wait(
        f"{key} of {name} is {expected}",
        lambda: described(cluster, kind, name, broker).get(key, (None, 0))[0] == expected,
    )


def until_unset(cluster, name, key, broker):
    """What nobody has set is not described, if it is a throttle."""
    cluster.wait(f"{key} of {name} is gone", lambda: key not in described(cluster, BROKER, name, broker))


# kafka-configs


def configs(ask, kind, name, *words):
    entity = ("--entity-default",) if name == "" else ("--entity-name", name)
    return ask("configs", "--entity-type", kind, *entity, *words)


def test_configurations_of_a_topic(cluster, ask, refused):
    cluster.create_topic("configured", ALL)
    configs(
        ask,
        "topics",
        "configured",
        "--alter",
        "--add-config",
        "retention.ms=7777,cleanup.policy=[compact,delete]",
    )
    until_set(cluster, TOPIC, "configured", "cleanup.policy", "compact,delete")
    printed = configs(ask, "topics", "configured", "--describe")
    assert "retention.ms=7777" in printed
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=7777" in printed
    configs(ask, "topics", "configured", "--alter", "--delete-config", "retention.ms,cleanup.policy")
    until_set(cluster, TOPIC, "configured", "retention.ms", "604800000")
    assert "retention.ms" not in configs(ask, "topics", "configured", "--describe")
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    assert "InvalidConfigurationException" in refused(
        "configs", *entity, "--alter", "--add-config", "retention.ms=-7"
    )


def test_configurations_of_brokers(cluster, ask, refused):
    key = "log.cleaner.threads"
    configs(ask, "brokers", "", "--alter", "--add-config", f"{key}=2")
    until_set(cluster, BROKER, "102", key, "2", 102)
    assert f"{key}=2" in configs(ask, "brokers", "", "--describe")
    configs(ask, "brokers", "101", "--alter", "--add-config", f"{key}=3")
    until_set(cluster, BROKER, "101", key, "3", 101)
    assert described(cluster, BROKER, "102", 102)[key] == ("2", 3)
    printed = configs(ask, "brokers", "101", "--describe", "--all")
    (line,) = [line for line in printed.splitlines() if line.strip().startswith(f"{key}=")]
    assert line.strip() == (
        f"{key}=3 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{key}=3,"
        f" DYNAMIC_DEFAULT_BROKER_CONFIG:{key}=2, DEFAULT_CONFIG:{key}=1}}"
    )
    assert "node.id=101" in printed
    for name in ("101", ""):
        configs(ask, "brokers", name, "--alter", "--delete-config", key)
    until_set(cluster, BROKER, "101", key, "1")
    entity = ("--entity-type", "brokers", "--entity-name", "101", "--alter", "--add-config")
    assert "Cannot update these configs dynamically" in refused("configs", *entity, "num.partitions=7")
    assert "InvalidRequestException" in refused("configs", *entity, f"{key}=many")


def test_levels_of_loggers(cluster, ask, refused):
    name = "quorate.broker.102"
    entity = ("--entity-type", "broker-loggers", "--entity-name", "102")
    ask("configs", *entity, "--alter", "--add-config", f"{name}=DEBUG")
    assert described(cluster, LOGGER, "102", 102)[name] == ("DEBUG", 6)
    assert f"{name}=DEBUG" in ask("configs", *entity, "--describe")
    ask("configs", *entity, "--alter", "--delete-config", name)
    assert described(cluster, LOGGER, "102", 102)[name] == ("INFO", 6)
    assert "quorate.broker.102" in described(cluster, LOGGER, "102", 102)
    assert "InvalidConfigurationException" in refused(
        "configs", *entity, "--alter", "--add-config", f"{name}=LOUD"
    )


def test_configurations_of_groups_and_client_metrics(cluster, ask):
    configs(ask, "groups", "some-group", "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    until_set(cluster, GROUP, "some-group", "consumer.session.timeout.ms", "50000")
    assert "consumer.session.timeout.ms=50000" in configs(ask, "groups", "some-group", "--describe")
    ask("client_metrics", "--alter", "--name", "slow", "--metrics", "org.apache.kafka", "--interval", "2000")
    until_set(cluster, CLIENT_METRICS, "slow", "interval.ms", "2000")
    assert ask("client_metrics", "--list").split() == ["slow"]
    assert "interval.ms=2000" in ask("client_metrics", "--describe", "--name", "slow")
    ask("client_metrics", "--delete", "--name", "slow")
    until_set(cluster, CLIENT_METRICS, "slow", "interval.ms", "300000")
    versions = cluster.ask_broker(
        101, ApiVersionsRequest(client_software_name="test", client_software_version="1")
    )
    assert {71, 72}.isdisjoint({one.api_key for one in versions.api_keys})


def test_quotas_and_credentials(ask):
    configs(ask, "users", "ann", "--alter", "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576" in configs(ask, "users", "ann", "--describe")
    configs(ask, "clients", "", "--alter", "--add-config", "request_percentage=50")
    assert "request_percentage=50" in configs(ask, "clients", "", "--describe")
    configs(ask, "users", "ann", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
    assert "SCRAM-SHA-256=iterations=4096" in configs(ask, "users", "ann", "--describe")
    configs(ask, "users", "ann", "--alter", "--delete-config", "SCRAM-SHA-256")
    configs(ask, "users", "ann", "--alter", "--delete-config", "producer_byte_rate")
    configs(ask, "clients", "", "--alter", "--delete-config", "request_percentage")
    assert "producer_byte_rate" not in configs(ask, "users", "ann", "--describe")


# kafka-topics


def test_topics_grow_and_are_described(cluster, ask):
    ask("topics", "--create", "--topic", "grown", "--partitions", "2", "--replication-factor", "3")
    cluster.wait_until_led("grown", 2)
    ask("topics", "--alter", "--topic", "grown", "--partitions", "5")
    cluster.wait_until_led("grown", 5)
    printed = ask("topics", "--describe", "--topic", "grown")
    assert "PartitionCount: 5\tReplicationFactor: 3" in printed
    rows = re.findall(
        r"Partition: (\d)\tLeader: (\d+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)\tElr: (\S*)", printed
    )
    assert [int(row[0]) for row in rows] == list(range(5))
    for _, leader, replicas, isr, elr in rows:
        assert leader == replicas.split(",")[0]
        assert (set(isr.split(",")), elr) == ({"101", "102", "103"}, "")
    assert ask("topics", "--describe", "--under-replicated-partitions").strip() == ""


# kafka-delete-records


def offsets(ask, topic, time):
    printed = ask("get_offsets", "--topic", topic, "--time", time)
    return {int(one): int(offset) for one, offset in re.findall(rf"{topic}:(\d+):(\d+)", printed)}


def fill(cluster, topic, partitions, count, padding=b""):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, f"{number} ".encode() + padding, partition=partition)
    assert producer.flush(60) == 0


def test_records_are_deleted_everywhere(cluster, ask, tmp_path):
    cluster.create_topic("shortened", ALL, ALL)
    fill(cluster, "shortened", 2, 10)
    plan = tmp_path / "offsets.json"

    def wanted(*rows):
        partitions = [{"topic": "shortened", "partition": one, "offset": offset} for one, offset in rows]
        plan.write_text(json.dumps({"partitions": partitions, "version": 1}))
        return ("--offset-json-file", str(plan))

    printed = ask("delete_records", *wanted((0, 4), (1, -1)))
    assert "partition: shortened-0\tlow_watermark: 4" in printed
    assert "partition: shortened-1\tlow_watermark: 10" in printed
    assert offsets(ask, "shortened", "earliest") == {0: 4, 1: 10}
    assert offsets(ask, "shortened", "latest") == {0: 10, 1: 10}
    printed = ask("delete_records", *wanted((0, 11)))
    assert "OffsetOutOfRangeException" in printed


# kafka-reassign-partitions, kafka-leader-election


def plan_of(path, topic, replicas):
    partitions = [
        {"topic": topic, "partition": one, "replicas": list(ids)} for one, ids in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return ("--reassignment-json-file", str(path))


def replicas_of(cluster, topic):
    return [list(one.replica_nodes) for one in cluster.partitions(topic)]


def test_partitions_move_with_a_throttle_that_goes_in_the_end(cluster, ask, tmp_path):
    cluster.create_topic("moved", (101,), (101,), (102,))
    fill(cluster, "moved", 3, 100)
    target = [[102, 103], [103], [101, 102]]
    plan = plan_of(tmp_path / "plan.json", "moved", target)
    printed = ask("reassign", "--execute", *plan, "--throttle", "50000000")
    assert "Successfully started partition reassignments" in printed
    for one in ALL:
        until_set(cluster, BROKER, str(one), "leader.replication.throttled.rate", "50000000", one)
    cluster.wait("they have moved", lambda: replicas_of(cluster, "moved") == target)
    cluster.wait_until_in_sync("moved")
    printed = ask("reassign", "--verify", *plan)
    for one in range(3):
        assert f"Reassignment of partition moved-{one} is completed." in printed
    for one in ALL:
        until_unset(cluster, str(one), "leader.replication.throttled.rate", one)
    until_set(cluster, TOPIC, "moved", "leader.replication.throttled.replicas", "")
    assert offsets(ask, "moved", "latest") == {0: 100, 1: 100, 2: 100}


def test_a_move_that_hardly_moves_is_listed_and_taken_back(cluster, ask, tmp_path):
    cluster.create_topic("slow", (101, 102), (102, 101))
    fill(cluster, "slow", 2, 200, b"x" * 10_000)
    before = replicas_of(cluster, "slow")
    plan = plan_of(tmp_path / "plan.json", "slow", [[101, 103], [103, 102]])
    ask("reassign", "--execute", *plan, "--throttle", "1")
    printed = ask("reassign", "--list")
    assert "slow-0: replicas: 101,103,102. adding: 103. removing: 102." in printed
    assert "is still in progress" in ask("reassign", "--verify", *plan)
    ask("reassign", "--cancel", *plan)
    cluster.wait("it is as before", lambda: replicas_of(cluster, "slow") == before)
    assert "No partition reassignments found" in ask("reassign", "--list")
    for one in ALL:
        until_unset(cluster, str(one), "follower.replication.throttled.rate", one)
    cluster.wait_until_in_sync("slow")
    assert offsets(ask, "slow", "latest") == {0: 200, 1: 200}


def test_preferred_leaders_are_elected(cluster, ask, tmp_path):
    cluster.create_topic("elected", ALL, ALL)
    plan = plan_of(tmp_path / "plan.json", "elected", [[102, 101, 103], [103, 101, 102]])
    ask("reassign", "--execute", *plan)
    cluster.wait(
        "the order is another", lambda: [ids[0] for ids in replicas_of(cluster, "elected")] == [102, 103]
    )
    assert [cluster.leader_of("elected", one) for one in (0, 1)] == [101, 101]
    election = ("--election-type", "preferred", "--topic", "elected", "--partition")
    printed = ask("leader_election", *election, "0")
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in printed
    cluster.wait("102 leads", lambda: cluster.leader_of("elected", 0) == 102)
    assert cluster.leader_of("elected", 1) == 101
    assert "Valid replica already elected for partitions elected-0" in ask("leader_election", *election, "0")
    ask("leader_election", "--election-type", "preferred", "--all-topic-partitions")
    cluster.wait("103 leads", lambda: cluster.leader_of("elected", 1) == 103)


def test_a_leader_that_is_not_in_sync_is_elected_if_one_insists(cluster, ask):
    cluster.create_topic("unclean", (102, 103))
    fill(cluster, "unclean", 1, 5)
    try:
        assert cluster.terminate(103) == 0
        cluster.wait("103 has left", lambda: list(cluster.partitions("unclean")[0].isr_nodes) == [102])
        cluster.kill(102)
        cluster.wait("nobody leads", lambda: cluster.leader_of("unclean") == -1)
        cluster.start(103)
        cluster.wait_until_unfenced(101, 103)
        assert cluster.leader_of("unclean") == -1
        ask("leader_election", "--election-type", "unclean", "--topic", "unclean", "--partition", "0")
        cluster.wait("103 leads", lambda: cluster.leader_of("unclean") == 103)
    finally:
        cluster.start(*[one for one in (102, 103) if one not in cluster.running_brokers])
        cluster.wait_until_unfenced(*ALL)


# kafka-features, kafka-cluster, kafka-metadata-quorum


def test_features_go_down_and_up(tools, cluster):
    def features(*words):
        return tools.run("features", "--bootstrap-server", cluster.bootstrap, *words)

    def level():
        return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s", features("describe")))[
            name
        ]

    name = "share.version"
    before = level()
    assert before != "0"
    features("downgrade", "--feature", f"{name}=0")
    cluster.wait("it is down", lambda: level() == "0")
    features("upgrade", "--feature", f"{name}={before}")
    cluster.wait("it is up", lambda: level() == before)
    printed = tools.refused(
        "features", "--bootstrap-server", cluster.bootstrap, "upgrade", "--feature", f"{name}=99"
    )
    assert "Could not upgrade" in printed


def test_a_quorum_that_is_set_in_files_keeps_its_voters(tools, cluster):
    words = (
        "remove-controller",
        "--controller-id",
        "1",
        "--controller-directory-id",
        "AAAAAAAAAAAAAAAAAAAAAw",
    )
    printed = tools.refused("metadata_quorum", "--bootstrap-server", cluster.bootstrap, *words)
    assert "UnsupportedVersionException" in printed


def test_what_a_client_can_expect(cluster, ask):
    cluster.create_topic("compatible", ALL)
    features = (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-acls",
        "describe-configs",
        "idempotent-producer",
    )
    words = [word for one in features for word in (f"--{one}-supported", "true")]
    ask(
        "compatibility",
        *(
            "--topic",
            "compatible",
            "--num-cluster-nodes",
            "3",
            "--expect-record-too-large-exception",
            "false",
        ),
        *words,
    )


def test_records_come_back_from_a_round_trip(cluster, tmp_path, tools):
    count = 2000
    printed = run_task(
        {
            "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec",
            "startMs": 0,
            "durationMs": 120_000,
            "bootstrapServers": cluster.bootstrap,
            "targetMessagesPerSec": 1000,
            "maxMessages": count,
            "valueGenerator": {"type": "sequential", "size": 64, "offset": 0},
            "activeTopics": {"round-trip-[0-1]": {"numPartitions": 3, "replicationFactor": 3}},
        },
        tmp_path,
    )
    assert "Task succeeded" in printed, printed
    assert f'"totalUniqueSent":{count}' in printed.replace(" ", ""), printed
    assert f'"totalReceived":{count}' in printed.replace(" ", ""), printed
    ends = [offset for topic in ("round-trip-0", "round-trip-1") for offset in _ends(cluster, tools, topic)]
    assert sum(ends) == count


def _ends(cluster, tools, topic):
    printed = tools.run("get_offsets", "--bootstrap-server", cluster.bootstrap, "--topic", topic)
    return [int(offset) for offset in re.findall(rf"{topic}:\d+:(\d+)", printed)]


def test_the_cluster_and_a_broker_that_it_forgets(cluster, tools):
    def tool(action, *words):
        return tools.run("cluster", action, "--bootstrap-server", cluster.bootstrap, *words)

    assert f"Cluster ID: {CLUSTER_ID}" in tool("cluster-id")
    printed = tool("list-endpoints")
    assert {int(one) for one in re.findall(r"^(\d+)\s", printed, re.MULTILINE)} == set(ALL)
    assert cluster.terminate(103) == 0
    try:
        cluster.wait_until_fenced(103)
        printed = tool("list-endpoints", "--include-fenced-brokers")
        assert re.search(r"^103\s.*\sfenced\s", printed, re.MULTILINE), printed
        assert "Broker 103 is no longer registered" in tool("unregister", "--id", "103")
        cluster.wait(
            "it is forgotten", lambda: "103" not in tool("list-endpoints", "--include-fenced-brokers")
        )
        again = cluster.ask_broker(101, UnregisterBrokerRequest(broker_id=103))
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    finally:
        cluster.start(103)
        cluster.wait_until_unfenced(*ALL)
