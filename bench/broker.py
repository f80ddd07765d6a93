"""The broker: against Apache Kafka, and against what the machine can do.

`QUORATE_BENCH_BROKER_SCALE=0.01` makes it a try of a few seconds; `QUORATE_BENCH_BROKER_PARTS=limits` leaves
Apache out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import broker_limits
from bench.broker_sizes import Sizes
from bench.timing import Row

PARTS_VARIABLE = "QUORATE_BENCH_BROKER_PARTS"


def section() -> Iterator[Row | str]:
    parts = os.environ.get(PARTS_VARIABLE, "limits,apache").split(",")
    sizes = Sizes.chosen()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as name:
        root = Path(name)
        if "limits" in parts:
            yield from broker_limits.rows(root, sizes)
        if "apache" in parts:
            from bench import broker_apache

            yield from broker_apache.rows(root, sizes)
