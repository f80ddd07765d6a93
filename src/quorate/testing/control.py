"""A launcher, seen from outside: starting one, waiting until its cluster can be used, and giving it orders.

    with started(directory) as launched:
        launched.wait_until_ready(30)
        launched.order("kill", 1)

Everything here blocks, and is for threads: nothing of it runs on an event loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from quorate.testing.places import (
    CONTROL_SOCKET,
    LINE_BYTES_MAX,
    LOG_FILE,
    STATE_FILE,
    has_something_else,
    holder_of,
)

__all__ = [
    "ClusterError",
    "Control",
    "Launched",
    "ask_admin",
    "launch",
    "read_state",
    "started",
    "wait_until",
]

LINES_QUOTED: Final = 12
_POLL_S: Final = 0.02
_ORDER_S: Final = 30.0
_END_S: Final = 90.0
_ADDRESS_BYTES_MAX: Final = 100  # of a socket of this kind

State = dict[str, Any]
T = TypeVar("T")


class ClusterError(Exception):
    """The cluster cannot do what it was asked for, or did not in time."""


class Control:
    """Orders to the launcher of a directory, which somebody has started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def order(self, do: str, node_id: int | str | None = None) -> State:
        """Carries out an order; returns what is so afterwards. `ClusterError` if it is refused. Servers of a
        private ZooKeeper have names instead of numbers."""
        order: dict[str, Any] = {"do": do} if node_id is None else {"do": do, "id": node_id}
        try:
            with socket.socket(socket.AF_UNIX) as connection, _address(self.directory) as address:
                connection.settimeout(_ORDER_S)
                connection.connect(address)
                connection.sendall(json.dumps(order).encode() + b"\n")
                answer = _line(connection)
        except OSError as error:
            raise ClusterError(f"no cluster runs in {self.directory}: is it up? ({error})") from error
        if "error" in answer:
            raise ClusterError(str(answer["error"]))
        return answer

    def state(self) -> State:
        return self.order("state")

    def node(self, node_id: int) -> State:
        """What is so of one node."""
        state = self.state()
        for one in state["nodes"]:
            if one["id"] == node_id:
                found: State = one
                return found
        ids = ", ".join(str(one["id"]) for one in state["nodes"])
        raise ClusterError(f"there is no node {node_id}: the nodes are {ids}")

    def start(self, node_id: int) -> None:
        """Starts a node that does not run, and does not wait for it."""
        self.order("start", node_id)

    def restart(self, node_id: int, timeout_s: float) -> None:
        """Stops a node in order if it runs, and starts it; returns when it can be used."""
        if self.node(node_id)["pid"] is not None:
            self.stop(node_id, timeout_s)
        self.start(node_id)
        self.wait_until_ready(timeout_s, node_id)

    def stop(self, node_id: int, timeout_s: float) -> None:
        """Stops a node in order; returns when it has ended."""
        self.order("stop", node_id)
        self._wait(f"node {node_id} to stop", lambda state: _of(state, node_id)["pid"] is None, timeout_s)

    def wait_until_ready(self, timeout_s: float, *node_ids: int) -> State:
        """Until these nodes can be used, or all; fails at once when one of them has ended."""

        def is_ready(state: State) -> bool:
            wanted = [one for one in state["nodes"] if not node_ids or one["id"] in node_ids]
            for one in wanted:
                if one["state"] == "dead":
                    how = f"ended with status {one['exit_status']}"
                    raise ClusterError(f"node {one['id']} {how}\n{quoted(Path(one['log']))}")
            return all(one["ready"] for one in wanted)

        what = "the cluster" if not node_ids else f"node {', '.join(map(str, node_ids))}"
        return self._wait(f"{what} to be ready", is_ready, timeout_s)

    def _wait(self, what: str, condition: Callable[[State], bool], timeout_s: float) -> State:
        deadline = time.monotonic() + timeout_s
        while True:
            state = self.state()
            if condition(state):
                return state
            if time.monotonic() > deadline:
                late = [one for one in state["nodes"] if not one["ready"]]
                logs = "\n".join(quoted(Path(one["log"])) for one in late[:3])
                raise ClusterError(f"waited {timeout_s:g} s for {what}\n{logs}")
            time.sleep(_POLL_S)


