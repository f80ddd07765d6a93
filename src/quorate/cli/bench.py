"""`quorate bench`: the benchmarks, which are with the sources and not in the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import quorate
from quorate.cli.failures import fail

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("bench")
def bench(
    sections: Annotated[
        list[str] | None, typer.Argument(metavar="[SECTION]", help="Only these, as: codec broker.")
    ] = None,
) -> None:
    """Runs the benchmarks, each beside a baseline of the same run."""
    sources = Path(quorate.__file__).parents[2]
    if not (sources / "bench" / "__main__.py").exists():
        fail("the benchmarks are with the sources, and this is the installed package: use a checkout of it")
    raise typer.Exit(
        subprocess.call([sys.executable, "-m", "bench", *(sections or ())], cwd=sources),
    )
