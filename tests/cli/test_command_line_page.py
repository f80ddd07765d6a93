"""docs/command-line.md names commands and options that exist, all of them; help is legible at 80 columns."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from quorate.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [
    shlex.split(line.partition("quorate ")[2])
    for block in BLOCKS
    for line in block.splitlines()
    if "quorate " in line
]
ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def found(words: list[str]) -> tuple[tuple[str, ...], Any]:
    """The command that words begin with, which must exist."""
    command, path = ROOT, []
    while hasattr(command, "list_commands"):
        path.append(words[len(path)])
        _, command, _ = command.resolve_command(
            typer.Context(command), path[-1:]
        )  # or it says that it is none
    return tuple(path), command


ALL = sorted(commands())
SCREENS = list(dict.fromkeys([(), *(path[:1] for path in ALL), *ALL]))


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_an_example_is_of_a_command_with_such_options(words: list[str]):
    path, command = found(words)
    options = {name for one in command.params for name in one.opts}
    given = {word for word in words[len(path) :] if re.fullmatch(r"--?[a-z][a-z-]*", word)}
    assert given <= options, f"quorate {' '.join(path)} has no {given - options}"


def test_every_command_has_an_example():
    assert {found(words)[0] for words in EXAMPLES} >= set(ALL) - {
        ("lab", "stop"),
        ("lab", "pause"),
        ("lab", "resume"),
    }


@pytest.mark.parametrize("path", SCREENS, ids=" ".join)
def test_help_is_legible_at_80_columns(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    assert "\x1b" not in done.stdout


def test_completion_can_be_installed():
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
