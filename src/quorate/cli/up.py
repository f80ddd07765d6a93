"""`quorate up`: a cluster on this machine, for as long as the command runs.

It shows how the cluster is while it runs; to a terminal as a picture, to everybody else as lines. The nodes
are children of a launcher (`testing.launcher`), which ends with this command.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from quorate.cli.up_ending import end_in_order, stopped_by_signals
from quorate.testing.control import ClusterError, launch
from quorate.testing.places import has_cluster
from quorate.testing.profiles import PROFILES

__all__ = ["app", "up"]

PORT: Final = 9092
KRAFT, ZOOKEEPER = MODES = ("kraft", "zookeeper")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def up(
    brokers: Annotated[int | None, typer.Option(min=1, help="How many brokers; 1 if not given.")] = None,
    controllers: Annotated[
        int | None, typer.Option(min=0, help="How many controllers of their own; if 0, brokers are both.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where everything is kept; if not given, only for this run.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The first broker's; 9092 if not given, 0 for any.")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="development (quick elections and fencing) or default, for a new cluster.")
    ] = "development",
    mode: Annotated[
        str | None,
        typer.Option(help="kraft, or zookeeper (with a private one, from an installed distribution)."),
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option(help="A ZooKeeper that runs, HOST:PORT/path: implies --mode zookeeper.")
    ] = None,
) -> None:
    """Runs a cluster on this machine until Ctrl-C."""
    if mode not in (None, *MODES):
        _fail(f"--mode {mode}: allowed is {' or '.join(MODES)}")
    if zookeeper is not None and mode == KRAFT:
        _fail("--zookeeper: not with --mode kraft")
    if profile not in PROFILES:
        _fail(f"--profile {profile}: allowed is {' or '.join(PROFILES)}")
    directory = data.absolute() if data is not None else Path(tempfile.mkdtemp(prefix="quorate-"))
    is_new = not has_cluster(directory)
    wanted: dict[str, Any] = {
        "brokers": brokers,
        "controllers": controllers,
        "port": PORT if port is None and is_new else port,
        "settings": dict(PROFILES[profile]),
        "mode": ZOOKEEPER if zookeeper is not None else mode,
        "zookeeper": zookeeper,
    }
    try:
        with stopped_by_signals():
            _run(directory, wanted, is_kept=data is not None)
    except ClusterError as error:
        _fail(str(error))
    finally:
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)


def _run(directory: Path, wanted: dict[str, Any], *, is_kept: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    began = time.monotonic()
    launched = launch(directory, wanted)
    try:
        from quorate.cli.up_screen import Screen  # while the nodes start

        screen = Screen(console, launched, began, is_kept=is_kept)
        with contextlib.suppress(KeyboardInterrupt):
            screen.show()
    finally:
        end_in_order(launched, console)


def _fail(reason: str) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise typer.Exit(1)
