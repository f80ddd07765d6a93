"""The process that has a cluster's nodes as children: it starts them, watches them, and tells what is so.

It imports what nodes need once and forks them, so that each is there in milliseconds and shares that memory.
It has one thread and no event loop, because neither survives a fork; every node makes a loop of its own.

    python -m quorate.testing.launcher DIRECTORY

What runs stands in `DIRECTORY/cluster.json`, replaced whenever it changes. Orders come over the socket
`DIRECTORY/control.sock`, one line of JSON each, and each is answered by one line: `{"do": "kill", "id": 1}`.
A node that dies is not started again by itself. The launcher ends, and the nodes with it, when it is told to
(by an order or SIGTERM), or when whoever started it is gone: the end of its standard input says so.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from quorate.testing.plan import HOST, NodePlan, Plan, read_plan

__all__ = ["CONTROL_SOCKET", "STATE_FILE", "main"]

STATE_FILE: Final = "cluster.json"
CONTROL_SOCKET: Final = "control.sock"
LINE_BYTES_MAX: Final = 64 << 10
STOP_MS_MAX: Final = 30_000  # for a node to leave in order, before it is killed
_LOOK_MS: Final = 50  # between looks at nodes while somebody waits for them
_REST_MS: Final = 500  # and otherwise
_ASK_S: Final = 0.3

DEAD, RUNNING, PAUSED, STOPPED = "dead", "running", "paused", "stopped"


class Child:
    """A node, and the process that it runs in, if it does."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.pid: int | None = None
        self.state = STOPPED
        self.status: int | None = None  # with which it ended
        self.is_expected_to_end = False
        self.is_ready = False

    @property
    def is_alive(self) -> bool:
        return self.pid is not None

    @property
    def admin(self) -> str | None:
        """Where it can be asked about itself."""
        try:
            return (self.plan.data / "admin-address").read_text(encoding="utf-8").strip()
        except OSError:
            return None

    def look(self) -> None:
        """Finds out whether it can be used."""
        address = self.admin if self.state == RUNNING else None
        self.is_ready = address is not None and _get_status(address, "/readyz") == 200

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "id": plan.id,
            "roles": list(plan.roles),
            "state": self.state,
            "ready": self.is_ready,
            "pid": self.pid,
            "exit_status": self.status,
            "host": HOST,
            "port": plan.port,
            "listeners": dict(plan.listeners),
            "admin": self.admin if self.is_alive else None,
            "data": str(plan.data),
            "log": str(plan.log),
        }


