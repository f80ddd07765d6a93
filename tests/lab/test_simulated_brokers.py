"""Brokers under faults: seeds for a bounded time, and the same seed always the same."""

import os
import subprocess
import sys

import pytest
from seeds import outcomes_of_seeds

from quorate.lab.brokers import draw_broker_faults, run_brokers
from quorate.lab.world import SECOND

SECONDS = float(os.environ.get("QUORATE_SIMULATION_SECONDS", "50"))
FIRST_SEED = int(os.environ.get("QUORATE_SIMULATION_SEED", "1"))
DURATION_NS = 30 * SECOND

pytestmark = pytest.mark.simulation

RUN = """
from quorate.lab.brokers import run_brokers
found = run_brokers({seed}, {duration}, {faults})
print(found.digest, found.acknowledged, found.violation)
"""


def run_apart(seed: int, duration_ns: int, faults: str = "None", hash_seed: str = "0") -> str:
    """What came of a seed, in a process of its own."""
    command = [sys.executable, "-c", RUN.format(seed=seed, duration=duration_ns, faults=faults)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run_one(seed: int):
    return run_brokers(seed, DURATION_NS)


def test_in_peace_everything_is_acknowledged_and_read():
    _, acknowledged, violation = run_apart(1, 5 * SECOND, faults="[]").split(maxsplit=2)
    assert violation == "None"
    assert int(acknowledged) > 50


def test_no_seed_loses_an_acknowledged_record(record_property):
    """As many seeds as fit, each of half a simulated minute of faults and then recovery."""
    outcomes = outcomes_of_seeds(run_one, FIRST_SEED, SECONDS)
    failed = [one for one in outcomes if one.violation]
    steps, acknowledged = sum(one.steps for one in outcomes), sum(one.acknowledged for one in outcomes)
    leaders = sum(one.elections for one in outcomes)
    figure = f"simulated brokers: {len(outcomes)} seeds of 30 s, {steps:,} steps, {leaders:,} leader epochs"
    record_property("figure", f"{figure}, {acknowledged:,} acknowledged records, {len(failed)} violations")
    for one in failed:
        print(f"seed {one.seed}: {one.violation}")
    assert not failed


@pytest.mark.parametrize("seed", [18, 42])
def test_a_seed_is_always_the_same_run(seed):
    duration_ns = 10 * SECOND
    found = {run_apart(seed, duration_ns, hash_seed=hash_seed) for hash_seed in ("1", "2")}
    assert len(found) == 1
    assert found.pop().endswith("None")


def test_different_seeds_have_different_faults():
    assert draw_broker_faults(1, DURATION_NS) != draw_broker_faults(2, DURATION_NS)
    assert draw_broker_faults(1, DURATION_NS) == draw_broker_faults(1, DURATION_NS)