class Launched(Control):
    """The same for one that we have started ourselves: it ends when we do."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        super().__init__(directory)
        self.process = process

    def order(self, do: str, node_id: int | str | None = None) -> State:
        try:
            return super().order(do, node_id)
        except ClusterError as error:
            if self.process.poll() is not None and isinstance(error.__cause__, OSError):
                raise ClusterError(f"the launcher has ended\n{quoted(self.directory / LOG_FILE)}") from None
            raise

    def wait_until_listening(self, timeout_s: float) -> State:
        """Until it takes orders."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._is_listening():
                return self.state()
            if self.process.poll() is not None:
                raise ClusterError(_last_line(self.directory / LOG_FILE))
            if time.monotonic() > deadline:
                raise ClusterError(f"the launcher of {self.directory} has not started in {timeout_s:g} s")
            time.sleep(_POLL_S)

    def _is_listening(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection, _address(self.directory) as address:
                connection.connect(address)
        except OSError:
            return False
        return True

    def end(self, timeout_s: float = _END_S) -> None:
        """Stops everything, brokers first; returns when it is over."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.end_at_once()

    def end_at_once(self) -> None:
        """Does not wait for nodes to leave in order."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def launch(directory: Path, wanted: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Launched:
    """Starts a launcher for the cluster that a directory has, or that is `wanted` there: see
    `plan.obtain_plan`. Returns when it takes orders. `ClusterError` with one line if that cannot be."""
    holder = holder_of(directory)
    if holder is not None:
        raise ClusterError(f"{directory} is in use: process {holder} runs the cluster that it has")
    if has_something_else(directory):
        raise ClusterError(
            f"{directory} has something else in it than a cluster: give an empty directory, or a new one"
        )
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "quorate.testing.launcher", str(directory), json.dumps(wanted or {})],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    launched = Launched(directory, process)
    try:
        launched.wait_until_listening(timeout_s)
    except BaseException:
        launched.end_at_once()
        raise
    return launched


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Launched]:
    """`launch`, and the end of it."""
    launched = launch(directory)
    try:
        yield launched
    finally:
        launched.end()


def read_state(directory: Path) -> State | None:
    """What stands in cluster.json, whether anything runs or not."""
    try:
        found: State = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def wait_until(condition: Callable[[], T], timeout_s: float, what: str = "the condition") -> T:
    """The first answer that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout_s:g} s for {what}")
        time.sleep(_POLL_S)


def ask_admin(address: str, path: str, *, method: str = "GET", timeout_s: float = 1.0) -> dict[str, Any]:
    """What the admin endpoint of a node answers. `ClusterError` if it does not, or refuses."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise ClusterError(f"{address}{path}: {error}") from error
    finally:
        connection.close()
    if response.status >= 400:
        raise ClusterError(f"{address}{path}: {found.get('error', response.reason)}")
    return found


def quoted(log: Path, lines: int = LINES_QUOTED) -> str:
    """The end of a log."""
    try:
        found = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        found = []
    return "\n".join([f"-- the end of {log}", *found] if found else [f"-- {log} is empty"])


def _last_line(log: Path) -> str:
    found = quoted(log, 1).splitlines()[-1]
    return found.removeprefix("quorate: ")


def _of(state: State, node_id: int) -> State:
    found: State = next(one for one in state["nodes"] if one["id"] == node_id)
    return found


def _line(connection: socket.socket) -> State:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(LINE_BYTES_MAX)
        if not more:
            raise ConnectionResetError("it hung up")
        data += more
    found: State = json.loads(data)
    return found


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The address of the socket; where its path is too long for one, by way of an open directory."""
    path = str(directory / CONTROL_SOCKET)
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{opened}/{CONTROL_SOCKET}"
    finally:
        os.close(opened)
