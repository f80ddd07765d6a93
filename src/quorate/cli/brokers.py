"""Brokers. Controllers know most about them and are asked over their admin endpoints; what any broker knows,
of whatever make, is asked by the protocol.

The exit status is 0 for an answer, 1 for a bad one (there is no such broker; to stop these nodes is not
safe), and 2 if nobody could be asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from quorate.cli import broker_answers
from quorate.cli.asking import BOOTSTRAP_SERVER, NOT_ASKED, JsonOption, fail
from quorate.cli.tables import table
from quorate.node.admin import ADDRESS_FILE
from quorate.node.config import ConfigError
from quorate.node.config_file import load_config

__all__ = ["app", "ask"]

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 64 << 20
EXAMPLES_SHOWN = 5
UNSAFE = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Brokers: their state, and why it is so.")
preflight_app = typer.Typer(no_args_is_help=True, help="What something would do, before it is done.")
app.add_typer(preflight_app, name="preflight")

AdminOption = Annotated[
    str, typer.Option(metavar="HTTP://HOST:PORT,...", help="Asks admin endpoints of controllers.")
]
ServerOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"Asks brokers; {BOOTSTRAP_SERVER} if nothing is said.",
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("-c", "--config", metavar="FILE", help="Asks the controller that runs here."),
]
BrokerArgument = Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of a broker.")]


@app.command("list")
def list_brokers(
    bootstrap_server: ServerOption = "",
    admin: AdminOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """All brokers: their state, what they lead, and, if controllers are asked, when they were heard of."""
    if not admin and not config:
        broker_answers.show_brokers(bootstrap_server or BOOTSTRAP_SERVER, as_json=as_json)
        return
    with _errors_as_one_line():
        answer = ask(_addresses(admin, config), "/v1/brokers")
        _print(answer, as_json, _shown_list)


@app.command("describe")
def describe_broker(
    broker_id: BrokerArgument,
    bootstrap_server: ServerOption = "",
    admin: AdminOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Everything about one broker: its settings and directories, or what controllers know of it."""
    if not admin and not config:
        broker_answers.show_broker(bootstrap_server or BOOTSTRAP_SERVER, broker_id, as_json=as_json)
        return
    with _errors_as_one_line():
        answer = ask(_addresses(admin, config), f"/v1/brokers/{broker_id}")
        _print(answer, as_json, _shown_broker)


@app.command("why")
def why(
    broker_id: BrokerArgument,
    admin: AdminOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why a broker is fenced, or that it is not."""
    with _errors_as_one_line():
        answer = ask(_addresses(admin, config), f"/v1/brokers/{broker_id}/why")
        _print(answer, as_json, _shown_why)


@preflight_app.command("stop")
def preflight_stop(
    node_ids: Annotated[list[int], typer.Argument(min=0, metavar="ID", help="Brokers and controllers.")],
    admin: AdminOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether these nodes can be stopped: 0 if it is safe, 1 if not, 2 if nobody could be asked."""
    with _errors_as_one_line(refused=NOT_ASKED):
        ids = ",".join(map(str, node_ids))
        answer = ask(_addresses(admin, config), f"/v1/preflight/stop?ids={ids}")
        _print(answer, as_json, lambda report: _shown_preflight(report, node_ids))
    if answer.get("verdict") != "safe":
        raise typer.Exit(UNSAFE)


class CouldNotAsk(Exception):  # noqa: N818
    """Nobody answered who could have."""


class Refused(Exception):  # noqa: N818
    """There is an answer, and it is no."""


def ask(addresses: Sequence[str], path: str) -> dict[str, Any]:
    """Asks one controller after the other, and whom they name, until one has the answer."""
    queue, asked, problems = list(addresses), set[str](), list[str]()
    while queue:
        address = queue.pop(0)
        if address in asked:
            continue
        asked.add(address)
        try:
            status, answer = _get(address, path)
        except (OSError, HTTPException, ValueError) as error:
            problems.append(f"{address}: {error or type(error).__name__}")
            continue
        if status == 200:
            return answer
        if status == 421:
            problems.append(f"{address}: {_whom_to_ask(answer)}")
            queue += [answer["controller_admin"]] if answer.get("controller_admin") else []
        elif status == 404:
            raise Refused(str(answer.get("error")))
        else:
            problems.append(f"{address}: {status} {answer.get('error', '')}".rstrip())
    raise CouldNotAsk("; ".join(problems))


def _whom_to_ask(answer: dict[str, Any]) -> str:
    controller_id = answer.get("controller_id")
    if controller_id is None:
        return "it is not the active controller, and knows of none now"
    if answer.get("controller_admin"):
        return f"the active controller is node {controller_id} at {answer['controller_admin']}"
    return f"the active controller is node {controller_id}: ask that one"


def _get(address: str, path: str) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname or parts.port is None:
        raise ValueError("not http://host:port")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES_MAX + 1)
    finally:
        connection.close()
    if len(body) > ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    try:
        answer = json.loads(body)
    except ValueError:
        raise ValueError("that is not an admin endpoint: its answer is not JSON") from None
    if not isinstance(answer, dict):
        raise ValueError("that is not an admin endpoint: its answer makes no sense")
    return response.status, answer


