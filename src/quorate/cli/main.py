"""The `quorate` command and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from quorate import __version__
from quorate.cli import protocol
from quorate.protocol.errors import ApiError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A Kafka-compatible cluster in Python. Today: its wire protocol.",
)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"quorate {__version__}")
        raise typer.Exit


@app.command()
def tour() -> None:
    """A look at what works today: a request, a refusal, a record batch."""
    protocol.tour()


@app.command()
def apis() -> None:
    """Every request: its key, the versions we read and write, and those that Apache Kafka serves."""
    protocol.list_apis()


@app.command()
def show(name: Annotated[str, typer.Argument(help="A message, such as BrokerHeartbeatRequest.")]) -> None:
    """The history of a message: which field is in which version."""
    with _errors_as_one_line():
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
        _fail(f"not hex: {error}")
    with _errors_as_one_line():
        protocol.decode(raw, message, version)


@contextmanager
def _errors_as_one_line() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        _fail(error.message)


def _fail(reason: str) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise typer.Exit(1)
