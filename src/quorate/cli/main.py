"""The `quorate` command and its subcommands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quorate import __version__
from quorate.cli import (
    brokers,
    cluster_tour,
    configs,
    consume,
    groups,
    lab,
    lab_nodes,
    metadata,
    produce,
    protocol,
    quorum,
    storage,
    topics,
    up,
)
from quorate.cli.failures import errors_as_one_line, fail
from quorate.node import process

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A Kafka-compatible cluster in Python: controllers, brokers, and their tools.",
)
storage_app = typer.Typer(no_args_is_help=True, help="The directories of a node.")
quorum_app = typer.Typer(no_args_is_help=True, help="The quorum of controllers.")
app.add_typer(storage_app, name="storage")
lab_app = typer.Typer(no_args_is_help=True, help="Breaking things on purpose.")
app.add_typer(quorum_app, name="quorum")
app.add_typer(lab_app, name="lab")
app.add_typer(brokers.app, name="brokers")
app.add_typer(groups.app, name="groups")
app.add_typer(configs.app, name="configs")
app.command("up")(up.up)
for command in lab_nodes.COMMANDS:
    lab_app.command(command.__name__)(command)
app.add_typer(topics.app, name="topics")
app.add_typer(metadata.app, name="metadata")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"quorate {__version__}")
        raise typer.Exit


@app.command()
def tour() -> None:
    """A look at what works today: messages, a cluster that is written to and read, a quorum under faults."""
    protocol.tour()
    print("\nA cluster of one node, and our client:")
    cluster_tour.show_cluster()
    print("\nControllers that elect a leader and agree on a log while things break, simulated:")
    lab.run_seed(7, 10, steps_max=None, should_shrink=False)
    print("\nMore: quorate apis, quorate show FetchRequest, quorate decode HEX, quorate lab quorum --seed 8")


@app.command()
def apis() -> None:
    """Every request: its key, the versions we read and write, and those that Apache Kafka serves."""
    protocol.list_apis()


@app.command()
def show(name: Annotated[str, typer.Argument(help="A message, such as BrokerHeartbeatRequest.")]) -> None:
    """The history of a message: which field is in which version."""
    with errors_as_one_line():
        protocol.show(name)


@app.command()
def decode(
    data: Annotated[str, typer.Argument(help="Bytes in hex; - reads hex from standard input.")],
    message: Annotated[str, typer.Option(help="A message; without it, a request with its header.")] = "",
    version: Annotated[int, typer.Option(help="The version of the message.")] = 0,
) -> None:
    """What bytes mean: a request as it travels, or one message by name and version."""
    text = sys.stdin.read() if data == "-" else data
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        fail(f"not hex: {error}")
    with errors_as_one_line():
        protocol.decode(raw, message, version)


@storage_app.command("random-uuid")
def random_uuid() -> None:
    """A new cluster id."""
    print(storage.random_uuid())


@storage_app.command("format")
def format_command(
    config: Annotated[str, typer.Option("-c", "--config", help="The configuration of the node.")],
    cluster_id: Annotated[str, typer.Option("-t", "--cluster-id", help="The id of the cluster.")],
    standalone: Annotated[
        bool, typer.Option("--standalone", help="The only voter of a quorum that can change.")
    ] = False,
    initial_controllers: Annotated[
        str, typer.Option(help="The first voters, the same on all: id@host:port:directory-id,...")
    ] = "",
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", help="Joins a quorum that exists.")
    ] = False,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Leaves directories as they are that are formatted.")
    ] = False,
) -> None:
    """Makes the directories in a configuration those of one node of one cluster."""
    with errors_as_one_line():
        storage.format_directories(
            config,
            cluster_id,
            is_standalone=standalone,
            initial_controllers=initial_controllers,
            no_initial_controllers=no_initial_controllers,
            ignore_formatted=ignore_formatted,
        )


@app.command("node")
def node_command(config: Annotated[str, typer.Argument(help="The configuration of the node.")]) -> None:
    """Runs a node until it is told to stop (SIGTERM, or Ctrl-C)."""
    with errors_as_one_line():
        process.run(config)


@quorum_app.command("describe")
def describe_quorum(
    bootstrap_controller: Annotated[str, typer.Option(help="Controllers to ask: host:port,...")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Who leads, and how far everyone is."""
    try:
        addresses = quorum.parse_addresses(bootstrap_controller)
    except ValueError as error:
        fail(f"--bootstrap-controller: {error}")
    with errors_as_one_line():
        print(quorum.shown(quorum.describe(addresses), as_json))


@lab_app.command("quorum")
def lab_quorum(
    seed: Annotated[int, typer.Option(help="Decides everything that happens.")],
    seconds: Annotated[int, typer.Option(min=1, help="Simulated seconds of faults.")] = 60,
    steps: Annotated[int, typer.Option(help="Stops after so many steps; 0 is all.")] = 0,
    shrink: Annotated[bool, typer.Option(help="Makes a failing list of faults small.")] = False,
) -> None:
    """Runs a simulated quorum of production controllers under the faults of a seed."""
    if not lab.run_seed(seed, seconds, steps_max=steps or None, should_shrink=shrink):
        raise typer.Exit(1)
