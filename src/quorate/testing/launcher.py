"""The process that has a cluster's nodes as children: it starts them, watches them, and tells what is so.

It imports what nodes need once and forks them, so that each is there in milliseconds and shares that memory.
It has one thread and no event loop, because neither survives a fork; every node makes a loop of its own.

    python -m quorate.testing.launcher DIRECTORY [WANTED]

The directory has a cluster, or gets one, as WANTED says: JSON with what `plan.obtain_plan` takes.
What runs stands in `DIRECTORY/cluster.json`, replaced whenever it changes, unless the disk is full. Orders
come over the socket `DIRECTORY/control.sock`, one line of JSON each, and each is answered by one line:
`{"do": "kill", "id": 1}`.
A node that dies is not started again by itself. The launcher ends, and the nodes with it, when it is told to
(by an order or SIGTERM), or when whoever started it is gone: the end of its standard input says so. Told a
second time, it no longer waits for nodes to leave in order. One directory has one launcher: see `places`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from quorate.testing.child import Child
from quorate.testing.places import CONTROL_SOCKET, LINE_BYTES_MAX, LOCK_FILE, STATE_FILE, holder_of, lock
from quorate.testing.plan import KRAFT, ZOOKEEPER, Plan, obtain_plan, profile_of, read_plan
from quorate.testing.ports import claim
from quorate.testing.zookeeper_distribution import Distribution, NoDistributionError, find_distribution
from quorate.testing.zookeeper_server import ServerProcess

__all__ = ["main"]

STOP_S_MAX: Final = 30.0  # for a node to leave in order, before it is killed
_LOOK_S: Final = 0.02  # between looks at nodes while somebody waits for them
_REST_S: Final = 0.5  # and otherwise
_AT_ONCE: Final = 2  # how often it is told to end until it does not wait any more


class Launcher:
    """`run` lasts until everything has ended."""

    def __init__(
        self,
        plan: Plan,
        locked: TextIO,
        run_node: Callable[[str], None],
        distribution: Distribution | None = None,
    ) -> None:
        """`distribution` runs the servers of a private ZooKeeper, if the plan has any."""
        self._plan = plan
        assert distribution is not None or not plan.servers
        self._servers = {
            one.name: ServerProcess(one, distribution) for one in plan.servers if distribution is not None
        }
        self._distribution = distribution
        self._cluster_id = plan.cluster_id
        self._profile = profile_of(plan)
        self._run_node = run_node
        self._children = {one.id: Child(one) for one in plan.nodes}
        self._selector = selectors.DefaultSelector()
        self._files: list[socket.socket | TextIO] = [locked, *claim(plan.ports)]  # not for nodes to inherit
        self._written: str | None = None
        self._unwritten: str | None = None  # why the file is not up to date, if it could not be written
        self._told_to_end = 0
        self._leaving: list[Child] = []  # those that are waited for at the end
        self._leave_until = 0.0
        self._orders: dict[str, Callable[[dict[str, Any]], None]] = {
            "start": lambda order: self._start(self._child(order)),
            "kill": lambda order: self._kill(self._running(order)),
            "stop": lambda order: self._running(order).stop(),
            "pause": lambda order: self._running(order).pause(),
            "resume": lambda order: self._running(order).resume(),
            "state": lambda _: None,
            "end": lambda _: self._end(),
            "start-server": lambda order: self._server(order).start(),
            "kill-server": lambda order: self._server(order).kill(),
            "pause-server": lambda order: self._server(order).pause(),
            "resume-server": lambda order: self._server(order).resume(),
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
        for server in self._servers.values():
            server.start()
        for child in self._in_order_of_start():
            self._start(child)
        while not self._told_to_end or any(child.is_alive for child in self._children.values()):
            self._write()
            processes: list[Child | ServerProcess] = [*self._children.values(), *self._servers.values()]
            is_waited_for = any(one.is_alive and not one.is_ready for one in processes)
            for key, _ in self._selector.select(_LOOK_S if is_waited_for else _REST_S):
                key.data()
            for child in self._children.values():
                child.reap()
                if not self._told_to_end:
                    child.look()
            if not self._told_to_end:
                for server in self._servers.values():
                    server.look()
            if self._told_to_end:
                self._go_on_ending()
        for server in self._servers.values():
            server.stop() if self._told_to_end < _AT_ONCE else server.kill()
        self._write()
        for name in (CONTROL_SOCKET, LOCK_FILE):
            (self._plan.directory / name).unlink(missing_ok=True)

    def _in_order_of_start(self) -> list[Child]:
        return sorted(
            self._children.values(), key=lambda child: (not child.plan.is_controller, child.plan.id)
        )

    # Orders

    def _listen(self) -> None:
        os.chdir(self._plan.directory)  # the address of a socket may not be long
        Path(CONTROL_SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(CONTROL_SOCKET)
        listening.listen(16)
        listening.setblocking(False)
        self._files.append(listening)
        self._selector.register(listening, selectors.EVENT_READ, lambda: self._accept(listening))

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # whoever it was has gone
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
        except Refusal as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not an order: {error}"}
        except OSError as error:
            return {"error": f"it cannot be done: {error}"}
        for child in self._children.values():
            child.reap()
        self._write()
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

    def _server(self, order: dict[str, Any]) -> ServerProcess:
        server = self._servers.get(order["id"])
        if server is None:
            names = ", ".join(self._servers) or "none"
            raise Refusal(f"there is no server {order['id']} of ZooKeeper here: there are {names}")
        return server

    def _running(self, order: dict[str, Any]) -> Child:
        child = self._child(order)
        child.reap()
        if not child.is_alive:
            raise Refusal(f"node {child.plan.id} is not running")
        return child

    def _start(self, child: Child) -> None:
        child.reap()
        if child.is_alive:
            raise Refusal(f"node {child.plan.id} is running")
        if self._told_to_end:
            raise Refusal("the cluster is being stopped")
        child.start(self._run_node, self._close_files)

    def _close_files(self) -> None:
        self._selector.close()
        for one in self._files:
            one.close()

    def _kill(self, child: Child) -> None:
        child.send(signal.SIGKILL)
        child.wait()

    # The end

    def _end(self) -> None:
        """The first time in order; the second time at once."""
        self._told_to_end += 1
        if self._told_to_end > 1:
            for child in self._children.values():
                if child.is_alive:
                    child.send(signal.SIGKILL)

    def _go_on_ending(self) -> None:
        """Brokers first, so that controllers are there to let them go; then the controllers."""
        waited_for = [child for child in self._leaving if child.is_alive]
        if waited_for:
            is_late = time.monotonic() > self._leave_until
            for child in waited_for:
                if is_late:
                    child.send(signal.SIGKILL)
                elif child.plan.is_broker and not child.is_hurried and not self._has_quorum():
                    child.hurry()
            return
        alive = [child for child in self._children.values() if child.is_alive]
        brokers = [one for one in alive if one.plan.is_broker and not one.plan.is_controller]
        both = [one for one in alive if one.plan.is_broker and one.plan.is_controller]
        self._leaving = brokers or both or alive
        self._leave_until = time.monotonic() + STOP_S_MAX
        for child in self._leaving:
            child.stop()

    def _has_quorum(self) -> bool:
        """Whether so many controllers are left that they can let a broker go. Of brokers that elect one among
        themselves, the last has nobody to hand over to."""
        if self._plan.mode != KRAFT:
            return sum(child.is_alive for child in self._children.values()) > 1
        voters = [child for child in self._children.values() if child.plan.is_controller]
        return 2 * sum(child.is_alive for child in voters) > len(voters)

    # What is so

    def _state(self) -> dict[str, Any]:
        children = [self._children[one] for one in sorted(self._children)]
        plan = self._plan
        return {
            "ready": not self._told_to_end and all(child.is_ready for child in children),
            "mode": plan.mode,
            "cluster_id": self._find_cluster_id(),
            "profile": self._profile,
            "bootstrap_servers": plan.bootstrap_servers,
            "bootstrap_controllers": plan.bootstrap_controllers,
            "launcher": os.getpid(),
            "ending": bool(self._told_to_end),
            "waiting_for": [child.plan.id for child in self._leaving if child.is_alive],
            "nodes": [child.to_json() for child in children],
            "unwritten": self._unwritten,
            **self._zookeeper(),
        }

    def _zookeeper(self) -> dict[str, Any]:
        if self._plan.mode == KRAFT:
            return {}
        servers = [one.to_json() for one in self._servers.values()]
        found = None if self._distribution is None else self._distribution.found
        return {"zookeeper": {"connect": self._plan.zookeeper, "distribution": found, "servers": servers}}

    def _find_cluster_id(self) -> str:
        """That of a new cluster of ZooKeeper mode its first broker writes down."""
        if not self._cluster_id:
            found = read_plan(self._plan.directory)
            self._cluster_id = "" if found is None else found.cluster_id
        return self._cluster_id

    def _write(self) -> None:
        """If that cannot be done, as on a disk that is full, it is said, and done when it can be: the nodes
        do not need the file."""
        failure, self._unwritten = self._unwritten, None
        text = json.dumps(self._state(), indent=2) + "\n"
        if text == self._written:
            return
        path = self._plan.directory / STATE_FILE
        fresh = path.with_suffix(".json.new")
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
            self._written = text
        except OSError as error:
            self._unwritten = f"{STATE_FILE} cannot be written: {error.strerror}"
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
        if self._unwritten not in (None, failure):
            with contextlib.suppress(OSError):  # the log may be on the same disk
                print(f"quorate: {self._unwritten}", file=sys.stderr, flush=True)


class Refusal(Exception):  # noqa: N818
    """An order that cannot be carried out."""


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    directory = Path(sys.argv[1]).resolve()
    locked = lock(directory)
    if locked is None:
        sys.exit(f"quorate: {directory} is in use by process {holder_of(directory)}")
    gc.disable()
    from quorate.node.config import ConfigError
    from quorate.node.process import run
    from quorate.storage.errors import StorageError
    from quorate.testing.warm import settle, warm_up

    wanted = json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")
    distribution: Distribution | None = None
    try:
        if wanted.get("mode") == ZOOKEEPER and not wanted.get("zookeeper"):
            distribution = find_distribution()  # before anything is planned that could not be run
        plan = obtain_plan(directory, **wanted)
        if plan.servers and distribution is None:
            distribution = find_distribution()
    except (ConfigError, StorageError, NoDistributionError, OSError) as error:
        sys.exit(f"quorate: {error}")
    warm_up()
    settle()
    gc.enable()
    Launcher(plan, locked, run, distribution).run()


if __name__ == "__main__":
    main()
