"""Faults on real processes: what clients were promised holds, and what does not hold is named."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.lab.chaos import Chaos
from quorate.lab.chaos_faults import KINDS, Injector, draw_chaos_faults
from quorate.lab.faults import Fault
from quorate.lab.world import SECOND
from quorate.testing import Cluster
from quorate.testing.control import Control

pytestmark = pytest.mark.processes

COMMAND = [sys.executable, "-c", "from quorate.cli.start import main; main()", "lab", "chaos"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(brokers=3, controllers=3, mode="processes", timeout=120) as one:
        yield one


def quorate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_promises_hold_while_nodes_are_killed_stopped_paused_and_cut_off(cluster, tmp_path, record_property):
    """Each kind of fault at least once, on brokers and controllers."""
    faults = [
        (1.0, "kill", "1"),
        (3.0, "partition", "2", "101"),
        (3.5, "start", "1"),
        (5.0, "pause", "102"),
        (6.0, "heal", "2", "101"),
        (7.0, "slow_disk", "3", 500),
        (8.0, "resume", "102"),
        (9.0, "stop", "2"),
        (10.0, "kill", "101"),
        (11.0, "start", "2"),
        (12.0, "repair_disk", "3"),
        (12.5, "start", "101"),
        (13.0, "full_disk", "3"),
        (15.0, "repair_disk", "3"),
    ]
    path, events = tmp_path / "faults.jsonl", tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps([int(at * SECOND), *rest]) + "\n" for at, *rest in faults))
    done = quorate("--data", cluster.directory, "--seconds", 16, "--faults", path, "--events", events)
    assert done.returncode == 0, done.stdout + done.stderr
    summary, verdict = done.stdout.splitlines()[-2:]
    assert verdict == "every promise was kept"
    record_property("figure", f"chaos: {summary}")
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    broken = [row for row in rows if row["kind"] == "Fault"]
    assert [row["fault"] for row in broken] == [kind for _, kind, *_ in faults]
    # A broker whose only disk takes nothing any more ends; then there is nothing to repair until it is back.
    undone = [row["text"] for row in broken if not row["is_done"]]
    assert undone in ([], ["repair_disk 3: not possible, node 3 is not running"])


def test_a_promise_that_is_broken_is_named(cluster):
    """Somebody claims to have been told of a record that nobody has."""

    async def run() -> str | None:
        chaos = Chaos(Control(cluster.directory), seed=2)
        chaos.deliveries.acknowledged_at(0, 10**9, 0)
        found = await chaos.run([], 1)
        return found.violation

    violation = asyncio.run(run())
    assert violation is not None
    assert f"record {10**9} was acknowledged at offset 0" in violation


def test_a_fault_that_cannot_be_is_said(cluster):
    injector = Injector(Control(cluster.directory))
    assert "there is no node 77" in (injector.apply(Fault(0, "kill", ("77",))) or "")
    assert injector.apply(Fault(0, "start", ("1",))) is None  # it runs already


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kinds", "earthquake"], "no kind of fault is called 'earthquake'; there are: kill"),
        (["--data", "/nowhere"], "no cluster runs in /nowhere"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path: Path, arguments, complaint):
    given = [] if "--data" in arguments else ["--data", tmp_path]
    done = quorate(*given, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_faults_are_drawn_from_the_seed():
    faults = draw_chaos_faults(5, [1, 2, 3], 60)
    assert faults == draw_chaos_faults(5, [1, 2, 3], 60) != draw_chaos_faults(6, [1, 2, 3], 60)
    only = draw_chaos_faults(5, [1, 2, 3], 60, ["kill"])
    assert {one.kind for one in only} == {"kill", "start"}
    assert {one.kind for seed in range(30) for one in draw_chaos_faults(seed, [1, 2], 60)} >= set(KINDS)
