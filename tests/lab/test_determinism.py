"""The same seed gives the same run, in this process and in another one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from toy_cluster import run_toy

from quorate.lab.trace import STEPS_PER_CHECKPOINT, first_difference
from quorate.lab.world import SECOND, World
from quorate.node.host import Host

SEEDS = range(4)


def test_a_seed_gives_the_same_run_twice_and_in_another_process() -> None:
    here = {}
    for seed in SEEDS:
        world, again = run_toy(seed), run_toy(seed)
        assert first_difference(world.trace.checkpoints, again.trace.checkpoints) is None
        assert world.trace.digest() == again.trace.digest()
        assert world.trace.steps > 1000
        here[str(seed)] = world.trace.digest()
    assert len(set(here.values())) == len(here)
    program = Path(__file__).with_name("toy_cluster.py")
    for hash_seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, str(program), *map(str, SEEDS)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        there = dict(line.split()[:2] for line in output.splitlines())
        assert there == here


def test_a_trace_sees_what_is_sent_and_written() -> None:
    def digest(content: bytes) -> str:
        async def main(host: Host) -> None:
            host.files.open("f", create=True).append([content])

        with World(1) as world:
            world.add_machine("n1")
            world.start("n1", main)
            world.run_for(SECOND)
            return world.trace.digest()

    assert digest(b"a") == digest(b"a") != digest(b"b")


def test_the_first_difference_between_runs_is_found() -> None:
    def checkpoints(odd_step: int) -> list[bytes]:
        async def main(_: Host) -> None:
            for number in range(5 * STEPS_PER_CHECKPOINT):
                await asyncio.sleep(0.001 if number == odd_step else 0)

        with World(1, like_uvloop=False) as world:
            world.add_machine("n1")
            world.start("n1", main)
            world.run_for(SECOND)
            return world.trace.checkpoints

    steps = first_difference(checkpoints(-1), checkpoints(3 * STEPS_PER_CHECKPOINT))
    assert steps is not None
    assert 3 * STEPS_PER_CHECKPOINT in steps
    assert first_difference(checkpoints(-1), checkpoints(-1)) is None
