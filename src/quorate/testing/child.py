"""A node of a cluster, and the process that it runs in, if it does: a child of the launcher."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from quorate.testing.parent import end_with
from quorate.testing.plan import NodePlan
from quorate.testing.ports import HOST

__all__ = ["DEAD", "PAUSED", "RUNNING", "STOPPED", "Child"]

DEAD, RUNNING, PAUSED, STOPPED = "dead", "running", "paused", "stopped"
_ASK_S: Final = 0.3
_SIGNALS: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


class Child:
    """It is started, signalled and looked at by its parent, which also says when it has ended."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.pid: int | None = None
        self.state = STOPPED
        self.status: int | None = None  # with which it ended
        self.is_expected_to_end = False
        self.is_hurried = False
        self.is_ready = False
        self._admin: str | None = None  # as it stands in the file, of this life

    @property
    def is_alive(self) -> bool:
        return self.pid is not None

    @property
    def admin(self) -> str | None:
        """Where it can be asked about itself."""
        if self._admin is None and self.is_alive:
            try:
                self._admin = self._address_file.read_text(encoding="utf-8").strip() or None
            except OSError:
                return None
        return self._admin

    def start(self, run_node: Callable[[str], None], close_files: Callable[[], None]) -> None:
        """Forks. `close_files` closes what belongs to the parent alone."""
        assert not self.is_alive
        self.status, self.is_expected_to_end, self.is_hurried, self.is_ready = None, False, False, False
        self._address_file.unlink(missing_ok=True)  # of a life that was ended without mercy
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(self.plan, parent, run_node, close_files)
        self.pid, self.state = pid, RUNNING

    def stop(self) -> None:
        self.is_expected_to_end = True
        self.send(signal.SIGTERM)
        self.resume()

    def hurry(self) -> None:
        """Told a second time, a broker does not wait for controllers to let it go."""
        self.is_hurried = True
        self.send(signal.SIGTERM)

    def send(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)
        self.state, self.is_ready = PAUSED, False

    def resume(self) -> None:
        if self.state == PAUSED:
            self.send(signal.SIGCONT)
            self.state = RUNNING

    def wait(self) -> None:
        """For one that was killed, and so is gone in a moment: whoever killed it wants to see that."""
        assert self.pid is not None
        self._ended(os.waitpid(self.pid, 0)[1])

    def reap(self) -> None:
        """Finds out whether it has ended."""
        if self.pid is not None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended(status)

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
            "admin": self.admin,
            "data": str(plan.data),
            "log": str(plan.log),
        }

    @property
    def _address_file(self) -> Path:
        return self.plan.data / "admin-address"

    def _ended(self, status: int) -> None:
        self.status = os.waitstatus_to_exitcode(status)
        self.state = STOPPED if self.is_expected_to_end and self.status == 0 else DEAD
        self.pid, self.is_ready, self._admin = None, False, None
        self._address_file.unlink(missing_ok=True)


def _become(
    plan: NodePlan, parent: int, run_node: Callable[[str], None], close_files: Callable[[], None]
) -> NoReturn:
    """The child: a node, and nothing of the launcher."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        end_with(parent)
        log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nowhere), (1, log), (2, log)):
            os.dup2(source, target)
        close_files()
        run_node(str(plan.file))
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        print(f"quorate: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


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
