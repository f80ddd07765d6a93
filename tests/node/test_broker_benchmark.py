"""The benchmark of the broker, in a size that only shows that it works, and without Apache Kafka."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROWS = 8


@pytest.mark.processes
def test_the_benchmark_of_the_broker_measures_what_it_should() -> None:
    environment = {
        **os.environ,
        "QUORATE_BENCH_BROKER_PARTS": "limits",
        "QUORATE_BENCH_BROKER_SCALE": "0.001",
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench", "broker"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    measured = [line for line in done.stdout.splitlines() if " met " in line or " MISSED " in line]
    assert len(measured) == ROWS, done.stdout
