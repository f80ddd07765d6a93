"""The `quorate` command and its subcommands."""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

import typer

from quorate import __version__
from quorate.cli.lazy_commands import LazyCommands

__all__ = ["app"]


class Commands(LazyCommands):
    """The subcommands, in the order in which one comes to need them."""

    modules: ClassVar = {
        "up": "quorate.cli.up",
        "demo": "quorate.cli.demo",
        "topics": "quorate.cli.topics",
        "produce": "quorate.cli.produce",
        "consume": "quorate.cli.consume",
        "groups": "quorate.cli.groups",
        "configs": "quorate.cli.configs",
        "brokers": "quorate.cli.brokers",
        "quorum": "quorate.cli.quorum",
        "metadata": "quorate.cli.metadata",
        "storage": "quorate.cli.storage",
        "pipeline": "quorate.cli.pipeline",
        "report": "quorate.cli.report",
        "lab": "quorate.cli.lab_commands",
        "bench": "quorate.cli.bench",
    }
    helps: ClassVar = {
        "up": "Runs a cluster on this machine until Ctrl-C.",
        "demo": "A cluster is broken and loses nothing: the story, told while it happens.",
        "topics": "Topics and their partitions.",
        "produce": "Sends lines to a topic, a record each.",
        "consume": "Prints the records of a topic, a line each, until Ctrl-C or until told to end.",
        "groups": "Groups of consumers.",
        "configs": "Configurations, and what they are worth.",
        "brokers": "Brokers: their state, and why it is so.",
        "quorum": "The quorum of controllers.",
        "metadata": "The metadata log, and what it says of the cluster.",
        "storage": "The directories of a node.",
        "pipeline": "The history of clusters, on Spark:"
        " who was a member, who led what, what was unavailable.",
        "report": "Writes one HTML page: members, terms, availability, failovers, restarts, rebalances,"
        " incidents.",
        "lab": "Breaking things on purpose.",
        "bench": "Runs the benchmarks, each beside a baseline of the same run.",
    }


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A Kafka-compatible cluster in Python: controllers, brokers, and their tools.",
)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"quorate {__version__}")
        raise typer.Exit


@app.command("node")
def node_command(
    config: Annotated[str, typer.Argument(metavar="FILE", help="The configuration of the node.")],
) -> None:
    """Runs a node until it is told to stop (SIGTERM, or Ctrl-C)."""
    from quorate.cli.failures import errors_as_one_line
    from quorate.node import process

    with errors_as_one_line():
        process.run(config)


@app.command()
def apis() -> None:
    """Every request: its key, the versions we read and write, and those that Apache serves."""
    from quorate.cli import protocol

    protocol.list_apis()


@app.command()
def show(name: Annotated[str, typer.Argument(help="A message, such as BrokerHeartbeatRequest.")]) -> None:
    """The history of a message: which field is in which version."""
    from quorate.cli import protocol
    from quorate.cli.failures import errors_as_one_line

    with errors_as_one_line():
        protocol.show(name)


@app.command()
def decode(
    data: Annotated[str, typer.Argument(help="Bytes in hex; - reads hex from standard input.")],
    message: Annotated[str, typer.Option(help="A message; without it, a request with its header.")] = "",
    version: Annotated[int, typer.Option(help="The version of the message.")] = 0,
) -> None:
    """What bytes mean: a request as it travels, or one message by name and version."""
    from quorate.cli import protocol
    from quorate.cli.failures import errors_as_one_line, fail

    text = sys.stdin.read() if data == "-" else data
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        fail(f"not hex: {error}")
    with errors_as_one_line():
        protocol.decode(raw, message, version)
