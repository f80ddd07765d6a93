"""`quorate lab`: breaking things on purpose, in a simulation or in a cluster that is up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorate.cli import lab, lab_nodes

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Breaking things on purpose.")

_Seed = Annotated[int, typer.Option(help="Decides everything that happens.")]
_Seconds = Annotated[int, typer.Option(min=1, help="Simulated seconds of faults.")]


@app.command("sim")
def lab_sim(
    seed: _Seed = 1,
    seconds: _Seconds = 30,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Goes on with the next seeds until a promise is broken.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many, at most, with --until-failure.")] = 1_000_000,
    minimise: Annotated[
        bool, typer.Option("--minimise", help="Makes the list of faults of a failing seed small.")
    ] = False,
    faults: Annotated[
        Path | None, typer.Option(help="Runs the faults of a file instead of those of the seed.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="Writes what happened to a file, as a journal of events.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tells only how it ended.")] = False,
) -> None:
    """Runs a whole cluster of production code in simulated time, under the faults of a seed.

    Exit status 0: every promise was kept. 1: one was broken, and is named.
    """
    if until_failure:
        failed = lab.simulate_until_failure(seed, seconds, seeds)
        if failed is None:
            return
        seed = failed
    kept = lab.simulate_cluster(
        seed, seconds, should_minimise=minimise, faults_path=faults, events_path=events, tells=not quiet
    )
    if not kept:
        raise typer.Exit(1)


@app.command("chaos")
def lab_chaos(
    data: lab_nodes.DataOption,
    seed: _Seed = 1,
    seconds: Annotated[int, typer.Option(min=1, help="Real seconds of faults.")] = 60,
    kinds: Annotated[
        str, typer.Option(help="Kinds of faults, with commas; without it the seed chooses.")
    ] = "",
    faults: Annotated[
        Path | None, typer.Option(help="Does what is in a file instead of what the seed says.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="Writes what was done to a file, as a journal of events.")
    ] = None,
) -> None:
    """Breaks the processes of a cluster that is up, and checks what its clients were promised.

    Exit status 0: every promise was kept. 1: one was broken, and is named. 2: it could not be tried.
    """
    from quorate.cli import chaos

    if not chaos.run_chaos(data, seed, seconds, kinds, faults_path=faults, events_path=events):
        raise typer.Exit(1)


@app.command("quorum")
def lab_quorum(
    seed: _Seed,
    seconds: _Seconds = 60,
    steps: Annotated[int, typer.Option(help="Stops after so many steps; 0 is all.")] = 0,
    shrink: Annotated[bool, typer.Option("--shrink", help="Makes a failing list of faults small.")] = False,
) -> None:
    """Runs a simulated quorum of production controllers under the faults of a seed."""
    if not lab.simulate_quorum(seed, seconds, steps_max=steps or None, should_shrink=shrink):
        raise typer.Exit(1)


for command in lab_nodes.COMMANDS:
    app.command(command.__name__)(command)
