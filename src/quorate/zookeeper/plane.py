"""ZooKeeper's control plane as a broker sees it: `broker.control_plane.ControlPlane`, and a life around it.

    plane = ZooKeeperPlane(settings, random=..., wall_ms=..., connections=..., broker=...)
    await plane.connect(known_cluster_id=..., known_broker_id=...)   # from meta.properties, None if not there
    ...                       # plane.cluster_id and plane.broker_id go to meta.properties; logs are opened,
                              # listeners bound, with plane.routes() among what they serve
    await plane.register(listeners, rack=..., features=...)          # plane.broker_epoch from here on
    await plane.run()         # a duty, until it is cancelled; raises `Fatal` for what nobody can go on with
    await plane.controlled_shutdown()
    await plane.stop()

What the broker is to have and to lead comes as requests (LeaderAndIsr, UpdateMetadata, StopReplica) to its
listener, from whichever broker is the controller, itself included. Configurations come from znodes, as
records for the image (`BrokerSide.apply_records`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, Protocol

from quorate.controller.decision import Asker
from quorate.controller.events import Event
from quorate.controller.ids import new_id
from quorate.controller.proposals import IsrAnswer, Proposals, TopicPartition, alter_partition, answers_in
from quorate.controller.refusals import refusal
from quorate.metadata.brokers import Listener
from quorate.metadata.image import ClusterImage
from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.zookeeper_era import ControlledShutdownRequest, ControlledShutdownResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record, Request, Response
from quorate.zookeeper import paths
from quorate.zookeeper.admin_requests import ANSWERED, answer
from quorate.zookeeper.config_changes import ConfigChanges
from quorate.zookeeper.config_requests import WRITTEN_BY_ANYBODY, write_configs
from quorate.zookeeper.controller import Controller
from quorate.zookeeper.controller_link import ControllerLink, is_from_broker
from quorate.zookeeper.errors import AuthFailed, Fatal, SessionExpired, ZooKeeperError
from quorate.zookeeper.events import SessionLost, ZooKeeperRegistered
from quorate.zookeeper.jute import SEQUENCE, Create
from quorate.zookeeper.membership import (
    acl_for,
    agree_on_cluster_id,
    check_addresses,
    ensure_base_paths,
    generate_broker_id,
    register,
)
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.servers import Servers
from quorate.zookeeper.session import Session
from quorate.zookeeper.settings import ZooKeeperSettings
from quorate.zookeeper.situation import situation_of
from quorate.zookeeper.terms import Terms
from quorate.zookeeper.znodes import NO_CONTROLLER, encoded

__all__ = ["BrokerSide", "Fatal", "ZooKeeperPlane"]

RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
EXPIRED_S: Final = 0.05
PROPOSAL_MS: Final = 30_000
FORWARDING_MS_MIN: Final = 1_000
FORWARDING_MS_MAX: Final = 60_000
UNREGISTERED: Final = -1

# What only brokers ask of the controller; what they ask for clients goes through `forward`.
_OF_BROKERS: Final = (AlterPartitionRequest, ControlledShutdownRequest, AllocateProducerIdsRequest)

_logger = logging.getLogger("quorate.zookeeper")


class BrokerSide(Protocol):
    """What the plane asks of the broker that it belongs to."""

    def current_image(self) -> ClusterImage:
        """The cluster as this broker knows it: what configurations are judged by."""

    def apply_records(self, records: Sequence[Record]) -> None:
        """Configurations, quotas and credentials that have changed, or that there are at the beginning."""

    def epoch_changed(self, broker_epoch: int) -> None:
        """This broker is registered, perhaps once more: a request for an older epoch is not for it."""


class ZooKeeperPlane:
    """One broker's part in the cluster: a member, perhaps its controller."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        *,
        random: Random,
        wall_ms: Callable[[], int],
        connections: Callable[[], Connections],
        broker: BrokerSide,
        saw: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        """`connections` makes a set of connections to brokers, with TLS if the inter-broker listener has it;
        the plane closes what it was given."""
        try:
            self._servers = Servers.parse(settings.connect)
        except ValueError as error:
            raise Fatal(f"zookeeper.connect={settings.connect}: {error}") from None
        self._settings = settings
        self._random = random
        self._wall_ms = wall_ms
        self._connections = connections
        self._broker = broker
        self._saw = saw
        self._session: Session | None = None
        self._cluster_id = ""
        self._broker_id = UNREGISTERED
        self._member: Member | None = None
        self._configs = ConfigChanges(broker.apply_records, wall_ms, is_acl_set=settings.is_acl_set)
        self._terms = Terms(settings, random, wall_ms, connections, saw)
        self._links: list[ControllerLink] = []
        self._running: asyncio.Event | None = None  # set when `run` has ended
        self._expirations = 0

    # Life

    async def connect(self, *, known_cluster_id: str | None, known_broker_id: int | None) -> None:
        """A session, the paths that everybody expects, and who we are. `Fatal` if the cluster is another than
        the known one, or the id is not known and may not be generated. Afterwards there are `cluster_id` and
        `broker_id`, and all configurations have been given to `BrokerSide.apply_records`."""

        async def introduce() -> None:
            session = await self._reach()
            is_acl_set = self._settings.is_acl_set
            await ensure_base_paths(session, is_acl_set=is_acl_set)
            proposed = known_cluster_id or str(new_id(self._random))
            self._cluster_id = await agree_on_cluster_id(session, proposed, is_acl_set=is_acl_set)
            if known_cluster_id is not None and known_cluster_id != self._cluster_id:
                raise Fatal(
                    f"this directory belongs to cluster {known_cluster_id}, and ZooKeeper at"
                    f" {self._settings.connect} has cluster {self._cluster_id}"
                )
            if self._broker_id == UNREGISTERED:
                self._broker_id = await self._choose_id(session, known_broker_id)
            await self._configs.read_all(session)

        await self._retried("ZooKeeper", introduce)
        self._proposing, self._forwarding = self._link(), self._link()

    async def _choose_id(self, session: Session, known: int | None) -> int:
        settings = self._settings
        configured = settings.broker_id
        if configured >= 0 and known is not None and configured != known:
            raise Fatal(f"broker.id={configured}, but this directory belongs to broker {known}")
        if configured >= 0:
            return configured
        if known is not None:
            return known
        if not settings.is_broker_id_generated:
            raise Fatal("broker.id is not set, and broker.id.generation.enable is false")
        return await generate_broker_id(session, settings.reserved_broker_max_id)

    async def register(
        self, listeners: Sequence[Listener], *, rack: str | None, features: Mapping[str, tuple[int, int]]
    ) -> None:
        """Becomes a member. `Fatal` if another process has our id, or an address of ours."""
        member = Member(self.broker_id, tuple(listeners), rack, features, timestamp_ms=self._wall_ms())

        async def become() -> None:
            session = await self._open()
            await check_addresses(session, member)
            self._registered(await register(session, member, is_acl_set=self._settings.is_acl_set))

        await self._retried("the registration", become)

    def _registered(self, member: Member) -> None:
        event = ZooKeeperRegistered(member.id, member.epoch, self.broker_epoch, f"{member.session_id:#x}")
        self._member = member
        self._saw([event])
        self._broker.epoch_changed(member.epoch)

    async def run(self) -> None:
        """Keeps the membership, and takes part in electing the controller, until it is cancelled."""
        ended = self._running = asyncio.Event()
        try:
            while True:
                session = self._current_session()
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._follow_configs(session))
                        tasks.create_task(self._terms.take_part(session, self.broker_id))
                        tasks.create_task(_until_expired(session))
                except* SessionExpired:
                    lost = SessionLost(self.broker_id, self.broker_epoch, f"{session.session_id:#x}")
                    self._saw([lost])
                    self._expirations += 1
                self._terms.controller_id = NO_CONTROLLER
                await self._retried("the registration", self._register_again)
        finally:
            ended.set()

    async def _register_again(self) -> None:
        """In another session: what was ours is gone or will be, and everything watched is looked at again."""
        assert self._member is not None
        previous = self._member.session_id
        session = await self._open()
        is_acl_set = self._settings.is_acl_set
        self._registered(await register(session, self._member, previous, is_acl_set=is_acl_set))
        await self._configs.read_all(session)

    async def _follow_configs(self, session: Session) -> None:
        while True:
            changed = asyncio.Event()
            await self._configs.follow(session, lambda _, event=changed: event.set())  # type: ignore[misc]
            await changed.wait()

    async def controlled_shutdown(self) -> bool:
        """Has the controller move our leaderships away; whether it could."""
        settings = self._settings
        request = ControlledShutdownRequest(broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        asker = Asker(api_version=max(ControlledShutdownRequest.__versions__))
        for attempt in range(settings.controlled_shutdown_retries_max):
            if attempt:
                await asyncio.sleep(settings.controlled_shutdown_retry_backoff_ms / 1000)
            reason = ""
            try:
                response = await self._forwarding.ask(
                    request, asker, timeout_ms=settings.controller_socket_timeout_ms
                )
                assert isinstance(response, ControlledShutdownResponse)
                if not response.error_code and not response.remaining_partitions:
                    return True
                reason = f"error {response.error_code}, {len(response.remaining_partitions)} partitions left"
            except (ApiError, ZooKeeperError) as error:
                reason = str(error)
            _logger.warning("controlled shutdown attempt=%d: %s", attempt + 1, reason)
            if self._is_alone():
                break  # nobody will take over, however long one waits
        return False

    def _is_alone(self) -> bool:
        """Whether we are the controller of ourselves."""
        own = self._terms.own
        return own is not None and not any(
            own.office.context.is_live(one) for one in own.office.context.members if one != self.broker_id
        )

    async def stop(self) -> None:
        """Resigns and closes the session: our znodes are gone at once. `run` has been cancelled before."""
        if self._running is not None:
            await self._running.wait()
        if self._session is not None:
            await self._session.close()
        for link in self._links:
            await link.close()

    async def _reach(self) -> Session:
        """The session of a broker that starts, which may have been told how long to try."""
        timeout_ms = self._settings.connection_timeout_ms
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self._open()
        except TimeoutError:
            raise Fatal(
                f"ZooKeeper at {self._settings.connect} was not reached within"
                f" zookeeper.connection.timeout.ms={timeout_ms}"
            ) from None

    async def _open(self) -> Session:
        """Our session; another one, if it is over."""
        if self._session is None or self._session.expired.is_set():
            settings = self._settings
            if self._session is not None:
                await self._session.close()
                self._session = None
            self._session = await Session.open(
                self._servers,
                random=self._random,
                session_timeout_ms=settings.session_timeout_ms,
                max_in_flight=settings.max_in_flight_requests,
                digest=settings.digest,
            )
        return self._session

    async def _retried(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Until it succeeds; what is refused is said, and tried again after a while."""
        failures = 0
        while True:
            try:
                await attempt()
                return
            except SessionExpired:
                await asyncio.sleep(EXPIRED_S)  # `run` opens another
                continue
            except AuthFailed as error:
                if self._member is None:
                    raise Fatal(str(error)) from error
                reason = str(error)
            except ZooKeeperError as error:
                reason = str(error)
            failures += 1
            delay_s = min(RETRY_S * 2 ** (failures - 1), RETRY_MAX_S)
            _logger.error("%s: trying again in %.1f s: %s", what, delay_s, reason)
            await asyncio.sleep(delay_s)

    def _link(self) -> ControllerLink:
        link = ControllerLink(
            self._connections(),
            self._settings.inter_broker_listener,
            self._random,
            lambda: self._terms.controller_id,
            lambda: self._terms.own,
            self._current_session,
        )
        self._links.append(link)
        return link

    def _current_session(self) -> Session:
        assert self._session is not None, "it is not connected"
        return self._session

    # Who we are

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def broker_epoch(self) -> int:
        """-1 until we are registered."""
        return UNREGISTERED if self._member is None else self._member.epoch

    @property
    def controller_id(self) -> int:
        """-1 if there is none, as far as is known."""
        return self._terms.controller_id

    @property
    def is_controller(self) -> bool:
        return self._terms.own is not None

    @property
    def controller_epoch(self) -> int:
        """Of our own term; -1 if we serve none."""
        return UNREGISTERED if self._terms.own is None else self._terms.own.epoch

    @property
    def session(self) -> Session | None:
        return self._session

    @property
    def own_term(self) -> Controller | None:
        """What there is to see of it, while we are the controller."""
        return self._terms.own

    @property
    def expirations(self) -> int:
        """How often a session of ours has expired."""
        return self._expirations

    # What others ask of us

    def routes(self) -> list[Route]:
        """What brokers send to the controller: AlterPartition, ControlledShutdown, AllocateProducerIds."""
        return [Route(one, self._answer, versions=one.__versions__) for one in _OF_BROKERS]

    async def _answer(self, context: RequestContext, header: RequestHeader, request: Request) -> Response:
        asker = Asker(header.request_api_version, context.principal, context.client_id)
        try:
            return await self._answer_as_controller(request, asker)
        except ApiError as error:
            if isinstance(request, ControlledShutdownRequest):
                return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])
            return refusal(request, error, header.request_api_version)

    async def _answer_as_controller(self, request: Request, asker: Asker) -> Response:
        own = self._terms.own
        if own is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self.broker_id} is not the controller")
        return await answer(own, request, asker)

    # What the broker asks: `ControlPlane`, and `handlers.forwarding.Forwarder`

    async def propose(self, proposals: Proposals) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        """Asks once; whoever asks again does it with what it knows then."""
        version = max(AlterPartitionRequest.__versions__)
        request = alter_partition(proposals, self.broker_id, self.broker_epoch, version)
        try:
            response = await self._proposing.ask_once(request, Asker(version))
        except ConnectionLost:
            return ErrorCode.NETWORK_EXCEPTION
        except ApiError as error:
            return error.code
        except ZooKeeperError:
            return ErrorCode.NOT_CONTROLLER
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            return _code(response.error_code)
        return answers_in(response, proposals)

    async def forward(
        self,
        request: Request,
        version: int,
        principal: str,
        client_id: str,
        client_host: str = "",  # noqa: ARG002
    ) -> Response:
        """The answer of the controller, which may be this broker. Configurations, quotas and credentials are
        not the controller's: whichever broker is asked writes them. One that was forwarded to us already is
        not forwarded again: NOT_CONTROLLER."""
        asker = Asker(version, principal, client_id)
        if type(request) in WRITTEN_BY_ANYBODY:
            image = self._broker.current_image()
            settings = self._settings.controller
            situation = situation_of(image, settings, self._random, self._wall_ms(), asker)
            return await write_configs(self._current_session(), self._configs, situation, request)
        if type(request) not in ANSWERED:
            name = type(request).__name__
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{name} has no meaning in a ZooKeeper cluster")
        if is_from_broker(client_id):
            return await self._answer_as_controller(request, asker)
        wanted_ms: int = getattr(request, "timeout_ms", FORWARDING_MS_MAX)
        timeout_ms = max(FORWARDING_MS_MIN, min(wanted_ms, FORWARDING_MS_MAX))
        return await self._forwarding.ask(request, asker, timeout_ms=timeout_ms)

    @property
    def controller_versions(self) -> Mapping[int, range] | None:
        """What `forward` can be asked, by key."""
        return _FORWARDED

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else has."""
        request = AllocateProducerIdsRequest(broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        response = await self._forwarding.ask(request, Asker(), timeout_ms=PROPOSAL_MS)
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code:
            raise ApiError(_code(response.error_code), "the controller gives no producer ids")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def read_topic_configs(self, topics: Sequence[str]) -> None:
        """Reads `/config/topics/<t>` of topics that this broker hears of for the first time, and gives what
        it finds to `BrokerSide.apply_records` before it returns: nobody notifies of configurations of topics
        that are created with them. What cannot be read is left out with a line in the log."""

        async def read() -> None:
            await self._configs.read_topics(self._current_session(), topics)

        await self._retried("configurations", read)

    async def log_directory_failed(self) -> None:
        """Tells the controller (`/log_dir_event_notification`), again and again until it is written."""
        path = f"{paths.LOG_DIR_EVENTS}/log_dir_event_"
        data = encoded({"version": 1, "broker": self.broker_id, "event": 1})

        async def tell() -> None:
            acl = acl_for(path, is_set=self._settings.is_acl_set)
            await self._current_session().ask(Create(path, data, SEQUENCE, acl))

        await self._retried("a disk has failed, and nobody knows", tell)


async def _until_expired(session: Session) -> None:
    await session.expired.wait()
    raise SessionExpired


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


_FORWARDED: Final[dict[int, range]] = {
    one.__key__: one.__served__ for one in (*ANSWERED, *WRITTEN_BY_ANYBODY) if one not in _OF_BROKERS
}
