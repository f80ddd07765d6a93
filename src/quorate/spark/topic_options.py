"""The options of a topic as a table: those of Spark's own Kafka source by the same names and rules, and ours.

What an option says is checked before anything is asked of a cluster, and what is wrong is told with the name
of the option, its value and what is allowed. An option of the connector or of Kafka's clients that would
change what is read, and that we do not have, is refused instead of ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from quorate.client.fetcher import Isolation
from quorate.client.metadata import TopicPartition, parse_addresses
from quorate.client.offsets import EARLIEST, LATEST
from quorate.net.tls import TlsSettings
from quorate.spark.security_options import SECURITY, security_of
from quorate.spark.topic_client import DEADLINE_MS

__all__ = [
    "COLUMNS",
    "Assigned",
    "AtOffsets",
    "AtTimestamps",
    "Position",
    "Subscribed",
    "SubscribedPattern",
    "TopicOptions",
    "bootstrap_of",
    "columns_of",
    "read_topic_options",
]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}
_REFUSED: Final = ("minOffsetsPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs")
_KAFKA: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "default.api.timeout.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        *SECURITY,
    }
)
_FETCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics, also those that are added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribedPattern:
    """All partitions of the topics whose whole names match, also of those that come later."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """`EARLIEST` or `LATEST` for all partitions, or what each is given."""

    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time, in milliseconds."""

    everywhere_ms: int | None = None
    each_ms: Mapping[TopicPartition, int] | None = None
    # Where to begin if no record is so late: at the end, or not at all.
    latest_if_none: bool = False


Position = AtOffsets | AtTimestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What is read, from where to where, and how."""

    bootstrap: str
    what: Subscribed | SubscribedPattern | Assigned
    starting: Position
    ending: Position
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = COLUMNS
    pushdown: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    client_id: str = "quorate-spark"
    deadline_ms: int = DEADLINE_MS  # for a request with all its retries
    fetch_bytes_max: int = _FETCH_BYTES
    tls: TlsSettings | None = None


def read_topic_options(options: Mapping[str, str], *, streaming: bool) -> TopicOptions:
    """The options of a batch read, or of a stream; `ValueError` says what is wrong with them."""
    given = {name.lower(): value for name, value in options.items()}
    for refused in _REFUSED:
        if refused.lower() in given:
            _bad(refused, given[refused.lower()], "it is not supported by this source")
    for name, value in given.items():
        if name.startswith("kafka.") and name.removeprefix("kafka.") not in _KAFKA:
            _bad(name, value, f"of Kafka's own settings there are {', '.join(sorted(_KAFKA))}")
    if streaming:
        starting = _position(given, "starting", default=LATEST)
        ending: Position = AtOffsets(LATEST)
        for name in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"):
            if name in given:
                _bad(name, given[name], "a stream has no end")
    else:
        starting = _position(given, "starting", default=EARLIEST)
        ending = _position(given, "ending", default=LATEST)
        _check_side("startingOffsets", given, starting, LATEST)
        _check_side("endingOffsets", given, ending, EARLIEST)
    return TopicOptions(
        bootstrap=bootstrap_of(given),
        what=_what(given),
        starting=starting,
        ending=ending,
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        columns=columns_of(given),
        pushdown=_flag(given, "pushdown", default=False),
        isolation=_isolation(given),
        max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        min_partitions=_count(given, "minPartitions"),
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        client_id=given.get("kafka.client.id", "quorate-spark"),
        deadline_ms=_count(given, "kafka.default.api.timeout.ms") or DEADLINE_MS,
        fetch_bytes_max=_count(given, "kafka.max.partition.fetch.bytes") or _FETCH_BYTES,
        tls=security_of(given),
    )


def bootstrap_of(options: Mapping[str, str]) -> str:
    """The brokers to begin with, checked."""
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise ValueError("option bootstrap.servers is missing: expected host:port, as in localhost:9092")
    parse_addresses(servers)
    return servers


def _what(given: Mapping[str, str]) -> Subscribed | SubscribedPattern | Assigned:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        told = " and ".join(ways) if ways else "none"
        raise ValueError(f"one of the options subscribe, subscribePattern, assign is needed; given: {told}")
    name = ways[0]
    text = given[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (one.strip() for one in text.split(",")))))
        return Subscribed(topics) if topics else _bad(name, text, "expected names of topics")
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            _bad(name, text, f"not a regular expression: {error}")
        return SubscribedPattern(text) if text else _bad(name, text, "expected a regular expression")
    parsed = _json(name, text)
    partitions = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_number(one) and one >= 0 for one in numbers):
            _bad(name, text, 'expected partitions by topic, as in {"orders":[0,1]}')
        partitions += [TopicPartition(topic, one) for one in numbers]
    return Assigned(tuple(partitions)) if partitions else _bad(name, text, "expected partitions")


def _position(given: Mapping[str, str], side: str, *, default: int) -> Position:
    """Times win over offsets, and one for all wins over one for each, as in Spark's own source."""
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        _bad("startingOffsetsByTimestampStrategy", strategy, "allowed is error or latest")
    latest_if_none = side == "ending" or strategy == "latest"
    name = f"{side}Timestamp"
    if name.lower() in given:
        return AtTimestamps(_number(name, given[name.lower()]), latest_if_none=latest_if_none)
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in given:
        each = _by_partition(name, given[name.lower()], lowest=0)
        return AtTimestamps(each_ms=each, latest_if_none=latest_if_none)
    name = f"{side}Offsets"
    text = given.get(name.lower())
    if text is None:
        return AtOffsets(default)
    if text.lower() in _NAMED:
        return AtOffsets(_NAMED[text.lower()])
    return AtOffsets(each=_by_partition(name, text, lowest=EARLIEST))


