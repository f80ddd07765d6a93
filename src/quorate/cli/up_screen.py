"""How a cluster that is up looks while it runs: to a terminal a picture, to everybody else lines."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live

from quorate.cli.up_status import Status, Watch, plain_lines, rendered
from quorate.testing.control import Launched, State

__all__ = ["Screen"]

_LOOK_S: Final = 0.25
_HASTE_S: Final = 0.05
_LINES_KEPT: Final = 50


class Screen:
    """What is seen while the cluster runs."""

    def __init__(self, console: Console, launched: Launched, began: float, *, is_kept: bool) -> None:
        self._console = console
        self._launched = launched
        self._began = began
        self._watch = Watch(launched)
        self._events: deque[str] = deque(maxlen=_LINES_KEPT)
        state = launched.state()
        self._heading = [
            ("bootstrap servers", state["bootstrap_servers"]),
            _control_plane(state),
            ("profile", state["profile"]),
            ("data", f"{launched.directory}{'' if is_kept else ' (removed at the end)'}"),
        ]

    def show(self) -> None:
        """Lasts until somebody interrupts it, or nothing is left to show."""
        if self._console.is_terminal:
            self._show_picture()
        else:
            self._show_lines()

    def look(self) -> tuple[Status, RenderableType]:
        """How the cluster is now, and the picture of that."""
        status = self._watch.look()
        self._events.extend(self._watch.read_news())
        return status, rendered(status, self._heading, list(self._events))

    def _show_picture(self) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            while self._is_there():
                status, picture = self.look()
                live.update(picture, refresh=True)
                time.sleep(_LOOK_S if status.is_ready else _HASTE_S)

    def _show_lines(self) -> None:
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


def _control_plane(state: State) -> tuple[str, str]:
    """Where the cluster is governed from; and which ZooKeeper that is, if it was started for it."""
    if state["mode"] == "kraft":
        return "bootstrap controllers", state["bootstrap_controllers"]
    found = state["zookeeper"]
    private = f" (private, {found['distribution']})" if found["servers"] else ""
    return "ZooKeeper", f"{found['connect']}{private}"
