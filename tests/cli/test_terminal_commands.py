"""The shell, `produce` and `consume` in a real terminal of 80 columns."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_lines import Asked, asked_node
from terminals import COLUMNS, CTRL_C, CTRL_D, TAB, Terminal, in_terminal

from node.processes import quorate

pytestmark = pytest.mark.processes

PROMPT = "quorate:/> "
LINES, SIZE = 20_000, "208.9 kB"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked_node(tmp_path_factory.mktemp("node")) as found:
        found.good("topics", "create", "orders", "--partitions", "3")
        yield found


def assert_plain(terminal: Terminal) -> None:
    assert terminal.screen.too_long == []
    assert terminal.screen.colours == []
    assert max(map(len, terminal.screen.lines)) <= COLUMNS


def prompts(terminal: Terminal) -> int:
    return len(re.findall(r"^quorate:\S+>", terminal.text, re.MULTILINE))


def test_the_shell_has_a_prompt_completes_and_survives_ctrl_c(asked: Asked):
    with in_terminal("metadata", "shell", "--bootstrap-server", asked.bootstrap) as terminal:
        terminal.wait_for(PROMPT.strip())
        terminal.press(b"ls\n")
        terminal.wait_for(lambda: prompts(terminal) == 2)
        assert "topics/" in terminal.text.splitlines()
        terminal.press(b"cd /top")
        terminal.wait_for("cd /top")
        terminal.press(TAB)
        terminal.wait_for("cd /topic")
        terminal.press(CTRL_C)
        terminal.wait_for(lambda: prompts(terminal) == 3)
        terminal.press(b"cd /topics/ord" + TAB)
        terminal.wait_for("cd /topics/orders/")
        terminal.press(b"\n")
        terminal.wait_for("quorate:/topics/orders>")
        terminal.press(b"cat id\n")
        terminal.wait_for(lambda: prompts(terminal) == 5)
        terminal.press(b"nonsense\n")
        terminal.wait_for("nonsense: there is no such command")
        terminal.press(CTRL_D)
        assert terminal.wait() == 0
    assert_plain(terminal)


def test_the_shell_without_a_terminal_has_no_prompt(asked: Asked):
    command = quorate("metadata", "shell", "--bootstrap-server", asked.bootstrap)
    done = subprocess.run(
        command, input="ls /topics\n", capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "orders/\n"


def test_produce_shows_how_far_it_is(asked: Asked, tmp_path: Path):
    path = tmp_path / "orders.txt"
    path.write_text("".join(f"order {number}\n" for number in range(LINES)))
    options = ("produce", "orders", "--bootstrap-server", asked.bootstrap)
    with in_terminal(*options, "--file", str(path)) as terminal:
        assert terminal.wait() == 0
    assert_plain(terminal)
    assert f"{LINES} of {LINES} records delivered, {SIZE}" in terminal.screen.shown
    assert f"{LINES} records, {SIZE}, delivered to orders" in terminal.screen.lines

    with path.open("rb") as lines, in_terminal(*options, stdin=lines.fileno()) as terminal:
        assert terminal.wait() == 0
    assert f"{LINES} of {LINES} records delivered, {SIZE}" in terminal.screen.shown


def test_produce_takes_what_is_typed(asked: Asked):
    with in_terminal("produce", "orders", "--bootstrap-server", asked.bootstrap) as terminal:
        terminal.wait_for("a line is a record; Ctrl-D ends")
        terminal.press(b"one apple\n")
        terminal.press(CTRL_D)
        assert terminal.wait() == 0
    assert_plain(terminal)
    assert "1 records, 9 B, delivered to orders" in terminal.text
    assert "records delivered" not in terminal.text  # no progress between what somebody types


def test_consume_follows_until_ctrl_c_and_says_how_many_there_were(asked: Asked):
    asked.good("topics", "create", "bills", "--partitions", "1")
    asked.good("produce", "bills", stdin="a bill\n" * 5)
    with in_terminal("consume", "bills", "--bootstrap-server", asked.bootstrap) as terminal:
        terminal.wait_for(lambda: terminal.text.count("a bill") == 5)
        asked.good("produce", "bills", stdin="the last bill\n")
        terminal.wait_for("the last bill")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0
    assert_plain(terminal)
    assert "6 records" in terminal.screen.lines


@pytest.mark.parametrize("words", [("topics", "describe", "orders"), ("brokers", "list"), ("--help",)])
def test_tables_have_no_colour_if_that_is_asked_for(asked: Asked, words: tuple[str, ...]):
    whom = () if words == ("--help",) else ("--bootstrap-server", asked.bootstrap)
    with in_terminal(*words, *whom, NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
    assert_plain(terminal)


def test_what_goes_into_a_pipe_is_plain_whatever_the_terminal_is():
    ours, theirs = os.pipe()
    command = quorate("--help")
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb") as said:
            assert b"\x1b" not in said.read()
        assert process.wait(120) == 0
