"""`quorate consume`: records become lines."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import select
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Protocol

import typer

from quorate.cli.asking import BOOTSTRAP_SERVER, BootstrapOption, ask, fail, moment_ms
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.fetched import Fetched
from quorate.client.fetcher import EARLIEST, LATEST, Fetcher, FetcherSettings, Isolation, Reset
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.group_offsets import Committed
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import list_offsets
from quorate.protocol.batch import Record
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["app"]

_WAIT_MS: Final = 500
_COMMIT_EVERY_S: Final = 5.0
_BEGINNING, _END = "beginning", "end"


class Format(Enum):
    """How a record is shown."""

    PLAIN = "plain"
    JSON = "json"


app = typer.Typer(add_completion=False)


@app.command("consume")
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N for the last N of each partition, or a time:"
            " 2026-11-15T12:00:00+00:00.",
        ),
    ] = _BEGINNING,
    partition: Annotated[
        list[int] | None, typer.Option(metavar="N", min=0, help="Only this one; as often as needed.")
    ] = None,
    group: Annotated[
        str, typer.Option(metavar="NAME", help="Go on where the group is, share with it, and commit.")
    ] = "",
    group_protocol: Annotated[
        GroupProtocol, typer.Option(help="Who divides the partitions: a member, or the coordinator.")
    ] = GroupProtocol.CLASSIC,
    max_messages: Annotated[
        int | None,
        typer.Option("-n", "--max-messages", metavar="N", min=1, help="Ends after so many records."),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="Ends when everything is read that is there now.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="plain: the values; json: everything.")] = (
        Format.PLAIN
    ),
    key_separator: Annotated[
        str, typer.Option(metavar="TEXT", help="Prints keys too, and this after them (plain).")
    ] = "",
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Only what transactions have committed.")
    ] = False,
) -> None:
    """Prints the records of a topic, a line each, until Ctrl-C or until told to end."""
    isolation = Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED
    if group and (partition or begin not in (_BEGINNING, _END)):
        fail(
            "a group decides itself what it reads, and goes on where it was: leave out --partition and --from"
        )
    _check_begin(begin)
    printer = _Printer(output, key_separator.encode(), max_messages)

    async def read(cluster: Cluster) -> None:
        places = await _places(cluster, topic, partition or ())
        ends = None
        if exit_at_end:
            listed = await list_offsets(
                cluster, dict.fromkeys(places, LATEST), isolation_level=int(isolation)
            )
            ends = {at: one.offset for at, one in listed.items()}
        reset = Reset.LATEST if begin == _END else Reset.EARLIEST
        settings = FetcherSettings(isolation=isolation, reset=reset, max_wait_ms=_WAIT_MS)
        if group:
            as_member = GroupConsumerSettings(protocol=group_protocol, fetcher=settings)
            async with GroupConsumer(cluster, group, [topic], as_member) as member:
                await _follow_in_group(member, printer, ends)
            return
        async with Fetcher(cluster, settings) as fetcher:
            fetcher.assign(await _starts(cluster, places, begin))
            await _follow(fetcher, printer, ends)

    try:
        ask(bootstrap_server, read)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if sys.stderr.isatty():
        print(f"\r{printer.count} records", file=sys.stderr)  # over the ^C that the terminal has written


# Where to begin


def _check_begin(begin: str) -> None:
    if begin not in (_BEGINNING, _END) and _number(begin) is None:
        moment_ms(begin, "--from")


def _number(text: str) -> int | None:
    """A whole number; None for anything else.

    >>> _number("12"), _number("-3"), _number("2026-11-15")
    (12, -3, None)
    """
    return int(text) if text.removeprefix("-").isdecimal() else None


async def _places(cluster: Cluster, topic: str, wanted: Sequence[int]) -> list[TopicPartition]:
    known = (await cluster.topic(topic)).partitions
    for one in wanted:
        if one not in known:
            there_are = f"topic {topic!r} has {len(known)} partitions, and no {one}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there_are)
    return [TopicPartition(topic, one) for one in (wanted or sorted(known))]


async def _starts(
    cluster: Cluster, places: Sequence[TopicPartition], begin: str
) -> dict[tuple[str, int], int | None]:
    if begin in (_BEGINNING, _END):
        return dict.fromkeys(places, EARLIEST if begin == _BEGINNING else LATEST)
    number = _number(begin)
    if number is not None and number >= 0 and not begin.startswith("-"):
        return dict.fromkeys(places, number)
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    if number is not None:
        firsts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
        return {at: max(firsts[at].offset, ends[at].offset + number) for at in places}
    found = await list_offsets(cluster, dict.fromkeys(places, moment_ms(begin, "--from")))
    return {at: ends[at].offset if found[at].offset < 0 else found[at].offset for at in places}


# Reading on


class _Source(Protocol):
    def position(self, at: tuple[str, int]) -> int | None: ...

    async def fetch(self, *, timeout_ms: float | None = None) -> list[Fetched]: ...


async def _follow(source: _Source, printer: _Printer, ends: Mapping[TopicPartition, int] | None) -> None:
    """Prints what comes, until there is enough of it, or it ends, or Ctrl-C is pressed."""
    try:
        while not (printer.is_done or _is_at_end(source, ends) or _is_nobody_reading()):
            printer.show(await source.fetch(timeout_ms=_WAIT_MS))
    except asyncio.CancelledError:
        _forgive_cancelling()


async def _follow_in_group(
    member: GroupConsumer, printer: _Printer, ends: Mapping[TopicPartition, int] | None
) -> None:
    """The same in a group, whose other members may read some of it. What was printed is committed."""
    loop = asyncio.get_running_loop()
    committed_at = loop.time()
    try:
        while not (printer.is_done or _is_nobody_reading()):
            mine = None if ends is None else {at: ends[at] for at in member.assignment if at in ends}
            if mine and _is_at_end(member, mine):
                break
            printer.show(await member.fetch(timeout_ms=_WAIT_MS))
            if loop.time() - committed_at > _COMMIT_EVERY_S:
                committed_at = loop.time()
                await _commit(member, printer)
    except asyncio.CancelledError:
        _forgive_cancelling()
    await _commit(member, printer)


async def _commit(member: GroupConsumer, printer: _Printer) -> None:
    mine = {at: Committed(offset) for at, offset in printer.places.items() if at in member.assignment}
    try:
        if mine:
            await member.commit(mine)
    except (ApiError, Unavailable) as error:
        print(f"quorate: not committed: {error}", file=sys.stderr)


def _is_at_end(source: _Source, ends: Mapping[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(end == 0 or (source.position(at) or 0) >= end for at, end in ends.items())


def _is_nobody_reading() -> bool:
    """Whether our output goes to a program that has ended, such as `head`: without anything to print we
    would not hear of it."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return False  # it is no file at all
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _forgive_cancelling() -> None:
    """Ctrl-C is how this ends, and no accident: there are things to put in order."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


# Showing


class _Printer:
    """Prints records, so many at most, and counts them."""

    def __init__(self, output: Format, separator: bytes, count_max: int | None) -> None:
        self._output = output
        self._separator = separator
        self._count_max = count_max
        self.count = 0
        self.places: dict[TopicPartition, int] = {}  # of what comes after that which is printed

    @property
    def is_done(self) -> bool:
        return self._count_max is not None and self.count >= self._count_max

    def show(self, found: Sequence[Fetched]) -> None:
        lines = []
        for part in found:
            for record in part.records():
                if self.is_done:
                    break
                self.count += 1
                self.places[part.at] = record.offset + 1
                lines.append(self._line(part.at, record))
        if lines:
            sys.stdout.buffer.write(b"\n".join([*lines, b""]))
            sys.stdout.buffer.flush()

    def _line(self, at: TopicPartition, record: Record) -> bytes:
        if self._output is Format.JSON:
            return json.dumps(_record_json(at, record), ensure_ascii=False).encode()
        key = (record.key or b"") + self._separator if self._separator else b""
        return key + (record.value or b"")


def _record_json(at: TopicPartition, record: Record) -> dict[str, Any]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"name": name, **_json_bytes("value", value)} for name, value in record.headers],
    }


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """Text as it is; what is no text, under another name, in base64.

    >>> _json_bytes("key", b"k"), _json_bytes("key", bytes([255]))
    ({'key': 'k'}, {'key_base64': '/w=='})
    """
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
