"""Configurations of topics, brokers, loggers, groups and client metrics: seen, set and taken back.

The exit status is 0 for an answer, 1 for a bad one (there is no such topic; the value is not allowed), and 2
if nobody could be asked.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final

import typer

from quorate.cli.asking import (
    BOOTSTRAP_SERVER,
    BootstrapOption,
    JsonOption,
    ask,
    pairs,
    print_json,
    print_table,
)
from quorate.client.admin import Admin, ConfigEntry, Resource, ResourceKind

__all__ = ["SOURCES", "UNSAID", "app", "config_text"]

EVERYBODY: Final = "-"  # in place of the id of a broker

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Configurations, and what they are worth.")

SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
UNSAID: Final = (4, 5)  # where nobody has set anything while the cluster ran


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


@app.command("describe")
def describe(
    kind: KindArgument,
    name: NameArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    everything: Annotated[bool, typer.Option("--all", help="Also what nobody has set.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What is set, and where."""
    found = ask(bootstrap_server, lambda cluster: Admin(cluster).describe_configs(_resource(kind, name)))
    shown = {key: one for key, one in sorted(found.items()) if everything or one.source not in UNSAID}
    if as_json:
        print_json({key: _json(one) for key, one in shown.items()})
        return
    rows = [
        (key, config_text(one), SOURCES.get(one.source, one.source), _how(one)) for key, one in shown.items()
    ]
    print_table(("KEY", "VALUE", "SET FOR", "CHANGES"), rows, "nothing is set")


@app.command("set")
def put(
    kind: KindArgument,
    name: NameArgument,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What it shall be.")],
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
) -> None:
    """Sets keys; others stay as they are."""
    wanted = pairs(settings, "")
    ask(bootstrap_server, lambda cluster: Admin(cluster).alter_configs(_resource(kind, name), put=wanted))
    print(f"set: {', '.join(wanted)}")


@app.command("delete")
def delete(
    kind: KindArgument,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="What shall no longer be set.")],
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
) -> None:
    """Takes back what was set; what is set elsewhere counts then."""
    ask(bootstrap_server, lambda cluster: Admin(cluster).alter_configs(_resource(kind, name), delete=keys))
    print(f"deleted: {', '.join(keys)}")


def _resource(kind: Kind, name: str) -> Resource:
    return Resource(_KINDS[kind], "" if kind is Kind.BROKER and name == EVERYBODY else name)


def _json(entry: ConfigEntry) -> dict[str, Any]:
    return entry._asdict() | {"source": SOURCES.get(entry.source, str(entry.source))}


def config_text(entry: ConfigEntry) -> str:
    return "(secret)" if entry.is_sensitive else entry.value or ""


def _how(entry: ConfigEntry) -> str:
    return "with a restart" if entry.is_read_only else "at once"
