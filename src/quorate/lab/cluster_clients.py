"""Who uses a simulated cluster: writers, a reader, members of groups, an auditor and an administrator.

All of them are the production client. What they are promised goes to the `Run`, which checks it; whether a
request succeeds is not their concern, except that they try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.client.fetcher import Fetcher, FetcherSettings
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.group_offsets import Committed, committed_offsets
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.client.producer import Delivered, Producer, ProducerSettings
from quorate.lab.delivery_checks import DeliveryChecks, number_of
from quorate.lab.group_checks import GroupChecks, Place
from quorate.net.connections import Backoff
from quorate.node.host import Host
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Run", "administrate", "audit", "be_a_member", "read", "write"]

CHURN_MAX: Final = 3
RECORDS_PER_S: Final = 4  # of each writer
COMMITS_PER_S: Final = 1  # of each member, at most
_ASKED_ONCE_S: Final = 0.05  # whoever asks again has waited for longer before
_CLIENT: Final = ClusterSettings(request_timeout_ms=3000, metadata_timeout_ms=1000, connect_timeout_ms=1000)
_BACKOFF: Final = Backoff(first_ms=50, max_ms=500)
_MEMBERSHIP: Final = MembershipSettings(
    session_timeout_ms=6000, heartbeat_interval_ms=1000, rebalance_timeout_ms=10_000
)


class Run(Protocol):
    """What the clients know of the run that they are part of."""

    bootstrap: Sequence[tuple[str, int]]
    topic: str
    partitions: int
    deliveries: DeliveryChecks
    groups: GroupChecks

    @property
    def now_s(self) -> float: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def has_written_all(self) -> bool: ...
    def expect(self, check: Callable[[], None]) -> None: ...
    async def end(self, name: str) -> None: ...


def _cluster(host: Host, run: Run) -> Cluster:
    return Cluster(run.bootstrap, random=host.random, settings=_CLIENT)


async def write(host: Host, run: Run) -> None:
    """Numbered records with acks=all, by an idempotent producer."""
    settings = ProducerSettings(request_timeout_ms=3000, delivery_timeout_ms=600_000, backoff=_BACKOFF)
    async with _cluster(host, run) as cluster:
        await _create_topic(cluster, run.topic, run.partitions)
        async with Producer(cluster, settings, wall_ms=host.wall_ms) as producer:
            me = f"{host.name}.{host.random.randrange(1 << 30)}"
            while not run.is_over:
                await asyncio.sleep(host.random.expovariate(RECORDS_PER_S))
                number = run.deliveries.next_number()
                partition = number % run.partitions
                value = f"{me} {number}".encode()
                receipt = await producer.send(run.topic, value, partition=partition)
                receipt.add_done_callback(partial(_delivered, run, partition, number))
    await run.end(host.name)


async def _create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    while True:
        try:
            configs = {"min.insync.replicas": "2"}
            topic = NewTopic(name, partitions=partitions, replication_factor=3, configs=configs)
            await Admin(cluster).create_topics(topic)
            return
        except (ApiError, Unavailable) as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            await asyncio.sleep(0.5)


def _delivered(run: Run, partition: int, number: int, receipt: asyncio.Future[Delivered]) -> None:
    if not receipt.cancelled() and receipt.exception() is None:
        run.deliveries.acknowledged_at(partition, number, receipt.result().offset)


async def read(host: Host, run: Run) -> None:
    """Every record of the topic from the beginning, once and in order."""
    async with _cluster(host, run) as cluster, Fetcher(cluster, FetcherSettings(backoff=_BACKOFF)) as fetcher:
        fetcher.assign({(run.topic, partition): 0 for partition in range(run.partitions)})
        while not (run.has_written_all and run.deliveries.has_read_all()):
            try:
                found = await fetcher.fetch(timeout_ms=1000)
            except (ApiError, Unavailable):
                continue
            for some in found:
                for record in some.records():
                    number = number_of(record.value)
                    run.expect(partial(run.deliveries.saw, some.partition, record.offset, number))
    await run.end(host.name)


async def be_a_member(host: Host, run: Run, group: str, protocol: GroupProtocol) -> None:
    """Reads its share, and commits now and then. It may die at any time, and comes back as another."""
    run.groups.ended(group, host.name)
    settings = GroupConsumerSettings(
        protocol=protocol,
        membership=_MEMBERSHIP,
        fetcher=FetcherSettings(backoff=_BACKOFF),
        commits_on_revoke=False,
    )

    def assigned(partitions: frozenset[TopicPartition]) -> None:
        claim = partial(
            run.groups.assigned, group, host.name, consumer.member_id, consumer.generation, partitions
        )
        run.expect(claim)

    while True:
        async with _cluster(host, run) as cluster:
            consumer = GroupConsumer(cluster, group, [run.topic], settings, when_assigned=assigned)
            try:
                commit_at = 0.0
                told: dict[TopicPartition, int] = {}
                while True:
                    await consumer.fetch(timeout_ms=500)
                    positions = _positions(consumer)
                    # A commit that was not answered is done again, be it by the next process: otherwise
                    # nobody would ever know that the group is through with its work.
                    if not positions.items() <= told.items() and run.now_s >= commit_at:
                        commit_at = run.now_s + host.random.expovariate(COMMITS_PER_S)
                        if await _commit(run, group, consumer, positions):
                            told |= positions
            except (ApiError, Unavailable):
                pass
            finally:
                await consumer.close()
                run.groups.ended(group, host.name)
        await asyncio.sleep(host.random.uniform(0.2, 1.0))


def _positions(consumer: GroupConsumer) -> dict[TopicPartition, int]:
    """How far it has read what is its own."""
    known = {at: consumer.position(at) for at in sorted(consumer.assignment)}
    return {at: offset for at, offset in known.items() if offset is not None}


async def _commit(
    run: Run, group: str, consumer: GroupConsumer, positions: Mapping[TopicPartition, int]
) -> bool:
    """Notes what is committed before and after: who asks meanwhile may be told either. Whether it was
    acknowledged."""
    offsets, now = run.groups.offsets, run.now_s
    writes = [offsets.begin(Place(group, *at), offset, now) for at, offset in positions.items()]
    try:
        await consumer.commit({at: Committed(offset) for at, offset in positions.items()})
    except (ApiError, Unavailable):
        return False  # some of it may be stored, now or later
    for one in writes:
        one.succeeded(run.now_s)
    if run.now_s - now > _ASKED_ONCE_S:
        # What was asked first was not answered, and may arrive yet: as long as the generation is the same it
        # is carried out, in Apache Kafka too.
        for at, offset in positions.items():
            offsets.begin(Place(group, *at), offset, now)
    return True


async def audit(host: Host, run: Run, groups: Sequence[str]) -> None:
    """Asks for committed offsets now and then."""
    places = [TopicPartition(run.topic, partition) for partition in range(run.partitions)]
    async with _cluster(host, run) as cluster:
        while True:
            await asyncio.sleep(host.random.expovariate(1))
            group, begun = host.random.choice(groups), run.now_s
            try:
                found = await committed_offsets(cluster, group, places)
            except (ApiError, Unavailable):
                continue
            for at in places:
                offset = found[at].offset if at in found else None
                run.expect(partial(run.groups.found, Place(group, *at), offset, begun))


async def administrate(host: Host, run: Run) -> None:
    """Creates, grows and deletes topics, moves partitions, and elects preferred leaders."""
    number = 0
    async with _cluster(host, run) as cluster:
        admin = Admin(cluster)
        while not run.is_over:
            await asyncio.sleep(host.random.expovariate(1 / 2))
            number += 1
            try:
                async with asyncio.timeout(10):
                    await _administrate_once(host, run, admin, number)
            except (ApiError, Unavailable, TimeoutError):
                continue
    await run.end(host.name)


async def _administrate_once(host: Host, run: Run, admin: Admin, number: int) -> None:
    churn = sorted(name for name in await admin.list_topics() if name.startswith("churn-"))
    choice = host.random.random()
    if choice < 0.3 and len(churn) < CHURN_MAX:
        topic = NewTopic(
            f"churn-{number}",
            partitions=host.random.randint(1, 4),
            replication_factor=host.random.randint(1, 3),
        )
        await admin.create_topics(topic)
    elif choice < 0.45 and churn:
        await admin.delete_topics(host.random.choice(churn))
    elif choice < 0.6 and churn:
        name = host.random.choice(churn)
        count = len((await admin.describe_topics(name))[name].partitions)
        await admin.create_partitions({name: count + 1})
    elif choice < 0.85:
        cluster = await admin.describe_cluster()
        brokers = sorted(cluster.brokers)
        host.random.shuffle(brokers)
        partition = host.random.randrange(run.partitions)
        replicas = brokers[:3] if len(brokers) >= 3 and host.random.random() < 0.7 else None
        await admin.reassign({(run.topic, partition): replicas})
    else:
        partition = host.random.randrange(run.partitions)
        await admin.elect_leaders([(run.topic, partition)])
