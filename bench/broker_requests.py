"""What a small produce request costs the broker: alone, and with others behind it that are written with it.

To compare two versions, run it with the sources of each: `PYTHONPATH=.../src python -m bench broker`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.broker_clients import topic_on
from bench.broker_nodes import Nodes, QuorateCommands
from bench.broker_sizes import Sizes, best
from bench.broker_wire import Wire, produce_frame
from bench.timing import Row

BATCHES = {"100 B": (1, 100), "1 KB": (1, 1000), "16 KB": (16, 1000), "16 KB of 100 B": (160, 100)}
UNDER_WAY = (1, 8, 64)


def rows(root: Path, sizes: Sizes) -> Iterator[Row | str]:
    with Nodes("Requests", root, QuorateCommands()) as node:
        for name, (records, record_bytes) in BATCHES.items():
            costs = best(
                sizes.rounds,
                *(partial(_cost, node, sizes, records, record_bytes, many) for many in UNDER_WAY),
            )
            alone, *_ = [cost for (cost,) in costs]
            for many, (cost,) in zip(UNDER_WAY, costs, strict=True):
                what = f"a produce request of {name}, CPU: {many} under way / one"
                yield Row(what, cost / alone, note=f"{cost * 1e6:.1f} us")


def _cost(node: Nodes, sizes: Sizes, records: int, record_bytes: int, under_way: int) -> tuple[float]:
    """Seconds of the broker's CPU for each of the requests."""
    times = sizes.singles
    with topic_on(node.bootstrap) as topic, Wire(node.port_of(1)) as wire:
        request = produce_frame(topic, records, record_bytes)
        wire.stream(request, under_way, under_way)
        before = node.cpu_seconds()
        wire.stream(request, times, under_way)
        return ((node.cpu_seconds() - before) / times,)
