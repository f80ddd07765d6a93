"""Members of groups, of other people's clients and of ours, behind one face. Each lives in a thread.

    with members_of(servers, "readers", "orders") as add:
        first, second = add(Librdkafka()), add(KafkaPython())
        until("each has a half", lambda: len(first.owned) == len(second.owned) == 2)

A member reads and commits until it is closed; what it has read and what it owns can be looked at meanwhile.
Settings are those of the client, written with underscores, and go before what is set here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka.coordinator.assignors.range import RangePartitionAssignor

from quorate.client.cluster import Cluster
from quorate.client.fetcher import FetcherSettings, Reset
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.membership import MembershipSettings
from quorate.protocol.errors import ApiError

DEADLINE_S = 60.0
POLL_S = 0.1
SESSION_MS = 6000
HEARTBEAT_MS = 200

Place = tuple[str, int]


class Kind(Protocol):
    """How a client takes part. All of it happens in one thread."""

    def open(self, servers: str, group: str, topic: str) -> None: ...
    def read(self) -> list[bytes | None]: ...
    def owned(self) -> set[Place]: ...
    def close(self) -> None: ...


class Committing(Kind, Protocol):
    """One that can be told to wait until how far it has read is committed."""

    def commit(self) -> dict[Place, int]:
        """What the coordinator has acknowledged. `COMMIT_ERRORS` if it has not."""


class Member:
    """One that is at work."""

    def __init__(self, kind: Kind, servers: str, group: str, topic: str) -> None:
        self._kind = kind
        self._where = servers, group, topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live, name=type(kind).__name__)
        self.owned: set[Place] = set()
        self.seen: list[bytes | None] = []
        self.failure: Exception | None = None
        self._thread.start()

    def _live(self) -> None:
        try:
            self._kind.open(*self._where)
            try:
                while not self._is_over.is_set():
                    self.seen += self._kind.read()
                    self.owned = self._kind.owned()
            finally:
                self._kind.close()
        except Exception as error:
            self.failure = error
        self.owned = set()

    def close(self) -> None:
        """Leaves in order."""
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        if self.failure is not None:
            raise self.failure


@contextmanager
def members_of(servers: str, group: str, topic: str) -> Iterator[Callable[[Kind], Member]]:
    """Adds members to a group; whoever is still there in the end is closed."""
    members: list[Member] = []

    def add(kind: Kind) -> Member:
        members.append(Member(kind, servers, group, topic))
        return members[-1]

    try:
        yield add
    finally:
        for one in members:
            one._is_over.set()
        for one in members:
            one.close()


def until(what: str, condition: Callable[[], object], *members: Member) -> None:
    """Until something is so; a member that has failed ends the wait."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        for one in members:
            if one.failure is not None:
                raise one.failure
        if time.monotonic() > deadline:
            state = [(one._thread.name, sorted(one.owned), len(one.seen)) for one in members]
            raise AssertionError(f"{what}: not in {DEADLINE_S:.0f} seconds; {state}")
        time.sleep(0.02)


def shared_by(partitions: int, *members: Member) -> Callable[[], bool]:
    """Whether everything is somebody's, nothing is two people's, and nobody has nothing."""

    def shared() -> bool:
        owned = [at for one in members for at in one.owned]
        return len(owned) == len(set(owned)) == partitions and all(one.owned for one in members)

    return shared


# Clients


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, **settings: Any) -> None:
        self._settings = {key.replace("_", "."): value for key, value in settings.items()}

    def open(self, servers: str, group: str, topic: str) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 300,
            "log_level": 2,
        }
        if self._settings.get("group.protocol") != "consumer":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings |= self._settings
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])

    def read(self) -> list[bytes | None]:
        found = []
        for message in self._consumer.consume(1000, POLL_S):
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise KafkaException(error)
        return found

    def owned(self) -> set[Place]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> dict[Place, int]:
        try:
            found = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._NO_OFFSET:  # nothing is new
                return {}
            raise
        # One of which nothing is new has no offset, which is a negative number.
        told = [one for one in found or () if one.error is None and one.offset >= 0]
        return {(one.topic, one.partition): one.offset for one in told}

    def close(self) -> None:
        self._consumer.close()


