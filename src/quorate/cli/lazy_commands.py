"""Commands that are imported when somebody uses them: most take longer to import than to do.

A module of a command has an `app`. With one command in it, that is the command; with more, a group of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

__all__ = ["LazyCommands"]


class LazyCommands(TyperGroup):
    """A group whose commands are in modules, by name; others may be added to it as usual."""

    modules: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the modules, and then the others."""
        return list(dict.fromkeys([*self.modules, *super().list_commands(ctx)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.modules and cmd_name not in self.commands:
            command = typer.main.get_command(import_module(self.modules[cmd_name]).app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)
