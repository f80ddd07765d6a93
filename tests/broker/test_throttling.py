"""What requests cost their clients, and what their answers say then."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, wanted

from quorate.broker.quotas import Quotas
from quorate.broker.throttling import Throttling, produced_bytes
from quorate.metadata import records as r
from quorate.net.routes import NO_RESPONSE, NoResponse, RequestContext
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse, ProduceResponse
from quorate.protocol.api.security import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.protocol.api.topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.frame import encode_request

CONTEXT = RequestContext("PLAINTEXT", "127.0.0.1", 4711, "test")
BATCH_BYTES = 10_000


def limit(serving: Serving, client_id: str | None = "test", **values: float) -> None:
    for key, value in values.items():
        serving.apply(
            r.ClientQuotaRecord(
                entity=[r.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name=client_id)],
                key=key,
                value=value,
                remove=value == 0,
            )
        )
    serving.broker.quotas.update(serving.image.quotas)


def a_large_batch() -> bytearray:
    return a_batch(1, value_bytes=BATCH_BYTES)


# Produce


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("acks", [1, -1])
@in_loop
async def test_a_producer_is_told_how_long_to_wait(tmp_path: Path, acks: int, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t")
    limit(serving, producer_byte_rate=1000)
    first = await serving.ask(produce(("t", 0, a_large_batch()), acks=acks), version)
    second = await serving.ask(produce(("t", 0, a_large_batch()), acks=acks), version)
    other = await serving.ask(produce(("t", 0, a_large_batch()), acks=acks), version, client_id="o")
    assert first.responses[0].partition_responses[0].error_code == 0
    assert 0 < first.throttle_time_ms < 500
    assert 10_000 < second.throttle_time_ms < 10_500, "twenty kilobytes need twenty seconds, ten were free"
    assert other.throttle_time_ms == 0
    assert serving.partition("t").log.end_offset == 3, "what was sent was taken"
    assert serving.broker.quotas.produce.throttles.count == 2
    await serving.close()


@in_loop
async def test_a_producer_that_is_not_answered_is_muted(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    assert serving.begin(produce(("t", 0, a_large_batch()), acks=0), 9) is NO_RESPONSE
    limit(serving, producer_byte_rate=1000)
    said = [serving.begin(produce(("t", 0, a_large_batch()), acks=0), 9) for _ in range(2)]
    assert isinstance(said[1], NoResponse)
    assert said[1].throttle_time_ms > 10_000
    await serving.close()


@pytest.mark.parametrize("version", [9, 11, 13])
def test_the_size_of_a_request_is_known_to_within_a_few_bytes(version: int):
    request = produce(("a-topic", 0, a_batch(3)), ("a-topic", 1, a_batch(1)), ("other", 0, a_large_batch()))
    if version >= 13:
        for topic in request.topic_data:
            topic.name = ""
    actual = len(encode_request(request, version, 1, "client")) - 4
    assert abs(produced_bytes(request) + len("client") - actual) < 40


# Fetch


@in_loop
async def test_a_consumer_that_had_too_much_gets_nothing_and_that_does_not_count(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    for _ in range(3):
        await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=1500)
    request = fetch(wanted("t", max_bytes=1), version=12)
    first = await serving.ask(request, 12)
    assert (offsets_in(first.responses[0].partitions[0].records), first.throttle_time_ms) == ([0], 0)
    for _ in range(3):
        throttled = await serving.ask(request, 12)
        assert (throttled.responses, throttled.error_code) == ([], 0)
        assert 3000 < throttled.throttle_time_ms < 4000, "the same every time"
    serving.now_ms += 11_000  # nothing that it got is in the window any more
    assert (await serving.ask(request, 12)).responses[0].partitions[0].records
    assert serving.broker.quotas.fetch.throttles.count == 3
    await serving.close()


@in_loop
async def test_a_consumer_gets_no_more_at_once_than_it_may_have(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    for _ in range(5):
        await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=2100)
    answer = await serving.ask(fetch(wanted("t"), version=12), 12)
    assert offsets_in(bytes(answer.responses[0].partitions[0].records)[: 2 * (BATCH_BYTES + 80)]) == [0, 1]
    assert len(answer.responses[0].partitions[0].records) <= 21_000
    assert answer.throttle_time_ms == 0
    await serving.close()


@in_loop
async def test_a_batch_that_is_more_than_the_window_is_given_and_then_waited_for(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=500)
    given = await serving.ask(fetch(wanted("t"), version=12), 12)
    assert offsets_in(given.responses[0].partitions[0].records) == [0]
    assert 10_000 < given.throttle_time_ms < 10_500
    assert (await serving.ask(fetch(wanted("t"), version=12), 12)).responses == []
    await serving.close()


@in_loop
async def test_a_throttled_fetch_goes_on_with_its_session(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=1500)
    opened = await serving.ask(fetch(wanted("t"), version=12, session=(0, 0)), 12)
    assert opened.throttle_time_ms == 0
    throttled = await serving.ask(fetch(wanted("t"), version=12, session=(opened.session_id, 1)), 12)
    assert throttled.throttle_time_ms > 0
    assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
    limit(serving, consumer_byte_rate=0)
    again = await serving.ask(fetch(version=12, session=(opened.session_id, 2)), 12)
    assert offsets_in(again.responses[0].partitions[0].records) == [0], "nothing counts as told"
    await serving.close()


@in_loop
async def test_a_throttled_first_fetch_opens_no_session(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=1500)
    await serving.ask(fetch(wanted("t"), version=12), 12)
    throttled = await serving.ask(fetch(wanted("t"), version=12, session=(0, 0)), 12)
    assert (throttled.session_id, throttled.responses) == (0, [])
    assert throttled.throttle_time_ms > 0
    assert len(serving.fetch_handler.sessions) == 0
    await serving.close()


@in_loop
async def test_followers_have_no_quota(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, None, consumer_byte_rate=1, request_percentage=0.001)
    for _ in range(3):
        answer = await serving.ask(fetch(wanted("t"), version=12, replica_id=2), 12)
        assert (offsets_in(answer.responses[0].partitions[0].records), answer.throttle_time_ms) == ([0], 0)
    await serving.close()


@in_loop
async def test_a_parked_fetch_is_charged_when_it_is_answered(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    limit(serving, consumer_byte_rate=1500)
    await serving.ask(fetch(wanted("t"), version=12), 12)
    parked = serving.park(fetch(wanted("t", offset=1), version=12, max_wait_ms=60_000), 12)
    await serving.ask(produce(("t", 0, a_large_batch())), 9)
    answer = await parked
    assert (answer.responses, answer.throttle_time_ms > 0) == ([], True)
    await serving.close()


# The time of the broker


def header(cls: type, version: int = 0) -> RequestHeader:
    return RequestHeader(
        request_api_key=cls.__key__, request_api_version=version, correlation_id=1, client_id="test"
    )


def throttling(now_ms: float = 0.0) -> tuple[Quotas, Throttling]:
    quotas = Quotas()
    return quotas, Throttling(quotas, lambda: now_ms)


def test_time_counts_as_percent_of_a_second():
    quotas, throttles = throttling()
    quotas.update({(("client-id", "test"),): {"request_percentage": 10.0}})
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    waits = []
    for local_ms in (999, 1, 10, 10_000):
        answer = HeartbeatResponse(error_code=0)
        throttles.settle(CONTEXT, header(HeartbeatRequest), request, answer, local_ms)
        waits.append(answer.throttle_time_ms)
    assert waits == [0, 0, 100, 1000], "ten percent of ten seconds are free, and a second is the most"
    assert (quotas.request.throttles.count, quotas.request.throttles.total_ms) == (2, 1100)


@pytest.mark.parametrize(
    ("request_made", "answer"),
    [
        (produce(), NO_RESPONSE),
        (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), FetchResponse(responses=[])),
        (SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(error_code=0, mechanisms=[])),
    ],
)
def test_what_is_exempt_or_cannot_say_it_is_left_alone(request_made, answer):
    quotas, throttles = throttling()
    quotas.update({(("client-id", "test"),): {"request_percentage": 0.001}})
    throttles.settle(CONTEXT, header(type(request_made)), request_made, answer, 1000)
    assert quotas.request.throttles.count == 0


def test_the_longest_wait_counts():
    quotas, throttles = throttling()
    quotas.update({(("client-id", "test"),): {"request_percentage": 0.001}})
    for said_ms, expected_ms in ((5000, 5000), (300, 1000)):
        answer = ProduceResponse(responses=[], throttle_time_ms=said_ms)
        throttles.settle(CONTEXT, header(type(produce())), produce(), answer, 1000)
        assert answer.throttle_time_ms == expected_ms


def test_what_the_controller_says_is_counted_and_left_as_it_is():
    quotas, throttles = throttling()
    answer = CreateTopicsResponse(throttle_time_ms=700, topics=[])
    throttles.settle(CONTEXT, header(CreateTopicsRequest, 7), CreateTopicsRequest(topics=[]), answer, 1)
    assert answer.throttle_time_ms == 700
    assert (quotas.mutations.count, quotas.mutations.total_ms) == (1, 700)
