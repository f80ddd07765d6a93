"""The broker: against Apache Kafka, and against what the machine can do.

`QUORATE_BENCH_BROKER_SCALE=0.01` makes it a try of a few seconds; `QUORATE_BENCH_BROKER_PARTS=limits,node`
chooses among its parts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import broker_apache, broker_limits, broker_requests
from bench.broker_sizes import Sizes
from bench.timing import Row

PARTS_VARIABLE = "QUORATE_BENCH_BROKER_PARTS"

PARTS: Mapping[str, Callable[[Path, Sizes], Iterator[Row | str]]] = {
    "limits": broker_limits.rows,
    "requests": broker_requests.rows,
    "node": broker_apache.node_rows,
    "small": lambda root, sizes: broker_apache.flow_rows(root, sizes, 100),
    "large": lambda root, sizes: broker_apache.flow_rows(root, sizes, 1000),
}


def section() -> Iterator[Row | str]:
    chosen = os.environ.get(PARTS_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as name:
        for part in chosen.split(",") if chosen else PARTS:
            yield from PARTS[part](Path(name), Sizes.chosen())
