"""`quorate lab chaos`: real faults on a real cluster, and what came of it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import typer

from quorate.cli.lab import read_faults, write_events
from quorate.lab.chaos import Chaos
from quorate.lab.chaos_faults import KINDS, OF_THE_LAB, draw_chaos_faults
from quorate.testing.control import ClusterError, Control

__all__ = ["run_chaos"]


def run_chaos(
    data: Path, seed: int, seconds: int, kinds: str, *, faults_path: Path | None, events_path: Path | None
) -> bool:
    """Whether every promise was kept."""
    chosen = [one.strip() for one in kinds.split(",") if one.strip()]
    for one in chosen:
        if one not in KINDS:
            _fail(f"no kind of fault is called {one!r}; there are: {', '.join(KINDS)}")
    control = Control(data.absolute())
    try:
        nodes = control.state()["nodes"]
        chaos = Chaos(control, seed, tell=lambda line: print(line, flush=True))
    except ClusterError as error:
        _fail(str(error).splitlines()[0])
    if faults_path is not None:
        faults = read_faults(faults_path)
    else:
        kinds_of_seed = chosen or list(KINDS)
        if not chaos.has_a_lab:
            refused = [one for one in chosen if one in OF_THE_LAB]
            if refused:
                _fail(f"{', '.join(refused)}: the nodes do not have quorate.lab.enabled=true")
            kinds_of_seed = [one for one in kinds_of_seed if one not in OF_THE_LAB]
            print(f"without {', '.join(OF_THE_LAB)}: the nodes do not have quorate.lab.enabled=true")
        faults = draw_chaos_faults(seed, [one["id"] for one in nodes], seconds, kinds_of_seed)
    found = asyncio.run(chaos.run(faults, seconds))
    if events_path is not None:
        write_events(events_path, seed, found.rows)
    done = Counter(one["fault"] for one in found.rows if one["kind"] == "Fault" and one["is_done"])
    print(
        f"seed {seed}: {seconds} s, {found.faults} faults ({_listed(done)}),"
        f" {found.acknowledged} acknowledged records, {found.register_operations} operations on registers,"
        f" {found.settings} changes of the metadata, {found.rebalances} assignments, {found.checks} checks"
    )
    print(f"violation: {found.violation}" if found.violation else "every promise was kept")
    return found.violation is None


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())) or "none"


def _fail(message: str) -> NoReturn:
    print(f"quorate: {message}", file=sys.stderr)
    raise typer.Exit(2)
