"""How a command ends that has a cluster: in order, brokers first, and it says what it waits for."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from quorate.testing.control import ClusterError, Launched, read_state

__all__ = ["end_in_order", "stopped_by_signals"]

_LOOK_S: Final = 0.02


def end_in_order(launched: Launched, console: Any) -> None:
    """Stops everything, and says what is waited for. Interrupted again, it waits no longer."""
    assert launched.process.stdin is not None
    launched.process.stdin.close()
    said, is_hurried, is_told = "", False, False
    while launched.process.poll() is None:
        try:
            if is_hurried and not is_told:
                console.print("not waiting any longer")
                with contextlib.suppress(ClusterError):
                    launched.order("end")
                is_told = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                launched.process.wait(_LOOK_S)
                break
            line = _waited_for(launched.directory)
            if line and line != said and not is_hurried:
                said = line
                console.print(line, soft_wrap=True)
        except KeyboardInterrupt:  # at whatever of the above
            is_hurried = True
    console.print("stopped")


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
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
