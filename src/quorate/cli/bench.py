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
    modes: Annotated[
        str | None, typer.Option(help="Of failover: which control planes, as kraft,zookeeper.")
    ] = None,
    partitions: Annotated[
        str | None, typer.Option(help="Of failover: how many partitions, as 100,1000,10000.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Of failover: where the picture goes (SVG).")] = None,
    session_ms: Annotated[
        int | None,
        typer.Option(
            help="Of failover: how long a broker's session lasts; if not given, longer with many partitions."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Of failover: where the nodes have their files meanwhile.")
    ] = None,
) -> None:
    """Runs the benchmarks, each beside a baseline of the same run."""
    sources = Path(quorate.__file__).parents[2]
    if not (sources / "bench" / "__main__.py").exists():
        fail("the benchmarks are with the sources, and this is the installed package: use a checkout of it")
    given = {
        "--modes": modes,
        "--partitions": partitions,
        "--plot": plot and plot.absolute(),
        "--session-ms": session_ms,
        "--data": data and data.absolute(),
    }
    options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    if options and sections != ["failover"]:
        fail(f"{options[0]}: only for the benchmark failover")
    raise typer.Exit(
        subprocess.call([sys.executable, "-m", "bench", *(sections or ()), *options], cwd=sources),
    )
