"""The commands with which the image of a cluster is walked: ls, cd, cat, find and their like."""

from __future__ import annotations

import posixpath
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from quorate.cli.asking import pretty_json
from quorate.cli.image_tree import Folder, Leaf, Node, everything, matching, walk

__all__ = ["Shell", "ShellError", "converse"]

_HELP: Final = """\
ls [PATH...]         what is there; * and ? stand for names
cd [PATH]            go there
cat PATH...          the content, as JSON; of a directory, all that is in it
find [PATH] [NAME]   all paths below, or those whose last name is like NAME
pwd                  where we are
help, exit"""


class ShellError(Exception):
    """What was typed means nothing here."""


class Shell:
    """Where somebody is in the tree, and what they see there. Every command gives lines."""

    def __init__(self, root: Folder) -> None:
        self._root = root
        self.path = "/"
        self.commands: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
            "ls": self._ls,
            "cd": self._cd,
            "cat": self._cat,
            "find": self._find,
            "pwd": lambda _: iter([self.path]),
            "help": lambda _: iter(_HELP.splitlines()),
        }

    def run(self, words: Sequence[str]) -> Iterator[str]:
        if words[0] not in self.commands:
            raise ShellError(f"{words[0]}: there is no such command; there are {', '.join(self.commands)}")
        return self.commands[words[0]](words[1:])

    def completions(self, text: str) -> list[str]:
        """Paths that begin with what was typed."""
        above, slash, start = text.rpartition("/")
        try:
            found = self._at(above + slash if slash else ".")
        except ShellError:
            return []
        return [
            f"{above}{slash}{name}{'/' if isinstance(node.get(name), Folder) else ''}"
            for _, node in found
            if isinstance(node, Folder)
            for name in node.names()
            if name.startswith(start)
        ]

    def _ls(self, paths: Sequence[str]) -> Iterator[str]:
        found = [one for path in paths or ["."] for one in self._at(path)]
        for index, (path, node) in enumerate(found):
            if isinstance(node, Leaf):
                yield posixpath.basename(path)
                continue
            if len(found) > 1:
                yield from ([""] if index else [])
                yield f"{path}:"
            for name in node.names():
                yield f"{name}/" if isinstance(node.get(name), Folder) else name

    def _cd(self, paths: Sequence[str]) -> Iterator[str]:
        found = self._at(paths[0] if paths else "/")
        if len(found) > 1:
            raise ShellError(f"{paths[0]}: that is more than one")
        path, node = found[0]
        if isinstance(node, Leaf):
            raise ShellError(f"{path}: no directory")
        self.path = path
        return iter(())

    def _cat(self, paths: Sequence[str]) -> Iterator[str]:
        if not paths:
            raise ShellError("cat: what?")
        for path in paths:
            for _, node in self._at(path):
                yield _text(node)

    def _find(self, words: Sequence[str]) -> Iterator[str]:
        is_path = bool(words) and (len(words) > 1 or "/" in words[0] or words[0] in (".", ".."))
        start, names = (words[0], words[1:]) if is_path else (".", words)
        for path, node in self._at(start):
            for below, _ in walk(path, node):
                if not names or fnmatchcase(posixpath.basename(below), names[0]):
                    yield below

    def _at(self, path: str) -> list[tuple[str, Node]]:
        found = list(matching(self._root, posixpath.normpath(posixpath.join(self.path, path))))
        if not found:
            raise ShellError(f"{path}: there is nothing of that name")
        return found


def _text(node: Node) -> str:
    content = everything(node)
    return content if isinstance(content, str) else pretty_json(content)


def converse(shell: Shell) -> None:
    """Does what is typed, or what standard input says, line after line."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _complete_with(shell)
    while True:
        try:
            line = input(f"quorate:{shell.path}> " if is_terminal else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        try:
            words = shlex.split(line)
            if words and words[0] in ("exit", "quit"):
                return
            for text in shell.run(words) if words else ():
                print(text)
        except (ShellError, ValueError) as error:
            print(error, file=sys.stderr)


def _complete_with(shell: Shell) -> None:
    try:
        import readline
    except ImportError:
        return  # a system without: one types everything

    def complete(text: str, state: int) -> str | None:
        is_command = not readline.get_line_buffer()[: readline.get_begidx()].strip()
        found = (
            [one for one in shell.commands if one.startswith(text)] if is_command else shell.completions(text)
        )
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \t")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
