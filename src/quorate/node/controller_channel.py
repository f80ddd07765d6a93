"""How a broker talks to the active controller, whoever that is.

Where it is, this node's own replica of the metadata log knows: whoever leads the quorum. A controller that
says it is not the active one, and a connection that is lost, make the channel look again and ask again, until
there is an answer or the time is over. A request whose connection was lost may have been carried out: what is
asked here can be asked twice.

A connection answers in the order it was asked, so what must not wait for what a client wants (in-sync
replicas, heartbeats) has a channel of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from random import Random
from struct import Struct
from typing import Final, cast

from quorate import __version__
from quorate.controller.proposals import IsrAnswer, Proposals, TopicPartition, alter_partition, answers_in
from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Backoff, Connections
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.api.security import DefaultPrincipalData
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.frame import decode_response, encode_request
from quorate.protocol.message import Request, Response
from quorate.raft.voters import Endpoint
from quorate.values import dataclass

__all__ = ["ControllerChannel", "KraftControlPlane", "patience_ms"]

FORWARDING_MS_MAX: Final = 60_000  # what a client wants is tried for so long
FORWARDING_MS_MIN: Final = 1_000  # however impatient the client is: an election may take that long
ALLOCATION_MS: Final = 30_000
PROPOSAL_MS: Final = 30_000

_VERSIONS_AGE_S: Final = 30.0
_VERSIONS_CHECK_S: Final = 1.0
_VERSIONS_MS: Final = 5_000
_NOBODY: Final = bytes(4)  # the address of a client that has none
_PRINCIPAL_VERSION: Final = Struct(">h").pack(0)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What a controller serves: versions by key."""

    address: Address
    at: float
    versions: Mapping[int, range]


class ControllerChannel:
    """Requests to the active controller.

    `leader` says where it is believed to be: `lambda: replica.quorum.leader_endpoint`.
    """

    def __init__(
        self,
        connections: Connections,
        leader: Callable[[], Endpoint | None],
        random: Random,
        *,
        request_timeout_ms: float = 30_000,
        backoff: Backoff | None = None,
    ) -> None:
        self._connections = connections
        self._leader = leader
        self._random = random
        self._request_timeout_ms = request_timeout_ms
        self._backoff = Backoff(first_ms=20, max_ms=500) if backoff is None else backoff
        self._asked: Address | None = None
        self._learned: _Learned | None = None

    async def ask(self, request: Request, *, timeout_ms: float) -> Response:
        """The response of the active controller, whoever is or becomes it. `ApiError` if there is none in
        time: REQUEST_TIMED_OUT, with the reason of the last failure."""
        failure = "nobody was asked"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                failures = 0
                while True:
                    address = self._address()
                    try:
                        response = await self.ask_once(request)
                        if error_of(response) is not ErrorCode.NOT_CONTROLLER:
                            return response
                        failure = f"{address} is not the active controller"
                    except ConnectionLost as error:
                        failure = str(error)
                    except ApiError as error:
                        if error.code is not ErrorCode.NOT_CONTROLLER:
                            raise
                        failure = error.message
                    failures += 1
                    if address is None or self._address() == address:  # else another leads by now
                        await asyncio.sleep(self._backoff.delay_ms(failures, self._random) / 1000)
        except TimeoutError:
            reason = f"no answer of an active controller in {timeout_ms:g} ms: {failure}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, reason) from None

    async def ask_once(
        self, request: Request, version_cap: int | None = None, *, timeout_ms: float | None = None
    ) -> Response:
        """The response of whoever leads now, whatever it is. NOT_CONTROLLER if nobody does, `ConnectionLost`
        if there is no answer."""
        address = self._asked = self._address()
        if address is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads the quorum, as far as is known")
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            return await self._connections.request(address, request, version_cap, timeout_ms=limit_ms)
        except ConnectionLost:
            self._learned = None  # it may come back as another release
            raise

    def look_elsewhere(self) -> None:
        """Gives up the connection to whoever was asked last, and what is under way on it."""
        if self._asked is not None:
            self._connections.forget(self._asked)
            self._learned = None

    @property
    def known_versions(self) -> Mapping[int, range] | None:
        """What the active controller serves, by key, as far as is known."""
        learned = self._learned
        return None if learned is None or learned.address != self._address() else learned.versions

    async def versions(self) -> Mapping[int, range]:
        """What the active controller serves, by key. It is asked if that is not known, or was long ago."""
        loop = asyncio.get_running_loop()
        address, learned = self._address(), self._learned
        if learned is None or learned.address != address or loop.time() - learned.at > _VERSIONS_AGE_S:
            request = ApiVersionsRequest(client_software_name="quorate", client_software_version=__version__)
            response = cast("ApiVersionsResponse", await self.ask_once(request, timeout_ms=_VERSIONS_MS))
            versions = {one.api_key: range(one.min_version, one.max_version + 1) for one in response.api_keys}
            assert address is not None
            learned = self._learned = _Learned(address, loop.time(), versions)
        return learned.versions

    async def watch_versions(self) -> None:
        """Keeps them known, for as long as the broker runs: clients are told what can be forwarded."""
        while True:
            with suppress(ConnectionLost, ApiError):  # then nobody can be forwarded to anyway
                await self.versions()
            await asyncio.sleep(_VERSIONS_CHECK_S)

    def _address(self) -> Address | None:
        endpoint = self._leader()
        return None if endpoint is None else (endpoint.host, endpoint.port)


