"""The entrance of the command: a node starts without what only other commands need."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from quorate.cli.lazy_commands import LazyCommands
from quorate.cli.main import app

RUN = "import sys; from quorate.cli import start; "


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_node_without_a_configuration_says_so_in_one_line(tmp_path: Path) -> None:
    done = run("start.main()", "node", str(tmp_path / "missing.properties"))
    assert done.returncode == 1
    assert done.stderr.startswith("quorate: ")
    assert done.stderr.count("\n") == 1


def test_a_node_does_without_the_parser_of_commands(tmp_path: Path) -> None:
    code = "import atexit; atexit.register(lambda: print('typer' in sys.modules)); start.main()"
    done = run(code, "node", str(tmp_path / "missing.properties"))
    assert done.stdout == "False\n"


@pytest.mark.parametrize("arguments", [("--version",), ("node", "--help")])
def test_all_else_is_parsed(arguments: tuple[str, ...]) -> None:
    done = run("start.main()", *arguments)
    assert done.returncode == 0, done.stderr
    assert "quorate" in done.stdout


def test_a_list_of_commands_says_what_the_commands_say() -> None:
    """Each of them is described in two places, so that the list need not import what it lists."""
    group = typer.main.get_command(app)
    assert isinstance(group, LazyCommands)
    for name, module in group.modules.items():
        described = typer.main.get_command(importlib.import_module(module).app).help or ""
        assert name in group.helps, name
        assert described.startswith(group.helps[name]), name


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    heavy = "'numpy', 'asyncio', 'uvloop', 'quorate.protocol', 'quorate.node', 'pyspark', 'kazoo'"
    code = f"import atexit; atexit.register(lambda: print({{{heavy}}} & set(sys.modules))); start.main()"
    done = run(code, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("set()")
    assert "Breaking things on purpose." in done.stdout
