"""The metrics of a broker: what is counted around its handlers, and what a scraper reads."""

import asyncio
from dataclasses import replace
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.serving import Serving, a_batch, fetch, in_loop, produce, topic_id, wanted
from node.one_node import OneNode
from quorate.broker.control_plane import Changes, IsrAnswer
from quorate.broker.leadership import Proposal
from quorate.broker.standing import Standings
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.producer import Producer
from quorate.metadata.image import ClusterImage
from quorate.net.eventual import Eventual
from quorate.net.routes import NO_RESPONSE, RequestContext, Route, RouteTable, Series, route_id
from quorate.net.shortcuts import Said
from quorate.node.admin_view import ReplicaCounts
from quorate.node.broker_metrics import TOPICS_MAX, CountedControlPlane, IsrCounts, Traffic, count_replicas
from quorate.node.metrics import NodeMetrics
from quorate.node.request_times import BOUNDS_MS, Durations, RequestMeters, RequestTimes
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.errors import ErrorCode

CONTEXT = RequestContext("PLAINTEXT", "127.0.0.1", 4711, "test")
REQUESTS = "kafka_network_requestmetrics_requestspersec_total"


class Clock:
    """Goes on by as much as a test says, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Measured:
    """Handlers with meters around them."""

    def __init__(self, handlers, traffic=None) -> None:
        self.clock = Clock()
        self.metrics = NodeMetrics(self.clock)
        self.table = RouteTable([Route(request, handler) for request, handler in handlers.items()])
        self.metrics.meters.measure(self.table, None if traffic is None else traffic.notes)

    def ask(self, request, version):
        handler = self.table.handler(request.__key__, version)
        header = RequestHeader(
            request_api_key=request.__key__, request_api_version=version, correlation_id=1, client_id="test"
        )
        given = handler(CONTEXT, header, request)
        self.metrics.meters.catch_up()  # as a server does when the answer has left
        return given

    def samples(self):
        return samples_of(self.metrics.scrape(None)[0].decode())


def samples_of(text):
    """Values by name and labels; the text is valid, and has no family twice."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def beat():
    return HeartbeatRequest(group_id="g", generation_id=0, member_id="m")


def answer(*_):
    return HeartbeatResponse(error_code=0, throttle_time_ms=0)


# Requests


@in_loop
async def test_requests_are_counted_by_kind_and_version():
    measured = Measured({HeartbeatRequest: answer})
    for version in (4, 4, 3):
        measured.ask(beat(), version)
    samples = measured.samples()
    assert samples[REQUESTS, ("request", "Heartbeat"), ("version", "4")] == 2
    assert samples[REQUESTS, ("request", "Heartbeat"), ("version", "3")] == 1
    assert len([key for key in samples if key[0] == REQUESTS]) == 2


def times(measured, name):
    """Count and sum of one kind of time."""
    samples, full = measured.samples(), f"kafka_network_requestmetrics_{name}"
    label = ("request", "Heartbeat")
    return samples[f"{full}_count", label], samples[f"{full}_sum", label]


@in_loop
async def test_a_request_that_is_answered_at_once_has_local_time_alone():
    def take_3_ms(*_):
        measured.clock.now += 0.003
        return answer()

    measured = Measured({HeartbeatRequest: take_3_ms})
    measured.ask(beat(), 4)
    assert times(measured, "totaltimems") == (1, pytest.approx(3))
    assert times(measured, "localtimems") == (1, pytest.approx(3))
    assert times(measured, "remotetimems") == (1, 0)
    assert times(measured, "requestqueuetimems") == (1, 0)


@in_loop
async def test_a_request_that_waits_has_remote_time():
    release = asyncio.Event()

    def begin(*_):
        measured.clock.now += 0.002
        return wait()

    async def wait():
        await release.wait()
        measured.clock.now += 0.05
        return answer()

    measured = Measured({HeartbeatRequest: begin})
    running = measured.ask(beat(), 4)
    release.set()
    await running
    assert times(measured, "localtimems") == (1, pytest.approx(2))
    assert times(measured, "remotetimems") == (1, pytest.approx(50))
    assert times(measured, "totaltimems") == (1, pytest.approx(52))


