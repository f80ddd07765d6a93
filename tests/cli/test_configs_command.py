"""Configurations on the command line, of a node that runs in this process."""

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.cli.main import app


async def run(node: OneNode, *words: str) -> tuple[int, str]:
    """The exit status, and what was printed."""
    words = ("configs", *words, "--bootstrap-server", node.bootstrap)
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    return result.exit_code, result.output


@in_loop
async def test_what_is_set_is_shown_and_taken_back(tmp_path: Path):
    async with OneNode(tmp_path) as node:
        assert await run(node, "describe", "group", "g") == (0, "nothing is set\n")
        assert await run(node, "set", "broker", "1", "max.connections=77", "log.cleaner.threads=2") == (
            0,
            "set: max.connections, log.cleaner.threads\n",
        )
        assert await run(node, "set", "broker", "-", "max.connections=88") == (0, "set: max.connections\n")
        await node.until(lambda: node.node.broker.configs["max.connections"] == 77)
        status, printed = await run(node, "describe", "broker", "1", "--json")
        assert status == 0
        assert {key: (one["value"], one["source"]) for key, one in json.loads(printed).items()} == {
            "log.cleaner.threads": ("2", "broker"),
            "max.connections": ("77", "broker"),
            "min.insync.replicas": ("1", "all brokers"),  # which eligible leader replicas need
        }
        assert (await run(node, "delete", "broker", "1", "max.connections"))[0] == 0
        await node.until(lambda: node.node.broker.configs["max.connections"] == 88)
        _, printed = await run(node, "describe", "broker", "1")
        rows = [line.split() for line in printed.splitlines()]
        assert ["max.connections", "88", "all", "brokers", "at", "once"] in rows
        _, printed = await run(node, "describe", "broker", "1", "--all")
        assert any(line.startswith("node.id") and "with a restart" in line for line in printed.splitlines())


@in_loop
async def test_what_is_refused_says_why(tmp_path: Path):
    async with OneNode(tmp_path) as node:
        status, printed = await run(node, "set", "broker", "1", "num.partitions=3")
        assert status == 1
        assert "Cannot update these configs dynamically: [num.partitions]" in printed
        assert (await run(node, "describe", "topic", "nowhere"))[0] == 1
        assert (await run(node, "set", "topic", "t", "nonsense"))[0] == 1
