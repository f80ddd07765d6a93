"""Groups of consumers: which there are, who is in them, how far they are, why they rebalanced.

The exit status is 0 for an answer, 1 for a bad one (there is no such group; it has members), and 2 if nobody
could be asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

from quorate.cli.asking import (
    BOOTSTRAP_SERVER,
    LAST_MS,
    PATIENCE_MS,
    BootstrapOption,
    JsonOption,
    ask,
    fail,
    moment_ms,
    print_json,
    print_table,
    time_text,
)
from quorate.client.cluster import Cluster
from quorate.client.fetcher import EARLIEST, LATEST, Fetcher
from quorate.client.group_admin import Group, Groups, Lag
from quorate.client.group_offsets import Committed, commit_offsets, committed_offsets
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import list_offsets
from quorate.coordinator.classic import State
from quorate.coordinator.consumer_state import GroupPhase
from quorate.coordinator.group_listing import CLASSIC
from quorate.coordinator.group_places import place_hash
from quorate.coordinator.subscriptions import CONSUMER
from quorate.node.event_words import words_of
from quorate.one_line import one_line
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["app"]

EVENTS_TOPIC: Final = "__cluster_events"
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_OF_PARTITIONS: Final = frozenset({"GroupsLoaded", "GroupsUnloaded"})
"""Kinds of events that concern all groups of a partition, and name none."""
_HAS_MEMBERS: Final = frozenset(
    {"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)
_PARTITION: Final = re.compile(r"[0-9]{1,10}")
# Of share and streams groups there are some on Apache's clusters.
STATES: Final = tuple(sorted({*map(str, State), *map(str, GroupPhase), "NotReady"}))
KINDS: Final = (CLASSIC, CONSUMER, "share", "streams")

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Groups of consumers.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The name of a group.")]


@app.command("list")
def list_groups(
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state, as Stable or Empty.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only groups of this kind, as classic or consumer.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """All groups."""
    states, kinds = _known(state or (), "--state", STATES), _known(kind or (), "--kind", KINDS)
    found = ask(bootstrap_server, lambda cluster: Groups(cluster).all(states=states, kinds=kinds))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    rows = [(one.group, one.kind, one.state, one.protocol_type) for one in found]
    nothing = "there are no such groups" if states or kinds else "there are no groups"
    print_table(("GROUP", "KIND", "STATE", "TYPE"), rows, nothing)


@app.command("describe")
def describe(
    group: GroupArgument, bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER, as_json: JsonOption = False
) -> None:
    """A group, its members and what each reads."""
    found = ask(bootstrap_server, lambda cluster: _of(group, Groups(cluster).describe(group)))
    if as_json:
        print_json(_group_json(found))
        return
    epoch = "" if found.epoch is None else f", epoch {found.epoch}"
    print(
        one_line(
            f"group {found.group} is {found.state}: {found.kind}, {len(found.members)} members{epoch},"
            f" assignor {found.protocol or '-'}, coordinated by broker {found.coordinator}"
        )
    )
    rows = [
        (one.id, one.instance_id, one.client_id, one.host, _places(one.partitions)) for one in found.members
    ]
    if rows:
        print_table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows, "")


@app.command("lag")
def lag(
    group: GroupArgument, bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER, as_json: JsonOption = False
) -> None:
    """How far a group is behind, partition by partition."""
    found = ask(bootstrap_server, lambda cluster: _of(group, Groups(cluster).lag(group)))
    if as_json:
        print_json([_lag_json(one) for one in found])
        return
    rows = [
        (one.at.topic, one.at.partition, one.committed and one.committed.offset, one.end_offset, one.lag)
        for one in found
    ]
    print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG"), rows, "the group has committed nothing")


@app.command("delete")
def delete(group: GroupArgument, bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER) -> None:
    """Deletes a group without members, and what it has committed."""
    ask(bootstrap_server, lambda cluster: _of(group, Groups(cluster).delete(group)))
    print(one_line(f"group {group} is deleted"))


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic, or topic:partition; all that the group has, if none.")
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To an offset.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="So many records on, or back if negative.")] = None,
    to_datetime: Annotated[
        str, typer.Option(help="To the first record since then: 2026-11-15T12:00:00+00:00.")
    ] = "",
    execute: Annotated[bool, typer.Option("--execute", help="Does it; else it is only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Where a group goes on. Shows what it would do, unless it is told to do it."""
    target = _target(to_earliest, to_latest, to_offset, shift_by, to_datetime)
    chosen = [_chosen(one) for one in topic or ()]
    moves = ask(bootstrap_server, lambda cluster: _of(group, _reset(cluster, group, chosen, target, execute)))
    if as_json:
        print_json([{**one.at._asdict(), "from": one.before, "to": one.after} for one in moves])
    else:
        rows = [(one.at.topic, one.at.partition, one.before, one.after) for one in moves]
        nothing = "there is nothing to reset: the group has committed nothing, and no --topic was named"
        print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows, nothing)
        if rows and not execute:
            print("nothing was changed: say --execute to do it")