@in_loop
async def test_the_wait_for_its_turn_is_part_of_the_total():
    measured = Measured({HeartbeatRequest: answer})
    route = next(at for at in measured.table.by_route_id if at >> 16 == HeartbeatRequest.__key__)
    measured.metrics.meters.queued(route, 7.0)
    measured.ask(beat(), 4)
    measured.ask(beat(), 4)
    assert times(measured, "requestqueuetimems") == (2, pytest.approx(7))
    assert times(measured, "totaltimems") == (2, pytest.approx(7))


@in_loop
async def test_of_requests_that_are_answered_together_each_has_its_part_of_the_time():
    def take_8_ms(_context, requests):
        measured.clock.now += 0.008
        return [answer() for _ in requests]

    measured = Measured({})
    noted = []
    table = RouteTable([Route(HeartbeatRequest, answer, series=Series(lambda *_: True, take_8_ms))])
    measured.metrics.meters.measure(table, {HeartbeatRequest: lambda *about: noted.append(about)})
    at = route_id(HeartbeatRequest.__key__, 4)
    header = RequestHeader(
        request_api_key=HeartbeatRequest.__key__, request_api_version=4, correlation_id=1, client_id="test"
    )
    for waited_ms in (0.0, 5.0):
        measured.metrics.meters.queued(at, waited_ms)
        assert len(table.series[at].answer(CONTEXT, [(header, beat())] * 4)) == 4
    assert measured.samples()[REQUESTS, ("request", "Heartbeat"), ("version", "4")] == 8
    assert times(measured, "localtimems") == (8, pytest.approx(16))
    assert times(measured, "requestqueuetimems") == (8, pytest.approx(20))
    assert times(measured, "totaltimems") == (8, pytest.approx(36))
    assert len(noted) == 8


def test_times_that_are_counted_together_are_counted_as_one_by_one():
    one_by_one, together = Durations(), RequestTimes()
    random = Random(1)
    durations = [random.choice([0.0, *BOUNDS_MS, random.uniform(0, 20_000)]) for _ in range(2500)]
    for duration_ms in durations:
        one_by_one.observe(duration_ms)
        together.observe(0.0, duration_ms, 0.0)
    found = dict(together.by_name())
    for name in ("localtimems", "totaltimems"):
        assert found[name].counts == one_by_one.counts
        assert found[name].total_ms == pytest.approx(one_by_one.total_ms)
    assert found["requestqueuetimems"].counts[0] == found["remotetimems"].counts[0] == len(durations)


@in_loop
async def test_an_answer_is_noted_when_it_has_left():
    measured, noted = Measured({}), []
    table = RouteTable([Route(HeartbeatRequest, answer)])
    measured.metrics.meters.measure(table, {HeartbeatRequest: lambda *about: noted.append(about)})
    header = RequestHeader(
        request_api_key=HeartbeatRequest.__key__, request_api_version=4, correlation_id=1, client_id="test"
    )
    given = table.handler(HeartbeatRequest.__key__, 4)(CONTEXT, header, request := beat())
    assert not noted
    measured.metrics.meters.catch_up()
    measured.metrics.meters.catch_up()
    assert noted == [(header, request, given)]


@in_loop
async def test_what_was_given_up_or_failed_has_no_time():
    async def wait():
        await asyncio.get_running_loop().create_future()

    async def fail():
        raise ZeroDivisionError

    waiting = [wait(), fail()]
    measured = Measured({HeartbeatRequest: lambda *_: waiting.pop(0)})
    running = measured.ask(beat(), 4)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    with pytest.raises(ZeroDivisionError):
        await measured.ask(beat(), 4)
    samples = measured.samples()
    assert samples[REQUESTS, ("request", "Heartbeat"), ("version", "4")] == 2
    assert not [key for key in samples if "totaltimems" in key[0]]


@in_loop
async def test_meters_need_no_clock_of_their_own():
    meters = RequestMeters()
    meters.measure(RouteTable([Route(HeartbeatRequest, answer)]))
    assert not list(meters.counted())


class Known:
    """A shortcut that says what a test wants."""

    def __init__(self, said):
        self.said = said

    def learn(self, *_):
        pass

    def serve(self, _context, _frames):
        measured = self.measured
        measured.clock.now += 0.004
        return self.said