class KraftControlPlane:
    """A `broker.control_plane.ControlPlane` with a quorum of controllers behind it. `run` goes with it."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        *,
        forwarding: ControllerChannel,
        proposing: ControllerChannel,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._forwarding = forwarding
        self._proposing = proposing

    async def run(self) -> None:
        await self._forwarding.watch_versions()

    @property
    def controller_versions(self) -> Mapping[int, range] | None:
        """Which requests the active controller takes, and in which versions."""
        return self._forwarding.known_versions

    # In-sync replicas

    async def propose(self, proposals: Proposals) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        """Asks once; whoever asks again does it with what it knows then."""
        epoch = self._broker_epoch()
        try:
            versions = await self._proposing.versions()
            supported = versions.get(AlterPartitionRequest.__key__, AlterPartitionRequest.__versions__)
            version = min(supported.stop, AlterPartitionRequest.__versions__.stop) - 1
            request = alter_partition(proposals, self._broker_id, epoch, version)
            response = await self._proposing.ask_once(request, version, timeout_ms=PROPOSAL_MS)
        except ConnectionLost:
            return ErrorCode.NETWORK_EXCEPTION
        except ApiError as error:
            return error.code
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            return error_of(response)
        return answers_in(response, proposals)

    # What clients want

    async def forward(
        self, request: Request, version: int, principal: str, client_id: str, client_host: str = ""
    ) -> Response:
        """What the active controller answers to a client. `ApiError` if it cannot be asked in time; one with
        UNSUPPORTED_VERSION if it does not know the version: the client must be made to negotiate again."""
        envelope = EnvelopeRequest(
            request_data=bytes(encode_request(request, version, 0, client_id)[4:]),
            request_principal=_encoded(principal),
            client_host_address=_packed(client_host),
        )
        response = await self._forwarding.ask(envelope, timeout_ms=patience_ms(request))
        assert isinstance(response, EnvelopeResponse)
        name = type(request).__name__
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            reason = f"the active controller does not serve {name} v{version}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
        if response.error_code or response.response_data is None:
            # It is about how we asked, which the client can do nothing about.
            reason = f"the active controller refused to be asked for {name}: {error_of(response).name}"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        try:
            return decode_response(request.__key__, version, response.response_data)[1]
        except ProtocolError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else has."""
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response = await self._forwarding.ask(request, timeout_ms=ALLOCATION_MS)
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code:
            raise ApiError(error_of(response), "the active controller gives no producer ids")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)


def patience_ms(request: Request) -> float:
    """For how long a client's request is tried: as long as it says, within reason."""
    wanted_ms: int = getattr(request, "timeout_ms", FORWARDING_MS_MAX)
    return max(FORWARDING_MS_MIN, min(wanted_ms, FORWARDING_MS_MAX))


def error_of(response: Response) -> ErrorCode:
    """The error of a response as a whole; a later release may say what we do not know."""
    try:
        return ErrorCode(getattr(response, "error_code", 0))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _encoded(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    return _PRINCIPAL_VERSION + encode(data, 0)


def _packed(host: str) -> bytes:
    """An address as its bytes."""
    try:
        return ip_address(host.partition("%")[0]).packed  # without the interface, which only we know
    except ValueError:
        return _NOBODY
