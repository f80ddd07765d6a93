"""Three controllers as processes, and brokers that are nothing but their requests: failover, silence, the
command line, and input that makes no sense."""

import asyncio
import json
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller_cluster import directory, incarnation
from node.processes import CLUSTER_ID, HOST, POLL_S, Processes, run_quorate
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import TOPIC
from quorate.node.admin import ADDRESS_FILE
from quorate.node.config_file import load_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest
from quorate.protocol.api.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
)
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.processes

SESSION_MS = 3000
BEAT_S = 0.2
NODES = (1, 2, 3)


class Controllers(Processes):
    """Three controllers, and their answers over HTTP."""

    def get(self, node_id, path):
        """The status and the body; None if nobody answers."""
        try:
            address = urlsplit((self.directory(node_id) / ADDRESS_FILE).read_text().strip())
            connection = HTTPConnection(address.hostname, address.port, timeout=10)
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            connection.close()
        except OSError:
            return None
        return response.status, body

    def told(self, node_id, path):
        found = self.get(node_id, path)
        assert found is not None, self._logs()
        assert found[0] == 200, found
        return json.loads(found[1])

    def active(self, *, other_than=None):
        """The id of the active controller, once there is one."""

        def found():
            for node_id in NODES:
                answer = None if node_id == other_than else self.get(node_id, "/v1/controller")
                if answer is not None and json.loads(answer[1])["is_active"]:
                    return node_id
            return None

        return self.wait("an active controller", found)

    def standby(self):
        return next(one for one in NODES if one != self.active())

    def epoch(self):
        return self.told(self.active(), "/v1/controller")["epoch"]

    def events(self, node_id, kind, **fields):
        """What a node had to say of this kind."""
        return [
            one
            for one in self.told(node_id, "/v1/events?limit=1000")["events"]
            if one["kind"] == kind and fields.items() <= one.items()
        ]

    def metrics(self, node_id):
        status, body = self.get(node_id, "/metrics")
        assert status == 200
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    def state_of(self, node_id, broker_id):
        found = self.get(node_id, f"/v1/brokers/{broker_id}")
        return json.loads(found[1])["broker"]["state"] if found is not None and found[0] == 200 else None


class Broker:
    """As far as controllers know, a broker."""

    def __init__(self, cluster, broker_id):
        self.cluster = cluster
        self.id = broker_id
        self.epoch = -1
        self.controller = None  # that answered last

    def register(self, run=0):
        answer = self.ask(registration(self.id, run))
        assert answer.error_code == ErrorCode.NONE
        self.epoch = answer.broker_epoch

    def beat(self, **wishes):
        """One heartbeat, of a broker that has read everything if it does not say otherwise."""
        fields = {"current_metadata_offset": 2**60, "want_fence": False, "want_shut_down": False, **wishes}
        return self.ask(BrokerHeartbeatRequest(broker_id=self.id, broker_epoch=self.epoch, **fields))

    def start(self):
        self.register()
        answer = self.beat()
        assert (answer.error_code, answer.is_fenced) == (ErrorCode.NONE, False)

    def ask(self, request):
        """The answer of the active controller, whoever that is."""

        def answered():
            order = sorted(NODES, key=lambda one: one != self.controller)
            for self.controller in order:
                try:
                    answer = self.cluster.ask(self.controller, request)
                except ConnectionError:
                    continue
                if answer.error_code != ErrorCode.NOT_CONTROLLER:
                    return answer
            return None

        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = answered()
            if answer is not None:
                return answer
            time.sleep(POLL_S)
        raise AssertionError("no active controller")


class Beating:
    """A broker that goes on sending heartbeats."""

    def __init__(self, broker, **wishes):
        self.answers = []
        self._broker = broker
        self._wishes = wishes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _run(self):
        while not self._is_over.wait(BEAT_S):
            self.answers.append(self._broker.beat(**self._wishes))


def registration(broker_id, run=0, **changes):
    listener = {"name": "PLAINTEXT", "host": "here", "port": 9092, "security_protocol": 0}
    listener |= {key: changes.pop(key) for key in list(changes) if key in listener}
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": incarnation(broker_id, run),
        "listeners": [BrokerRegistrationRequest.Listener(**listener)],
        "features": [
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": None,
        "log_dirs": [directory(broker_id)],
        **changes,
    }
    return BrokerRegistrationRequest(**fields)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"broker_session_timeout_ms": str(SESSION_MS), "metadata_max_idle_interval_ms": "100"}
    with Controllers(tmp_path_factory.mktemp("controllers"), **settings) as controllers:
        voters = ",".join(f"{one}@{HOST}:{controllers.port(one)}" for one in NODES)
        for node_id in NODES:
            path = controllers.configure(node_id, controller_quorum_voters=voters)
            asyncio.run(format_storage(real_host(f"{node_id}"), load_config(str(path)), CLUSTER_ID))
        controllers.start(*NODES)
        controllers.active()
        yield controllers


# Failover and silence


