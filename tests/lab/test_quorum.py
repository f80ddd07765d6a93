"""The quorum under faults: seeds for a bounded time, and the same seed always the same."""

import os
import subprocess
import sys

import pytest
from seeds import outcomes_of_seeds

from quorate.lab.quorum import draw_quorum_faults, run_quorum
from quorate.lab.world import SECOND

# Whole clusters have a quorum too (see test_cluster_simulation): a fifth of their time is for quorums alone.
SECONDS = float(os.environ.get("QUORATE_SIMULATION_SECONDS", "300")) / 5
FIRST_SEED = int(os.environ.get("QUORATE_SIMULATION_SEED", "1"))
DURATION_NS = 60 * SECOND

pytestmark = pytest.mark.simulation


def run_one(seed: int):
    return run_quorum(seed, DURATION_NS)


def test_seeds_keep_every_promise(record_property):
    """As many seeds as fit, each of a simulated minute of faults and then recovery."""
    outcomes = outcomes_of_seeds(run_one, FIRST_SEED, SECONDS)
    failed = [one for one in outcomes if one.violation]
    steps, acknowledged = sum(one.steps for one in outcomes), sum(one.acknowledged for one in outcomes)
    elections = sum(one.elections for one in outcomes)
    figure = f"simulated quorum: {len(outcomes)} seeds of 60 s, {steps:,} steps, {elections:,} elections"
    record_property("figure", f"{figure}, {acknowledged:,} acknowledged records, {len(failed)} violations")
    for one in failed:
        print(f"seed {one.seed}: {one.violation}\n  quorate lab quorum --seed {one.seed} --seconds 60")
    assert not failed


DIGEST = "from quorate.lab.quorum import run_quorum; print(run_quorum({seed}, {duration}).digest)"


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_is_always_the_same_run(seed):
    duration_ns = 15 * SECOND
    first, second = run_quorum(seed, duration_ns), run_quorum(seed, duration_ns)
    assert first.digest == second.digest
    command = [sys.executable, "-c", DIGEST.format(seed=seed, duration=duration_ns)]
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == first.digest


def test_different_seeds_have_different_faults():
    assert draw_quorum_faults(1, DURATION_NS) != draw_quorum_faults(2, DURATION_NS)
    assert draw_quorum_faults(1, DURATION_NS) == draw_quorum_faults(1, DURATION_NS)