def in_python(servers: str, group: str) -> dict[str, Any]:
    """Settings that kafka-python and aiokafka have in common."""
    return {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
    }


class KafkaPython:
    """kafka-python."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def open(self, servers: str, group: str, topic: str) -> None:
        settings = {
            **in_python(servers, group),
            "partition_assignment_strategy": [RangePartitionAssignor],
            **self._settings,
        }
        self._consumer = kafka.KafkaConsumer(topic, **settings)
        # A leader that divides a topic before it has heard of its partitions gives nothing to anybody.
        assert self._consumer.partitions_for_topic(topic)

    def read(self) -> list[bytes | None]:
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [record.value for records in found.values() for record in records]

    def owned(self) -> set[Place]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> dict[Place, int]:
        places = {at: self._consumer.position(at) for at in self._consumer.assignment()}
        if places:
            self._consumer.commit({at: kafka.OffsetAndMetadata(one, "", -1) for at, one in places.items()})
        return {(at.topic, at.partition): one for at, one in places.items()}

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    """aiokafka, on a loop of its own."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def open(self, servers: str, group: str, topic: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> AIOKafkaConsumer:
            settings = {
                **in_python(servers, group),
                "partition_assignment_strategy": (AioRange,),
                **self._settings,
            }
            consumer = AIOKafkaConsumer(topic, **settings)
            await consumer.start()
            return consumer

        self._consumer = self._runner.run(start())

    def read(self) -> list[bytes | None]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [record.value for records in found.values() for record in records]

    def owned(self) -> set[Place]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def commit(self) -> dict[Place, int]:
        async def commit() -> dict[Place, int]:
            places = {at: await self._consumer.position(at) for at in self._consumer.assignment()}
            if places:
                await self._consumer.commit(places)
            return {(at.topic, at.partition): one for at, one in places.items()}

        return self._runner.run(commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class Ours:
    """Our client."""

    def __init__(self, protocol: GroupProtocol = GroupProtocol.CLASSIC, **membership: Any) -> None:
        self._settings = GroupConsumerSettings(
            protocol=protocol,
            membership=MembershipSettings(
                session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, **membership
            ),
            fetcher=FetcherSettings(reset=Reset.EARLIEST),
        )

    def open(self, servers: str, group: str, topic: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> tuple[Cluster, GroupConsumer]:
            cluster = await Cluster(servers).__aenter__()
            return cluster, GroupConsumer(cluster, group, [topic], self._settings)

        self._cluster, self._consumer = self._runner.run(start())

    def read(self) -> list[bytes | None]:
        async def fetch() -> list[bytes | None]:
            found = await self._consumer.fetch(timeout_ms=POLL_S * 1000)
            if found:
                with suppress(ApiError):  # a rebalance is under way: whoever gets them reads them again
                    await self._consumer.commit()
            return [record.value for part in found for record in part.records()]

        return self._runner.run(fetch())

    def owned(self) -> set[Place]:
        return {(one.topic, one.partition) for one in self._consumer.assignment}

    def close(self) -> None:
        async def end() -> None:
            await self._consumer.close()
            await self._cluster.close()

        self._runner.run(end())
        self._runner.close()


COMMIT_ERRORS = (KafkaException, kafka.errors.KafkaError, AioKafkaError)
COMMITTING: dict[str, Callable[..., Committing]] = {
    "librdkafka, range": partial(Librdkafka, partition_assignment_strategy="range"),
    "librdkafka, cooperative-sticky": partial(Librdkafka, partition_assignment_strategy="cooperative-sticky"),
    "librdkafka, consumer": partial(Librdkafka, group_protocol="consumer"),
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
KINDS: dict[str, Callable[[], Kind]] = {
    **COMMITTING,
    "quorate, classic": Ours,
    "quorate, consumer": lambda: Ours(GroupProtocol.CONSUMER),
}
