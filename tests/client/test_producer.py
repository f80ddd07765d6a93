"""What a producer promises, besides delivering once and in order (`test_exactly_once`)."""

import asyncio

import pytest
from model_cluster import TOPIC, Misfortune, ModelBroker, ModelCluster
from worlds import BACKOFF, run_client

from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.producer import ACKS_ALL, Delivered, Producer, ProducerSettings
from quorate.protocol.api.transactions import InitProducerIdResponse
from quorate.protocol.batch import read_header, records
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode


def run_producer(model: ModelCluster, main, disturb=lambda _world: None, **settings) -> None:
    async def whole(cluster: Cluster, host) -> None:
        options = {"backoff": BACKOFF, "request_timeout_ms": 3000, **settings}
        async with Producer(cluster, ProducerSettings(**options), wall_ms=host.wall_ms) as producer:
            await main(producer)

    run_client(model, whole, disturb=disturb)


def test_records_that_are_sent_together_travel_together():
    model = ModelCluster(1, 1)

    async def main(producer: Producer) -> None:
        receipts = [
            await producer.send(TOPIC, b"%d" % i, key=b"k", headers=[("h", b"v")]) for i in range(100)
        ]
        assert await asyncio.gather(*receipts) == [Delivered(0, i) for i in range(100)]

    run_producer(model, main, codec=Codec.LZ4)
    assert len(model.log().batches) == 1
    header = read_header(model.log().batches[0])
    assert header.codec is Codec.LZ4
    first = records(model.log().batches[0], header)[0]
    assert (first.key, first.value, list(first.headers)) == (b"k", b"0", [("h", b"v")])


def test_a_batch_waits_for_more_as_long_as_it_is_told_to():
    model = ModelCluster(1, 1)

    async def main(producer: Producer) -> None:
        await producer.send(TOPIC, b"a")
        await asyncio.sleep(0.05)
        await (await producer.send(TOPIC, b"b"))

    run_producer(model, main, linger_ms=100)
    assert [read_header(one).record_count for one in model.log().batches] == [2]


def test_flush_does_not_wait_for_more_and_not_for_what_comes_later():
    model = ModelCluster(1, 1)

    async def main(producer: Producer) -> None:
        early = await producer.send(TOPIC, b"a")
        flushing = asyncio.ensure_future(producer.flush())
        await flushing
        assert early.done()
        late = await producer.send(TOPIC, b"b")
        await asyncio.sleep(1)
        assert not late.done()

    run_producer(model, main, linger_ms=3_000_000)
    assert model.log().values() == [b"a", b"b"]  # closing delivers what is left


def test_acks_of_nobody_and_of_the_leader():
    for acks, offsets in ((0, [-1, -1]), (1, [0, 1]), (ACKS_ALL, [0, 1])):
        model = ModelCluster(2, 2)

        async def main(producer: Producer, offsets=offsets) -> None:
            found = [await (await producer.send(TOPIC, b"%d" % i, partition=1)) for i in range(2)]
            assert [one.offset for one in found] == offsets
            await asyncio.sleep(1)

        run_producer(model, main, acks=acks)
        assert model.log(1).values() == [b"0", b"1"]
        assert read_header(model.log(1).batches[0]).producer_id == (1001 if acks == ACKS_ALL else -1)


def test_without_acks_a_closed_connection_makes_the_producer_look_again():
    model = ModelCluster(2, 1, [Misfortune.NONE, Misfortune.LOST])

    async def main(producer: Producer) -> None:
        for i in range(4):
            await (await producer.send(TOPIC, b"%d" % i))
            await asyncio.sleep(1)

    run_producer(model, main, acks=0)
    assert model.log().values() == [b"0", b"2", b"3"]  # nobody promised 1


def test_memory_is_bounded_and_those_who_wait_are_served_in_turn():
    model = ModelCluster(1, 1)
    order = []

    async def main(producer: Producer) -> None:
        async def send(number: int) -> None:
            await producer.send(TOPIC, bytes(1000))
            order.append(number)
            assert producer._buffered_bytes <= 5000

        await asyncio.gather(*(send(number) for number in range(50)))
        await producer.flush()
        assert producer._buffered_bytes == 0

    run_producer(model, main, buffer_bytes_max=5000)
    assert order == list(range(50))
    assert len(model.log().values()) == 50