@app.command("why")
def why(
    group: GroupArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    last: Annotated[int, typer.Option(min=1, help="So many events at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Why a group rebalanced: what its coordinators have noted, the newest last."""
    found = ask(bootstrap_server, lambda cluster: _events(cluster, group, last))
    if as_json:
        print_json(found)
        return
    if not found:
        print(one_line(f"nothing has been noted about group {group}"))
    for one in found:
        print(one_line(f"{time_text(one['time_ms'])}  {one['line']}"))


# What is typed


def _known(typed: Iterable[str], option: str, names: Sequence[str]) -> list[str]:
    """Names as brokers have them, whose case does not matter. One that nothing has would find nothing."""
    by_lower = {name.lower(): name for name in names}
    for one in typed:
        if one.lower() not in by_lower:
            fail(f"{option} {one!r}: allowed is {', '.join(names)}")
    return [by_lower[one.lower()] for one in typed]


def _chosen(text: str) -> tuple[str, int | None]:
    """A topic, and which of its partitions; None for all.

    >>> _chosen("orders"), _chosen("orders:7")
    (('orders', None), ('orders', 7))
    """
    name, separator, number = text.partition(":")
    if not separator:
        return name, None
    if not _PARTITION.fullmatch(number):
        fail(f"--topic {text!r}: not a topic, or a topic and the number of a partition, as in orders:7")
    return name, int(number)


# Doing it


async def _of(group: str, answering: Coroutine[Any, Any, T]) -> T:
    """What is answered about a group. A refusal without words says at least of which."""
    try:
        return await answering
    except ApiError as error:
        if error.message:
            raise
        raise ApiError(error.code, f"group {group!r}") from None


class Move(NamedTuple):
    """Where a group was in a partition, and where it goes on."""

    at: TopicPartition
    before: int | None
    after: int


Target = Callable[[Cluster, dict[TopicPartition, int | None]], Awaitable[dict[TopicPartition, int]]]


def _target(
    to_earliest: bool, to_latest: bool, to_offset: int | None, shift_by: int | None, to_datetime: str
) -> Target:
    """What the options say, of which there must be one."""
    chosen = [to_earliest, to_latest, to_offset is not None, shift_by is not None, bool(to_datetime)]
    if sum(chosen) != 1:
        fail("say one of --to-earliest, --to-latest, --to-offset, --shift-by and --to-datetime")
    if to_datetime:
        timestamp = moment_ms(to_datetime, "--to-datetime")
        return lambda cluster, places: _since(cluster, places, timestamp)
    if to_earliest or to_latest:
        return lambda cluster, places: _listed(cluster, places, EARLIEST if to_earliest else LATEST)

    async def within(cluster: Cluster, places: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        first, end = await _listed(cluster, places, EARLIEST), await _listed(cluster, places, LATEST)

        def wanted(at: TopicPartition) -> int:
            if to_offset is not None:
                return to_offset
            before = places[at]
            return (first[at] if before is None else before) + (shift_by or 0)

        return {at: min(max(wanted(at), first[at]), end[at]) for at in places}

    return within


async def _listed(
    cluster: Cluster, places: dict[TopicPartition, int | None], timestamp: int
) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, dict.fromkeys(places, timestamp))
    return {at: one.offset for at, one in found.items()}


async def _since(
    cluster: Cluster, places: dict[TopicPartition, int | None], timestamp: int
) -> dict[TopicPartition, int]:
    """The first records since a time; the end where there are none."""
    found, ends = await _listed(cluster, places, timestamp), await _listed(cluster, places, LATEST)
    return {at: ends[at] if found[at] < 0 else found[at] for at in places}


async def _reset(
    cluster: Cluster,
    group: str,
    chosen: Sequence[tuple[str, int | None]],
    target: Target,
    should_execute: bool,
) -> list[Move]:
    is_new = not await _is_there_and_empty(cluster, group)
    if is_new and not chosen:
        reason = f"there is no group {group!r}; to give it a place to begin, name topics with --topic"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    committed = await committed_offsets(cluster, group)
    places: dict[TopicPartition, int | None] = {}
    if not chosen:
        places = {at: one.offset for at, one in committed.items()}
    for name, number in chosen:
        known = (await cluster.topic(name)).partitions
        for partition in sorted(known) if number is None else [number]:
            if partition not in known:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {partition}")
            at = TopicPartition(name, partition)
            places[at] = committed[at].offset if at in committed else None
    offsets = await target(cluster, places) if places else {}
    moves = [Move(at, places[at], offsets[at]) for at in sorted(places)]
    if should_execute:
        await commit_offsets(cluster, group, {one.at: Committed(one.after) for one in moves})
    return moves


async def _is_there_and_empty(cluster: Cluster, group: str) -> bool:
    """Whether there is such a group. `ApiError` if it has members."""
    try:
        state = (await Groups(cluster).describe(group)).state
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if state in _HAS_MEMBERS:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group} is {state}: stop its members first")
    return True


async def _events(cluster: Cluster, group: str, last: int) -> list[dict[str, Any]]:
    """The newest events about a group that brokers have published. What befell the partition that its state
    is in is told too, from the first event on that names the group."""
    try:
        topic = await cluster.topic(EVENTS_TOPIC)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        reason = f"there is no topic {EVENTS_TOPIC}: is quorate.events.publish off?"
        raise ApiError(error.code, reason) from None
    places = [TopicPartition(EVENTS_TOPIC, one) for one in topic.partitions]
    ends = {
        at: one.offset for at, one in (await list_offsets(cluster, dict.fromkeys(places, LATEST))).items()
    }
    partition = await _partition_of(cluster, group)
    named: list[dict[str, Any]] = []
    placed: list[dict[str, Any]] = []
    async with Fetcher(cluster) as fetcher:
        fetcher.assign(dict.fromkeys(places, EARLIEST))
        while any((fetcher.position(at) or 0) < ends[at] for at in places):
            for part in await fetcher.fetch(timeout_ms=PATIENCE_MS):
                for event in map(_event_of, (record.value for record in part.records())):
                    if event.get("group_id") == group or group in event.get("group_ids", ()):
                        named.append(event)
                    elif event.get("kind") in _OF_PARTITIONS and event.get("partition") == partition:
                        placed.append(event)
                named, placed = named[-last * 10 :], placed[-last * 10 :]
    if not named:
        return []
    first_ms = min(event["time_ms"] for event in named)
    found = named + [event for event in placed if event["time_ms"] >= first_ms]
    found.sort(key=lambda event: event["time_ms"])
    return [{**event, "line": _line(event)} for event in found[-last:]]


async def _partition_of(cluster: Cluster, group: str) -> int | None:
    """The partition that the group's state is in; None if no group has ever been."""
    try:
        topic = await cluster.topic(_OFFSETS_TOPIC)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
    return place_hash(group) % len(topic.partitions)


def _event_of(value: bytes | None) -> dict[str, Any]:
    """What a record of the topic says; nothing if it is not an event. Anybody may have written it."""
    try:
        event = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    is_event = (
        isinstance(event, dict)
        and isinstance(event.get("kind"), str)
        and type(event.get("time_ms")) is int
        and 0 <= event["time_ms"] <= LAST_MS
        and isinstance(event.get("group_ids", []), list)
    )
    return event if is_event else {}


def _line(event: dict[str, Any]) -> str:
    """What happened, in words; and to which broker, if that is what matters."""
    words = words_of(event) or event["kind"]  # of a kind that came after this was written, its name
    return f"{words} broker={event.get('node')}" if event["kind"] in _OF_PARTITIONS else words


# Showing


def _group_json(found: Group) -> dict[str, Any]:
    return {
        "group": found.group,
        "kind": found.kind,
        "state": found.state,
        "assignor": found.protocol,
        "coordinator": found.coordinator,
        "epoch": found.epoch,
        "members": [
            {
                "id": one.id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "epoch": one.epoch,
                "partitions": [at._asdict() for at in one.partitions],
            }
            for one in found.members
        ],
    }


def _lag_json(one: Lag) -> dict[str, Any]:
    committed = None if one.committed is None else one.committed.offset
    return {**one.at._asdict(), "committed": committed, "end_offset": one.end_offset, "lag": one.lag}


def _places(partitions: Sequence[TopicPartition]) -> str:
    """Partitions, short: `orders:0-3,7 payments:1`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(_ranges(some))}" for topic, some in topics.items())


def _ranges(numbers: list[int]) -> Iterator[str]:
    first = previous = numbers[0]
    for number in [*numbers[1:], None]:
        if number != previous + 1:
            yield str(first) if first == previous else f"{first}-{previous}"
            first = number if number is not None else first
        previous = number if number is not None else previous
