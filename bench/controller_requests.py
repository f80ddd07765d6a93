"""Requests to the active one of three controllers: three processes of ours beside three of Apache Kafka's.

The same client (ours), the same requests, the same directories and settings, on the same machine; both sides
run all the time and are asked in turns, so whoever is not asked is nearly idle. Many in flight are many
connections with one request each: Apache reads no further request from a connection before it has answered.
Apache runs with the options of its start script (1 GB of heap, G1), is warmed up, and logs only warnings.
There are two of Apache's: one as it comes, where an append waits up to 25 ms for others, and one that does
not wait, as ours never does.

    alter partition    a leader changes who is in sync: one PartitionChangeRecord, committed before the reply
    alter configs      one ConfigRecord, of a subscription to client metrics, committed before the reply
    heartbeat          nothing to be committed
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.controller_cluster import CLUSTER_ID, directory
from bench.timing import Row
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.net.client import Connection
from quorate.net.connections import Connections
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest
from quorate.protocol.api.brokers import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid

NODES = (1, 2, 3)
BROKERS = (101, 102, 103)  # only this client knows them
IN_FLIGHT = (1, 32)
ROUNDS = 3
ROUND_SECONDS = float(os.environ.get("QUORATE_BENCH_ROUND_SECONDS", "1.5"))
WARM_UP_SECONDS = 12.0  # for each of Apache's; a fourth of it for ours
TIMEOUT_MS = 60_000
CLIENT_METRICS = 16
SET = 0
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LINGERS = {"Apache": "25", "no linger": "0"}  # controller.quorum.append.linger.ms
TESTS = Path(__file__).parent.parent / "tests"
SETTINGS = {  # by both; underscores become dots
    "controller_quorum_election_timeout_ms": "1000",
    "controller_quorum_fetch_timeout_ms": "2000",
    "controller_quorum_request_timeout_ms": "2000",
    "broker_session_timeout_ms": "3600000",
    "metadata_max_idle_interval_ms": "60000",
}


def rows(root: Path) -> Iterator[Row | str]:
    sys.path[:0] = [str(TESTS), str(TESTS / "interop")]
    import apache_oracle

    with contextlib.ExitStack() as closing:
        sides = [_start_ours(root / "ours", closing)]
        reason = apache_oracle.missing()
        if reason is None:
            for number, (name, linger_ms) in enumerate(LINGERS.items()):
                sides.append(_start_apache(root / f"apache-{number}", name, linger_ms, closing))
        else:
            yield f"  Apache's controllers are left out: {reason}"
        measured = uvloop.run(_measure(sides))
    yield (
        f"  three controllers each; {ROUNDS} rounds of {ROUND_SECONDS:g} s: best rate and CPU, median"
        f" latency; Apache {apache_oracle.PINNED}"
    )
    yield (
        f"  {'request':<16} {'in flight':>9} {'side':>9} {'req/s':>8} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'leader CPU us':>13} {'all three':>9}"
    )
    for (kind, in_flight), by_side in measured.items():
        for name, one in by_side.items():
            yield f"  {kind:<16} {in_flight:>9} {name:>9} {one}"
    for (kind, in_flight), by_side in measured.items():
        ours = by_side.pop(sides[0].name)
        for name, theirs in by_side.items():
            note = (
                f"p50 {theirs.p50 / ours.p50:.2f}, p99 {theirs.p99 / ours.p99:.2f}, CPU of all three"
                f" {theirs.cpu / ours.cpu:.2f}: {name} / ours"
            )
            ratio = ours.rate / theirs.rate
            yield Row(f"{kind}, {in_flight} in flight: requests/s, ours / {name}", ratio, note=note)
    for side in sides:
        yield f"  {side.name}: RSS of the leader {side.rss_mb:,.0f} MB, at most {side.rss_max_mb:,.0f}"
    for side in sides[1:]:
        yield Row(f"RSS of the leader: {side.name} / ours", side.rss_mb / sides[0].rss_mb)


# The sides


@dataclass
class _Side:
    name: str
    addresses: dict[int, tuple[str, int]]
    pids: dict[int, int]
    wait_for_leader: Callable[[], int]
    leader: int = 0
    topic_id: Uuid = field(default_factory=lambda: Uuid(bytes(16)))
    epochs: dict[int, int] = field(default_factory=dict)
    partition_epochs: dict[int, int] = field(default_factory=dict)
    counter: int = 0
    rss_mb: float = 0.0
    rss_max_mb: float = 0.0

    def cpu_seconds(self) -> tuple[float, float]:
        """Of the leader, and of all three."""
        by_node = {one: _cpu_seconds(pid) for one, pid in self.pids.items()}
        return by_node[self.leader], sum(by_node.values())

    def note_memory(self) -> None:
        status = Path(f"/proc/{self.pids[self.leader]}/status").read_text()
        kilobytes = {
            line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")
        }
        self.rss_mb, self.rss_max_mb = kilobytes["VmRSS"] / 1024, kilobytes["VmHWM"] / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _start_ours(root: Path, closing: contextlib.ExitStack) -> _Side:
    cluster = _cluster(root, closing)
    cluster.start(*NODES)
    pids = {one: process.pid for one, process in cluster._running.items()}
    return _side("ours", cluster, pids)


def _start_apache(root: Path, name: str, linger_ms: str, closing: contextlib.ExitStack) -> _Side:
    from apache_programs import ApachePrograms

    cluster = _cluster(root, closing, controller_quorum_append_linger_ms=linger_ms)
    command = ApachePrograms().command("kafka.Kafka")
    class_path = command[command.index("-cp") :]
    logging_options = [one for one in command if one.startswith("-Dlog4j2")]
    pids = {}
    for node_id in NODES:
        output = closing.enter_context((root / f"node-{node_id}.log").open("wb"))
        process = subprocess.Popen(
            ["java", *JVM_OPTIONS, *logging_options, *class_path, str(cluster.configuration(node_id))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LOG_DIR": str(root)},
        )
        closing.callback(process.wait)
        closing.callback(process.kill)
        pids[node_id] = process.pid
    return _side(name, cluster, pids)


def _cluster(root: Path, closing: contextlib.ExitStack, **changes: str) -> Any:
    from node.processes import HOST, Processes

    root.mkdir()
    cluster = closing.enter_context(Processes(root, **SETTINGS, **changes))
    voters = ",".join(f"{one}@{HOST}:{cluster.port(one)}" for one in NODES)
    for one in NODES:
        cluster.configure(one, controller_quorum_voters=voters, log_dirs=str(cluster.directory(one)))
        cluster.format(one)
    return cluster


def _side(name: str, cluster: Any, pids: dict[int, int]) -> _Side:
    def wait_for_leader() -> int:
        def led() -> int | None:
            found = cluster.describe(*NODES)
            return found["leader_id"] if found and found["high_watermark"] > 0 else None

        return int(cluster.wait("a leader", led))

    return _Side(name, {one: cluster.address(one) for one in NODES}, pids, wait_for_leader)


# The client


async def _measure(sides: Sequence[_Side]) -> dict[tuple[str, int], dict[str, _Found]]:
    for side in sides:
        side.leader = await asyncio.get_running_loop().run_in_executor(None, side.wait_for_leader)
        await _prepare(side)
    for side in sides:
        seconds = WARM_UP_SECONDS / 4 if side is sides[0] else WARM_UP_SECONDS
        for kind in _KINDS:
            await _load(side, kind, IN_FLIGHT[-1], seconds / len(_KINDS))
    rounds: dict[tuple[str, int], dict[str, list[_Found]]] = {}
    for _ in range(ROUNDS):
        for kind in _KINDS:
            for in_flight in IN_FLIGHT:
                for side in sides:
                    found = await _load(side, kind, in_flight, ROUND_SECONDS)
                    rounds.setdefault((kind, in_flight), {}).setdefault(side.name, []).append(found)
    for side in sides:
        side.note_memory()
    return {key: {name: _best(found) for name, found in by_side.items()} for key, by_side in rounds.items()}


async def _prepare(side: _Side) -> None:
    """Three brokers that serve, and a topic on them with a partition for everyone who asks at once."""
    connections = Connections(rng=random.Random(1))
    address = side.addresses[side.leader]

    async def ask(request: Request) -> Any:
        return await connections.request(address, request, timeout_ms=TIMEOUT_MS)

    for broker_id in BROKERS:
        registered = await ask(_registration(broker_id))
        assert registered.error_code == 0, registered
        side.epochs[broker_id] = registered.broker_epoch
        beaten = await ask(_heartbeat(side, broker_id))
        assert beaten.error_code == 0, beaten
    create = CreateTopicsRequest.CreatableTopic(
        name="bench",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
                partition_index=one, broker_ids=list(BROKERS)
            )
            for one in range(IN_FLIGHT[-1])
        ],
        configs=[],
    )
    created = await ask(CreateTopicsRequest(topics=[create], timeout_ms=TIMEOUT_MS))
    assert created.topics[0].error_code == 0, created
    side.topic_id = created.topics[0].topic_id
    side.partition_epochs = dict.fromkeys(range(IN_FLIGHT[-1]), 0)
    await connections.close()


@dataclass(frozen=True)
class _Found:
    """Requests per second, seconds that half and nearly all of them took, and CPU seconds for each."""

    rate: float
    p50: float
    p99: float
    leader_cpu: float
    cpu: float

    def __str__(self) -> str:
        return (
            f"{self.rate:8,.0f} {self.p50 * 1000:8.2f} {self.p99 * 1000:8.2f}"
            f" {self.leader_cpu * 1e6:13,.0f} {self.cpu * 1e6:9,.0f}"
        )


def _best(rounds: Sequence[_Found]) -> _Found:
    return _Found(
        max(one.rate for one in rounds),
        statistics.median(one.p50 for one in rounds),
        statistics.median(one.p99 for one in rounds),
        min(one.leader_cpu for one in rounds),
        min(one.cpu for one in rounds),
    )


async def _load(side: _Side, kind: str, in_flight: int, seconds: float) -> _Found:
    host, port = side.addresses[side.leader]
    connections = [await Connection.connect(host, port, timeout_ms=TIMEOUT_MS) for _ in range(in_flight)]
    ask_once = _KINDS[kind]
    latencies: list[float] = []
    clock = time.perf_counter
    began = clock()

    async def one_after_the_other(number: int, connection: Connection) -> None:
        while clock() - began < seconds:
            asked = clock()
            await ask_once(side, connection, number)
            latencies.append(clock() - asked)

    leader_before, all_before = side.cpu_seconds()
    await asyncio.gather(*(one_after_the_other(at, one) for at, one in enumerate(connections)))
    took = clock() - began
    leader_after, all_after = side.cpu_seconds()
    for one in connections:
        await one.close()
    latencies.sort()
    count = len(latencies)
    return _Found(
        count / took,
        latencies[count // 2],
        latencies[count * 99 // 100],
        (leader_after - leader_before) / count,
        (all_after - all_before) / count,
    )


async def _ask(connection: Connection, request: Request) -> Response:
    return await connection.request(request, connection.version_for(type(request)), timeout_ms=TIMEOUT_MS)


async def _alter_partition(side: _Side, connection: Connection, number: int) -> None:
    leader, *followers = BROKERS
    epoch = side.partition_epochs[number]
    in_sync = (leader, *followers) if epoch % 2 else (leader, followers[0])
    topic = AlterPartitionRequest.TopicData
    proposal = topic.PartitionData(
        partition_index=number,
        leader_epoch=0,
        new_isr_with_epochs=[
            topic.PartitionData.BrokerState(broker_id=one, broker_epoch=side.epochs[one]) for one in in_sync
        ],
        partition_epoch=epoch,
    )
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=side.epochs[leader],
        topics=[topic(topic_id=side.topic_id, partitions=[proposal])],
    )
    response: Any = await _ask(connection, request)
    result = response.topics[0].partitions[0]
    assert (response.error_code, result.error_code) == (0, 0), response
    side.partition_epochs[number] = result.partition_epoch


async def _alter_configs(side: _Side, connection: Connection, number: int) -> None:
    side.counter += 1
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    value = str(100 + side.counter % 3_000_000)  # always another one, so there is always a record
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=CLIENT_METRICS,
                resource_name=f"bench-{number}",
                configs=[resource.AlterableConfig(name="interval.ms", config_operation=SET, value=value)],
            )
        ],
        validate_only=False,
    )
    response: Any = await _ask(connection, request)
    assert response.responses[0].error_code == 0, response


async def _beat(side: _Side, connection: Connection, number: int) -> None:
    response: Any = await _ask(connection, _heartbeat(side, BROKERS[number % len(BROKERS)]))
    assert response.error_code == 0, response


_KINDS: dict[str, Callable[[_Side, Connection, int], Awaitable[None]]] = {
    "alter partition": _alter_partition,
    "alter configs": _alter_configs,
    "heartbeat": _beat,
}


def _heartbeat(side: _Side, broker_id: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=side.epochs[broker_id],
        current_metadata_offset=1 << 40,
        want_fence=False,
        want_shut_down=False,
    )


def _registration(broker_id: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(b"run-%012d" % broker_id),
        listeners=[
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host=f"broker-{broker_id}", port=9092, security_protocol=0
            )
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[directory(broker_id)],
    )
