"""The page about consumers is true: its programs run, and so do its commands."""

import re
import shlex
from pathlib import Path

from group_town import Town, town

__all__ = ["town"]

PAGE = Path(__file__).parents[2] / "docs" / "consumers.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_programs_run_and_then_commands(town: Town) -> None:
    programs = blocks("python")
    assert len(programs) == 3
    for program in programs:
        names: dict[str, object] = {}
        exec(compile(program.replace("localhost:9092", town.node.bootstrap), str(PAGE), "exec"), names)
        town.do(names["main"]())  # type: ignore[operator]
    assert [one["lag"] for one in town.read("lag", "billing")] == [0, 0]
    commands = [line for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 10
    for command in commands:
        prompt, name, groups, *words = shlex.split(command)
        assert (prompt, name, groups) == ("$", "quorate", "groups")
        done = town.run(*words)
        assert done.exit_code == 0, (command, done.output)
    assert "billing" not in [one["group"] for one in town.read("list")]
