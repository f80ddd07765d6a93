"""Whatever happens on the way, an idempotent producer's records arrive once each, and in order.

The producer is the production one; it talks to a model of a cluster in a simulated world, with real protocol
bytes and virtual time. Hypothesis chooses what is sent and what goes wrong.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cluster import TOPIC, Misfortune, ModelCluster
from worlds import BACKOFF, SETTINGS, run

from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.fetcher import EARLIEST, Fetcher, FetcherSettings
from quorate.client.producer import Delivered, Producer, ProducerSettings
from quorate.lab.world import MS, SECOND, World
from quorate.node.host import Host
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode


class Sending:
    """A client that sends numbered records to partitions, with pauses, and keeps what becomes of them."""

    def __init__(self, plan: list[tuple[int, int]], **options: object) -> None:
        self.plan = plan
        self.settings = ProducerSettings(
            **{  # type: ignore[arg-type]
                "batch_bytes_max": 140,  # two records
                "request_timeout_ms": 3000,
                "delivery_timeout_ms": 600_000,
                "backoff": BACKOFF,
                **options,
            }
        )
        self.sent: list[tuple[int, bytes, Delivered | BaseException]] = []

    async def run(self, host: Host) -> None:
        async with (
            Cluster([("b1", 9092), ("b2", 9092)], random=host.random, settings=SETTINGS) as cluster,
            Producer(cluster, self.settings, wall_ms=host.wall_ms) as producer,
        ):
            receipts = []
            for number, (partition, pause_ms) in enumerate(self.plan):
                value = b"%d" % number
                receipts.append((partition, value, await producer.send(TOPIC, value, partition=partition)))
                if pause_ms:
                    await asyncio.sleep(pause_ms / 1000)
            await producer.flush()
            assert all(receipt.done() for _, _, receipt in receipts)
            results = await asyncio.gather(*(one for _, _, one in receipts), return_exceptions=True)
            self.sent = [(p, v, r) for (p, v, _), r in zip(receipts, results, strict=True)]

    def values(self, partition: int, *, delivered: bool = True) -> list[bytes]:
        return [
            value
            for at, value, fate in self.sent
            if at == partition and isinstance(fate, Delivered) == delivered
        ]


def check_all_delivered(model: ModelCluster, client: Sending) -> None:
    for index in range(len(model.logs)):
        log = model.log(index)
        assert log.values() == client.values(index)
        for partition, value, fate in client.sent:
            assert isinstance(fate, Delivered), fate
            assert fate.partition == partition
            if partition == index and fate.offset >= 0:
                assert log.values()[fate.offset] == value


# Bursts of records to a partition, and the pause after each.
bursts = st.tuples(st.integers(0, 2), st.integers(1, 16), st.sampled_from([0, 0, 1, 40]))
plans = st.lists(bursts, min_size=1, max_size=10).map(
    lambda chosen: [
        (partition, pause_ms if last else 0)
        for partition, count, pause_ms in chosen
        for last in [False] * (count - 1) + [True]
    ]
)


@settings(max_examples=100)
@given(
    plan=plans,
    script=st.lists(st.sampled_from(Misfortune), max_size=12),
    codec=st.sampled_from(Codec),
    linger_ms=st.sampled_from([0, 5]),
    seed=st.integers(0, 1 << 20),
)
def test_no_record_is_lost_repeated_or_reordered(plan, script, codec, linger_ms, seed):
    model = ModelCluster(brokers=2, partitions=3, script=script)
    client = Sending(plan, codec=codec, linger_ms=linger_ms)
    run(model, client.run, seed)
    check_all_delivered(model, client)


@settings(max_examples=100)
@given(
    plan=plans,
    script=st.lists(st.sampled_from(Misfortune), max_size=12),
    seed=st.integers(0, 1 << 20),
    batch_records_max=st.integers(1, 6),
)
def test_batches_that_are_too_large_are_halved_and_keep_their_place(plan, script, seed, batch_records_max):
    model = ModelCluster(brokers=2, partitions=3, script=script)
    model.batch_records_max = batch_records_max
    client = Sending(plan)
    run(model, client.run, seed)
    check_all_delivered(model, client)


@settings(max_examples=100)
@given(plan=plans, seed=st.integers(0, 1 << 20), forgets=st.booleans())
def test_brokers_that_are_killed_and_come_back(plan, seed, forgets):
    model = ModelCluster(brokers=2, partitions=3)
    model.forgets_on_restart = forgets
    client = Sending([(partition, pause_ms + 15) for partition, pause_ms in plan])

    def disturb(world: World) -> None:
        dice = world.random("test", "kills")
        at = world.now_ns
        for _ in range(6):
            at += dice.randrange(10, 300) * MS
            name = dice.choice(["b1", "b2"])
            world.call_at(at, world.kill, name)
            world.call_at(at + dice.randrange(1, 200) * MS, world.restart, name)
        for name in model.names.values():
            world.call_at(at + SECOND, world.restart, name)

    run(model, client.run, seed, disturb)
    check_all_delivered(model, client)


@settings(max_examples=100)
@given(
    plan=plans,
    script=st.lists(st.sampled_from(Misfortune), max_size=8),
    invalid=st.frozensets(st.integers(0, 99).map(lambda number: b"%d" % number), max_size=4),
    seed=st.integers(0, 1 << 20),
)
def test_a_record_that_fails_takes_only_its_batch_with_it(plan, script, invalid, seed):
    model = ModelCluster(brokers=2, partitions=3, script=script)
    model.invalid = invalid
    client = Sending(plan)
    run(model, client.run, seed)
    for index in range(3):
        assert model.log(index).values() == client.values(index)
        assert not invalid.intersection(client.values(index))
    failures = [fate for _, _, fate in client.sent if not isinstance(fate, Delivered)]
    assert all(isinstance(one, ApiError) and one.code is ErrorCode.INVALID_RECORD for one in failures)
    # Every batch that failed had an invalid record in it.
    assert len({id(one) for one in failures}) <= len(invalid)


@settings(max_examples=100)
@given(
    plan=plans,
    script=st.lists(st.sampled_from([one for one in Misfortune if one is not Misfortune.LATE]), max_size=8),
    seed=st.integers(0, 1 << 20),
)
def test_without_idempotence_records_may_come_twice_but_never_out_of_order(plan, script, seed):
    model = ModelCluster(brokers=2, partitions=3, script=script)
    client = Sending(plan, idempotent=False)
    run(model, client.run, seed)
    for index in range(3):
        first_seen = list(dict.fromkeys(model.log(index).values()))
        assert first_seen == client.values(index)


def test_acknowledged_records_that_the_cluster_lost_are_reported_once():
    class Losing(Sending):
        async def run(self, host: Host) -> None:
            self.model = model
            async with (
                Cluster([("b1", 9092)], random=host.random, settings=SETTINGS) as cluster,
                Producer(cluster, self.settings, wall_ms=host.wall_ms) as producer,
            ):
                await (await producer.send(TOPIC, b"before", partition=0))
                await (await producer.send(TOPIC, b"lost", partition=0))
                log = model.log()
                log.truncate(1)
                next(iter(log.producers.values())).pop()
                receipt = await producer.send(TOPIC, b"refused", partition=0)
                with pytest.raises(ApiError) as refusal:
                    await receipt
                assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert "t-0" in str(refusal.value)
                assert await (await producer.send(TOPIC, b"after", partition=0)) == (0, 1)

    model = ModelCluster(brokers=1, partitions=1)
    run(model, Losing([]).run)
    assert model.log().values() == [b"before", b"after"]


def test_what_cannot_be_delivered_in_time_fails_and_says_why():
    model = ModelCluster(brokers=1, partitions=1, script=[Misfortune.REFUSED] * 10_000)
    client = Sending([(0, 0)] * 3, delivery_timeout_ms=5000)
    run(model, client.run)
    assert len(client.sent) == 3
    for _, _, fate in client.sent:
        assert isinstance(fate, Unavailable)
        assert "t-0" in str(fate)
        assert "NOT_ENOUGH_REPLICAS" in str(fate)
    assert model.log().values() == []


class Reading(Sending):
    """Sends, and reads what arrives at the same time."""

    def __init__(self, model: ModelCluster, plan: list[tuple[int, int]]) -> None:
        super().__init__(plan)
        self.model = model
        self.read: dict[int, list[tuple[int, bytes | None]]] = {}

    async def run(self, host: Host) -> None:
        async with (
            Cluster([("b1", 9092), ("b2", 9092)], random=host.random, settings=SETTINGS) as cluster,
            Fetcher(cluster, FetcherSettings(backoff=BACKOFF)) as fetcher,
        ):
            fetcher.assign(dict.fromkeys(self.model.logs, EARLIEST))
            sending = asyncio.get_running_loop().create_task(super().run(host))
            while not sending.done() or self.count() < len(self.plan):
                for part in await fetcher.fetch(timeout_ms=100):
                    found = self.read.setdefault(part.partition, [])
                    found.extend((record.offset, record.value) for record in part.records())
                    assert fetcher.position(part.at) == part.next_offset
            await sending

    def count(self) -> int:
        return sum(len(found) for found in self.read.values())


@settings(max_examples=25)
@given(plan=plans, script=st.lists(st.sampled_from(Misfortune), max_size=8), seed=st.integers(0, 1 << 20))
def test_a_reader_sees_every_offset_once_and_in_order(plan, script, seed):
    model = ModelCluster(brokers=2, partitions=3, script=script)
    client = Reading(model, plan)
    run(model, client.run, seed)
    check_all_delivered(model, client)
    for index in range(3):
        assert client.read.get(index, []) == list(enumerate(model.log(index).values()))


def test_the_same_seed_gives_the_same_run():
    def digest() -> str:
        model = ModelCluster(brokers=2, partitions=3, script=list(Misfortune))
        return run(model, Sending([(number % 3, number % 5) for number in range(50)]).run, seed=7)

    assert digest() == digest()
