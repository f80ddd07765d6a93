"""Other people's clients under quotas, and in racks: they are held to what Apache's tools have set, and read
from the replica next to them."""

import json
import os
import re
import time
import urllib.request

import kafka
import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from confluent_kafka import Consumer, Producer, TopicPartition

from node.broker_processes import BrokerProcesses
from node.processes import DEADLINE_S
from quorate.broker.replica_selection import RACK_AWARE
from quorate.node.admin import ADDRESS_FILE

pytestmark = pytest.mark.interop

LEADER, FOLLOWER = 101, 102
QUIET = {"log_level": 2}
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesoutpersec_total"
THROTTLES = "kafka_server_throttles_total"


class Racks(BrokerProcesses):
    """Each broker in a rack of its own; consumers are sent to theirs."""

    def configure_node(self, node_id, **changes):
        own = {"broker_rack": rack_of(node_id)} if node_id in self.broker_ids else {}
        super().configure_node(node_id, replica_selector_class=RACK_AWARE, **own, **changes)

    def metric(self, broker_id, name, **labels):
        """The value of a metric of a broker, 0 if there is none."""
        address = (self.directory(broker_id) / ADDRESS_FILE).read_text().strip()
        with urllib.request.urlopen(f"{address}/metrics", timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        full_name = f"{name}{{{wanted}}}" if wanted else name
        found = re.search(rf"(?m)^{re.escape(full_name)} (\S+)$", text)
        return 0 if found is None else float(found[1])

    def bytes_out(self, broker_id, topic):
        return self.metric(broker_id, BYTES_OUT, topic=topic)


def rack_of(broker_id):
    return f"rack-{broker_id}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    root = tmp_path_factory.mktemp("racks")
    with Racks(root, controllers=1, brokers=2, broker_session_timeout_ms="3000") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools():
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with ApacheTools.start(ApachePrograms()) as tools:
        yield tools


def write(cluster, topic, count, size_bytes=1000, **settings):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET, **settings})
    for number in range(count):
        producer.produce(topic, f"{number} ".encode().ljust(size_bytes, b"."), partition=0)
    assert producer.flush(DEADLINE_S) == 0


def read_until(consumer, end_offset):
    """Everything before an offset, each once and in order."""
    deadline, offsets = time.monotonic() + DEADLINE_S, []
    while not offsets or offsets[-1] < end_offset - 1:
        assert time.monotonic() < deadline, f"{offsets[-1:]} of {end_offset}"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            offsets.append(message.offset())
    assert offsets == list(range(offsets[0], end_offset))
    return offsets


def librdkafka_in_rack(cluster, rack, topic, offset=0):
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "client.rack": rack,
            "topic.metadata.refresh.interval.ms": 2000,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


# Racks


def test_librdkafka_reads_in_its_rack(cluster):
    cluster.create_topic("near", [LEADER, FOLLOWER])
    write(cluster, "near", 200)
    consumer = librdkafka_in_rack(cluster, rack_of(FOLLOWER), "near")
    read_until(consumer, 200)
    # What is written while it waits at the follower reaches it there.
    write(cluster, "near", 50)
    read_until(consumer, 250)
    consumer.close()
    assert cluster.bytes_out(FOLLOWER, "near") > 200_000
    assert cluster.bytes_out(LEADER, "near") == 0


def test_without_a_rack_it_reads_from_the_leader(cluster):
    cluster.create_topic("far", [LEADER, FOLLOWER])
    write(cluster, "far", 50)
    consumer = librdkafka_in_rack(cluster, "", "far")
    read_until(consumer, 50)
    consumer.close()
    assert cluster.bytes_out(LEADER, "far") >= 50_000
    assert cluster.bytes_out(FOLLOWER, "far") == 0


def test_the_console_consumer_reads_in_its_rack(cluster, tools):
    cluster.create_topic("console", [LEADER, FOLLOWER])
    write(cluster, "console", 100)
    printed = tools.run(
        "console_consumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "console"),
        *("--partition", "0", "--offset", "earliest", "--max-messages", "100"),
        *("--command-property", f"client.rack={rack_of(FOLLOWER)}"),
    )
    assert len(re.findall(r"(?m)^\d+ \.", printed)) == 100
    assert cluster.bytes_out(FOLLOWER, "console") >= 100_000
    assert cluster.bytes_out(LEADER, "console") == 0


def test_a_reader_whose_replica_is_gone_returns_to_the_leader(cluster):
    cluster.create_topic("orphan", [LEADER, FOLLOWER], min_insync_replicas=1)
    write(cluster, "orphan", 100)
    consumer = librdkafka_in_rack(cluster, rack_of(FOLLOWER), "orphan")
    read_until(consumer, 100)
    assert cluster.bytes_out(LEADER, "orphan") == 0
    cluster.kill(FOLLOWER)
    try:
        write(cluster, "orphan", 100)
        read_until(consumer, 200)
        assert cluster.bytes_out(LEADER, "orphan") > 0
    finally:
        consumer.close()
        cluster.start(FOLLOWER)
        cluster.wait_until_unfenced(FOLLOWER)
    cluster.wait_until_in_sync("orphan")


