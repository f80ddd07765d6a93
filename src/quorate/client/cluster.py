"""A cluster as a client sees it: ask, and the request finds its way.

    async with Cluster("127.0.0.1:9092") as cluster:
        topic = await cluster.topic("orders")
        response = await cluster.request(ANY, DescribeClusterRequest(...))
        response = await cluster.request(LeaderOf("orders", 0), ListOffsetsRequest(...))

What is known of the cluster is in `metadata`. It is asked for when it is first needed, when an error shows
that it is out of date, and now and then; whoever needs it at the same time shares one request. An error that
may pass is tried again after a growing delay, until the retries or the time are used up. Then the caller gets
an `ApiError` (the last thing a broker said) or `Unavailable` (nobody said anything).

Time is the running loop's, randomness an argument: the same code runs in a simulated world.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import Enum
from random import Random
from ssl import SSLContext
from types import TracebackType
from typing import Final, NamedTuple, TypeVar, cast

from quorate.client.errors import Unavailable, code_of
from quorate.client.metadata import Address, Broker, Metadata, Topic, TopicPartition, parse_addresses
from quorate.net.client import ConnectionLost
from quorate.net.connections import Backoff, Connections
from quorate.net.gate import Gate
from quorate.net.limits import Limits
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.message import Request, Response
from quorate.values import dataclass

__all__ = [
    "ANY",
    "CONTROLLER",
    "Cluster",
    "ClusterSettings",
    "CoordinatorOf",
    "Destination",
    "LeaderOf",
    "top_level_error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How patient a client is."""

    # For one attempt, connecting included.
    request_timeout_ms: float = 30_000
    # For a request with all its retries, if the caller does not say.
    deadline_ms: float = 60_000
    retries_max: int = 50
    backoff: Backoff = field(default_factory=lambda: Backoff(first_ms=100, max_ms=1000))
    connect_timeout_ms: float = 10_000
    # For asking one broker about the cluster: if it is silent there are others.
    metadata_timeout_ms: float = 5_000
    # Metadata is asked for again after this time, even if nothing went wrong.
    metadata_age_max_ms: float = 300_000
    # How long a topic that no broker knows is waited for: one that was just created is not known everywhere.
    unknown_topic_wait_ms: float = 5_000
    allow_auto_topic_creation: bool = False
    limits: Limits = field(default_factory=Limits)
    # How connections are secured, if they are.
    tls: SSLContext | None = None
    # Whom the client can reach, if that is not left to the network.
    gate: Gate | None = None


T = TypeVar("T")


class _Role(Enum):
    ANY = "any broker"
    CONTROLLER = "the controller"


ANY: Final = _Role.ANY
CONTROLLER: Final = _Role.CONTROLLER


class LeaderOf(NamedTuple):
    """Whoever leads a partition when the request is sent."""

    topic: str
    partition: int


class CoordinatorOf(NamedTuple):
    """Whoever coordinates a group when the request is sent."""

    group: str


# A broker by its id, or by what it is.
Destination = int | _Role | LeaderOf | CoordinatorOf
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
# The last version that asks for one coordinator; later ones ask for many, and say nothing else.
_FIND_ONE_VERSION: Final = 3
_COORDINATORS_MAX: Final = 10_000  # that are remembered


def top_level_error(response: Response) -> ErrorCode:
    """The error of a response as a whole, if it is of a kind that has one."""
    return code_of(getattr(response, "error_code", 0))


