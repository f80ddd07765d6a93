"""`quorate lab`: breaking things on purpose, in a simulation or in a cluster that is up."""

from __future__ import annotations

from typing import Annotated

import typer

from quorate.cli import lab, lab_nodes

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Breaking things on purpose.")


@app.command("quorum")
def lab_quorum(
    seed: Annotated[int, typer.Option(help="Decides everything that happens.")],
    seconds: Annotated[int, typer.Option(min=1, help="Simulated seconds of faults.")] = 60,
    steps: Annotated[int, typer.Option(help="Stops after so many steps; 0 is all.")] = 0,
    shrink: Annotated[bool, typer.Option("--shrink", help="Makes a failing list of faults small.")] = False,
) -> None:
    """Runs a simulated quorum of production controllers under the faults of a seed."""
    if not lab.run_seed(seed, seconds, steps_max=steps or None, should_shrink=shrink):
        raise typer.Exit(1)


for command in lab_nodes.COMMANDS:
    app.command(command.__name__)(command)
