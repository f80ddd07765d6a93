"""How long somebody waits for a cluster, and what it costs while it does nothing.

The base is an empty program, `python -c pass`. A node alone is `quorate node`; clusters are started by their
launcher, in the development profile, as `quorate up` and `quorate.testing` do. How a node compares with
Apache Kafka's stands in the section `broker`.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.timing import Row
from quorate.testing.control import launch
from quorate.testing.plan import HOST, make_plan
from quorate.testing.profiles import DEVELOPMENT

ROUNDS = 5
TIMEOUT_S = 60.0
LISTENS_AT_MOST = 10  # times an empty program
FIRST_RECORD_S = 1.0
READY_S = 2.0
RESIDENT_MB = 60
OWN_MB = 15
SETTLED_S = 3.0  # after which what happens at a start has happened


def section() -> Iterator[Row | str]:
    empty = min(_empty_program() for _ in range(ROUNDS))
    with tempfile.TemporaryDirectory() as root:
        nodes = [_one_node(Path(root) / str(number)) for number in range(ROUNDS)]
        listens, first = min(one[0] for one in nodes), min(one[1] for one in nodes)
        note = f"{listens * 1000:.0f} ms"
        yield Row("a combined node listens, in empty programs", listens / empty, LISTENS_AT_MOST, note=note)
        yield Row("a combined node, from its start to the first record, in s", first, FIRST_RECORD_S)
        for brokers, controllers in ((1, 0), (3, 3)):
            name = f"{brokers}+{controllers} nodes by a launcher"
            rounds = [_Start(Path(root) / f"{name}-{one}", brokers, controllers) for one in range(ROUNDS - 2)]
            yield Row(f"{name}, until all are ready, in s", min(one.ready_s for one in rounds), READY_S)
            yield Row(f"{name}, until the first record, in s", min(one.first_record_s for one in rounds))
            last = rounds[-1]
            yield Row(f"{name}, resident, the largest, in MB", last.resident_mb, RESIDENT_MB)
            yield Row(f"{name}, of its own, the largest, in MB", last.own_mb, OWN_MB)


def _empty_program() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def _one_node(directory: Path) -> tuple[float, float]:
    """Seconds until it listens, and until it has acknowledged a record."""
    plan = make_plan(directory, settings=DEVELOPMENT)
    began = time.perf_counter()
    with (directory / "log").open("wb") as log:
        command = [sys.executable, "-c", "from quorate.cli.start import main; main()", "node"]
        process = subprocess.Popen([*command, str(plan.nodes[0].file)], stdout=log, stderr=log)
    try:
        while not _listens(plan.nodes[0].port):
            assert time.perf_counter() - began < TIMEOUT_S, (directory / "log").read_text()
            time.sleep(0.002)
        listens = time.perf_counter() - began
        _produce(plan.bootstrap_servers)
        return listens, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


class _Start:
    """One start of a cluster, measured."""

    def __init__(self, directory: Path, brokers: int, controllers: int) -> None:
        began = time.perf_counter()
        wanted = {"brokers": brokers, "controllers": controllers, "settings": dict(DEVELOPMENT)}
        launched = launch(directory, wanted)
        try:
            state = launched.wait_until_ready(TIMEOUT_S)
            self.ready_s = time.perf_counter() - began
            _produce(state["bootstrap_servers"])
            self.first_record_s = time.perf_counter() - began
            time.sleep(SETTLED_S)
            found = [_memory(one["pid"]) for one in state["nodes"]]
            self.resident_mb = max(resident for resident, _ in found)
            self.own_mb = max(own for _, own in found)
        finally:
            launched.end()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


def _produce(bootstrap: str) -> None:
    """With a client that does not become more patient while it waits: it would look less and less often."""
    failed: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    patience = {
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 20,
        "topic.metadata.propagation.max.ms": 30_000,
    }
    producer = Producer(settings | patience)
    producer.produce("first", b"record", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed, failed


def _memory(pid: int) -> tuple[float, float]:
    """Resident, and of that what it shares with nobody; in megabytes."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, number, _ = line.split()
        found[name.rstrip(":")] = int(number) * 1024 / 1e6
    return found["Rss"], found["Private_Clean"] + found["Private_Dirty"]
