"""What replicas cost that nobody writes to: `python -m bench replication`.

Two brokers beside a controller. One leads all partitions, the other follows them, and nothing is written:
what they do is fetch and answer. Their CPU is counted for some seconds, less what the same brokers take when
there is no partition. `QUORATE_BENCH_PARTITIONS` are the numbers, one after the other on one cluster.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster as Client
from quorate.client.cluster import ClusterSettings
from quorate.testing.cluster import Cluster
from quorate.testing.control import ask_admin

SIZES = (1_000, 10_000, 30_000)
PER_TOPIC = 100
TOPICS_AT_ONCE = 20
WATCHED_S = 10.0
PATIENCE_S = 600.0
LEADER, FOLLOWER = 1, 2
BUILD = Path(__file__).parent.parent / "build"
SETTINGS = {
    "broker.session.timeout.ms": "60000",  # nobody is to be fenced, however busy the machine is
    "auto.leader.rebalance.enable": "false",
    "log.index.size.max.bytes": "4096",
    "min.insync.replicas": "1",
    "quorate.log.level": "WARNING",
}


def section() -> Iterator[str]:
    sizes = [int(one) for one in os.environ.get("QUORATE_BENCH_PARTITIONS", "").split(",") if one] or SIZES
    BUILD.mkdir(exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="bench-replication-", dir=BUILD))
    try:
        with Cluster(
            brokers=2, controllers=1, data=data, mode="processes", settings=SETTINGS, timeout=PATIENCE_S
        ) as cluster:
            base = _idle_ms(cluster)
            yield f"without partitions: leader {base[0]:.1f}, follower {base[1]:.1f} ms of CPU per second"
            made = 0
            for size in sizes:
                before, began = _cpu_ms(cluster), time.monotonic()
                asyncio.run(_create(cluster, made, size))
                _settle(cluster, size)
                spent = [now - then for now, then in zip(_cpu_ms(cluster), before, strict=True)]
                yield (
                    f"{size - made:,} more: {time.monotonic() - began:.1f} s, CPU per replica: leader"
                    f" {spent[0] / (size - made):.2f}, follower {spent[1] / (size - made):.2f} ms"
                )
                made = size
                idle = _idle_ms(cluster)
                leader, follower = (now - then for now, then in zip(idle, base, strict=True))
                yield f"{size:,} idle: leader {leader:.1f}, follower {follower:.1f} ms of CPU per second"
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _idle_ms(cluster: Cluster) -> list[float]:
    """CPU of the leader and of the follower, per second in which nothing happens."""
    time.sleep(3)  # what began before is over
    before, began = _cpu_ms(cluster), time.monotonic()
    time.sleep(WATCHED_S)
    took_s = time.monotonic() - began
    return [(now - then) / took_s for now, then in zip(_cpu_ms(cluster), before, strict=True)]


def _cpu_ms(cluster: Cluster) -> list[float]:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    found = []
    for broker_id in (LEADER, FOLLOWER):
        words = Path(f"/proc/{cluster.node(broker_id).pid}/stat").read_text().rpartition(")")[2].split()
        found.append((int(words[11]) + int(words[12])) * 1000 / ticks_per_s)
    return found


async def _create(cluster: Cluster, made: int, size: int) -> None:
    topics = [
        NewTopic(
            f"t{first}",
            assignments={index: [LEADER, FOLLOWER] for index in range(min(PER_TOPIC, size - first))},
        )
        for first in range(made, size, PER_TOPIC)
    ]
    patience_ms = PATIENCE_S * 1000
    settings = ClusterSettings(request_timeout_ms=patience_ms, deadline_ms=patience_ms)
    async with Client(cluster.bootstrap_servers, settings=settings) as client:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            await Admin(client).create_topics(*topics[first : first + TOPICS_AT_ONCE])


def _settle(cluster: Cluster, size: int) -> None:
    """The leader leads everything, and the follower has everything."""

    def is_there() -> bool:
        answers = [
            ask_admin(str(cluster.node(one).admin), "/v1/broker", timeout_s=PATIENCE_S)["partitions"]
            for one in (LEADER, FOLLOWER)
        ]
        return bool(answers[0]["led"] == size and answers[1]["followed"] == size)

    while not is_there():
        time.sleep(1)
