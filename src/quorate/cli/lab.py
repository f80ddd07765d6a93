"""Breaking things on purpose: simulated runs that can be repeated."""

from __future__ import annotations

from quorate.cli.quiet import without_log_lines
from quorate.lab.faults import Fault, to_text
from quorate.lab.outcome import Outcome
from quorate.lab.quorum import draw_quorum_faults, run_quorum
from quorate.lab.shrink import shrink
from quorate.lab.world import SECOND

__all__ = ["run_seed"]

_SHRINK_RUNS_MAX = 60
_LINES = 40


def run_seed(seed: int, seconds: int, *, steps_max: int | None, should_shrink: bool) -> bool:
    """Runs one seed and says what came of it; whether every promise was kept."""
    duration_ns = seconds * SECOND
    faults = draw_quorum_faults(seed, duration_ns)
    with without_log_lines():
        outcome = run_quorum(seed, duration_ns, faults, lines_per_node_max=_LINES, steps_max=steps_max)
    print(
        f"seed {seed}: {seconds} s simulated, {len(faults)} faults, {outcome.steps:,} steps,"
        f" {outcome.elections} elections, {outcome.acknowledged} acknowledged records"
    )
    print(f"trace {outcome.digest}")
    if outcome.violation is None:
        return True
    print(f"violation: {outcome.violation}")
    if should_shrink:
        with without_log_lines():
            faults = shrink(faults, lambda some: _kind(run_quorum(seed, duration_ns, some)), _SHRINK_RUNS_MAX)
            outcome = run_quorum(seed, duration_ns, faults, lines_per_node_max=_LINES)
        print(f"{len(faults)} faults are enough:\n{to_text(faults)}", end="")
    _print_trace(outcome, faults)
    print(f"again: quorate lab quorum --seed {seed} --seconds {seconds}")
    return False


def _kind(outcome: Outcome) -> str | None:
    """What kind of violation it is, without the numbers in it."""
    if outcome.violation is None:
        return None
    return "".join(character for character in outcome.violation if not character.isdigit())[:40]


def _print_trace(outcome: Outcome, faults: list[Fault]) -> None:
    print(f"the last faults of {len(faults)}:")
    for fault in faults[-10:]:
        print(f"  {fault}")
    print("the last lines of every node:")
    for line in outcome.trace[-_LINES:]:
        print(f"  {line}")
