"""Which requests a listener serves, in which versions, and who answers them.

A route table also answers ApiVersions, the question of every client what the table contains.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorate.protocol.api import response_class
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse, RequestHeader
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.net.shortcuts import Shortcut

__all__ = [
    "NO_RESPONSE",
    "Again",
    "Answer",
    "AnswerTooLargeError",
    "Features",
    "FindAgain",
    "Handler",
    "NoResponse",
    "NoRoomError",
    "RequestContext",
    "Route",
    "RouteTable",
    "Series",
    "throttle_time_ms",
]


class NoRoomError(Exception):
    """The node's memory has no room now for `wanted_bytes`: the request waits, and is served when it has."""

    def __init__(self, wanted_bytes: int) -> None:
        super().__init__(f"no room for {wanted_bytes} bytes")
        self.wanted_bytes = wanted_bytes


class AnswerTooLargeError(Exception):
    """The answer to a request would be larger than any that is sent."""


def _anything(answer_bytes: int) -> None:
    """Where nobody looks after the size of answers."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and where. It travels with a request that is forwarded."""

    listener: str
    client_host: str
    client_port: int
    client_id: str
    principal: str = "User:ANONYMOUS"
    is_forwarded: bool = False  # and a broker has passed it on
    # A handler whose answer may be large says how large, about, before it builds it, and before it does what
    # cannot be done twice. `AnswerTooLargeError` ends the connection, and `NoRoomError` lets the request wait
    # until the node has memory for the answer: neither is the handler's to catch.
    expect: Callable[[int], None] = field(default=_anything, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The answer to a request that is not answered on the wire: Produce with acks=0."""

    throttle_time_ms: int = 0


NO_RESPONSE: Final = NoResponse()

Answer = Response | NoResponse


def throttle_time_ms(answer: Answer) -> int:
    """For how long the asker is to be quiet, as an answer says; not every kind of answer can."""
    found: int = getattr(answer, "throttle_time_ms", 0)
    return found


# Answers at once, or returns something to wait for: a handler is a function or a coroutine function. What
# cannot be done is answered in the response's own error fields; an exception closes the connection. When the
# connection is lost the waiting is cancelled, so what must be completed anyway belongs to somebody else.
# The memory of a request is the handler's: byte fields are views of it, writable, and nobody uses it again.
Handler = Callable[[RequestContext, RequestHeader, Any], Answer | Awaitable[Answer]]


class Series(NamedTuple):
    """How several requests of one kind are answered together that came behind each other on a connection: for
    what costs as much for all of them as for one, such as a write."""

    takes: Callable[[RequestHeader, Any], bool]
    """Whether a request may be one of several. It must be one that is answered at once and on the wire, and
    after which the connection is not muted."""
    answer: Callable[[RequestContext, Sequence[tuple[RequestHeader, Any]]], Sequence[Response]]
    """An answer for each, in order: the same as if they had been handled one after the other."""


# Whether a request is answered now as it was answered before. If so, all that its handler would do is done.
Again = Callable[[], bool]
# The same of a request that was just answered at once, if that can be told without decoding it anew.
FindAgain = Callable[[RequestContext, RequestHeader, Any, Response], Again | None]


@dataclass(frozen=True, slots=True)
class Route:
    """A request that is served.

    `versions` are those that are answered: those of the pinned Apache release, if not given. `advertised`
    are those that ApiVersions lists, where they differ: old librdkafka wants to see Produce v0. `series` is
    for those of which several can be answered together. `again` is for those that are likely to come again
    in the same words (see `repetition`). `shortcut` makes one for each connection (see `shortcuts`).
    """

    request: type[Request]
    handler: Handler
    versions: range | None = None
    advertised: range | None = None
    series: Series | None = None
    again: FindAgain | None = None
    shortcut: Callable[[], Shortcut] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What ApiVersions says about features: the levels that we know, and those that the cluster is at."""

    supported: Mapping[str, range] = field(default_factory=dict)
    finalized: Mapping[str, int] = field(default_factory=dict)
    finalized_epoch: int = -1
    zk_migration_ready: bool = False


class RouteTable:
    """The requests that a listener serves, ApiVersions always among them.

    >>> table = RouteTable([])
    >>> table.handler(18, 4) is None, table.handler(18, 5) is None, table.handler(3, 0) is None
    (False, True, True)
    """

    def __init__(
        self, routes: Iterable[Route], features: Features | Callable[[], Features] | None = None
    ) -> None:
        """`features` that change are given as a function, which is asked whenever a client asks."""
        fixed = Features() if features is None else features
        self._features = fixed if callable(fixed) else lambda: fixed
        # By the first four bytes of a request (see `route_id`): who answers it, and the class of the answer.
        self.by_route_id: dict[int, tuple[Handler, type[Response]]] = {}
        self.series: dict[int, Series] = {}
        self.again: dict[int, FindAgain] = {}
        self.shortcuts: dict[int, Callable[[], Shortcut]] = {}
        self._advertised: dict[int, range] = {}
        for route in (*routes, Route(ApiVersionsRequest, self._api_versions)):
            self._add(route)

    def _add(self, route: Route) -> None:
        request = route.request
        versions = request.__served__ if route.versions is None else route.versions
        assert versions, f"{request.__name__} has no version to be served in"
        assert request.__key__ not in self._advertised, f"{request.__name__} has two routes"
        assert set(versions) <= set(request.__versions__), f"{request.__name__} has no versions {versions}"
        served = route.handler, response_class(request.__key__)
        for version in versions:
            self.by_route_id[route_id(request.__key__, version)] = served
            if route.series is not None:
                self.series[route_id(request.__key__, version)] = route.series
            if route.again is not None:
                self.again[route_id(request.__key__, version)] = route.again
            if route.shortcut is not None:
                self.shortcuts[route_id(request.__key__, version)] = route.shortcut
        self._advertised[request.__key__] = versions if route.advertised is None else route.advertised

    def handler(self, key: int, version: int) -> Handler | None:
        """Who answers this request, if anybody does."""
        served = self.by_route_id.get(route_id(key, version))
        return None if served is None else served[0]

    def unknown_api_versions(self) -> ApiVersionsResponse:
        """The answer, in version 0, to ApiVersions in a version that we do not know (KIP-511).

        It names the versions of ApiVersions only, so that the client can ask again.
        """
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[self._entry(ApiVersionsRequest.__key__)]
        )

    def _api_versions(
        self, _context: RequestContext, header: RequestHeader, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        version, features = header.request_api_version, self._features()
        if version >= 3 and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[self._entry(key) for key in sorted(self._advertised)],
            supported_features=_supported(features, version),
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in features.finalized.items()
                if level > 0  # a feature at level 0 is off, and clients expect not to see it
            ],
            finalized_features_epoch=features.finalized_epoch,
            zk_migration_ready=features.zk_migration_ready,
        )

    def _entry(self, key: int) -> ApiVersionsResponse.ApiVersion:
        versions = self._advertised[key]
        return ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=versions.start, max_version=versions.stop - 1
        )


def _supported(features: Features, version: int) -> list[ApiVersionsResponse.SupportedFeatureKey]:
    return [
        ApiVersionsResponse.SupportedFeatureKey(
            name=name, min_version=levels.start, max_version=levels.stop - 1
        )
        for name, levels in features.supported.items()
        if levels.start > 0 or version >= 4  # parsers from before version 4 refuse a minimum of 0
    ]


def route_id(key: int, version: int) -> int:
    """Key and version as they begin a request, read as one unsigned integer.

    >>> hex(route_id(18, 4)), hex(route_id(18, -1))
    ('0x120004', '0x12ffff')
    """
    return (key & 0xFFFF) << 16 | version & 0xFFFF


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