def _addresses(admin: str, configs: list[str] | None) -> list[str]:
    found = [part.strip() for part in admin.split(",") if part.strip()]
    found = [address if "://" in address else f"http://{address}" for address in found]
    for path in configs or ():
        file = Path(load_config(path).metadata_directory) / ADDRESS_FILE
        try:
            found.append(file.read_text(encoding="utf-8").strip())
        except OSError:
            raise CouldNotAsk(f"{path}: there is no {file}: is that node running?") from None
        except UnicodeDecodeError:
            raise CouldNotAsk(f"{file}: not an address") from None
    if not found:
        raise CouldNotAsk("whom? Say --admin http://host:port, or --config FILE for a node that runs here")
    return found


@contextmanager
def _errors_as_one_line(refused: int = 1) -> Iterator[None]:
    try:
        yield
    except (CouldNotAsk, ConfigError) as error:
        fail(str(error), NOT_ASKED)
    except Refused as error:
        fail(str(error), refused)


# What a person reads


def _print(answer: dict[str, Any], as_json: bool, shown: Callable[[dict[str, Any]], str]) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    try:
        text = shown(answer)
    except (KeyError, TypeError, ValueError):
        raise CouldNotAsk("the answer makes no sense: is the node of another version?") from None
    print(text)


def _shown_list(answer: dict[str, Any]) -> str:
    head = ("ID", "STATE", "RACK", "EPOCH", "LEADS", "REPLICAS", "METADATA", "HEARTBEAT", "LISTENERS")
    rows = [
        (
            one["id"],
            one["state"],
            one["rack"],
            one["epoch"],
            one["leaders"],
            one["replicas"],
            one["metadata_offset"],
            _ago(one["ms_since_heartbeat"]),
            ",".join(_listeners(one)),
        )
        for one in answer["brokers"]
    ]
    lines = list(table([head, *rows])) if rows else ["there are no brokers"]
    return "\n".join([*lines, *_source(answer)])


def _shown_broker(answer: dict[str, Any]) -> str:
    broker = answer["broker"]
    rows = [
        ("broker", broker["id"]),
        ("state", broker["state"]),
        ("epoch", broker["epoch"]),
        ("incarnation", broker["incarnation_id"]),
        ("rack", broker["rack"]),
        ("listeners", ", ".join(_listeners(broker))),
        ("leads", broker["leaders"]),
        ("replicas", broker["replicas"]),
        ("registration", f"offset {broker['registration_offset']}"),
        ("metadata read", broker["metadata_offset"]),
        ("last heartbeat", _ago(broker["ms_since_heartbeat"])),
        ("directories", ", ".join(broker["directories"])),
        ("cordoned", ", ".join(broker["cordoned_directories"])),
        ("features", ", ".join(f"{name} {low}-{high}" for name, (low, high) in broker["features"].items())),
    ]
    return "\n".join([*table(rows), *_source(answer)])


def _shown_why(standing: dict[str, Any]) -> str:
    state = "is fenced" if standing["is_fenced"] else "is not fenced"
    heard = _ago(standing["ms_since_heartbeat"])
    head = f"broker {standing['broker_id']} {state} (check: {standing['check']})"
    return f"{head}; {f'last heartbeat {heard}' if heard else 'not heard of'}\n{standing['explanation']}"


def _shown_preflight(report: dict[str, Any], node_ids: Sequence[int]) -> str:
    ids = ", ".join(map(str, node_ids))
    lines = [f"safe to stop {ids}" if report["verdict"] == "safe" else f"not safe to stop {ids}:"]
    lines += [f"  {reason}" for reason in report["reasons"]]
    for name, what in (("leaderless", "no leader"), ("below_min_isr", "below min.insync.replicas")):
        if report[name]["count"]:
            lines.append(f"  {what}: {_examples(report[name])}")
    if report["already_fenced"]:
        lines.append(f"  already fenced: {', '.join(map(str, report['already_fenced']))}")
    if report["already_offline"]["count"]:
        lines.append(f"  offline already, whatever you do: {_examples(report['already_offline'])}")
    return "\n".join(lines)


def _source(answer: dict[str, Any]) -> list[str]:
    """A standby knows less, and says so."""
    if answer["is_active"]:
        return []
    return [f"(as node {answer['node_id']} sees it, which is not the active controller: no heartbeats)"]


def _examples(found: dict[str, Any]) -> str:
    names = found["examples"][:EXAMPLES_SHOWN]
    more = found["count"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _listeners(broker: dict[str, Any]) -> list[str]:
    return [f"{one['name']}://{one['host']}:{one['port']}" for one in broker["listeners"]]


def _ago(duration_ms: float | None) -> str | None:
    return None if duration_ms is None else f"{duration_ms / 1000:.1f} s ago"
