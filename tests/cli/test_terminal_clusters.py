"""`quorate up` and `quorate demo` in a real terminal of 80 columns, stopped as one stops them: by Ctrl-C."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from terminals import COLUMNS, CTRL_C, DEADLINE_S, Terminal, in_terminal

from quorate.cli.up_ending import end_in_order
from quorate.testing.control import launch

pytestmark = pytest.mark.processes

BAR = re.compile(r"act \d of 7 [━╸╺ ]+ .*acknowledged, .* read \d:\d\d:\d\d")


def cluster(directory: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads((directory / "cluster.json").read_text())
        return found
    return {"ready": False, "nodes": []}


def assert_fits(terminal: Terminal) -> None:
    assert terminal.screen.too_long == []
    assert terminal.screen.unknown == []
    assert max(map(len, terminal.screen.lines)) <= COLUMNS


def assert_stopped_in_order(terminal: Terminal) -> None:
    """Brokers before controllers, and it says for whom it waits: those that go at once are not seen."""
    waited_for = [line for line in terminal.screen.lines if line.startswith("stopping: waiting for ")]
    kinds = [re.sub(r"stopping: waiting for (broker|controller).*", r"\1", line) for line in waited_for]
    kinds = [kind for kind in kinds if kind in ("broker", "controller")]
    assert kinds == sorted(kinds)
    assert kinds[0] == "broker"
    assert "(Ctrl-C: at once)" in waited_for[-1]
    assert terminal.screen.lines[-2:] == ["stopped", ""]


def test_up_shows_the_cluster_and_stops_it_in_order(tmp_path: Path):
    directory = tmp_path / "a-directory-with-a-name-so-long-that-a-line-with-it-has-no-place-in-a-terminal"
    options = ("--brokers", "3", "--controllers", "3", "--port", "0", "--data", str(directory))
    with in_terminal("up", *options) as terminal:
        terminal.wait_for(lambda: cluster(directory)["ready"])
        for part in ("CONTROLLER", "leader", "follower", "BROKER", "active", "0 under-replicated"):
            terminal.wait_for(part)
        dead = next(one["pid"] for one in cluster(directory)["nodes"] if one["id"] == 2)
        os.kill(dead, signal.SIGKILL)
        terminal.wait_for("dead, fenced")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0
    assert terminal.screen.colours
    assert_fits(terminal)
    assert_stopped_in_order(terminal)


def test_up_does_not_wait_if_it_is_interrupted_again():
    with in_terminal("up", "--brokers", "2", "--controllers", "1", "--port", "0") as terminal:
        terminal.wait_for(lambda: len(re.findall(r"^[12] +active ", terminal.text, re.MULTILINE)) == 2)
        (directory,) = re.findall(r"^data +(\S+)", terminal.text, re.MULTILINE)
        paused = cluster(Path(directory))["nodes"][-1]["pid"]  # the controller: without it nobody may leave
        os.kill(paused, signal.SIGSTOP)
        terminal.press(CTRL_C)
        terminal.wait_for("stopping: waiting for brokers 1, 2 to leave")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0
    assert "not waiting any longer" in terminal.text
    assert not Path(directory).exists()


def test_whatever_is_interrupted_while_a_cluster_ends_it_waits_no_longer(tmp_path: Path):
    launched = launch(tmp_path, {"brokers": 1, "controllers": 1})
    said = []

    class Interrupted:
        """Ctrl-C is pressed just when a line is shown, three times."""

        def print(self, line: str, **_options: object) -> None:
            said.append(line)
            if len(said) <= 3:
                raise KeyboardInterrupt

    state = launched.wait_until_ready(DEADLINE_S)
    os.kill(state["nodes"][-1]["pid"], signal.SIGSTOP)  # the controller: without it nobody may leave
    end_in_order(launched, Interrupted())
    assert [line.partition(" (")[0] for line in said] == [
        "stopping: waiting for broker 1 to leave",
        *["not waiting any longer"] * 3,
        "stopped",
    ]


def test_the_demo_is_told_with_a_bar():
    with in_terminal("demo", "--exit", "--no-pipeline") as terminal:
        assert terminal.wait() == 0, terminal.text
    assert_fits(terminal)
    assert_stopped_in_order(terminal)
    assert terminal.screen.colours
    assert [line for line in terminal.screen.shown if BAR.fullmatch(line)]
    assert not [line for line in terminal.screen.lines if line.startswith("act ")], "the bar goes at the end"
    acts = [line[0] for line in terminal.screen.lines if re.match(r"\d  ", line)]
    assert acts == list("1234567")
    assert "✓ no acknowledged record was lost" in terminal.text
    assert re.search(r"^All \d+ claims held\.$", terminal.text, re.MULTILINE)


def test_the_demo_can_be_interrupted_and_has_no_colour_if_that_is_asked_for():
    with in_terminal("demo", "--no-pipeline", NO_COLOR="1") as terminal:
        terminal.wait_for("is killed without mercy")
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
    assert terminal.screen.colours == []
    assert_fits(terminal)
    assert_stopped_in_order(terminal)
    assert "FAILED" not in "\n".join(terminal.screen.shown)
    assert "claims held" not in terminal.text
