"""The admin endpoint of a node: questions about the cluster over HTTP, answered as JSON.

| path                         | says                                               | answered by           |
|------------------------------|----------------------------------------------------|-----------------------|
| `/v1/controller`             | who is active, and how far everyone is             | every controller      |
| `/v1/brokers`                | all brokers                                        | every controller      |
| `/v1/brokers/{id}`           | one broker                                         | every controller      |
| `/v1/brokers/{id}/why`       | what keeps it fenced                               | the active controller |
| `/v1/partitions`             | how many there are, and how many lack something    | every controller      |
| `/v1/preflight/stop?ids=1,2` | what would happen if these nodes were stopped      | the active controller |
| `/v1/broker`                 | its state, its epoch, its replicas                 | every broker          |
| `/v1/events?from=N&limit=M`  | what this node had to say; without `from` the last | every node            |
| `/v1/loggers`                | the levels of loggers                              | every node            |
| `/metrics`                   | metrics, in Prometheus' text format                | every node            |
| `/healthz`                   | that the node lives                                | every node            |

One thing can be changed, from the same machine: `POST /v1/loggers/{name}?level=DEBUG` (see `logs`).

Who asks a standby what only the active controller knows gets 421 and is told whom to ask. A standby knows no
heartbeats: where it could say something of them it says null.

The address stands in the file `admin-address` of the metadata directory, for commands on the same machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.controller.explain import why_fenced
from quorate.controller.preflight import PartitionsFound, StopReport, preflight_stop
from quorate.metadata.brokers import BrokerRegistration, SecurityProtocol
from quorate.metadata.image import ClusterImage
from quorate.net.http import HttpError, HttpHandler, HttpLimits, HttpResponse, HttpServer
from quorate.node.admin_view import ActiveState, AdminView, BrokerView
from quorate.node.event_journal import EventJournal
from quorate.node.host import Host
from quorate.node.logs import LEVELS, UnknownLoggerError, levels, set_level
from quorate.node.metrics import NodeMetrics, count_partitions
from quorate.storage.errors import StorageError
from quorate.storage.whole_files import store_whole

__all__ = [
    "ADDRESS_FILE",
    "AdminEndpoint",
    "AdminRoutes",
    "BrokerAdminRoutes",
    "JoinedRoutes",
    "ReadyRoutes",
    "Routes",
    "replicas_by_broker",
]

ADDRESS_FILE: Final = "admin-address"
EVENTS_MAX: Final = 1000  # in one answer
_EVENTS_DEFAULT: Final = 100
_IDS_MAX: Final = 1000
_SMALL_ID_MAX: Final = 1 << 20  # up to here, counting by index is cheaper than by sorting
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")

_Params = Mapping[str, str]


class Routes(Protocol):
    """What an endpoint answers, by pattern: see `HttpServer`."""

    def table(self) -> dict[str, HttpHandler]: ...


class AdminEndpoint:
    """The endpoint of one node, listening."""

    def __init__(
        self,
        host: Host,
        metadata_directory: str,
        routes: Routes,
        limits: HttpLimits | None = None,
        names: Collection[str] = (),
    ) -> None:
        """`names` are what it answers to besides addresses and `localhost`."""
        self._host = host
        self._path = f"{metadata_directory}/{ADDRESS_FILE}"
        self._logger = logging.getLogger(f"quorate.admin.{host.name}")
        self._server = HttpServer(routes.table(), limits=limits, logger=self._logger, names=names)
        self._wrote_address = False

    async def start(self, listen_host: str, port: int) -> str:
        """Listens, and writes down where; returns the address. Port 0 means any that is free."""
        await self._server.start(listen_host or None, port)
        reachable = "127.0.0.1" if listen_host in _EVERY_ADDRESS else listen_host
        name = f"[{reachable}]" if ":" in reachable else reachable
        address = f"http://{name}:{self._server.port}"
        try:
            await store_whole(self._host.files, self._path, f"{address}\n".encode())
            self._wrote_address = True
        except StorageError as error:
            self._logger.warning("admin address not written reason=%s", error)
        self._logger.info("admin endpoint listening address=%s", address)
        return address

    async def close(self, *, timeout_ms: int = 1000) -> None:
        if self._wrote_address:
            self._wrote_address = False
            try:
                self._host.files.unlink(self._path)
            except OSError as error:
                self._logger.warning("admin address not removed reason=%s", error)
        await self._server.close(timeout_ms=timeout_ms)


class JoinedRoutes:
    """The answers of several roles; where they differ, those of the last."""

    def __init__(self, *routes: Routes) -> None:
        self._routes = routes

    def table(self) -> dict[str, HttpHandler]:
        return {pattern: handler for one in self._routes for pattern, handler in one.table().items()}


class ReadyRoutes:
    """Whether a node can be used. `why_not` says what it waits for, as long as it does."""

    def __init__(self, node_id: int, why_not: Callable[[], str | None]) -> None:
        self._node_id = node_id
        self._why_not = why_not

    def table(self) -> dict[str, HttpHandler]:
        return {"/readyz": self._ready}

    async def _ready(self, _params: _Params, _query: _Params) -> HttpResponse:
        reason = self._why_not()
        found = {"status": "ready" if reason is None else "not ready", "node_id": self._node_id}
        if reason is None:
            return HttpResponse.json(found)
        return HttpResponse.json({**found, "reason": reason}, status=503)


class NodeRoutes:
    """What every node answers. The view is that of a controller, if it is one."""

    def __init__(
        self, node_id: int, metrics: NodeMetrics, journal: EventJournal, view: AdminView | None = None
    ) -> None:
        self._node_id = node_id
        self._metrics = metrics
        self._journal = journal
        self._view = view

    def table(self) -> dict[str, HttpHandler]:
        return {
            "/v1/events": self._events,
            "/v1/loggers": self._loggers,
            "POST /v1/loggers/{name}": self._set_logger,
            "/metrics": self._scrape,
            "/healthz": self._health,
        }

    async def _events(self, _params: _Params, query: _Params) -> HttpResponse:
        limit = _number("limit", query.get("limit", str(_EVENTS_DEFAULT)), 1, EVENTS_MAX)
        self._journal.flush()
        newest = max(0, self._journal.next_sequence - limit)
        sequence = _number("from", query.get("from", str(newest)), 0, 2**63 - 1)
        found = list(islice(self._journal.read(sequence), limit))
        following = found[-1]["sequence"] + 1 if found else sequence
        return HttpResponse.json({"events": found, "next": following, "dropped": self._journal.dropped})

    async def _loggers(self, _params: _Params, _query: _Params) -> HttpResponse:
        return HttpResponse.json({"loggers": levels()})

    async def _set_logger(self, params: _Params, query: _Params) -> HttpResponse:
        name, level = params["name"], query.get("level", "")
        try:
            set_level(name, level)
        except UnknownLoggerError as error:
            raise HttpError(404, str(error)) from None
        except ValueError:
            raise HttpError(400, f"level={level[:100]}: allowed is {', '.join(LEVELS)}") from None
        return HttpResponse.json({"name": name, **levels()[name]})

    async def _scrape(self, _params: _Params, _query: _Params) -> HttpResponse:
        body, content_type = self._metrics.scrape(self._view)
        return HttpResponse(200, body, content_type)

    async def _health(self, _params: _Params, _query: _Params) -> HttpResponse:
        found: dict[str, Any] = {"status": "ok", "node_id": self._node_id}
        if self._view is not None:
            found["is_active"] = self._view.active is not None
        return HttpResponse.json(found)


class BrokerAdminRoutes:
    """What a broker answers."""

    def __init__(self, node_id: int, view: BrokerView, metrics: NodeMetrics, journal: EventJournal) -> None:
        self._view = view
        self._every = NodeRoutes(node_id, metrics, journal)

    def table(self) -> dict[str, HttpHandler]:
        return {"/v1/broker": self._broker, **self._every.table()}

    async def _broker(self, _params: _Params, _query: _Params) -> HttpResponse:
        status, replicas = self._view.status(), self._view.replica_counts()
        return HttpResponse.json(
            {
                "id": status.broker_id,
                "state": status.state,
                "epoch": status.epoch,
                "is_fenced": status.is_fenced,
                "incarnation_id": str(status.incarnation_id),
                "metadata_offset": status.metadata_offset,
                "metadata_lag": status.metadata_lag,
                "metadata_lag_ms": status.metadata_lag_ms,
                "partitions": {
                    "led": replicas.led,
                    "followed": replicas.partitions - replicas.led,
                    "offline": replicas.offline,
                    "under_replicated": replicas.under_replicated,
                    "under_min_isr": replicas.under_min_isr,
                    "at_min_isr": replicas.at_min_isr,
                },
                "memory": {
                    "used_bytes": self._view.budget.used_bytes,
                    "peak_bytes": self._view.budget.peak_bytes,
                    "limit_bytes": self._view.budget.limit_bytes,
                    "connections_waiting": self._view.budget.waiting,
                },
                "listeners": [
                    {"name": one.listener, "port": one.port, "connections": one.connections}
                    for one in self._view.listeners()
                ],
            }
        )


class AdminRoutes:
    """What a controller answers."""

    def __init__(self, view: AdminView, metrics: NodeMetrics, journal: EventJournal) -> None:
        self._view = view
        self._every = NodeRoutes(view.node_id, metrics, journal, view)

    def table(self) -> dict[str, HttpHandler]:
        return {
            "/v1/controller": self._controller,
            "/v1/brokers": self._brokers,
            "/v1/brokers/{id}": self._broker,
            "/v1/brokers/{id}/why": self._why,
            "/v1/partitions": self._partitions,
            "/v1/preflight/stop": self._preflight_stop,
            **self._every.table(),
        }

    async def _controller(self, _params: _Params, _query: _Params) -> HttpResponse:
        view, quorum = self._view, self._view.quorum()
        active = view.active
        return HttpResponse.json(
            {
                "node_id": view.node_id,
                "is_active": active is not None,
                "controller_id": quorum.leader_id if quorum.leader_id >= 0 else None,
                "epoch": quorum.epoch,
                "high_watermark": quorum.high_watermark,
                "log_end_offset": quorum.log_end_offset,
                "applied_offset": view.applied_offset,
                "lag_ms": 0 if active else max(0, view.wall_ms() - view.applied_timestamp_ms),
                "voters": [
                    {
                        "id": voter.id,
                        "log_end_offset": voter.log_end_offset,
                        "lag": voter.lag,
                        "ms_since_fetch": voter.ms_since_fetch,
                        "is_caught_up": voter.is_caught_up,
                    }
                    for voter in quorum.voters
                ],
            }
        )

    async def _brokers(self, _params: _Params, _query: _Params) -> HttpResponse:
        image = self._view.image
        replicas = _BrokerReplicas(image)
        brokers = [self._described(image.brokers[one], replicas) for one in sorted(image.brokers)]
        return HttpResponse.json({**self._source(), "brokers": brokers})

    async def _broker(self, params: _Params, _query: _Params) -> HttpResponse:
        image = self._view.image
        broker = image.brokers.get(_id(params["id"]))
        if broker is None:
            raise HttpError(404, f"broker {_id(params['id'])} is not registered")
        more = {
            "features": {name: list(levels) for name, levels in sorted(broker.features.items())},
            "directories": [str(one) for one in broker.directories],
            "cordoned_directories": [str(one) for one in broker.cordoned],
        }
        described = self._described(broker, _BrokerReplicas(image))
        return HttpResponse.json({**self._source(), "broker": described | more})

    async def _why(self, params: _Params, _query: _Params) -> HttpResponse:
        broker_id, active = _id(params["id"]), self._active()
        view = self._view
        standing = why_fenced(active.image, active.sessions, view.settings, broker_id, view.now_ms())
        if broker_id not in active.image.brokers:
            raise HttpError(404, standing.explanation)
        return HttpResponse.json(standing.to_json())

    async def _partitions(self, _params: _Params, _query: _Params) -> HttpResponse:
        return HttpResponse.json({**self._source(), **partition_totals(self._view.image)})

    async def _preflight_stop(self, _params: _Params, query: _Params) -> HttpResponse:
        texts = [text for text in query.get("ids", "").split(",") if text]
        if not texts or len(texts) > _IDS_MAX:
            raise HttpError(400, f"ids: allowed are 1 to {_IDS_MAX} ids, as in ids=1,2")
        ids = [_id(text) for text in texts]
        active, voters = self._active(), self._view.quorum().voters
        report = preflight_stop(
            active.image,
            self._view.settings,
            ids,
            voters=[one.id for one in voters],
            caught_up=[one.id for one in voters if one.is_caught_up],
        )
        return HttpResponse.json(_report(report))

    def _active(self) -> ActiveState:
        active = self._view.active
        if active is None:
            leader_id = self._view.quorum().leader_id
            is_known = leader_id >= 0 and leader_id != self._view.node_id
            raise HttpError(
                421,
                "not the active controller",
                controller_id=leader_id if is_known else None,
                controller_admin=self._view.admin_address_of(leader_id) if is_known else None,
            )
        return active

    def _source(self) -> dict[str, Any]:
        """Whose view it is, and of when."""
        view = self._view
        return {
            "node_id": view.node_id,
            "is_active": view.active is not None,
            "applied_offset": view.applied_offset,
        }

    def _described(self, broker: BrokerRegistration, replicas: _BrokerReplicas) -> dict[str, Any]:
        active = self._view.active
        session = None if active is None else active.sessions.of(broker.id)
        if session is not None and session.epoch != broker.epoch:
            session = None
        return {
            "id": broker.id,
            "state": _state(broker),
            "epoch": broker.epoch,
            "incarnation_id": str(broker.incarnation_id),
            "rack": broker.rack,
            "listeners": [
                {
                    "name": one.name,
                    "host": one.host,
                    "port": one.port,
                    "security_protocol": SecurityProtocol.NAMES.get(one.security_protocol),
                }
                for one in broker.listeners
            ],
            "registration_offset": broker.registration_offset,
            "metadata_offset": None if session is None else session.metadata_offset,
            "ms_since_heartbeat": (
                None if session is None else session.ms_since_contact(self._view.now_ms())
            ),
            "leaders": replicas.leaders.get(broker.id, 0),
            "replicas": replicas.replicas.get(broker.id, 0),
        }


def partition_totals(image: ClusterImage) -> dict[str, int]:
    """How many partitions there are, how many have no leader, and how many too few in sync."""
    under_replicated = 0
    for block in image.partitions.blocks.values():
        replicas = (block.replicas[: block.end] >= 0).sum(axis=1)
        under_replicated += int((np.bitwise_count(block.isr[: block.end]) < replicas).sum())
    counts = count_partitions(image)
    return {
        "total": counts.partitions,
        "leaderless": counts.offline,
        "under_replicated": under_replicated,
    }


def replicas_by_broker(image: ClusterImage) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """How many partitions each broker leads, and how many replicas it has."""
    found = _BrokerReplicas(image)
    return found.leaders, found.replicas


class _BrokerReplicas:
    """How many partitions each broker leads, and how many replicas it has, in one scan."""

    def __init__(self, image: ClusterImage) -> None:
        self.leaders: dict[int, int] = {}
        self.replicas: dict[int, int] = {}
        for block in image.partitions.blocks.values():
            _count(block.leader[: block.end], self.leaders)
            _count(block.replicas[: block.end], self.replicas)


def _count(column: NDArray[np.int32], counts: dict[int, int]) -> None:
    """Adds how often each id stands in a column; what is negative is not one."""
    ids = column[column >= 0]
    if not len(ids):
        return
    if ids.max() < _SMALL_ID_MAX:
        found = np.bincount(ids)
        values = np.flatnonzero(found)
        found = found[values]
    else:
        values, found = np.unique(ids, return_counts=True)
    for value, count in zip(values.tolist(), found.tolist(), strict=True):
        counts[value] = counts.get(value, 0) + count


def _state(broker: BrokerRegistration) -> str:
    if broker.is_fenced:
        return "fenced"
    return "shutting down" if broker.is_shutting_down else "active"


def _report(report: StopReport) -> dict[str, Any]:
    def partitions(found: PartitionsFound) -> dict[str, Any]:
        return {"count": found.count, "examples": list(found.examples)}

    nodes = report.nodes
    return {
        "verdict": report.verdict.value,
        "reasons": list(report.reasons),
        "brokers": list(nodes.brokers),
        "voters": list(nodes.voters),
        "unknown": list(nodes.unknown),
        "already_fenced": list(nodes.already_fenced),
        "quorum_lost": report.quorum_lost,
        "voters_left": report.voters_left,
        "voters_needed": report.voters_needed,
        "below_min_isr": partitions(report.below_min_isr),
        "leaderless": partitions(report.leaderless),
        "already_offline": partitions(report.already_offline),
    }


def _id(text: str) -> int:
    return _number("id", text, 0, 2**31 - 1)


def _number(name: str, text: str, lowest: int, highest: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= 19
    if not is_number or not lowest <= int(text) <= highest:
        raise HttpError(400, f"{name}={text[:100]}: allowed is a number from {lowest} to {highest}")
    return int(text)