class Launcher:
    """`run` lasts until everything has ended."""

    def __init__(self, plan: Plan, run_node: Callable[[str], None]) -> None:
        self._plan = plan
        self._run_node = run_node
        self._children = {one.id: Child(one) for one in plan.nodes}
        self._selector = selectors.DefaultSelector()
        self._files: list[socket.socket] = []  # that nodes must not inherit
        self._written: str | None = None
        self._is_ending = False
        self._orders: dict[str, Callable[[dict[str, Any]], None]] = {
            "start": lambda order: self._start(self._child(order)),
            "kill": lambda order: self._signal(self._child(order), signal.SIGKILL),
            "stop": lambda order: self._signal(self._child(order), signal.SIGTERM),
            "pause": lambda order: self._pause(self._child(order)),
            "resume": lambda order: self._resume(self._child(order)),
            "state": lambda _: None,
            "end": lambda _: self._end(),
        }

    def run(self) -> None:
        self._listen()
        wakeup, wakes = socket.socketpair()
        wakes.setblocking(False)
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno())
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: None if number == signal.SIGCHLD else self._end())
        self._files += [wakeup, wakes]
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: wakeup.recv(4096))
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._parent_said)
        for child in self._in_order_of_start():
            self._start(child)
        while not (self._is_ending and not any(child.is_alive for child in self._children.values())):
            self._write()
            is_waited_for = any(one.is_alive and not one.is_ready for one in self._children.values())
            for key, _ in self._selector.select((_LOOK_MS if is_waited_for else _REST_MS) / 1000):
                key.data()
            self._reap()
            for child in self._children.values():
                child.look()
        self._write()

    def _in_order_of_start(self) -> list[Child]:
        return sorted(
            self._children.values(), key=lambda child: (not child.plan.is_controller, child.plan.id)
        )

    # Orders

    def _listen(self) -> None:
        path = self._plan.directory / CONTROL_SOCKET
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen(16)
        listening.setblocking(False)
        self._files.append(listening)
        self._selector.register(listening, selectors.EVENT_READ, lambda: self._accept(listening))

    def _accept(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.settimeout(1.0)
        self._files.append(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._serve(connection))

    def _serve(self, connection: socket.socket) -> None:
        """One order. Whoever sends half a line is not waited for."""
        try:
            line = connection.recv(LINE_BYTES_MAX)
            answer = self._carry_out(line) if line else None
            if answer is not None:
                connection.sendall(json.dumps(answer).encode() + b"\n")
                return
        except OSError:
            pass
        self._selector.unregister(connection)
        self._files.remove(connection)
        connection.close()

    def _carry_out(self, line: bytes) -> dict[str, Any]:
        try:
            order = json.loads(line)
            self._orders[order["do"]](order)
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not an order: {error}"}
        except Refusal as error:
            return {"error": str(error)}
        self._reap()
        return self._state()

    def _parent_said(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._selector.unregister(sys.stdin.fileno())
            self._end()

    # Nodes

    def _child(self, order: dict[str, Any]) -> Child:
        child = self._children.get(order["id"])
        if child is None:
            ids = ", ".join(map(str, self._children))
            raise Refusal(f"there is no node {order['id']}: the nodes are {ids}")
        return child

    def _start(self, child: Child) -> None:
        if child.is_alive:
            raise Refusal(f"node {child.plan.id} is running")
        child.status, child.is_expected_to_end, child.is_ready = None, False, False
        pid = os.fork()
        if pid == 0:
            self._become(child.plan)
        child.pid, child.state = pid, RUNNING

    def _become(self, plan: NodePlan) -> None:
        """The child: a node, and nothing of the launcher."""
        status = 1
        try:
            os.setsid()  # Ctrl-C is for whoever is at the terminal
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            nowhere = os.open(os.devnull, os.O_RDONLY)
            for target, source in ((0, nowhere), (1, log), (2, log)):
                os.dup2(source, target)
            self._selector.close()
            for one in self._files:
                one.close()
            self._run_node(str(plan.file))
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            print(f"quorate: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _signal(self, child: Child, number: int) -> None:
        if child.pid is None:
            raise Refusal(f"node {child.plan.id} is not running")
        if number == signal.SIGTERM:
            child.is_expected_to_end = True
            if child.state == PAUSED:
                self._resume(child)
        os.kill(child.pid, number)
        if number == signal.SIGKILL:
            self._wait_for(child)

    def _pause(self, child: Child) -> None:
        self._signal(child, signal.SIGSTOP)
        child.state = PAUSED

    def _resume(self, child: Child) -> None:
        if child.state == PAUSED and child.pid is not None:
            os.kill(child.pid, signal.SIGCONT)
            child.state = RUNNING

    def _wait_for(self, child: Child) -> None:
        """A node that was killed is gone in a moment: whoever killed it wants to see that."""
        assert child.pid is not None
        _, status = os.waitpid(child.pid, 0)
        self._ended(child, status)

    def _reap(self) -> None:
        for child in self._children.values():
            if child.pid is not None:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._ended(child, status)

    def _ended(self, child: Child, status: int) -> None:
        child.status = os.waitstatus_to_exitcode(status)
        child.state = STOPPED if child.is_expected_to_end and child.status == 0 else DEAD
        child.pid, child.is_ready = None, False
        (child.plan.data / "admin-address").unlink(missing_ok=True)

    # The end

    def _end(self) -> None:
        """Brokers first, so that controllers are there to let them go; then the controllers."""
        if self._is_ending:
            return
        self._is_ending = True
        nodes = list(self._children.values())
        for some in (
            [one for one in nodes if one.plan.is_broker],
            [one for one in nodes if not one.plan.is_broker],
        ):
            self._stop_all(some)

    def _stop_all(self, nodes: list[Child]) -> None:
        deadline = time.monotonic() + STOP_MS_MAX / 1000
        for child in nodes:
            if child.is_alive:
                self._signal(child, signal.SIGTERM)
        while any(child.is_alive for child in nodes):
            self._reap()
            self._write()
            if time.monotonic() > deadline:
                for child in nodes:
                    if child.is_alive:
                        self._signal(child, signal.SIGKILL)
            time.sleep(0.01)

    # What is so

    def _state(self) -> dict[str, Any]:
        children = [self._children[one] for one in sorted(self._children)]
        plan = self._plan
        return {
            "ready": not self._is_ending and all(child.is_ready for child in children),
            "mode": "kraft",
            "cluster_id": plan.cluster_id,
            "bootstrap_servers": plan.bootstrap_servers,
            "bootstrap_controllers": plan.bootstrap_controllers,
            "launcher": os.getpid(),
            "nodes": [child.to_json() for child in children],
        }

    def _write(self) -> None:
        text = json.dumps(self._state(), indent=2) + "\n"
        if text != self._written:
            path = self._plan.directory / STATE_FILE
            fresh = path.with_suffix(".json.new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
            self._written = text


class Refusal(Exception):  # noqa: N818
    """An order that cannot be carried out."""


def _get_status(address: str, path: str) -> int | None:
    parts = urlsplit(address)
    if parts.hostname is None or parts.port is None:
        return None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_ASK_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()
    from quorate.node.process import run

    gc.freeze()
    gc.enable()
    directory = Path(sys.argv[1])
    plan = read_plan(directory)
    if plan is None:
        sys.exit(f"quorate: there is no cluster in {directory}")
    Launcher(plan, run).run()


if __name__ == "__main__":
    main()
