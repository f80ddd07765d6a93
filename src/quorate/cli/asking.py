"""What commands have in common that ask a cluster: whom, how, and what is said if nobody answers.

The exit status is 0 for an answer, 1 for a bad one (there is no such topic; it is not allowed), and 2 if
nobody could be asked. Errors are one line on the standard error.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer

from quorate.cli.tables import table
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.one_line import one_line
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "BOOTSTRAP_SERVER",
    "LAST_MS",
    "NOT_ASKED",
    "PATIENCE_MS",
    "REFUSED",
    "BootstrapOption",
    "JsonOption",
    "ask",
    "fail",
    "in_words",
    "listed",
    "moment_ms",
    "nobody_answered",
    "pairs",
    "pretty_json",
    "print_json",
    "print_table",
    "run",
    "size",
    "time_text",
]

REFUSED, NOT_ASKED = 1, 2
PATIENCE_MS: Final = 10_000
BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"

T = TypeVar("T")
_SETTINGS: Final = ClusterSettings(deadline_ms=PATIENCE_MS, unknown_topic_wait_ms=1000)

BootstrapOption = Annotated[
    str, typer.Option("--bootstrap-server", metavar="HOST:PORT,...", help="Brokers to begin with.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]

_LIST: Final = re.compile(r"\[\n\s*([\w\s\"',.:/@+-]*?)\n\s*\]")  # of several lines, so it is none in a text
_NEW_LINE: Final = re.compile(r"\n\s*")
_ONLY_A_NAME: Final = re.compile(r"""[\w ]+ ('([^'\\]|\\.)*'|"([^"\\]|\\.)*"|[\w.-]+-\d+)""")
_FIRST_YEAR: Final = 1970
LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999
_IN_WORDS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.INVALID_GROUP_ID: "that is not the name of a group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.LEADER_NOT_AVAILABLE: "nobody leads it now",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client may not see that group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client may not do that with the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this client may not do that with the cluster",
}


def ask(bootstrap: str, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """What a cluster answers; ends the command if it says no, or if there is none.

    If no broker answers at first, none is waited for: somebody sits in front of this.
    """

    async def in_cluster() -> T:
        async with Cluster(bootstrap, settings=_SETTINGS) as cluster:
            await _find(cluster, bootstrap)
            return await question(cluster)

    return run(in_cluster())


def run(answering: Coroutine[Any, Any, T]) -> T:
    """Waits for an answer; ends the command with one line if there is none, or not a good one."""
    try:
        return asyncio.run(answering)
    except ApiError as error:
        fail(in_words(error), REFUSED)
    except BrokenPipeError:
        raise  # that is our own output
    except (ConnectionError, ValueError) as error:
        fail(str(error), NOT_ASKED)


async def _find(cluster: Cluster, bootstrap: str) -> None:
    try:
        await cluster.refresh()
    except Unavailable as error:
        reasons = str(error).partition("(")[2].rpartition(")")[0]
        raise nobody_answered("broker", bootstrap, reasons) from None


def nobody_answered(whom: str, where: str, reasons: str) -> Unavailable:
    """What to say of it; the reasons only if there is more to them than that nobody is there."""
    why = "" if "Connect call failed" in reasons else f" ({reasons})"
    return Unavailable(f"no {whom} answered at {where}; is the cluster up?{why}")


def in_words(error: ApiError) -> str:
    """What a refusal means: what the broker says, and what its code stands for if that is only a name.

    >>> in_words(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'orders'"))
    "topic 'orders': there is no such topic or partition"
    >>> in_words(ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "offsets of orders-0"))
    'offsets of orders-0: nobody leads it now'
    """
    meaning = _IN_WORDS.get(error.code, error.code.name)
    if not error.message:
        return meaning
    return f"{error.message}: {meaning}" if _ONLY_A_NAME.fullmatch(error.message) else error.message


def fail(reason: str, status: int = REFUSED) -> NoReturn:
    print(one_line(f"quorate: {reason}"), file=sys.stderr)
    raise typer.Exit(status)


# What is typed


def pairs(settings: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` by key.

    >>> pairs(["retention.ms=1000", "cleanup.policy="], "--config")
    {'retention.ms': '1000', 'cleanup.policy': ''}
    """
    found = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not key or not separator:
            fail(f"{option} {setting!r}: a setting is KEY=VALUE")
        found[key] = value
    return found


def moment_ms(text: str, option: str) -> int:
    """A time as people write it, in milliseconds since 1970; without a zone it is that of this machine.

    >>> moment_ms("1970-01-01T00:00:01+00:00", "--from")
    1000
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{option} {text!r}: not a time as in 2026-11-15T12:00:00+00:00")
    try:
        found_ms = math.floor(moment.timestamp() * 1000)
    except (ValueError, OverflowError):  # without a zone it may be outside what this machine can tell
        found_ms = -1 if moment.year < _FIRST_YEAR else LAST_MS
    if found_ms < 0:
        # Below 0 are no times, but orders to brokers: the end, the beginning, and the like.
        fail(f"{option} {text!r}: before {_FIRST_YEAR}, where the times of records begin")
    return found_ms


# What is shown


def print_json(value: object) -> None:
    print(pretty_json(value))


def pretty_json(value: object) -> str:
    """JSON for people too: what is in each other is indented, and lists of numbers and names are one line.

    >>> print(pretty_json({"replicas": [1, 2, 3]}))
    {
      "replicas": [1, 2, 3]
    }
    """
    return _LIST.sub(lambda list_: f"[{_NEW_LINE.sub(' ', list_[1])}]", json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]], nothing: str) -> None:
    """Rows under their heads, or one line if there are none."""
    print("\n".join(table([head, *rows])) if rows else nothing)


def size(count_bytes: int) -> str:
    """
    >>> size(999), size(12_345), size(5_000_000_000)
    ('999 B', '12.3 kB', '5.0 GB')
    """
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count_bytes >= unit:
            return f"{count_bytes / unit:.1f} {name}"
    return f"{count_bytes} B"


def time_text(time_ms: int) -> str:
    """
    >>> time_text(1000)
    '1970-01-01 00:00:01.000'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]


def listed(values: Iterable[object]) -> str:
    """
    >>> listed((1, 2))
    '1,2'
    """
    return ",".join(map(str, values))