def test_a_new_active_controller_gives_everyone_a_full_session(cluster):
    """The one that goes on sending heartbeats stays unfenced; the silent one is fenced by the new controller,
    and not before it has been silent to that one for as long as a session."""
    alive, silent = Broker(cluster, 1), Broker(cluster, 2)
    alive.start()
    silent.start()
    old, epoch = cluster.active(), cluster.epoch()
    with Beating(alive) as beating:
        cluster.kill(old)
        new = cluster.active(other_than=old)
        [activated] = cluster.events(
            new, "ControllerActivated", epoch=cluster.told(new, "/v1/controller")["epoch"]
        )
        assert activated["epoch"] > epoch
        cluster.wait("the fencing of broker 2", lambda: cluster.events(new, "BrokerFenced", broker_id=2))
        before = len(beating.answers)
        cluster.wait("more heartbeats", lambda: len(beating.answers) > before)
    [fenced] = cluster.events(new, "BrokerFenced", broker_id=2)
    assert fenced["check"] == "missed heartbeats"
    assert fenced["ms_since_heartbeat"] > SESSION_MS
    assert fenced["time_ms"] - activated["time_ms"] >= SESSION_MS
    # On a machine that is too busy a heartbeat may wait too long to be looked at; it counts all the same.
    answers = {(one.error_code, one.is_fenced) for one in beating.answers}
    assert answers - {(ErrorCode.REQUEST_TIMED_OUT, True)} == {(ErrorCode.NONE, False)}
    assert cluster.state_of(new, 1) == "active"
    assert cluster.events(new, "BrokerFenced", broker_id=1) == []
    assert cluster.events(new, "BrokerRegistered") == [], "nobody had to register again"
    cluster.start(old)
    cluster.wait("the killed one knows both", lambda: cluster.state_of(old, 2) == "fenced")
    assert cluster.state_of(old, 1) in ("active", "fenced")  # it is silent now


def test_a_broker_that_falls_silent_is_fenced_and_everybody_is_told(cluster):
    broker = Broker(cluster, 11)
    broker.start()
    active = cluster.active()
    standbys = [one for one in NODES if one != active]
    key = ("quorate_events_total", "missed heartbeats", "BrokerFenced")
    counted = cluster.metrics(active).get(key, 0)
    cluster.wait("its fencing", lambda: cluster.state_of(active, 11) == "fenced")

    [event] = cluster.events(active, "BrokerFenced", broker_id=11)
    assert (event["epoch"], event["check"]) == (broker.epoch, "missed heartbeats")
    assert isinstance(event["ms_since_heartbeat"], int)
    assert event["ms_since_heartbeat"] > SESSION_MS
    line = f"Fencing broker 11 at epoch {broker.epoch} due to missed heartbeats"
    assert line in cluster.logged(active)
    assert cluster.metrics(active)[key] > counted
    for node_id in standbys:
        cluster.wait("a standby knows", lambda one=node_id: cluster.state_of(one, 11) == "fenced")
        found = cluster.metrics(node_id)
        assert found["kafka_controller_kafkacontroller_fencedbrokercount",] >= 1
        assert found["kafka_controller_kafkacontroller_activecontrollercount",] == 0
    assert cluster.metrics(active)["kafka_controller_kafkacontroller_activecontrollercount",] == 1

    # Back from wherever it was, it need not register again.
    answer = broker.beat()
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.NONE, False)
    assert cluster.state_of(active, 11) == "active"


def test_who_was_replaced_is_told_each_time_and_the_log_says_it_once(cluster):
    broker = Broker(cluster, 12)
    broker.start()
    assert broker.beat(want_shut_down=True).should_shut_down
    old = Broker(cluster, 12)
    old.epoch = broker.epoch
    broker.register(run=1)  # at once: its predecessor was let go
    for _ in range(5):
        assert old.beat().error_code == ErrorCode.STALE_BROKER_EPOCH
    refused = cluster.events(cluster.active(), "HeartbeatRefused", broker_id=12)
    assert [(one["epoch"], one["registered_epoch"]) for one in refused] == [(old.epoch, broker.epoch)]
    [fenced] = cluster.events(cluster.active(), "BrokerFenced", broker_id=12)
    assert fenced["check"] == "shut down"
    log = cluster.logged(cluster.active()).splitlines()
    [line] = [one for one in log if "Fencing broker 12 " in one]
    assert " INFO " in line, "that is as it should be"


# The command line


def test_brokers_are_listed_described_and_explained(cluster):
    active, standby = cluster.active(), cluster.standby()
    serving, behind = Broker(cluster, 21), Broker(cluster, 22)
    serving.start()
    behind.register()
    with Beating(serving), Beating(behind, current_metadata_offset=1) as beating:
        cluster.wait("a heartbeat of broker 22", lambda: beating.answers)
        cluster.wait("the standby knows broker 22", lambda: cluster.state_of(standby, 22))
        ask_for_brokers(cluster, active, standby, behind.epoch)


