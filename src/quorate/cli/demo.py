"""`quorate demo`: what a cluster does when things break, told while it happens.

Three controllers and three brokers, written to and read from all along, lose a broker, get it back, restart
every broker in order, and lose the active controller. Then it is proved that no acknowledged record was lost,
and the pipeline says what happened. `story.json` in the directory has everything that was done, for programs.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console

from quorate.cli.demo_acts import ACTS, BROKERS, CONTROLLERS, TOPIC, Stage, begin, write_and_read
from quorate.cli.demo_pipeline import explain
from quorate.cli.demo_proof import Claim
from quorate.cli.demo_story import Story, wall_ms
from quorate.cli.demo_telling import Telling
from quorate.cli.demo_traffic import Traffic
from quorate.cli.demo_watch import ClusterWatch
from quorate.cli.quiet import without_log_lines
from quorate.cli.up_ending import end_in_order, stopped_by_signals
from quorate.protocol.errors import ApiError
from quorate.testing.control import ClusterError, Launched, launch
from quorate.testing.places import has_cluster
from quorate.testing.profiles import DEVELOPMENT

__all__ = ["app", "demo"]

SETTINGS: Final = {**DEVELOPMENT, "offsets.topic.num.partitions": "4"}
_BROKEN: Final = 1
_INTERRUPTED: Final = 130  # as shells have it

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="A new directory, which is kept; if not given, one only for this run."),
    ] = None,
    ends: Annotated[
        bool, typer.Option("--exit", help="Ends with the story; otherwise the cluster stays until Ctrl-C.")
    ] = False,
    pipeline: Annotated[
        bool, typer.Option(help="Whether Spark explains what happened, if it is installed.")
    ] = True,
) -> None:
    """A cluster is broken and loses nothing: the story, told while it happens.

    The exit status is 0 only if everything held that the story claims.
    """
    if data is not None and has_cluster(data):
        _fail(f"{data} has a cluster already: the demo begins with a new one, in a new directory")
    directory = data.absolute() if data is not None else Path(tempfile.mkdtemp(prefix="quorate-demo-"))
    status = _INTERRUPTED
    try:
        with stopped_by_signals(), without_log_lines():
            status = _run(directory, is_kept=data is not None, stays=not ends, has_pipeline=pipeline)
    except ClusterError as error:
        _fail(str(error))
    finally:
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)
    raise typer.Exit(status)


def _run(directory: Path, *, is_kept: bool, stays: bool, has_pipeline: bool) -> int:
    """Returns the exit status."""
    console = Console(highlight=False, emoji=False, markup=False)
    began = time.monotonic()
    launched = launch(directory, {"brokers": BROKERS, "controllers": CONTROLLERS, "settings": SETTINGS})
    status = _INTERRUPTED
    try:
        with contextlib.suppress(KeyboardInterrupt):
            story = _tell(console, launched, began, has_pipeline=has_pipeline)
            status = _BROKEN if story.broken else 0
            _sum_up(console, story)
            if stays:
                _stay(console, launched, began, is_kept=is_kept)
    finally:
        end_in_order(launched, console)
    return status


def _tell(console: Console, launched: Launched, began: float, *, has_pipeline: bool) -> Story:
    acts = (*ACTS, explain) if has_pipeline else ACTS
    watch = ClusterWatch(launched)
    story = Story(launched.directory, watch.offset)
    with contextlib.ExitStack() as closing, Telling(console, acts=2 + len(acts)) as telling:
        try:
            bootstrap = begin(launched, watch, story, telling, began)
            traffic = write_and_read(watch, story, telling, bootstrap)
            closing.callback(_close, console, traffic)
            stage = Stage(launched, watch, traffic, story, telling)
            for act in acts:
                act(stage)
        except (ClusterError, ApiError, ConnectionError) as error:
            reason, *more = str(error).splitlines() or [type(error).__name__]
            telling.claim(story.claim(Claim("the story was told to its end", False, reason)))
            for line in more:
                telling.say(line)
        story.note({"ended_ms": wall_ms()})
    return story


def _close(console: Console, traffic: Traffic) -> None:
    """The traffic ends with the story; if that was interrupted, it has to be told to."""
    if traffic.is_under_way:
        console.print("stopping: waiting for the producer and the consumer")
    traffic.close()


def _sum_up(console: Console, story: Story) -> None:
    if story.broken:
        for claim in story.broken:
            print(f"quorate: {claim.line()}", file=sys.stderr)
    else:
        console.print(f"All {len(story.claims)} claims held.", style="bold")


def _stay(console: Console, launched: Launched, began: float, *, is_kept: bool) -> None:
    from quorate.cli.up_screen import Screen

    servers = launched.state()["bootstrap_servers"].partition(",")[0]
    console.print("The cluster is yours until Ctrl-C. In another terminal:")
    console.print(f"  quorate topics describe {TOPIC} --bootstrap-server {servers}", soft_wrap=True)
    console.print()
    Screen(console, launched, began, is_kept=is_kept).show()


def _fail(reason: str) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise typer.Exit(_BROKEN)
