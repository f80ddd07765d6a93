"""Commands that are imported when somebody uses them: most take longer to import than to do.

A module of a command has an `app`. With one command in it, that is the command; with more, a group of them.
What a list of commands says of each stands beside the name of its module, so that `--help` imports none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["LazyCommands"]


class LazyCommands(TyperGroup):
    """A group whose commands are in modules, by name; others may be added to it as usual."""

    modules: ClassVar[Mapping[str, str]] = {}
    helps: ClassVar[Mapping[str, str]] = {}
    """What each says of itself. A command that is missing here is imported to be listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the modules, and then the others."""
        return list(dict.fromkeys([*self.modules, *super().list_commands(ctx)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """For whoever lists commands: one that was not used yet is there by name and help alone."""
        if cmd_name in self.modules and cmd_name not in self.commands:
            if cmd_name in self.helps:
                return TyperCommand(cmd_name, help=self.helps[cmd_name])
            self._load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """For whoever uses one."""
        if args and args[0] in self.modules and args[0] not in self.commands:
            self._load(args[0])
        return super().resolve_command(ctx, args)

    def _load(self, name: str) -> None:
        command = typer.main.get_command(import_module(self.modules[name]).app)
        command.name = name
        self.commands[name] = command