class Cluster:
    """The brokers of one cluster, found through any of them. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        random: Random | None = None,
        client_id: str = "quorate",
        settings: ClusterSettings | None = None,
    ) -> None:
        self.settings = ClusterSettings() if settings is None else settings
        self.metadata = Metadata()
        self.random = random_module.SystemRandom() if random is None else random
        self.client_id = client_id
        self._bootstrap = parse_addresses(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        self._pools: list[Connections] = []
        self._connections = self.open_connections()
        self._tracked: dict[str, None] = {}  # the topics to ask about, in the order in which they came up
        self._coordinators: dict[str, Broker] = {}  # by group, as far as they were asked for
        self._last_good: Address | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshing_topics: frozenset[str] = frozenset()
        self._background: set[asyncio.Task[None]] = set()
        self._age_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections. Whoever still waits for an answer gets `Unavailable`."""
        self._is_closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
        tasks = [*self._background, *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pool in list(self._pools):
            await pool.close()
        self._pools.clear()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # Asking

    async def request(
        self,
        to: Destination,
        request: Request,
        *,
        timeout_ms: float | None = None,
        retries: int | None = None,
        version_cap: int | None = None,
        error_of: Callable[[Response], ErrorCode] = top_level_error,
        connections: Connections | None = None,
    ) -> Response:
        """The response of a broker, after as many attempts as it takes.

        `error_of` says what is wrong with a response, if the error is not where `top_level_error` looks. An
        error that may pass is tried again; any other is raised. `connections` are for what takes long
        (`open_connections`).
        """
        loop = asyncio.get_running_loop()
        pool = self._connections if connections is None else connections

        async def ask(deadline: float) -> Response:
            address = (await self._find(to, deadline)).address
            left_ms = (deadline - loop.time()) * 1000
            timeout_ms = min(self.settings.request_timeout_ms, left_ms) if connections is None else left_ms
            try:
                response = await pool.request(address, request, version_cap, timeout_ms=timeout_ms)
            except ConnectionError:
                self._forget_coordinator(to)
                raise
            code = error_of(response)
            if code in _MOVED:
                self._forget_coordinator(to)
            if code is not ErrorCode.NONE:
                raise ApiError(code, _explanation(response))
            return response

        return await self._patiently(f"{type(request).__name__} to {_name(to)}", ask, timeout_ms, retries)

    async def topic(self, name: str, *, timeout_ms: float | None = None) -> Topic:
        """A topic, as soon as a broker knows it."""
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None

        async def ask(deadline: float) -> Topic:
            nonlocal give_up_at
            async with _in_time(deadline):
                await self.refresh(name)
            known = self.metadata.topics.get(name)
            if known is not None:
                return known
            if give_up_at is None:
                give_up_at = loop.time() + self.settings.unknown_topic_wait_ms / 1000
            raise self._unknown(LeaderOf(name, -1))

        def is_final(error: ApiError) -> bool:
            is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return not error.code.retriable or (
                is_unknown and give_up_at is not None and loop.time() >= give_up_at
            )

        try:
            return await self._patiently(f"topic {name!r}", ask, timeout_ms, is_final=is_final)
        except ApiError:
            self._tracked.pop(name, None)
            raise

    async def leader(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> Broker:
        """The broker that leads a partition, as soon as there is one."""
        to = LeaderOf(topic, partition)
        return await self._patiently(_name(to), lambda deadline: self._find(to, deadline), timeout_ms)

    async def coordinator(self, group: str, *, timeout_ms: float | None = None) -> Broker:
        """The broker that coordinates a group, as soon as there is one."""
        to = CoordinatorOf(group)
        return await self._patiently(_name(to), lambda deadline: self._find(to, deadline), timeout_ms)

    # Metadata

    async def refresh(self, *topics: str) -> None:
        """Asks a broker about the cluster and all topics that matter, these among them, once.

        A call during another one that covers the same topics shares its answer. `Unavailable` if no broker
        answers.
        """
        self._tracked.update(dict.fromkeys(topics))
        while True:
            task = self._refreshing
            if task is None or task.done():
                if self._is_closed:
                    raise Unavailable("the client is closed")
                asked = list(self._tracked)
                task = self._refreshing = asyncio.get_running_loop().create_task(self._refresh(asked))
                task.add_done_callback(self._refreshed)
                self._refreshing_topics = frozenset(asked)
            is_covered = self._refreshing_topics.issuperset(topics)
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if self._is_closed:
                    raise Unavailable("the client is closed") from None
                raise
            except Unavailable:
                if is_covered:
                    raise
            if is_covered:
                return

    def refresh_soon(self) -> None:
        """Begins to refresh, unless that is under way. Nobody waits for it."""
        if self._refreshing is None and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._refresh_quietly())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    # Connections of their own, for what would keep others waiting: brokers answer one connection in order

    def open_connections(self) -> Connections:
        pool = Connections(
            rng=self.random,
            client_id=self.client_id,
            limits=self.settings.limits,
            connect_timeout_ms=self.settings.connect_timeout_ms,
            tls=self.settings.tls,
            gate=self.settings.gate,
        )
        self._pools.append(pool)
        return pool

    async def close_connections(self, pool: Connections) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        await pool.close()

    # How

    async def _patiently(
        self,
        what: str,
        attempt: Callable[[float], Awaitable[T]],
        timeout_ms: float | None,
        retries: int | None = None,
        *,
        is_final: Callable[[ApiError], bool] = lambda error: not error.code.retriable,
    ) -> T:
        """Tries something that is given a deadline until it succeeds, or there is no point in going on."""
        loop = asyncio.get_running_loop()
        settings = self.settings
        deadline = loop.time() + (settings.deadline_ms if timeout_ms is None else timeout_ms) / 1000
        attempts_max = (settings.retries_max if retries is None else retries) + 1
        attempts = 0
        reason: ApiError | ConnectionError | None = None
        while True:
            try:
                return await attempt(deadline)
            except (ApiError, ConnectionError) as error:
                if reason is None or not isinstance(error, _OutOfTime):
                    reason = error  # that the time was up is no reason if there was one before
                is_verdict = isinstance(error, ApiError) and is_final(error)
                if isinstance(error, ProtocolError) or is_verdict or self._is_closed:
                    raise
                attempts += 1
                delay_ms = settings.backoff.delay_ms(attempts, self.random)
                if attempts >= attempts_max or loop.time() + delay_ms / 1000 >= deadline:
                    raise _given_up(what, attempts, reason) from error
            self.refresh_soon()
            await asyncio.sleep(delay_ms / 1000)

    async def _find(self, to: Destination, deadline: float) -> Broker:
        """Who should be asked, as far as is known. What is not known is asked for once."""
        found = self._known(to)
        if found is None and isinstance(to, CoordinatorOf):
            return await self._find_coordinator(to, deadline)
        if found is None:
            async with _in_time(deadline):
                await self.refresh(*([to.topic] if isinstance(to, LeaderOf) else []))
            found = self._known(to)
        if found is None:
            raise self._unknown(to)
        return found

    def _known(self, to: Destination) -> Broker | None:
        brokers = self.metadata.brokers
        match to:
            case _Role.ANY:
                return self.random.choice([brokers[one] for one in sorted(brokers)]) if brokers else None
            case _Role.CONTROLLER:
                return brokers.get(self.metadata.controller_id)
            case LeaderOf():
                return self.metadata.leader(to)
            case CoordinatorOf():
                return self._coordinators.get(to.group)
            case _:
                return brokers.get(to)

    async def _find_coordinator(self, to: CoordinatorOf, deadline: float) -> Broker:
        anybody = await self._find(ANY, deadline)
        left_ms = (deadline - asyncio.get_running_loop().time()) * 1000
        said = await self._connections.request(
            anybody.address,
            FindCoordinatorRequest(key=to.group),
            _FIND_ONE_VERSION,
            timeout_ms=min(self.settings.request_timeout_ms, left_ms),
        )
        assert isinstance(said, FindCoordinatorResponse)
        if said.error_code:
            raise ApiError(code_of(said.error_code), f"the coordinator of group {to.group!r}")
        if len(self._coordinators) >= _COORDINATORS_MAX:
            self._coordinators.clear()
        found = self._coordinators[to.group] = Broker(said.node_id, said.host, said.port, None)
        return found

    def _forget_coordinator(self, to: Destination) -> None:
        if isinstance(to, CoordinatorOf):
            self._coordinators.pop(to.group, None)

    def _unknown(self, to: Destination) -> ApiError:
        alive = ", ".join(map(str, sorted(self.metadata.brokers))) or "none"
        if not isinstance(to, LeaderOf):
            # A code that may pass: a broker that restarts is away for a moment.
            return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{_name(to)} is not there; alive: {alive}")
        topic = self.metadata.topics.get(to.topic)
        if topic is None:
            code = self.metadata.errors.get(to.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return ApiError(code, f"topic {to.topic!r}{_WHY.get(code, '')}")
        if to.partition not in topic.partitions:
            there_are = f"topic {to.topic!r} has {len(topic.partitions)} partitions, and no {to.partition}"
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there_are)
        replicas = ", ".join(map(str, topic.partitions[to.partition].replicas))
        reason = f"{TopicPartition(*to)} has no leader: its replicas are on {replicas}; alive: {alive}"
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, reason)

    async def _refresh_quietly(self) -> None:
        with contextlib.suppress(Unavailable):  # whoever needs it will ask again, and hear why it fails
            await self.refresh()

    async def _refresh(self, topics: list[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=name) for name in topics],
            allow_auto_topic_creation=self.settings.allow_auto_topic_creation,
        )
        silent: list[str] = []
        for address in self._candidates():
            try:
                response = cast(
                    "MetadataResponse",
                    await self._connections.request(
                        address, request, timeout_ms=self.settings.metadata_timeout_ms
                    ),
                )
            except (ConnectionLost, ApiError) as error:
                silent.append(str(error))
                continue
            if response.error_code or not response.brokers:
                code = code_of(response.error_code)
                silent.append(f"{address[0]}:{address[1]}: {code.name}, {len(response.brokers)} brokers")
                continue
            self._last_good = address
            self._learn(response)
            return
        raise Unavailable(
            f"no broker answers ({'; '.join(silent)}). Is the cluster running, and are the addresses right?"
        )

    def _candidates(self) -> list[Address]:
        """Whom to ask, in turn: who answered last, the known brokers, and where we began."""
        brokers = self.metadata.brokers
        known = [brokers[one].address for one in sorted(brokers)]
        begun = list(self._bootstrap)
        self.random.shuffle(known)
        self.random.shuffle(begun)
        first = [self._last_good] if self._last_good in known else []
        return list(dict.fromkeys([*first, *known, *begun]))

    def _learn(self, response: MetadataResponse) -> None:
        before = {one.address for one in self.metadata.brokers.values()}
        self.metadata.learn(response)
        after = {one.address for one in self.metadata.brokers.values()}
        for address in sorted(before - after - set(self._bootstrap)):
            for pool in self._pools:
                pool.forget(address)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        if self._refreshing is task:  # and not the one that somebody began when this one was over
            self._refreshing = None
        if not task.cancelled():
            task.exception()  # those who wait get it; if nobody waits, nobody misses it
        if self._age_timer is not None:
            self._age_timer.cancel()
        if not self._is_closed:
            delay_ms = self.settings.metadata_age_max_ms
            self._age_timer = task.get_loop().call_later(delay_ms / 1000, self.refresh_soon)


class _OutOfTime(Unavailable):
    """The time was up while somebody was being asked."""


class _in_time:  # noqa: N801  # used like a function
    """A timeout of the client's own kind."""

    def __init__(self, deadline: float) -> None:
        self._timeout = asyncio.timeout_at(deadline)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise _OutOfTime("no broker answered in time") from error


_WHY: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: " does not exist, or not yet where we asked; create it first",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ": this client may not see it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: " is not a legal name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'",
}


def _name(to: Destination) -> str:
    match to:
        case _Role():
            return to.value
        case LeaderOf():
            return f"the leader of {TopicPartition(*to)}"
        case CoordinatorOf():
            return f"the coordinator of group {to.group!r}"
        case _:
            return f"broker {to}"


def _explanation(response: Response) -> str:
    said: str | None = getattr(response, "error_message", None)
    return said or ""


def _given_up(what: str, attempts: int, error: ApiError | ConnectionError) -> ApiError | Unavailable:
    tried = f"{what}, {attempts} attempts" if attempts > 1 else what
    if isinstance(error, ApiError):
        return ApiError(error.code, f"{tried}: {error.message}" if error.message else tried)
    return Unavailable(f"{tried}: {error}")
