"""How fast simulated time passes: a cluster of three controllers and three brokers, on one core.

Simulated seconds per second of CPU, and what a step costs. A toy of the same shape, which only passes
messages around, is said to reach 1,080 when idle and 49 under light load; ours runs the production nodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from bench.timing import Row
from quorate.lab.cluster import ClusterRun
from quorate.lab.cluster_faults import CLIENTS
from quorate.lab.story import Story
from quorate.lab.world import SECOND, World

SEED = 2  # no fourth controller
LIGHT = ("writer1", "reader")


def section() -> Iterator[Row]:
    logging.disable(logging.CRITICAL)
    try:
        for what, clients in (
            ("idle", ()),
            ("one writer, 4 records/s, and a reader", LIGHT),
            ("all clients of `quorate lab sim`", CLIENTS),
        ):
            rate, us_per_step, steps = _measure(clients)
            note = f"simulated s per CPU s; {us_per_step:.0f} us a step, {steps:,.0f} steps a simulated s"
            yield Row(f"3+3 nodes, {what}", rate, note=note)
    finally:
        logging.disable(logging.NOTSET)


def _measure(clients: Sequence[str]) -> tuple[float, float, float]:
    with World(SEED) as world:
        run = ClusterRun(world, Story(keep=0), clients)
        run.start()
        world.run_for(10 * SECOND)
        steps, started, begin_ns = world.trace.steps, time.process_time(), world.now_ns
        while (used := time.process_time() - started) < 5:
            world.run_for(SECOND)
        taken = world.trace.steps - steps
        simulated_s = (world.now_ns - begin_ns) / SECOND
        world.check()
    return simulated_s / used, used / taken * 1e6, taken / simulated_s
