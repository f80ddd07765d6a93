"""Breaking things on purpose: simulated runs that can be repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from quorate.cli.quiet import without_log_lines
from quorate.lab.cluster import run_cluster
from quorate.lab.cluster_faults import draw_cluster_faults
from quorate.lab.faults import Fault, from_text, to_text
from quorate.lab.outcome import Outcome
from quorate.lab.quorum import draw_quorum_faults, run_quorum
from quorate.lab.shrink import shrink
from quorate.lab.story import Story
from quorate.lab.world import SECOND

__all__ = ["read_faults", "simulate_cluster", "simulate_quorum", "simulate_until_failure", "write_events"]

_SHRINK_RUNS_MAX = 60
_LINES = 40


@dataclass(frozen=True, slots=True)
class _World:
    """Something that can be simulated."""

    command: str
    draw: Callable[[int, int], list[Fault]]
    run: Callable[[int, int, Sequence[Fault]], Outcome]


_QUORUM = _World("quorate lab quorum", draw_quorum_faults, run_quorum)
_CLUSTER = _World("quorate lab sim", draw_cluster_faults, run_cluster)


def simulate_quorum(seed: int, seconds: int, *, steps_max: int | None, should_shrink: bool) -> bool:
    """Runs one seed and says what came of it; whether every promise was kept."""
    duration_ns = seconds * SECOND
    faults = draw_quorum_faults(seed, duration_ns)
    with without_log_lines():
        outcome = run_quorum(seed, duration_ns, faults, lines_per_node_max=_LINES, steps_max=steps_max)
    _print_outcome(outcome, seconds, len(faults))
    if outcome.violation is not None:
        if should_shrink:
            faults = _minimise(_QUORUM, duration_ns, faults, outcome)
            with without_log_lines():
                outcome = run_quorum(seed, duration_ns, faults, lines_per_node_max=_LINES)
        _print_last_lines(outcome, faults)
        print(f"again: {_QUORUM.command} --seed {seed} --seconds {seconds}")
    print(f"trace {outcome.digest}")
    return outcome.violation is None


def simulate_cluster(
    seed: int,
    seconds: int,
    *,
    should_minimise: bool = False,
    faults_path: Path | None = None,
    events_path: Path | None = None,
    tells: bool = True,
) -> bool:
    """Runs one seed and tells its story; whether every promise was kept."""
    duration_ns = seconds * SECOND
    faults = draw_cluster_faults(seed, duration_ns) if faults_path is None else read_faults(faults_path)
    story, outcome = _run_cluster(seed, duration_ns, faults)
    if tells:
        for line in story:
            print(line)
    _print_outcome(outcome, seconds, len(faults))
    if outcome.violation is not None and should_minimise:
        faults = _minimise(_CLUSTER, duration_ns, faults, outcome)
        story, outcome = _run_cluster(seed, duration_ns, faults)
        print("with these alone:")
        for line in story:
            print(line)
    if outcome.violation is not None:
        print(f"again: {_CLUSTER.command} --seed {seed} --seconds {seconds}")
    if events_path is not None:
        write_events(events_path, seed, story.rows)
    print(f"trace {outcome.digest}")
    return outcome.violation is None


def simulate_until_failure(first_seed: int, seconds: int, seeds_max: int) -> int | None:
    """Runs one seed after the other until a promise is broken; that seed, or None after `seeds_max`."""
    kinds: Counter[str] = Counter()
    simulated_ns = checks = acknowledged = 0
    for seed in range(first_seed, first_seed + seeds_max):
        with without_log_lines():
            outcome = run_cluster(seed, seconds * SECOND)
        kinds.update(outcome.faults)
        simulated_ns += outcome.simulated_ns
        checks += outcome.checks
        acknowledged += outcome.acknowledged
        if outcome.violation is not None:
            return seed
        print(f"seed {seed}: kept; {simulated_ns / 3.6e12:.2f} simulated hours so far", flush=True)
    print(
        f"{seeds_max} seeds, {simulated_ns / 3.6e12:.2f} simulated hours, {kinds.total():,} faults,"
        f" {checks:,} checks, {acknowledged:,} acknowledged records: every promise was kept"
    )
    print("faults: " + ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common()))
    return None


def _run_cluster(seed: int, duration_ns: int, faults: Sequence[Fault]) -> tuple[Story, Outcome]:
    story = Story()
    with without_log_lines():
        outcome = run_cluster(seed, duration_ns, faults, story=story)
    return story, outcome


def write_events(path: Path, seed: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """What happened, as a journal of events has it."""
    lines = (json.dumps({"node": 0, "incarnation": str(seed), **row}) + "\n" for row in rows)
    try:
        path.write_text("".join(lines))
    except OSError as error:
        _fail(f"{path}: {error.strerror}")


def read_faults(path: Path) -> list[Fault]:
    """Faults that were kept as text."""
    try:
        return from_text(path.read_text())
    except OSError as error:
        _fail(f"{path}: {error.strerror}")
    except (ValueError, TypeError) as error:
        _fail(f"{path}: not a list of faults, one JSON array in each line: {error}")


def _fail(message: str) -> NoReturn:
    print(message)
    raise typer.Exit(2)


def _minimise(world: _World, duration_ns: int, faults: list[Fault], outcome: Outcome) -> list[Fault]:
    """A smaller list that breaks the same promise; it is printed. `outcome` is that of the whole list."""
    known = {tuple(faults): _kind(outcome)}  # no list is run twice

    def run(some: list[Fault]) -> str | None:
        key = tuple(some)
        if key not in known:
            known[key] = _kind(world.run(outcome.seed, duration_ns, some))
        return known[key]

    with without_log_lines():
        small = shrink(faults, run, _SHRINK_RUNS_MAX)
    print(f"{len(small)} of {len(faults)} faults are enough:\n{to_text(small)}", end="")
    return small


def _kind(outcome: Outcome) -> str | None:
    """What kind of violation it is, without the numbers in it."""
    if outcome.violation is None:
        return None
    return "".join(character for character in outcome.violation if not character.isdigit())[:40]


def _print_outcome(outcome: Outcome, seconds: int, faults: int) -> None:
    print(
        f"seed {outcome.seed}: {seconds} s of faults simulated, {faults} faults, {outcome.steps:,} steps,"
        f" {outcome.elections} elections, {outcome.acknowledged} acknowledged records"
    )
    if outcome.excused:
        print(f"{outcome.excused} of them are gone with every broker that had them, which is excused")
    if outcome.violation is not None:
        print(f"violation: {outcome.violation}")


def _print_last_lines(outcome: Outcome, faults: Sequence[Fault]) -> None:
    print(f"the last faults of {len(faults)}:")
    for fault in faults[-10:]:
        print(f"  {fault}")
    print("the last lines of every node:")
    for line in outcome.trace[-_LINES:]:
        print(f"  {line}")
