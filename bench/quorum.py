"""The quorum: what a commit costs beside the sync that it cannot do without, and how long a failover takes.

For commits, three production controllers run in this process, on real sockets and real files: appending from
outside needs requests that are still to come. So their work shares one core, which three machines would not.
For failovers there are three processes, of which the leader is killed; what the others log says when.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from bench.timing import Row
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import TopicRecord
from quorate.node.config import NodeConfig, parse_config
from quorate.node.format import format_storage, random_cluster_id
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.types import Buffer, Uuid
from quorate.raft.state import Leader

HOST = "127.0.0.1"
NODES = (1, 2, 3)
ELECTION_TIMEOUT_MS, FETCH_TIMEOUT_MS = 200, 400  # in the proportion of the defaults
COMMITS = 200  # one after the other
WINDOW = 32  # batches under way when it is about throughput
ROUNDS, ROUND_SECONDS = 3, 0.4
FAILOVERS = 5
PATIENCE_SECONDS = 60
BUILD = Path(__file__).parent.parent / "build"  # on a disk, where a temporary directory may not be

T = TypeVar("T")


def section() -> list[Row]:
    logging.getLogger("quorate").setLevel(logging.ERROR)
    BUILD.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="bench-quorum-", dir=BUILD))
    try:
        return asyncio.run(_commits(root / "commits")) + _failover(root / "failover")
    finally:
        shutil.rmtree(root)


async def _commits(root: Path) -> list[Row]:
    nodes = [_Node(one, config) for one, config in (await _formatted(root)).items()]
    try:
        while not any(node.leads for node in nodes):
            for node in nodes:
                if node.task.done():
                    node.task.result()
            await asyncio.sleep(0.01)
        leader = next(node for node in nodes if node.leads)
        return [await _latency(leader, nodes, root), *await _throughput(leader)]
    finally:
        for node in nodes:
            await node.stop()


async def _latency(leader: _Node, nodes: Sequence[_Node], root: Path) -> Row:
    value = _values(1)
    batch_bytes = await leader.batch_bytes(value)
    commits, syncs = [], []
    with (root / "plain").open("wb", buffering=0) as plain:
        for _ in range(COMMITS):  # in turns, so that both meet the same disk
            started = time.perf_counter()
            await leader.commit(value)
            commits.append(time.perf_counter() - started)
            while not all(node.is_synced_to(leader.end_offset) for node in nodes):
                await asyncio.sleep(0.001)  # the slowest voter's sync must not delay the plain one
            started = time.perf_counter()
            plain.write(bytes(batch_bytes))
            os.fdatasync(plain.fileno())
            syncs.append(time.perf_counter() - started)
    commit, sync = statistics.median(commits), statistics.median(syncs)
    note = f"median {commit * 1000:.2f} ms; p95 {sorted(commits)[COMMITS * 95 // 100] * 1000:.2f} ms"
    return Row("commit of one record, 3 voters: time / write and fdatasync of it", commit / sync, note=note)


async def _throughput(leader: _Node) -> list[Row]:
    best = dict.fromkeys((1, 10, 100), 0.0)
    for _ in range(ROUNDS):
        for size in best:
            best[size] = max(best[size], await _records_per_second(leader, size))
    rows = [Row("committed records per second, 1 in a batch: / itself", 1, note=f"{best[1]:,.0f}/s")]
    for size in (10, 100):
        what = f"committed records per second, {size} in a batch: / 1 in a batch"
        rows.append(Row(what, best[size] / best[1], note=f"{best[size]:,.0f}/s"))
    return rows


async def _records_per_second(leader: _Node, size: int) -> float:
    values = _values(size)
    deadline = time.perf_counter() + ROUND_SECONDS

    async def one_after_the_other() -> int:
        count = 0
        while time.perf_counter() < deadline:
            await leader.commit(values)
            count += size
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*(one_after_the_other() for _ in range(WINDOW)))
    return sum(counts) / (time.perf_counter() - started)


def _failover(root: Path) -> list[Row]:
    totals, works = [], []
    with _Processes(root) as processes:
        for _ in range(FAILOVERS):
            leader = processes.leader()
            killed_ms = processes.kill(leader)
            noticed_ms, elected_ms = processes.successor(killed_ms)
            totals.append((elected_ms - killed_ms) / ELECTION_TIMEOUT_MS)
            works.append((elected_ms - noticed_ms) / ELECTION_TIMEOUT_MS)
            processes.start(leader)
            processes.wait_for(leader, "role=Follower")
    worst = f"longest of {FAILOVERS}: "
    detection = f"a silent leader is given {FETCH_TIMEOUT_MS / ELECTION_TIMEOUT_MS:g} of them"
    return [
        Row(
            "kill -9 of the leader until another has committed: time / election timeout",
            statistics.median(totals),
            note=f"{worst}{max(totals):.2f}; {detection}",
        ),
        Row(
            "  of that, after somebody has noticed: time / election timeout",
            statistics.median(works),
            note=f"{worst}{max(works):.2f}; {statistics.median(works) * ELECTION_TIMEOUT_MS:.0f} ms",
        ),
    ]


def _values(count: int) -> list[bytes]:
    return [
        encode_record(TopicRecord(name=f"orders-{index:08}", topic_id=Uuid(bytes(15) + b"\1")), 0)
        for index in range(count)
    ]


class _Node:
    """One controller, and who waits for its commits."""

    def __init__(self, node_id: int, config: NodeConfig) -> None:
        self.node_id = node_id
        self._executor = ThreadPoolExecutor(2)
        self.controller = Node(real_host(str(node_id), self._executor), config)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        state = self.controller.state
        apply = state.apply

        def apply_and_tell(batch: Buffer) -> None:
            apply(batch)
            end = state.position.offset
            while self._waiting and self._waiting[0][0] < end:
                self._waiting.pop(0)[1].set_result(None)

        state.apply = apply_and_tell  # type: ignore[method-assign]
        self.task = asyncio.ensure_future(self.controller.run())

    @property
    def role(self) -> object:
        replica = self.controller.replica
        return None if replica is None else replica.quorum.role

    @property
    def leads(self) -> bool:
        return self.controller.state.leadership.leader_id == self.node_id and isinstance(self.role, Leader)

    @property
    def end_offset(self) -> int:
        return self.controller.state.position.offset

    def is_synced_to(self, offset: int) -> bool:
        replica = self.controller.replica
        return replica is not None and replica.log.log.flushed_offset >= offset

    async def commit(self, values: list[bytes]) -> None:
        """Appends, and waits until it is committed and applied."""
        assert self.controller.replica is not None
        epoch = self.controller.state.leadership.epoch
        offset = await self.controller.replica.append(values, epoch)
        if self.end_offset <= offset:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, done))  # offsets come in order
            await done

    async def batch_bytes(self, values: list[bytes]) -> int:
        assert self.controller.replica is not None
        log = self.controller.replica.log.log
        before = log.size_bytes
        await self.commit(values)
        return log.size_bytes - before

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self._executor.shutdown()


async def _formatted(root: Path) -> dict[int, NodeConfig]:
    """Configurations of three static voters, with their files, and their directories formatted."""
    root.mkdir()
    ports = dict(zip(NODES, _free_ports(len(NODES)), strict=True))
    voters = ",".join(f"{one}@{HOST}:{port}" for one, port in ports.items())
    host = real_host("format")
    cluster_id = random_cluster_id(host)
    configs = {}
    for node_id, port in ports.items():
        properties = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "controller.quorum.voters": voters,
            "metadata.log.dir": str(root / str(node_id)),
            "controller.quorum.election.timeout.ms": str(ELECTION_TIMEOUT_MS),
            "controller.quorum.fetch.timeout.ms": str(FETCH_TIMEOUT_MS),
            "metadata.max.idle.interval.ms": "60000",  # only what is measured
        }
        path = root / f"{node_id}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        configs[node_id] = parse_config(str(path), properties)
        await format_storage(host, configs[node_id], cluster_id)
    return configs


class _Processes:
    """Three `quorate node` processes, and what they log about who leads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def __enter__(self) -> Self:
        asyncio.run(_formatted(self._root))
        for node_id in NODES:
            self.start(node_id)
        for node_id in NODES:
            self._until(lambda node_id=node_id: "leader=nobody" in self._logged(node_id))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def start(self, node_id: int) -> None:
        run = "from quorate.cli.main import app; app()"
        with self._log(node_id).open("wb") as log:
            self._running[node_id] = subprocess.Popen(
                [sys.executable, "-c", run, "node", str(self._root / f"{node_id}.properties")], stderr=log
            )

    def kill(self, node_id: int) -> float:
        process = self._running.pop(node_id)
        killed_ms = time.time() * 1000
        process.kill()
        process.wait()
        return killed_ms

    def leader(self) -> int:
        """The one that leads and is followed by all others."""

        def led() -> int | None:
            states = {one: self._events(one)[-1:] for one in self._running}
            leaders = [one for one, last in states.items() if last and last[0].role == "Leader"]
            followers = [one for one, last in states.items() if last and last[0].role == "Follower"]
            is_settled = len(leaders) == 1 and len(followers) == len(NODES) - 1
            return leaders[0] if is_settled else None

        return self._until(led)

    def successor(self, after_ms: float) -> tuple[float, float]:
        """When the first of the others noticed, and when one led that had committed."""

        def changed() -> tuple[float, float] | None:
            events = [event for one in self._running for event in self._events(one) if event.at_ms > after_ms]
            noticed = [event.at_ms for event in events if event.role in ("Prospective", "Candidate")]
            elected = [event.at_ms for event in events if event.role == "Leader"]
            return (min(noticed), min(elected)) if elected else None

        return self._until(changed)

    def wait_for(self, node_id: int, text: str) -> None:
        self._until(lambda: text in self._logged(node_id))

    def _until(self, condition: Callable[[], T | None]) -> T:
        while not (found := condition()):
            if time.monotonic() > self._deadline:
                raise TimeoutError("\n".join(self._logged(one) for one in NODES))
            time.sleep(0.02)
        return found

    def _log(self, node_id: int) -> Path:
        return self._root / f"{node_id}.log"

    def _logged(self, node_id: int) -> str:
        return self._log(node_id).read_text()

    def _events(self, node_id: int) -> list[_Event]:
        found = _LEADERSHIP.findall(self._logged(node_id))
        return [_Event(_at_ms(at), role) for at, role in found]


class _Event(NamedTuple):
    at_ms: float
    role: str


_LEADERSHIP = re.compile(r"^(\S+ \S+) INFO quorate\.raft\.\d+ leadership .*role=(\w+)$", re.MULTILINE)


def _at_ms(text: str) -> float:
    # logging writes local time
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp() * 1000


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
