"""What `quorate up` shows: how a cluster is, found out from its launcher and its controllers."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from quorate.testing.control import ClusterError, Launched, State, ask_admin

__all__ = ["NodeLine", "Status", "Watch", "plain_lines", "rendered"]

EVENTS_SHOWN: Final = 6
EVENTS_ASKED: Final = 50
_ASK_S: Final = 0.5
_COLOURS: Final = {
    "leader": "green",
    "active": "green",
    "dead": "red",
    "fenced": "yellow",
    "paused": "yellow",
}


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node in one of its roles: `epoch` is that of the quorum, or of the broker."""

    id: int
    state: str
    epoch: int | None
    port: int
    leads: int | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    is_ready: bool
    controllers: tuple[NodeLine, ...]
    brokers: tuple[NodeLine, ...]
    partitions: dict[str, int] | None  # total, leaderless, under_replicated; None if nobody can say


class Watch:
    """Looks at a cluster again and again. `happened` has what is new since it was read last."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._states: dict[int, str] = {}
        self._unwritten: str | None = None
        self._next_events: dict[int, int] = {}
        self._since_ms = int(time.time() * 1000)
        self.happened: deque[str] = deque(maxlen=200)

    def look(self) -> Status:
        state = self._launched.state()
        nodes = {one["id"]: one for one in state["nodes"]}
        views = {one: view for one, node in nodes.items() if (view := _ask(node, "/v1/controller"))}
        leader_id = _leader(views)
        source = nodes.get(leader_id) if leader_id is not None else None
        registered = {one["id"]: one for one in _ask(source, "/v1/brokers").get("brokers", [])}
        if source is not None:
            self._note_events(source)
        self._note_changes(state)  # last, so that all that a controller has to tell does not push it out
        elected = [] if state["mode"] == "kraft" or source is None else [source]
        return Status(
            is_ready=state["ready"],
            controllers=tuple(
                _controller(one, views.get(one["id"]), leader_id)
                for one in nodes.values()
                if "controller" in one["roles"] or one in elected
            ),
            brokers=tuple(
                _broker(one, registered.get(one["id"])) for one in nodes.values() if "broker" in one["roles"]
            ),
            partitions=_ask(source, "/v1/partitions") or None,
        )

    def read_news(self) -> Iterator[str]:
        while self.happened:
            yield self.happened.popleft()

    def _note_changes(self, state: State) -> None:
        before, self._unwritten = self._unwritten, state["unwritten"]
        if before != self._unwritten:
            self._happened(self._unwritten or "cluster.json is written again")
        for one in state["nodes"]:
            now, node_id = _process(one), one["id"]
            before = self._states.get(node_id)
            if now != before:
                self._states[node_id] = now
                if before is not None or now == "dead":
                    self._happened(f"node {node_id} is {now}{self._way_out(one, now)}")

    def _way_out(self, node: dict[str, Any], now: str) -> str:
        if now != "dead":
            return ""
        order = f"quorate lab restart {node['id']} --data {self._launched.directory}"
        return f" (status {node['exit_status']}, log {node['log']}): {order} brings it back"

    def _note_events(self, node: dict[str, Any]) -> None:
        """What the active controller has noted."""
        following = self._next_events.get(node["id"])
        place = f"from={following}&" if following is not None else ""
        found = _ask(node, f"/v1/events?{place}limit={EVENTS_ASKED}")
        self._next_events[node["id"]] = found.get("next", following or 0)
        if found.get("events"):
            from quorate.cli.event_lines import event_line  # knows of all kinds, which takes time to load

            for event in found["events"]:
                line = event_line(event)
                if line is not None and event.get("time_ms", 0) >= self._since_ms:
                    self._happened(line)

    def _happened(self, line: str) -> None:
        self.happened.append(f"{time.strftime('%H:%M:%S')}  {line}")


def rendered(status: Status, heading: list[tuple[str, str]], events: list[str]) -> RenderableType:
    """The picture: as wide as the terminal is, and no line longer."""
    head = Table.grid(padding=(0, 2))
    for name, value in heading:
        head.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
    counts = status.partitions
    if counts is None:
        partitions = Text("no controller leads", style="yellow")
    else:
        partitions = Text(f"{counts['total']} partitions, ")
        for name in ("leaderless", "under_replicated"):
            style = "red" if counts[name] else ""
            partitions.append(f"{counts[name]} {name.replace('_', '-')}", style=style)
            partitions.append(", " if name == "leaderless" else "")
    lines = [Text(one, overflow="ellipsis", no_wrap=True) for one in events[-EVENTS_SHOWN:]]
    return Group(
        head,
        Text(),
        _table("CONTROLLER", status.controllers, is_broker=False),
        Text(),
        _table("BROKER", status.brokers, is_broker=True),
        Text(),
        partitions,
        Text(),
        *lines,
        Text("Ctrl-C stops it", style="dim"),
    )


def plain_lines(status: Status, console: Console) -> None:
    """The same without a picture, for whoever is not a terminal."""
    for name, some in (("controller", status.controllers), ("broker", status.brokers)):
        for one in some:
            epoch = "" if one.epoch is None else f", epoch {one.epoch}"
            console.print(f"{name} {one.id}: {one.state}{epoch}, port {one.port}", soft_wrap=True)


def _table(name: str, lines: tuple[NodeLine, ...], *, is_broker: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    more = ("LEADS", "REPLICAS") if is_broker else ()
    for column in (name, "STATE", "EPOCH", "PORT", *more):
        table.add_column(column, justify="left" if column in (name, "STATE") else "right", no_wrap=True)
    for one in lines:
        cells = [Text(str(one.id)), Text(one.state, style=_COLOURS.get(one.state.partition(",")[0], ""))]
        numbers = [one.epoch, one.port, *((one.leads, one.replicas) if is_broker else ())]
        table.add_row(*cells, *(Text("-" if number is None else str(number)) for number in numbers))
    return table


def _ask(node: dict[str, Any] | None, path: str) -> dict[str, Any]:
    """What a node says; nothing if it cannot be asked."""
    if node is not None and node["admin"] is not None and node["state"] == "running":
        with contextlib.suppress(ClusterError):
            return ask_admin(node["admin"], path, timeout_s=_ASK_S)
    return {}


def _leader(views: dict[int, dict[str, Any]]) -> int | None:
    """The active controller, if one of them is."""
    return next((one for one, view in views.items() if view.get("is_active")), None)


def _process(node: dict[str, Any]) -> str:
    if node["state"] == "running":
        return "ready" if node["ready"] else "starting"
    return str(node["state"])


def _controller(node: dict[str, Any], view: dict[str, Any] | None, leader_id: int | None) -> NodeLine:
    state = _process(node)
    if state == "ready":
        state = "leader" if node["id"] == leader_id else "follower"
    address = node["listeners"].get("CONTROLLER") or next(iter(node["listeners"].values()))
    port = int(address.rpartition(":")[2])
    return NodeLine(node["id"], state, view["epoch"] if view else None, port)


def _broker(node: dict[str, Any], found: dict[str, Any] | None) -> NodeLine:
    """The state of its process comes first, if it is not simply running."""
    process, state = _process(node), found["state"] if found else None
    shown = process if state is None else state if process == "ready" else f"{process}, {state}"
    if found is None:
        return NodeLine(node["id"], shown, None, node["port"])
    return NodeLine(node["id"], shown, found["epoch"], node["port"], found["leaders"], found["replicas"])
