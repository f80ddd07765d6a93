"""A private ZooKeeper beside the nodes of a cluster: its files, and the process that runs it.

    zookeeper-1/zoo.cfg   data/   zookeeper.log

It is bound to the loopback interface, ticks fast enough for the sessions of a cluster on one machine, and
does not wait for the disk with every write.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from quorate.testing.parent import end_with
from quorate.testing.ports import HOST
from quorate.testing.zookeeper_distribution import Distribution

__all__ = ["ServerPlan", "ServerProcess", "plan_servers", "read_servers"]

TICK_MS: Final = 200
SESSION_MS_MIN, SESSION_MS_MAX = 400, 120_000
SERVER_FILE: Final = "zoo.cfg"
_ASK_S: Final = 0.5
_STOP_S: Final = 10.0
_DIRECTORY: Final = re.compile(r"zookeeper-(\d+)")


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server."""

    name: str
    port: int
    directory: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def file(self) -> Path:
        return self.directory / SERVER_FILE

    @property
    def log(self) -> Path:
        return self.directory / "zookeeper.log"


def plan_servers(directory: Path, ports: Sequence[tuple[int, int, int]]) -> list[ServerPlan]:
    """Writes the files of servers: for each the ports for clients, for its peers, and for elections."""
    peers = [
        f"server.{number}={HOST}:{peer}:{election}" for number, (_, peer, election) in enumerate(ports, 1)
    ]
    plans = []
    for number, (port, _, _) in enumerate(ports, 1):
        plan = ServerPlan(f"zookeeper-{number}", port, directory / f"zookeeper-{number}")
        data = plan.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={SESSION_MS_MIN}",
            f"maxSessionTimeout={SESSION_MS_MAX}",
            f"dataDir={data}",
            f"clientPortAddress={HOST}",
            f"clientPort={port}",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,mntr",
            "maxClientCnxns=0",
        ]
        if len(ports) > 1:
            (data / "myid").write_text(f"{number}\n", encoding="utf-8")
            lines += ["initLimit=50", "syncLimit=25", *peers]
        plan.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        plans.append(plan)
    return plans


def read_servers(directory: Path) -> list[ServerPlan]:
    """The servers that a directory has."""
    found = []
    for file in directory.glob(f"zookeeper-*/{SERVER_FILE}"):
        match = re.search(r"^clientPort=(\d+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        if _DIRECTORY.fullmatch(file.parent.name) and match is not None:
            found.append(ServerPlan(file.parent.name, int(match[1]), file.parent))
    return sorted(found, key=lambda one: int(one.name.rpartition("-")[2]))


class ServerProcess:
    """The process of a server, if it runs."""

    def __init__(self, plan: ServerPlan, distribution: Distribution) -> None:
        self.plan = plan
        self._distribution = distribution
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False
        self.is_ready = False

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.is_alive
        with self.plan.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._distribution.command(self.plan.file, ["-Dzookeeper.forceSync=no"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=partial(end_with, os.getpid()),  # noqa: PLW1509  # the launcher has one thread
            )
        self.is_ready = self._is_paused = False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.is_ready = False

    def stop(self) -> None:
        """In order, or without mercy if that takes too long."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self.kill()

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self._is_paused, self.is_ready = True, False

    def resume(self) -> None:
        if self._process is not None and self._is_paused:
            self._process.send_signal(signal.SIGCONT)
            self._is_paused = False

    def look(self) -> None:
        """Finds out whether it serves."""
        self.is_ready = self.is_alive and not self._is_paused and "Mode:" in self.ask("srvr")

    def ask(self, word: str) -> str:
        """The answer to one of its four letter words; empty if there is none."""
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self.plan.port), timeout=_ASK_S) as connection,
        ):
            connection.sendall(word.encode())
            while more := connection.recv(4096):
                answer += more
        return answer.decode(errors="replace")

    def to_json(self) -> dict[str, Any]:
        process = self._process
        state = "paused" if self._is_paused else "running" if self.is_alive else "dead"
        return {
            "name": self.plan.name,
            "state": state,
            "ready": self.is_ready,
            "pid": process.pid if process is not None and self.is_alive else None,
            "address": self.plan.address,
            "data": str(self.plan.directory / "data"),
            "log": str(self.plan.log),
        }