def with_shortcut(said, notes=None):
    known = Known(said)
    table = RouteTable([Route(HeartbeatRequest, answer, shortcut=lambda: known)])
    known.measured = measured = Measured({})
    measured.metrics.meters.measure(table, notes)
    (at, *_) = table.shortcuts
    return measured, table.shortcuts[at](), at


@in_loop
async def test_what_a_shortcut_answers_is_counted_and_shares_its_time():
    measured, shortcut, at = with_shortcut([b"one", b"two"])
    assert shortcut.serve(CONTEXT, []) == [b"one", b"two"]
    assert times(measured, "localtimems") == (2, pytest.approx(4))
    assert times(measured, "requestqueuetimems") == (2, 0)
    measured.metrics.meters.queued(at, 7.0)
    shortcut.serve(CONTEXT, [])
    assert times(measured, "requestqueuetimems") == (4, pytest.approx(14))
    assert sum(value for key, value in measured.samples().items() if key[0] == REQUESTS) == 4


@in_loop
async def test_what_a_shortcut_does_not_know_is_not_counted():
    measured, shortcut, at = with_shortcut(None)
    measured.metrics.meters.queued(at, 7.0)
    assert shortcut.serve(CONTEXT, []) is None
    assert not list(measured.metrics.meters.counted())


@pytest.mark.parametrize("waits", [False, True])
@in_loop
async def test_what_is_said_to_a_request_that_is_known_is_noted(waits):
    header = RequestHeader(request_api_key=12, request_api_version=4, correlation_id=1, client_id="test")
    eventual, noted = Eventual(), []
    notes = {HeartbeatRequest: lambda *one: noted.append(one)}
    measured, shortcut, _ = with_shortcut(Said(header, eventual if waits else answer()), notes)
    said = shortcut.serve(CONTEXT, [])
    assert said.header is header
    if waits:
        assert noted == []
        measured.clock.now += 0.006
        eventual.set_result(answer())
    assert noted == [(header, None, answer())]
    assert times(measured, "localtimems") == (1, pytest.approx(4))
    assert times(measured, "remotetimems") == (1, pytest.approx(6 if waits else 0))


# Traffic


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("acks", [0, 1])
def test_what_is_produced_is_counted_by_topic(tmp_path, version, acks):
    @in_loop
    async def scenario():
        serving = Serving(tmp_path)
        await serving.topic("orders", partitions=2)
        await serving.topic("payments")
        traffic = Traffic(lambda: serving.image)
        serving.broker.count_appended = traffic.appended
        measured = Measured(serving.handlers, traffic)
        three, one = a_batch(3), a_batch(1, value_bytes=100)
        said = measured.ask(
            produce(("orders", 0, three), ("orders", 1, bytearray(one)), ("payments", 0, one), acks=acks),
            version,
        )
        assert (said is NO_RESPONSE) == (acks == 0)
        orders, payments = traffic.by_topic["orders"], traffic.by_topic["payments"]
        assert (orders.messages_in, orders.bytes_in) == (4, len(three) + len(one))
        assert (payments.messages_in, payments.bytes_in) == (1, len(one))
        assert (traffic.total.messages_in, traffic.total.bytes_in) == (5, len(three) + 2 * len(one))
        await serving.close()

    scenario()


@in_loop
async def test_what_is_refused_is_not_counted(tmp_path):
    serving = Serving(tmp_path)
    await serving.topic("orders")
    traffic = Traffic(lambda: serving.image)
    serving.broker.count_appended = traffic.appended
    measured = Measured(serving.handlers, traffic)
    good, damaged = a_batch(), a_batch()
    damaged[-1] ^= 1
    measured.ask(produce(("orders", 0, damaged), ("orders", 7, good), ("nowhere", 0, good)), 9)
    assert traffic.by_topic == {}
    assert traffic.total.messages_in == 0
    await serving.close()


@pytest.mark.parametrize("version", [12, 13, 17])
def test_what_is_fetched_is_counted_by_topic_and_that_of_followers_apart(tmp_path, version):
    @in_loop
    async def scenario():
        serving = Serving(tmp_path)
        await serving.topic("orders", replicas=(1, 2), isr=(1,))
        traffic = Traffic(lambda: serving.image)
        measured = Measured(serving.handlers, traffic)
        data = a_batch(3)
        measured.ask(produce(("orders", 0, data)), 9)
        said = measured.ask(fetch(wanted("orders"), version=version), version)
        assert traffic.by_topic["orders"].bytes_out == traffic.total.bytes_out == len(data)
        followed = measured.ask(fetch(wanted("orders"), version=version, replica_id=2), version)
        assert traffic.replication_bytes_out == len(data)
        assert traffic.total.bytes_out == len(data)
        del said, followed
        await serving.close()

    scenario()


