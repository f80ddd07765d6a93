"""`quorate lab restart|kill|stop|pause|resume`: what can be done to the nodes of a cluster that is up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from quorate.testing.control import ClusterError, Control

__all__ = ["COMMANDS"]

TIMEOUT_S: Final = 60.0

IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The id of a node.")]
DataOption = Annotated[Path, typer.Option(help="The directory of the cluster, as `quorate up` shows it.")]


def restart(node_id: IdArgument, data: DataOption) -> None:
    """Stops a node in order if it runs, and starts it again."""
    _do(data, lambda control: control.restart(node_id, TIMEOUT_S), f"node {node_id} is ready")


def kill(node_id: IdArgument, data: DataOption) -> None:
    """Ends a node without mercy."""
    _do(data, lambda control: control.order("kill", node_id), f"node {node_id} is dead")


def stop(node_id: IdArgument, data: DataOption) -> None:
    """Stops a node in order."""
    _do(data, lambda control: control.stop(node_id, TIMEOUT_S), f"node {node_id} has stopped")


def pause(node_id: IdArgument, data: DataOption) -> None:
    """Lets a node do nothing, with its connections open."""
    _do(data, lambda control: control.order("pause", node_id), f"node {node_id} is paused")


def resume(node_id: IdArgument, data: DataOption) -> None:
    """Lets a paused node go on."""
    _do(data, lambda control: control.order("resume", node_id), f"node {node_id} goes on")


COMMANDS: Final[tuple[Callable[..., None], ...]] = (restart, kill, stop, pause, resume)


def _do(data: Path, what: Callable[[Control], object], said: str) -> None:
    try:
        what(Control(data.absolute()))
    except ClusterError as error:
        print(f"quorate: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(said)
