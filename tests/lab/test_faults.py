"""Faults as data, and making lists of them small."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_cluster import NAMES, run_toy

from quorate.lab.faults import (
    ACTIONS,
    DRAWS,
    Fault,
    draw_faults,
    from_text,
    heal_everything,
    schedule,
    to_text,
)
from quorate.lab.shrink import shrink
from quorate.lab.world import MS, SECOND, World
from quorate.node.host import Host


@given(st.integers(0, 2**32))
def test_faults_are_drawn_in_order_within_the_run_and_can_be_kept_as_text(seed: int) -> None:
    faults = draw_faults(random.Random(seed), NAMES, 60 * SECOND)
    assert faults == draw_faults(random.Random(seed), NAMES, 60 * SECOND)
    assert faults == sorted(faults)
    assert all(0 < fault.time_ns < 60 * SECOND and fault.kind in ACTIONS for fault in faults)
    assert from_text(to_text(faults)) == faults


def test_seeds_differ_in_the_kinds_of_their_faults() -> None:
    mixtures = {
        frozenset(fault.kind for fault in draw_faults(random.Random(seed), NAMES, 60 * SECOND))
        for seed in range(50)
    }
    assert len(mixtures) > 30
    assert frozenset().union(*mixtures) == frozenset(ACTIONS)


@pytest.mark.parametrize("kind", DRAWS)
def test_each_kind_alone_is_survived(kind: str) -> None:
    faults = draw_faults(random.Random(kind), NAMES, 2 * SECOND, {kind: DRAWS[kind]})
    run_toy(1, 2 * SECOND, faults)


@settings(max_examples=10)
@given(st.integers(0, 100), st.randoms(use_true_random=False))
def test_every_subset_is_valid(seed: int, choice: random.Random) -> None:
    faults = draw_faults(random.Random(seed), NAMES, 2 * SECOND)
    run_toy(seed, 2 * SECOND, [fault for fault in faults if choice.random() < 0.5])


def test_a_world_can_have_faults_of_its_own() -> None:
    done: list[tuple[str, int]] = []
    actions = {**ACTIONS, "add_voter": lambda world, name: done.append((name, world.now_ns))}
    with World(1) as world:
        schedule(world, [Fault(5, "add_voter", ("n1",))], actions)
        world.run_until(10)
    assert done == [("n1", 5)]


# Shrinking


@given(st.sets(st.integers(0, 59), min_size=1, max_size=5))
def test_shrinking_finds_exactly_what_is_needed(needed: set[int]) -> None:
    def run(faults: list[int]) -> str | None:
        return "lost" if needed <= set(faults) else None

    assert shrink(list(range(60)), run) == sorted(needed)


def test_shrinking_does_not_follow_another_violation() -> None:
    def run(faults: list[int]) -> str | None:
        if {3, 30} <= set(faults):
            return "lost"
        return "something else" if 3 in faults else None

    assert shrink(list(range(40)), run) == [3, 30]


def test_shrinking_tells_when_no_fault_is_needed() -> None:
    assert shrink([1, 2, 3], lambda _: "always") == []


class Counter:
    """A node that acknowledges numbers after writing them, with or without waiting for the disk."""

    def __init__(self, *, flushes: bool) -> None:
        self.acknowledged = 0
        self._flushes = flushes

    async def main(self, host: Host) -> None:
        file = host.files.open("log", create=True)
        await host.files.fsync_dir("")
        written = file.read(0, file.size()).count(b"x")
        assert written >= self.acknowledged, "acknowledged and lost"
        while True:
            file.append([b"x"])
            written += 1
            if self._flushes:
                await file.fsync()
            self.acknowledged = written
            await asyncio.sleep(0.05)


def violation(seed: int, faults: list[Fault], *, flushes: bool) -> str | None:
    node = Counter(flushes=flushes)
    with World(seed, tolerate=lambda end: isinstance(end.exception, OSError)) as world:
        for name in ("n1", "n2", "n3"):
            world.add_machine(name)
        world.start("n1", node.main)
        schedule(world, faults)
        world.run_until(20 * SECOND)
        heal_everything(world)
        world.run_for(SECOND)
        return str(world.problems[0].exception).partition("\n")[0] if world.problems else None


def test_a_planted_bug_is_found_and_shrunk_to_its_cause() -> None:
    shrunk = []
    for seed in range(10):
        faults = draw_faults(random.Random(f"{seed}/planted"), ("n1", "n2", "n3"), 20 * SECOND)
        assert violation(seed, faults, flushes=True) is None
        if violation(seed, faults, flushes=False) is None:
            continue
        small = shrink(faults, lambda some, seed=seed: violation(seed, some, flushes=False))
        assert violation(seed, small, flushes=True) is None, "the corrected code passes"
        assert len(small) <= 6
        assert {fault.kind for fault in small} & {"power_loss", "crash_in_disk"}
        assert all(fault.args[0] == "n1" for fault in small)
        shrunk.append(small)
    assert len(shrunk) >= 2
    assert min(map(len, shrunk)) == 1, "one power loss is enough"


def test_healing_everything_brings_all_back() -> None:
    async def main(_: Host) -> None:
        await asyncio.sleep(1e6)

    with World(1) as world:
        for name in NAMES:
            world.add_machine(name)
            world.start(name, main)
        world.run_for(MS)
        faults = [
            Fault(2 * MS, "isolate", ("n1",)),
            Fault(2 * MS, "kill", ("n2",)),
            Fault(2 * MS, "power_loss", ("n3",)),
            Fault(2 * MS, "full_disk", ("n4", 0)),
        ]
        schedule(world, faults)
        world.run_for(SECOND)
        heal_everything(world)
        assert all(map(world.is_running, NAMES))
        assert not world.network.wires.troubled
        assert world.machines["n4"].disk.room_bytes is None
