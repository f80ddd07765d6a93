"""Fuzzing: what requests cost a real node, the costliest of every kind that it serves, for a bounded time.

Judged are the memory of the node, against what a request and its answer may take, that it goes on serving,
and the processor's time for each byte that is asked or answered.
"""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from damage import SECONDS, SEED

from costliest import ways
from node.broker_processes import BrokerProcesses
from node.served_requests import NODE, SETTINGS, TOPIC, cpu_s, prepare, serve, served
from sensible import Sensible

SIZES_BYTES = (10_000, 100_000, 1_000_000, 3_000_000)
CPU_S_PER_MB = 8.0  # of a request and its answer: a name of five bytes takes ten microseconds
ANYWAY_S = 1.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1, **SETTINGS) as running:
        yield running


def test_what_requests_cost_a_node(cluster: BrokerProcesses, record_property: Any) -> None:
    chance = random.Random(SEED)
    topic_id = prepare(cluster)
    kinds = [
        (port, cls, version)
        for port in (None, cluster.port(NODE))
        for cls, versions in served(cluster, port).items()
        for version in versions
    ]
    asked = answered = 0
    worst = (0.0, "")
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        port, cls, version = chance.choice(kinds)
        found_ways = ways(cls, version)
        if not found_ways:
            continue
        way, size_bytes = chance.choice(found_ways), chance.choice(SIZES_BYTES)
        words = Sensible(TOPIC, topic_id, are_distinct=chance.random() < 0.5)
        where = f"{cls.__name__} v{version}, {way}, {size_bytes} bytes"
        before_s = cpu_s(cluster)
        found = serve(cluster, cls, version, way, size_bytes, words, port)
        taken_s = cpu_s(cluster) - before_s
        asked += 1
        answered += found.answer_bytes is not None
        megabytes = (size_bytes + (found.answer_bytes or 0)) / 1e6
        assert taken_s <= CPU_S_PER_MB * megabytes + ANYWAY_S, f"{where}: {taken_s} s"
        worst = max(worst, (found.waited_ms, where))
    record_property(
        "figure",
        f"cost of serving: {asked} requests, {answered} answered, seed {SEED}; somebody else waited"
        f" {worst[0]:.0f} ms at most ({worst[1]})",
    )
    assert answered
