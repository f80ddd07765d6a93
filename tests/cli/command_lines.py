"""A node in a thread, and command lines that ask it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from node.one_node import HOST, OneNode
from quorate.cli.main import app

DEADLINE_S = 60


class Asked:
    """A cluster that command lines are about."""

    def __init__(self, node: OneNode, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._loop = loop

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    @property
    def controller(self) -> str:
        assert self.node.node is not None
        return f"{HOST}:{self.node._ports[1]}"

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def run(self, *words: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, [*words, "--bootstrap-server", self.bootstrap], input=stdin)

    def good(self, *words: str, stdin: str | bytes = "") -> str:
        """What a command prints that must end well."""
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.good(*words, "--json"))

    def refused(self, *words: str, stdin: str = "") -> str:
        """What a command says that must be refused: one line."""
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == 1, done.output
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("quorate: ")
        return done.stderr


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


@contextmanager
def asked_node(directory: Path, **settings: str) -> Iterator[Asked]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    node = OneNode(directory, **settings)
    asked = Asked(node, loop)
    try:
        asked.do(node.__aenter__())
        yield asked
        asked.do(node.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
