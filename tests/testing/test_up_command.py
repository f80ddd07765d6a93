"""`quorate up`, in a terminal and elsewhere."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.processes import quorate, run_quorate

pytestmark = pytest.mark.processes

DEADLINE_S = 120.0
COLUMNS = 80
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
COLOURS = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m")


class Up:
    """The command, with what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self._data = b""
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    def _read(self, output: int) -> None:
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            while more := os.read(output, 65536):
                self._data += more
        os.close(output)

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")

    @property
    def plain(self) -> str:
        return ESCAPE.sub("", self.text)

    def wait_for(self, what: str | Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not (what in self.plain if isinstance(what, str) else what()):
            assert time.monotonic() < deadline, f"no {what} in {self.plain}"
            assert self.process.poll() is None, self.plain
            time.sleep(0.05)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextlib.contextmanager
def up(*arguments: str, is_terminal: bool, **environment: str) -> Iterator[Up]:
    if is_terminal:
        output, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    else:
        output, theirs = os.pipe()
    variables = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        quorate("up", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**variables, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    try:
        yield Up(process, output)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(DEADLINE_S)


def state(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / "cluster.json").read_text())
    except FileNotFoundError:
        return {"ready": False, "nodes": []}
    return found


def test_alone_it_is_one_node_whose_data_goes_with_it():
    with up("--port", "0", is_terminal=False) as command:
        command.wait_for("ready after")
        found = re.search(r"^data: (\S+) \(removed at the end\)$", command.text, re.MULTILINE)
        assert found is not None
        directory = Path(found[1])
        assert state(directory)["ready"]
        assert "profile: development" in command.text
        assert "controller 1: leader, epoch " in command.text
        assert "broker 1: active, epoch " in command.text
        assert command.interrupt() == 0
    assert "\x1b" not in command.text
    assert command.text.endswith("stopped\n")
    assert not directory.exists()


def test_in_a_terminal_it_shows_the_cluster_and_stops_brokers_first(tmp_path: Path):
    options = ("--brokers", "2", "--controllers", "1", "--port", "0", "--data", str(tmp_path / "a"))
    with up(*options, is_terminal=True) as command:
        command.wait_for(lambda: state(tmp_path / "a")["ready"])
        for part in ("CONTROLLER", "leader", "BROKER", "active", "0 leaderless", "0 under-replicated"):
            command.wait_for(part)
        assert COLOURS.search(command.text)
        pid = state(tmp_path / "a")["nodes"][1]["pid"]
        os.kill(pid, signal.SIGKILL)
        command.wait_for("node 2 is dead")
        command.wait_for("dead, fenced")
        assert command.interrupt() == 0
    lines = [line.rstrip("\r") for line in command.plain.split("\n")]
    assert max(len(part) for line in lines for part in line.split("\r")) <= COLUMNS
    said = command.plain.replace("\r\n", "\n")
    waited_for = re.findall(r"waiting for (broker 1|controller 101) ", said)
    assert waited_for in (["broker 1"], ["broker 1", "controller 101"])  # it may go before that is seen


def test_without_colours_if_it_is_asked_for_that():
    with up("--port", "0", is_terminal=True, NO_COLOR="1") as command:
        command.wait_for("active")
        assert command.interrupt() == 0
    assert not COLOURS.search(command.text)


def test_a_dead_node_comes_back_by_an_order_and_all_of_them_with_the_next_up(tmp_path: Path):
    directory, data = tmp_path / "a", str(tmp_path / "a")
    options = ("--brokers", "2", "--controllers", "1", "--data", data, "--port", "0")
    with up(*options, is_terminal=False) as command:
        command.wait_for("ready after")
        assert run_quorate("lab", "kill", "2", "--data", data).stdout == "node 2 is dead\n"
        command.wait_for("quorate lab restart 2 --data")
        done = run_quorate("lab", "restart", "2", "--data", data)
        assert (done.stdout, done.returncode) == ("node 2 is ready\n", 0), done.stderr
        assert run_quorate("lab", "pause", "2", "--data", data).stdout == "node 2 is paused\n"
        assert run_quorate("lab", "resume", "2", "--data", data).stdout == "node 2 goes on\n"
        assert run_quorate("lab", "stop", "2", "--data", data).stdout == "node 2 has stopped\n"
        done = run_quorate("lab", "stop", "2", "--data", data)
        assert (done.stderr, done.returncode) == ("quorate: node 2 is not running\n", 1)
        before = state(directory)
        assert command.interrupt() == 0
    done = run_quorate("lab", "stop", "2", "--data", data)
    assert done.stderr.startswith(f"quorate: no cluster runs in {data}: is it up?")
    with up("--data", data, is_terminal=False) as command:
        command.wait_for("ready after")
        after = state(directory)
        assert after["bootstrap_servers"] == before["bootstrap_servers"]
        assert [one["state"] for one in after["nodes"]] == ["running"] * 3


def refused(*arguments: str) -> str:
    done = run_quorate("up", *arguments)
    assert done.returncode == 1, done
    assert done.stderr.startswith("quorate: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_what_is_in_the_way_is_one_clear_line(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in refused("--port", port)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear")
    assert "has something else in it" in refused("--data", str(other))
    assert "--profile fast: allowed is development or default" in refused("--profile", "fast")
    data = str(tmp_path / "a")
    with up("--data", data, "--port", "0", is_terminal=False) as command:
        command.wait_for("ready after")
        assert "is in use: process" in refused("--data", data)
        command.interrupt()
    assert "has a cluster of 1 brokers" in refused("--data", data, "--brokers", "3")