@in_loop
async def test_topics_beyond_a_limit_count_in_the_total_alone(tmp_path):
    serving = Serving(tmp_path)
    traffic = Traffic(lambda: serving.image)
    for number in range(TOPICS_MAX + 10):
        traffic.appended(f"topic-{number}", 1, 100)
    assert len(traffic.by_topic) == TOPICS_MAX
    assert traffic.total.messages_in == TOPICS_MAX + 10
    await serving.topic("topic-3")
    traffic.forget_deleted()
    assert list(traffic.by_topic) == ["topic-3"]
    await serving.close()


# Replicas


@in_loop
async def test_replicas_are_counted_by_how_they_are(tmp_path):
    serving = Serving(tmp_path)
    await serving.topic("whole", replicas=(1, 2, 3), min_insync_replicas=2)
    await serving.topic("just", replicas=(1, 2, 3), isr=(1, 2), min_insync_replicas=2)
    await serving.topic("below", replicas=(1, 2, 3), isr=(1,), min_insync_replicas=2)
    await serving.topic("followed", replicas=(2, 1), leader=2)
    await serving.topic("broken", replicas=(1,))
    serving.partition("broken").stop(ErrorCode.KAFKA_STORAGE_ERROR, "a test")
    counts = count_replicas(serving.replicas.standings, serving.image, 1)
    assert (counts.partitions, counts.led, counts.offline) == (5, 3, 1)
    assert (counts.under_replicated, counts.under_min_isr, counts.at_min_isr) == (2, 1, 1)
    await serving.close()


@in_loop
async def test_replicas_are_counted_as_if_one_went_through_them_whatever_happens(tmp_path):
    serving = Serving(tmp_path)
    chance = Random(7)
    for number in range(6):
        await serving.topic(f"t{number}", replicas=(1, 2, 3), min_insync_replicas=2)
    for epoch in range(1, 200):
        name = f"t{chance.randrange(6)}"
        partition = serving.replicas.named(name, 0)
        await chance.choice((_assigned, _granted, _configured, _removed, _failed))(
            serving, name, partition, epoch, chance
        )
        counts = count_replicas(serving.replicas.standings, ClusterImage(), 1)
        assert counts == _gone_through(serving.replicas)
    await serving.close()


async def _assigned(serving, name, partition, epoch, chance):
    replicas = chance.choice(((1, 2, 3), (1, 2), (1,)))
    isr = (1, *replicas[1 : chance.randint(1, len(replicas))])
    goes_on = partition is not None and partition.leading is not None and chance.random() < 0.5
    await serving.assign(
        name,
        replicas=replicas,
        isr=isr,
        leader=1 if goes_on else chance.choice(isr),
        leader_epoch=partition.leader_epoch if goes_on else epoch,
        partition_epoch=epoch,
    )


async def _granted(_serving, _name, partition, epoch, chance):
    if partition is not None:
        partition.isr_answered(chance.choice(((1,), (1, 2))), epoch, is_recovering=False)


async def _configured(_serving, _name, partition, _epoch, chance):
    if partition is not None:
        partition.configure(replace(partition.config, min_isr=chance.randint(1, 3)))


async def _removed(serving, name, _partition, _epoch, chance):
    if chance.random() < 0.3:
        await serving.replicas.apply(Changes(serving.image, removed=[(topic_id(name), 0)]))


async def _failed(_serving, _name, partition, _epoch, chance):
    if partition is not None and chance.random() < 0.2:
        partition.stop(ErrorCode.KAFKA_STORAGE_ERROR, "a test")


def _gone_through(replicas):
    led = [(one.leading, one.min_isr) for one in replicas if one.leading is not None]
    return ReplicaCounts(
        partitions=len(replicas),
        led=len(led),
        offline=sum(one.failure is not None for one in replicas),
        under_replicated=sum(len(leading.isr) < len(leading.replicas) for leading, _ in led),
        under_min_isr=sum(len(leading.isr) < min_isr for leading, min_isr in led),
        at_min_isr=sum(len(leading.isr) == min_isr for leading, min_isr in led),
    )