def ask_for_brokers(cluster, active, standby, epoch):
    def run(node_id, *arguments):
        done = run_quorate("brokers", *arguments, "--config", str(cluster.configuration(node_id)))
        return done.returncode, done.stdout, done.stderr

    code, text, _ = run(active, "list")
    rows = {line.split()[0]: line for line in text.splitlines()}
    assert code == 0
    assert "active" in rows["21"]
    assert "fenced" in rows["22"]
    assert "PLAINTEXT://here:9092" in rows["21"]
    code, text, _ = run(standby, "list")
    assert code == 0
    assert f"as node {standby} sees it, which is not the active controller" in text

    code, text, _ = run(active, "describe", "22")
    assert code == 0
    assert f"epoch           {epoch}" in text
    assert run(active, "describe", "99")[::2] == (1, "quorate: broker 99 is not registered\n")

    code, text, _ = run(active, "why", "22")
    assert code == 0
    assert "is fenced (check: metadata offset)" in text
    assert "up to offset 1" in text
    code, text, error = run(standby, "why", "22")
    assert (code, text) == (2, "")
    assert f"the active controller is node {active}" in error


def test_a_stop_is_judged_before_it_is_made(cluster):
    active = cluster.active()
    cluster.wait_until_caught_up(*NODES)
    config = str(cluster.configuration(active))
    voters = [str(one) for one in NODES if one != active]

    def preflight(*ids, options=("--config", config)):
        done = run_quorate("brokers", "preflight", "stop", *ids, *options)
        return done.returncode, done.stdout + done.stderr

    code, text = preflight(voters[0])
    assert (code, text.splitlines()[0]) == (0, f"safe to stop {voters[0]}")
    code, text = preflight(*voters)
    assert code == 1
    assert "quorum" in text
    standby = str(cluster.configuration(cluster.standby()))
    assert preflight(voters[0], options=("--config", standby))[0] == 2


# What makes no sense


def creation(name="t", partitions=1, replicas=1, assignments=(), configs=()):
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=[
                    topic.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                    for number, brokers in enumerate(assignments)
                ],
                configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in configs],
            )
        ],
        timeout_ms=30_000,
    )


def configuration(name, key, value):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=0, value=value)]
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=configs)], validate_only=False
    )


def listeners(count):
    listener = BrokerRegistrationRequest.Listener
    return [
        listener(name=f"L{number}", host="here", port=9092, security_protocol=0) for number in range(count)
    ]


BAD = {
    "a blank host": (lambda: registration(31, host=" "), ErrorCode.INVALID_REGISTRATION),
    "port 0": (lambda: registration(31, port=0), ErrorCode.INVALID_REGISTRATION),
    "an unknown protocol": (lambda: registration(31, security_protocol=77), ErrorCode.INVALID_REGISTRATION),
    "no listener": (lambda: registration(31, listeners=[]), ErrorCode.INVALID_REGISTRATION),
    "no directory": (lambda: registration(31, log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
    "no features": (lambda: registration(31, features=[]), ErrorCode.INVALID_REGISTRATION),
    "another cluster": (lambda: registration(31, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    "too many listeners": (
        lambda: registration(31, listeners=listeners(1001)),
        ErrorCode.INVALID_REGISTRATION,
    ),
    "an unknown broker": (lambda: UnregisterBrokerRequest(broker_id=99), ErrorCode.BROKER_ID_NOT_REGISTERED),
    "a bad assignment": (
        lambda: creation(partitions=-1, replicas=-1, assignments=[[98, 99]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "an empty assignment": (
        lambda: creation(partitions=-1, replicas=-1, assignments=[[]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "a bad name": (lambda: creation("no such name!"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an unknown config": (lambda: creation(configs=[("no.such", "1")]), ErrorCode.INVALID_CONFIG),
    "a bad config": (lambda: creation(configs=[("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
    "a null config": (lambda: creation(configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
    "too many partitions": (lambda: creation(partitions=10_001), ErrorCode.POLICY_VIOLATION),
    "a very large number": (lambda: creation(partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
    "no partitions": (lambda: creation(partitions=0), ErrorCode.INVALID_PARTITIONS),
    "too many replicas": (lambda: creation(replicas=1000), ErrorCode.INVALID_REPLICATION_FACTOR),
    "a topic that is not there": (
        lambda: configuration("nowhere", "retention.ms", "1"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
}


@pytest.fixture(scope="module")
def steady(cluster):
    """The active controller and its epoch, with a broker that topics could be placed on."""
    Broker(cluster, 41).start()
    return cluster.active(), cluster.epoch()


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_answered_and_the_controller_stays(cluster, steady, what):
    active, epoch = steady
    make, expected = BAD[what]
    answer = cluster.ask(active, make())
    parts = getattr(answer, "topics", None) or getattr(answer, "responses", None) or [answer]
    assert [one.error_code for one in parts] == [expected]
    assert cluster.epoch() == epoch
    assert cluster.active() == active


def test_a_standby_does_not_decide(cluster):
    standby = cluster.standby()
    assert cluster.ask(standby, registration(51)).error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.ask(standby, creation()).topics[0].error_code == ErrorCode.NOT_CONTROLLER