# Quotas


def set_quota(tools, cluster, *entity, **values):
    added = ",".join(f"{key}={value}" for key, value in values.items())
    tools.run("configs", "--bootstrap-server", cluster.bootstrap, *entity, "--alter", "--add-config", added)


def test_the_performance_test_is_held_to_what_kafka_configs_has_set(cluster, tools):
    cluster.create_topic("slow", [LEADER])
    quota = 300_000
    clients = ("--entity-type", "clients", "--entity-name", "perf")
    set_quota(tools, cluster, *clients, producer_byte_rate=quota)
    described = tools.run("configs", "--bootstrap-server", cluster.bootstrap, *clients, "--describe")
    assert f"producer_byte_rate={quota}" in described
    printed = tools.run(
        "producer_performance",
        *("--topic", "slow", "--num-records", "5000", "--record-size", "1000", "--throughput", "-1"),
        "--producer-props",
        *(f"bootstrap.servers={cluster.bootstrap}", "client.id=perf", "compression.type=none"),
    )
    measured = [float(one) * 1024 * 1024 for one in re.findall(r"\(([\d.]+) MB/sec\)", printed)]
    assert measured, printed
    assert measured[-1] < quota * 1.6, printed  # a client may begin with what ten seconds bring
    assert cluster.metric(LEADER, THROTTLES, quota="produce") > 0


def test_librdkafka_reports_that_it_is_throttled(cluster, tools):
    cluster.create_topic("reported", [LEADER])
    set_quota(tools, cluster, "--entity-type", "clients", "--entity-name", "rd", producer_byte_rate=20_000)
    events = []
    settings = {"client.id": "rd", "linger.ms": 0, "batch.size": 20_000, "throttle_cb": events.append}
    deadline = time.monotonic() + DEADLINE_S
    while not events:  # a busy leader may not have heard of its quota yet
        assert time.monotonic() < deadline, "nobody is throttled"
        write(cluster, "reported", 250, **settings)
    assert max(event.throttle_time for event in events) > 0
    assert {event.broker_id for event in events} == {LEADER}


def test_kafka_python_reports_that_it_is_throttled(cluster, tools, caplog):
    cluster.create_topic("measured", [LEADER])
    set_quota(tools, cluster, "--entity-type", "clients", "--entity-name", "py", producer_byte_rate=20_000)
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, client_id="py")
    try:
        sent = [producer.send("measured", b"x" * 1000, partition=0) for _ in range(230)]
        for one in sent:
            one.get(DEADLINE_S)
        assert "ProduceResponse throttled by broker" in caplog.text
    finally:
        producer.close()


def test_consumers_are_held_to_the_default_of_all_users(cluster, tools):
    cluster.create_topic("drip", [LEADER])
    write(cluster, "drip", 300, **{"batch.size": 10_000})
    set_quota(tools, cluster, "--entity-type", "users", "--entity-default", consumer_byte_rate=20_000)
    try:
        consumer = librdkafka_in_rack(cluster, "", "drip")
        begun = time.monotonic()
        read_until(consumer, 300)
        assert 300_000 / (time.monotonic() - begun) < 2 * 20_000
        consumer.close()
        assert cluster.metric(LEADER, THROTTLES, quota="fetch") > 0
    finally:
        tools.run(
            "configs",
            *("--bootstrap-server", cluster.bootstrap, "--entity-type", "users", "--entity-default"),
            *("--alter", "--delete-config", "consumer_byte_rate"),
        )


# Replication


def test_a_reassignment_is_held_to_its_throttle(cluster, tools, tmp_path):
    cluster.create_topic("moved", [LEADER], min_insync_replicas=1)
    write(cluster, "moved", 2500, **{"batch.size": 10_000})
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": 0, "replicas": [LEADER, FOLLOWER]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    where = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    tools.run("reassign_partitions", *where, "--execute", "--throttle", "500000")
    described = tools.run(
        "configs",
        *("--bootstrap-server", cluster.bootstrap, "--describe"),
        *("--entity-type", "topics", "--entity-name", "moved"),
    )
    assert f"leader.replication.throttled.replicas=0:{LEADER}" in described
    assert f"follower.replication.throttled.replicas=0:{FOLLOWER}" in described
    held_up = "kafka_server_{}replication_throttles_total"
    cluster.wait(
        "one side has held up the copy",
        lambda: (
            cluster.metric(LEADER, held_up.format("leader"))
            + cluster.metric(FOLLOWER, held_up.format("follower"))
        ),
    )
    cluster.wait_until_in_sync("moved")
    assert cluster.metric(FOLLOWER, "kafka_server_followerreplication_throttled_bytes_total") > 2_500_000
    printed = tools.run("reassign_partitions", *where, "--verify")
    assert "Clearing broker-level throttles" in printed
    described = tools.run(
        "configs",
        *("--bootstrap-server", cluster.bootstrap, "--describe"),
        *("--entity-type", "brokers", "--entity-name", str(FOLLOWER)),
    )
    assert "replication.throttled.rate" not in described