def test_without_room_for_too_long_a_send_fails():
    model = ModelCluster(1, 1, [Misfortune.REFUSED] * 1000)

    async def main(producer: Producer) -> None:
        first = await producer.send(TOPIC, bytes(1000))
        with pytest.raises(
            Unavailable, match="no room for another record: 1036 bytes have not been delivered"
        ):
            await producer.send(TOPIC, bytes(1000))
        assert producer._buffered_bytes == 1036
        waiting = asyncio.ensure_future(producer.send(TOPIC, bytes(1000)))
        await asyncio.sleep(0.1)
        waiting.cancel()
        model.script.clear()
        await first
        await (await producer.send(TOPIC, bytes(1000)))
        assert producer._buffered_bytes == 0

    run_producer(model, main, buffer_bytes_max=1500, room_timeout_ms=1000)


def test_a_record_that_no_request_can_carry_is_refused_at_once():
    async def main(producer: Producer) -> None:
        with pytest.raises(ApiError, match=r"MESSAGE_TOO_LARGE.*request_bytes_max is 5000"):
            await producer.send(TOPIC, bytes(5000))
        with pytest.raises(ApiError, match="'t' has 1 partitions, and no 3"):
            await producer.send(TOPIC, b"", partition=3)

    run_producer(ModelCluster(1, 1), main, request_bytes_max=5000, batch_bytes_max=5000)


def test_a_receipt_may_be_dropped_or_cancelled():
    model = ModelCluster(1, 1)

    async def main(producer: Producer) -> None:
        (await producer.send(TOPIC, b"a")).cancel()
        await producer.send(TOPIC, b"b")
        assert await (await producer.send(TOPIC, b"c")) == (0, 2)

    run_producer(model, main)
    assert model.log().values() == [b"a", b"b", b"c"]


def test_somebody_else_under_our_identity_ends_the_producer():
    model = ModelCluster(1, 2)

    async def main(producer: Producer) -> None:
        await (await producer.send(TOPIC, b"a", partition=0))
        ((_, known),) = model.log().producers.items()
        known.append((1, 0, 0, 1))
        receipt = await producer.send(TOPIC, b"b", partition=0)
        with pytest.raises(ApiError, match="INVALID_PRODUCER_EPOCH: somebody took over") as refusal:
            await receipt
        with pytest.raises(ApiError) as later:
            await producer.send(TOPIC, b"c", partition=1)
        assert later.value is refusal.value

    run_producer(model, main)


def test_a_producer_that_may_not_have_an_id_says_so(monkeypatch):
    def refuse(*_) -> InitProducerIdResponse:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)

    monkeypatch.setattr(ModelBroker, "init_producer_id", refuse)

    async def main(producer: Producer) -> None:
        receipt = await producer.send(TOPIC, b"a")
        with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED: no producer id"):
            await receipt

    run_producer(ModelCluster(1, 1), main)


def test_epochs_run_out_and_a_new_id_is_asked_for():
    model = ModelCluster(1, 1)
    model.invalid = frozenset([b"bad"])

    async def main(producer: Producer) -> None:
        await (await producer.send(TOPIC, b"a"))
        queue = producer._queues[TOPIC, 0]
        producer._identity = queue.identity = queue.identity._replace(epoch=0x7FFF)
        queue._next_sequence = 0
        await (await producer.send(TOPIC, b"b"))
        bad = await producer.send(TOPIC, b"bad")
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            await bad
        await (await producer.send(TOPIC, b"c"))  # refused at first: the numbers of `bad` are missing

    run_producer(model, main)
    assert model.log().values() == [b"a", b"b", b"c"]
    identities = [
        (read_header(one).producer_id, read_header(one).producer_epoch) for one in model.log().batches
    ]
    assert identities == [(1001, 0), (1001, 0x7FFF), (1002, 0)]


def test_closing_in_a_hurry_tells_everybody():
    model = ModelCluster(1, 1, [Misfortune.REFUSED] * 1000)

    async def main(producer: Producer) -> None:
        receipt = await producer.send(TOPIC, b"a")
        await producer.close(timeout_ms=500)
        with pytest.raises(Unavailable, match="closed before the record was delivered"):
            await receipt
        with pytest.raises(Unavailable):
            await producer.send(TOPIC, b"b")

    run_producer(model, main)


def test_many_partitions_share_requests_and_all_get_their_turn():
    model = ModelCluster(3, 60)

    async def main(producer: Producer) -> None:
        receipts = [await producer.send(TOPIC, bytes(500), partition=i % 60) for i in range(600)]
        await asyncio.gather(*receipts)

    run_producer(model, main, batch_bytes_max=2000, request_bytes_max=8000)
    assert all(len(log.values()) == 10 for log in model.logs.values())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"acks": 2}, "expected 0, 1, or -1"),
        ({"acks": 1, "idempotent": True}, "idempotence needs acks"),
        ({"in_flight_max": 6}, "expected 1 to 5"),
        ({"batch_bytes_max": 10, "request_bytes_max": 5}, "above request_bytes_max"),
    ],
)
def test_settings_that_contradict_each_other(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        ProducerSettings(**settings)