def _check_side(name: str, given: Mapping[str, str], position: Position, wrong: int) -> None:
    """What a batch begins with must be there, and where it ends must not be its beginning."""
    if isinstance(position, AtOffsets):
        named = {number: text for text, number in _NAMED.items()}[wrong]
        if position.everywhere == wrong or wrong in (position.each or {}).values():
            _bad(name, given[name.lower()], f"a batch cannot have {named} ({wrong}) here")


def _by_partition(name: str, text: str, *, lowest: int) -> dict[TopicPartition, int]:
    expected = 'expected numbers by partition by topic, as in {"orders":{"0":23,"1":45}}'
    found = {}
    for topic, numbers in _json(name, text).items():
        if not isinstance(numbers, dict):
            _bad(name, text, expected)
        for partition, number in numbers.items():
            if not (partition.isdecimal() and _is_number(number) and number >= lowest):
                _bad(name, text, expected)
            found[TopicPartition(topic, int(partition))] = number
    return found


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the table. Spark does not tell a source which of them a query needs: `columns` does."""
    given = {name.lower(): value for name, value in options.items()}
    has_headers = _flag(given, "includeHeaders", default=False)
    has_gaps = _flag(given, "includeGaps", default=False)
    all_columns = (*COLUMNS, *(("headers",) if has_headers else ()), *(("gap",) if has_gaps else ()))
    text = given.get("columns")
    if text is None:
        return all_columns
    chosen = tuple(dict.fromkeys(filter(None, (one.strip() for one in text.split(",")))))
    if not chosen or not set(chosen) <= set(all_columns):
        _bad("columns", text, f"expected some of {', '.join(all_columns)}")
    return chosen


def _isolation(given: Mapping[str, str]) -> Isolation:
    text = given.get("kafka.isolation.level", "read_uncommitted").lower()
    if text.upper() not in Isolation.__members__:
        _bad("kafka.isolation.level", text, "allowed is read_uncommitted or read_committed")
    return Isolation[text.upper()]


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    return text == "true" if text in ("true", "false") else _bad(name, text, "allowed is true or false")


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    number = _number(name, text)
    return number if number > 0 else _bad(name, text, "expected a number above 0")


def _number(name: str, text: str) -> int:
    return int(text) if text.strip().isdecimal() else _bad(name, text, "expected a whole number")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        _bad(name, text, f"not JSON: {error}")
    return parsed if isinstance(parsed, dict) else _bad(name, text, "expected a JSON object")


def _bad(name: str, value: str, why: str) -> NoReturn:
    raise ValueError(f"option {name}={value!r}: {why}")
