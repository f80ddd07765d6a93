"""How long partitions are without a leader when a node goes, in both modes: `quorate bench failover`.

Three nodes on this machine, each a broker; in KRaft mode each is a controller as well, in ZooKeeper mode one
of them is elected to be it, and a private ZooKeeper runs beside them. Every partition has two replicas.
Sessions last equally long in both modes. Then, for each number of partitions, one after the other:

- *controller failover*: the node that is the controller is killed, and with it goes the broker that it is;
- *broker failure*: a node that is not the controller is killed;
- *controlled shutdown*: such a node is asked to stop.

The time counts from there until the brokers that are left lead all partitions, as they say themselves: so it
has in it that the others notice, that somebody decides, and that every broker has heard of it and done it. Of
the first, `noticed`, only the session's timeout decides: when the node's entry in ZooKeeper is gone, or when
the quorum has fenced it. The rest, `led`, is what the control plane takes; it is what the plot shows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.failover_plot import Line, draw
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.cluster import ClusterSettings
from quorate.testing.cluster import Cluster, ClusterNode
from quorate.testing.control import ClusterError, ask_admin

MODES = ("kraft", "zookeeper")
SIZES = (100, 1000)
EVENTS = ("controller failover", "broker failure", "controlled shutdown")
BROKERS = 3
PER_TOPIC = 100
TOPICS_AT_ONCE = 20
SESSION_MS = 6000  # how long a broker's lasts, if nobody says otherwise and there are few partitions
SESSION_MS_PER_PARTITION = 0.3  # three brokers share this machine, and a busy one has to be heard in time
PATIENCE_S = 600.0
POLL_S = 0.02
BUILD = Path(__file__).parent.parent / "build"
SETTINGS = {
    "zookeeper.max.in.flight.requests": "100",
    "controller.quorum.fetch.timeout.ms": "2000",
    "auto.leader.rebalance.enable": "false",  # nothing moves but what is measured
    "controlled.shutdown.retry.backoff.ms": "200",
    "num.recovery.threads.per.data.dir": "4",
    "log.index.size.max.bytes": "4096",
    "min.insync.replicas": "1",
    "quorate.log.level": "WARNING",
}


@dataclass(frozen=True)
class Measured:
    """One event: seconds until it was noticed, and from there until all was led again."""

    mode: str
    partitions: int
    event: str
    noticed_s: float
    led_s: float

    @property
    def total_s(self) -> float:
        return self.noticed_s + self.led_s

    def __str__(self) -> str:
        return (
            f"{self.mode:<10} {self.partitions:>8,}  {self.event:<20}"
            f" {self.total_s:>8.2f} s   noticed {self.noticed_s:>6.2f} s   led {self.led_s:>7.2f} s"
        )


def section() -> Iterator[str]:
    """For `make bench`: small sizes."""
    yield from run(MODES, SIZES, None)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="quorate bench failover")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--partitions", default=",".join(map(str, SIZES)))
    parser.add_argument("--plot", default=str(BUILD / "failover.svg"), help="where the picture goes")
    parser.add_argument("--session-ms", type=int, help="how long a session lasts; by size if not given")
    parser.add_argument("--data", default=str(BUILD), help="where the nodes have their files meanwhile")
    given = parser.parse_args(arguments)
    modes = [one for one in given.modes.split(",") if one]
    if not modes or not set(modes) <= set(MODES):
        parser.error(f"--modes {given.modes}: allowed are {', '.join(MODES)}")
    sizes = [int(one) for one in given.partitions.split(",") if one.isdigit() and int(one) > 0]
    if not sizes:
        parser.error(f"--partitions {given.partitions}: allowed are numbers from 1 on")
    for line in run(modes, sizes, Path(given.plot), Path(given.data), given.session_ms):
        print(line, flush=True)


def run(
    modes: Sequence[str],
    sizes: Sequence[int],
    plot: Path | None,
    data: Path = BUILD,
    session_ms: int | None = None,
) -> Iterator[str]:
    """Lines for whoever waits, then the table, and a picture if somebody wants one."""
    found: list[Measured] = []
    for size in sizes:
        for mode in modes:
            for one in measure(mode, size, data, session_ms or _session_ms(size)):
                found.append(one)
                yield str(one)
    yield ""
    yield from table(found, modes, sizes)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.write_text(picture(found, modes), encoding="utf-8")
        yield f"\nthe picture is {plot}"


def _session_ms(size: int) -> int:
    return max(SESSION_MS, round(size * SESSION_MS_PER_PARTITION))


def measure(mode: str, size: int, where: Path, session_ms: int) -> Iterator[Measured]:
    """All events, on a cluster of its own."""
    where.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="bench-failover-", dir=where))
    try:
        with Cluster(
            brokers=BROKERS,
            data=data,
            mode="zookeeper" if mode == "zookeeper" else "processes",
            settings=SETTINGS
            | {
                name: str(session_ms)
                for name in ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")
            },
            timeout=PATIENCE_S,
        ) as cluster:
            asyncio.run(_create(cluster, size))
            _settle(cluster, size)
            for number, event in enumerate(EVENTS):
                if number > 0:
                    cluster.repair()
                    _settle(cluster, size)
                yield _event(cluster, mode, size, event)
    finally:
        shutil.rmtree(data, ignore_errors=True)


# What is done, and what is seen


def _event(cluster: Cluster, mode: str, size: int, event: str) -> Measured:
    controller = cluster.wait_until(lambda: _controller(cluster))
    assert controller is not None
    victim = controller
    if event != "controller failover":
        victim = next(one.id for one in cluster.nodes if one.id != controller)
    left = [one for one in cluster.nodes if one.id != victim]
    is_gone = _watch_zookeeper(cluster, victim) if mode == "zookeeper" else _watch_quorum(left, victim)
    with is_gone as gone:
        started = time.monotonic()
        if event == "controlled shutdown":
            threading.Thread(target=cluster.stop, args=(victim,), daemon=True).start()
        else:
            cluster.kill(victim)
        _wait(lambda: _led(left) == size, f"{size} partitions to be led")
        done = time.monotonic()
        if event == "controlled shutdown":
            noticed = started  # it says so itself
            cluster.wait_until(lambda: cluster.node(victim).state == "stopped", what="it to stop")
        else:
            noticed = min(done, gone() or done)
    return Measured(mode, size, event, noticed - started, done - noticed)


def _led(nodes: Iterable[ClusterNode]) -> int:
    """How many partitions these brokers lead, as they say themselves."""
    return sum(_ask(one, "/v1/broker").get("partitions", {}).get("led", 0) for one in nodes)


def _controller(cluster: Cluster) -> int | None:
    for one in cluster.nodes:
        if one.admin is not None and _ask(one, "/v1/controller").get("is_active"):
            return one.id
    return None


@contextlib.contextmanager
def _watch_quorum(nodes: Sequence[ClusterNode], victim: int) -> Iterator[Callable[[], float | None]]:
    """When the first controller says that a broker is fenced."""

    def is_gone() -> bool:
        brokers = [one for node in nodes for one in _ask(node, "/v1/brokers").get("brokers", [])]
        return any(one["id"] == victim and one["state"] == "fenced" for one in brokers)

    with _noticing(is_gone) as gone:
        yield gone


@contextlib.contextmanager
def _watch_zookeeper(cluster: Cluster, victim: int) -> Iterator[Callable[[], float | None]]:
    """When the node of a broker is gone from ZooKeeper."""
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

    client = KazooClient(hosts=cluster.zookeeper)
    client.start()
    try:
        with _noticing(lambda: client.exists(f"/brokers/ids/{victim}") is None) as gone:
            yield gone
    finally:
        client.stop()
        client.close()


@contextlib.contextmanager
def _noticing(condition: Callable[[], bool]) -> Iterator[Callable[[], float | None]]:
    """Looks beside what else goes on; yields what tells when it came true."""
    found: list[float] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(POLL_S):
            began = time.monotonic()
            if condition():
                found.append(began)
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: found[0] if found else None
    finally:
        is_over.set()
        thread.join()


def _ask(node: ClusterNode, path: str) -> dict[str, Any]:
    if node.admin is None:
        return {}
    try:
        return ask_admin(node.admin, path, timeout_s=30)
    except ClusterError:
        return {}


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(POLL_S)


# What there is


async def _create(cluster: Cluster, size: int) -> None:
    """Topics of at most so many partitions, two replicas each, evenly spread."""
    ids = [one.id for one in cluster.nodes]
    topics = [
        NewTopic(
            f"t{number}",
            assignments={
                index: [ids[(index + number) % len(ids)], ids[(index + number + 1) % len(ids)]]
                for index in range(count)
            },
        )
        for number, count in enumerate(_counts(size))
    ]
    async with _client(cluster) as client:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            await Admin(client).create_topics(*topics[first : first + TOPICS_AT_ONCE])


def _counts(size: int) -> list[int]:
    """How many partitions each topic has."""
    return [min(PER_TOPIC, size - first) for first in range(0, size, PER_TOPIC)]


def _settle(cluster: Cluster, size: int) -> None:
    """Everything is in sync, and led by whoever should."""

    def is_whole() -> bool:
        found = [answer for one in cluster.nodes if (answer := _ask(one, "/v1/partitions"))]
        return bool(found) and all(
            one.get("total") == size and not one["leaderless"] and not one["under_replicated"]
            for one in found
        )

    _wait(is_whole, "all replicas to be in sync")
    asyncio.run(_elect(cluster, size))
    _wait(lambda: _is_balanced(cluster, size), "leaders to be where they should")


async def _elect(cluster: Cluster, size: int) -> None:
    """Some topics at a time: a controller does not change everything at once."""
    topics = list(enumerate(_counts(size)))
    async with _client(cluster) as client:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[first : first + TOPICS_AT_ONCE]
            await Admin(client).elect_leaders(
                (f"t{number}", index) for number, count in some for index in range(count)
            )


def _is_balanced(cluster: Cluster, size: int) -> bool:
    led = [_ask(one, "/v1/broker").get("partitions", {}).get("led", 0) for one in cluster.nodes]
    return bool(sum(led) == size and max(led) - min(led) <= len(range(0, size, PER_TOPIC)) + 2)


def _client(cluster: Cluster) -> Client:
    patience_ms = PATIENCE_S * 1000
    settings = ClusterSettings(request_timeout_ms=patience_ms, deadline_ms=patience_ms)
    return Client(cluster.bootstrap_servers, settings=settings)


# What is shown


def table(found: Sequence[Measured], modes: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
    """As Markdown: per event and size the total of each mode, what of it came after it was noticed, and how
    many times as long the second mode took for that."""
    cells = {(one.mode, one.partitions, one.event): one for one in found}
    heads = [f"{mode}: total (after it was noticed)" for mode in modes]
    is_pair = len(modes) > 1
    yield f"| event | partitions | {' | '.join(heads)} |{' ratio |' if is_pair else ''}"
    yield f"|---|---:|{'---:|' * (len(modes) + is_pair)}"
    for event in EVENTS:
        for size in sizes:
            some = [cells[mode, size, event] for mode in modes]
            said = [f"{one.total_s:.2f} s ({one.led_s:.2f} s)" for one in some]
            yield f"| {event} | {size:,} | {' | '.join(said)} |{_ratio(some) if is_pair else ''}"


def _ratio(some: Sequence[Measured]) -> str:
    """Between the last and the first; what is shorter than one look could be anything below that."""
    first, last = some[0].led_s, some[-1].led_s
    if max(first, last) < POLL_S:
        return " - |"
    return f" {'>= ' if first < POLL_S else ''}{last / max(first, POLL_S):.1f} |"


def picture(found: Sequence[Measured], modes: Sequence[str]) -> str:
    lines = [
        Line(
            f"{mode}, {event}",
            mode,
            event,
            [(one.partitions, one.led_s) for one in found if (one.mode, one.event) == (mode, event)],
        )
        for mode in modes
        for event in EVENTS
    ]
    return draw(lines, "partitions", "seconds from noticing to the last new leader")
