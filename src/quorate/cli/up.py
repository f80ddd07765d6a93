"""`quorate up`: a cluster on this machine, for as long as the command runs.

It shows how the cluster is while it runs; to a terminal as a picture, to everybody else as lines. The nodes
are children of a launcher (`testing.launcher`), which ends with this command.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from quorate.testing.control import ClusterError, Launched, launch, read_state
from quorate.testing.places import has_cluster
from quorate.testing.profiles import PROFILES

__all__ = ["app", "up"]

PORT: Final = 9092
READY_S: Final = 60.0
_LOOK_S: Final = 0.25
_HASTE_S: Final = 0.05
_LINES_KEPT: Final = 50

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
) -> None:
    """Runs a cluster on this machine until Ctrl-C."""
    if profile not in PROFILES:
        _fail(f"--profile {profile}: allowed is {' or '.join(PROFILES)}")
    directory = data.absolute() if data is not None else Path(tempfile.mkdtemp(prefix="quorate-"))
    is_new = not has_cluster(directory)
    wanted: dict[str, Any] = {
        "brokers": brokers,
        "controllers": controllers,
        "port": PORT if port is None and is_new else port,
        "settings": dict(PROFILES[profile]),
    }
    try:
        with _stopped_by_signals():
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
        screen = _Screen(console, launched, began, is_kept=is_kept)
        with contextlib.suppress(KeyboardInterrupt):
            screen.show()
    finally:
        _end(launched, console)


class _Screen:
    """What is seen while the cluster runs."""

    def __init__(self, console: Any, launched: Launched, began: float, *, is_kept: bool) -> None:
        from quorate.cli.up_status import Watch

        self._console = console
        self._launched = launched
        self._began = began
        self._watch = Watch(launched)
        self._events: deque[str] = deque(maxlen=_LINES_KEPT)
        state = launched.state()
        self._heading = [
            ("bootstrap servers", state["bootstrap_servers"]),
            ("bootstrap controllers", state["bootstrap_controllers"]),
            ("profile", state["profile"]),
            ("data", f"{launched.directory}{'' if is_kept else ' (removed at the end)'}"),
        ]

    def show(self) -> None:
        """Lasts until somebody interrupts it, or nothing is left to show."""
        if self._console.is_terminal:
            self._show_picture()
        else:
            self._show_lines()

    def _show_picture(self) -> None:
        from rich.live import Live

        from quorate.cli.up_status import rendered

        with Live(console=self._console, auto_refresh=False) as live:
            while self._is_there():
                status = self._watch.look()
                self._events.extend(self._watch.read_news())
                live.update(rendered(status, self._heading, list(self._events)), refresh=True)
                time.sleep(_LOOK_S if status.is_ready else _HASTE_S)

    def _show_lines(self) -> None:
        from quorate.cli.up_status import plain_lines

        for name, value in self._heading:
            self._say(f"{name}: {value}")
        was_ready = False
        while self._is_there():
            status = self._watch.look()
            for line in self._watch.read_news():
                self._say(line)
            if status.is_ready and not was_ready:
                plain_lines(status, self._console)
                self._say(f"ready after {time.monotonic() - self._began:.1f} s; Ctrl-C stops it")
            was_ready = status.is_ready
            time.sleep(_LOOK_S if status.is_ready else _HASTE_S)

    def _is_there(self) -> bool:
        return self._launched.process.poll() is None

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


def _end(launched: Launched, console: Any) -> None:
    """Stops everything, and says what is waited for. Interrupted again, it waits no longer."""
    assert launched.process.stdin is not None
    launched.process.stdin.close()
    said = ""
    while True:
        try:
            launched.process.wait(_HASTE_S)
            break
        except subprocess.TimeoutExpired:
            line = _waited_for(launched.directory)
            if line and line != said:
                console.print(line, soft_wrap=True)
                said = line
        except KeyboardInterrupt:
            console.print("not waiting any longer")
            with contextlib.suppress(ClusterError):
                launched.order("end")
    console.print("stopped")


def _waited_for(directory: Path) -> str:
    with contextlib.suppress(KeyError, TypeError, json.JSONDecodeError):
        state = read_state(directory) or {}
        nodes = [one for one in state["nodes"] if one["id"] in state["waiting_for"]]
        if nodes:
            kind = "broker" if any("broker" in one["roles"] for one in nodes) else "controller"
            kind += "s" if len(nodes) > 1 else ""
            ids = ", ".join(str(one["id"]) for one in nodes)
            return f"stopping: waiting for {kind} {ids} to leave (Ctrl-C: at once)"
    return ""


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Being told to end is like Ctrl-C."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:  # before there was anything to stop
        print("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(reason: str) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise typer.Exit(1)