@in_loop
async def test_a_replica_that_could_not_be_opened_is_offline(tmp_path):
    serving = Serving(tmp_path)
    await serving.topic("there")
    assert count_replicas(Standings(), serving.image, 1).offline == 1
    await serving.close()


@in_loop
async def test_changes_of_in_sync_replicas_are_counted_when_they_are_agreed_to(tmp_path):
    serving = Serving(tmp_path)
    for name in ("shrinks", "grows", "is refused"):
        await serving.topic(name.replace(" ", "-"), replicas=(1, 2, 3), isr=(1, 2))
    keys = [one.key for one in serving.replicas]

    class Controller:
        async def propose(self, proposals):
            isrs = {"shrinks": (1,), "grows": (1, 2, 3)}
            return {
                key: IsrAnswer(ErrorCode.NONE, isrs[key.topic])
                if key.topic in isrs
                else IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
                for key, _ in proposals
            }

    counts = IsrCounts()
    counted = CountedControlPlane(Controller(), lambda: serving.replicas, counts)
    await counted.propose([(key, Proposal((1,), 0, 0)) for key in keys])
    assert counts == IsrCounts(shrunk=1, expanded=1, failed=1)
    await serving.close()


# A whole node


@in_loop
async def test_a_node_that_is_both_answers_for_both(tmp_path):
    async with OneNode(tmp_path) as node:
        async with Cluster(node.bootstrap) as cluster:
            await Admin(cluster).create_topics(NewTopic("orders", partitions=3, replication_factor=1))
            async with Producer(cluster) as producer:
                for number in range(10):
                    await producer.send("orders", b"apple", partition=number % 3)
        status, text = await node.http("/metrics")
        assert status == 200
        samples = samples_of(text)
        assert samples["kafka_server_brokertopicmetrics_messagesinpersec_total", ("topic", "orders")] == 10
        assert samples["kafka_server_brokertopicmetrics_messagesinpersec_total",] == 10
        assert samples["kafka_server_brokertopicmetrics_bytesinpersec_total",] > 50
        assert samples["kafka_server_replicamanager_leadercount",] == 3
        assert samples["kafka_server_kafkaserver_brokerstate",] == 3
        assert samples["kafka_controller_kafkacontroller_activecontrollercount",] == 1
        assert samples["kafka_network_socketserver_connections_accepted_total", ("listener", "PLAINTEXT")] > 0
        produced = [key for key in samples if key[0] == REQUESTS and ("request", "Produce") in key]
        assert len(produced) == 1
        assert ("kafka_network_requestmetrics_totaltimems_count", ("request", "Produce")) in samples

        status, found = await node.http("/v1/broker")
        assert (status, found["id"], found["state"], found["is_fenced"]) == (200, 1, "RUNNING", False)
        assert found["partitions"]["led"] == 3
        assert found["epoch"] >= 0
        assert (await node.http("/v1/controller"))[1]["is_active"] is True
        assert (await node.http("/healthz"))[1]["is_active"] is True
        assert (await node.http("/v1/events"))[1]["events"]


@in_loop
async def test_what_is_known_again_is_counted():
    measured, is_same = Measured({}), [True, False, True]
    table = RouteTable([Route(HeartbeatRequest, answer, again=lambda *_: lambda: is_same.pop(0))])
    measured.metrics.meters.measure(table)
    (at, *_) = table.again
    found = table.again[at](CONTEXT, None, beat(), answer())
    assert found()
    assert not found()  # whoever answers it now counts it
    measured.metrics.meters.queued(at, 5.0)
    assert found()
    assert times(measured, "localtimems") == (2, 0)
    assert times(measured, "requestqueuetimems") == (2, pytest.approx(5))
    assert measured.samples()[REQUESTS, ("request", "Heartbeat"), ("version", "0")] == 2


@in_loop
async def test_what_is_not_known_again_is_not_measured():
    measured = Measured({})
    table = RouteTable([Route(HeartbeatRequest, answer, again=lambda *_: None)])
    measured.metrics.meters.measure(table)
    assert {find(CONTEXT, None, beat(), answer()) for find in table.again.values()} == {None}
