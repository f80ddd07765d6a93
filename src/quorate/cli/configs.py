"""Configurations of topics, brokers, loggers, groups and client metrics: seen, set and taken back.

The exit status is 0 for an answer, 1 for a bad one (there is no such topic; the value is not allowed), and 2
if nobody could be asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer

from quorate.cli.tables import table
from quorate.client.admin import Admin, ConfigEntry, Resource, ResourceKind
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.protocol.errors import ApiError

__all__ = ["app"]

REFUSED, NOT_ASKED = 1, 2
PATIENCE_MS: Final = 10_000
EVERYBODY: Final = "-"  # in place of the id of a broker

app = typer.Typer(no_args_is_help=True, help="Configurations, and what they are worth.")
T = TypeVar("T")

_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
_UNSAID: Final = (4, 5)  # where nobody has set anything while the cluster ran


class Kind(Enum):
    """What can be configured."""

    TOPIC = "topic"
    BROKER = "broker"
    LOGGERS = "loggers"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


_KINDS: Final = {
    Kind.TOPIC: ResourceKind.TOPIC,
    Kind.BROKER: ResourceKind.BROKER,
    Kind.LOGGERS: ResourceKind.BROKER_LOGGER,
    Kind.GROUP: ResourceKind.GROUP,
    Kind.CLIENT_METRICS: ResourceKind.CLIENT_METRICS,
}

KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help=", ".join(one.value for one in Kind))]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Which one; - stands for the default of all brokers.")
]
BootstrapOption = Annotated[str, typer.Option(help="Brokers to begin with: host:port,...")]


@app.command("describe")
def describe(
    kind: KindArgument,
    name: NameArgument,
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
    everything: Annotated[bool, typer.Option("--all", help="Also what nobody has set.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What is set, and where."""
    found = _ask(bootstrap_server, lambda admin: admin.describe_configs(_resource(kind, name)))
    shown = {key: one for key, one in sorted(found.items()) if everything or one.source not in _UNSAID}
    if as_json:
        print(json.dumps({key: _json(one) for key, one in shown.items()}, indent=2))
        return
    rows = [(key, _text(one), _SOURCES.get(one.source, one.source), _how(one)) for key, one in shown.items()]
    print("\n".join(table([("KEY", "VALUE", "SET FOR", "CHANGES"), *rows])) if rows else "nothing is set")


@app.command("set")
def put(
    kind: KindArgument,
    name: NameArgument,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What it shall be.")],
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
) -> None:
    """Sets keys; others stay as they are."""
    pairs = [one.partition("=") for one in settings]
    if not all(key and separator for key, separator, _ in pairs):
        _fail("a setting is KEY=VALUE", REFUSED)
    wanted = {key: value for key, _, value in pairs}
    _ask(bootstrap_server, lambda admin: admin.alter_configs(_resource(kind, name), put=wanted))
    print(f"set: {', '.join(wanted)}")


@app.command("delete")
def delete(
    kind: KindArgument,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="What shall no longer be set.")],
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
) -> None:
    """Takes back what was set; what is set elsewhere counts then."""
    _ask(bootstrap_server, lambda admin: admin.alter_configs(_resource(kind, name), delete=keys))
    print(f"deleted: {', '.join(keys)}")


def _resource(kind: Kind, name: str) -> Resource:
    return Resource(_KINDS[kind], "" if kind is Kind.BROKER and name == EVERYBODY else name)


def _json(entry: ConfigEntry) -> dict[str, Any]:
    return entry._asdict() | {"source": _SOURCES.get(entry.source, str(entry.source))}


def _text(entry: ConfigEntry) -> str:
    return "(secret)" if entry.is_sensitive else entry.value or ""


def _how(entry: ConfigEntry) -> str:
    return "with a restart" if entry.is_read_only else "at once"


def _ask(bootstrap: str, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    async def ask() -> T:
        async with Cluster(bootstrap, settings=ClusterSettings(deadline_ms=PATIENCE_MS)) as cluster:
            return await question(Admin(cluster))

    try:
        return asyncio.run(ask())
    except ApiError as error:
        _fail(error.message or error.code.name, REFUSED)
    except (Unavailable, ValueError) as error:
        _fail(str(error), NOT_ASKED)


def _fail(reason: str, status: int) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise typer.Exit(status)
