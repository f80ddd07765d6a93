"""The options of the internal logs as tables, checked; and what Spark's filters ask for in their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from quorate.client.metadata import parse_addresses
from quorate.net.tls import TlsSettings
from quorate.spark.log_places import paths_of
from quorate.spark.security_options import security_of

__all__ = ["LogOptions", "Wanted", "read_log_options", "wanted_by"]

ALL: Final = "all"
CONFIRMED: Final = "confirmed"
UNCONFIRMED: Final = "unconfirmed"
_OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows are asked for: offsets from `first_offset` up to before `end_offset`, and of which types."""

    first_offset: int = -1
    end_offset: int = _OFFSET_MAX
    types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Where a log is read, and how: `paths` of files, or else a live cluster."""

    paths: tuple[str, ...] = ()
    cluster_id: str | None = None
    bootstrap: str | None = None
    controllers: str | None = None
    tls: TlsSettings | None = None
    wanted: Wanted = Wanted()
    include: str = ALL
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    pushdown: bool = False
    has_variants: bool = False  # instead of JSON


def read_log_options(options: Mapping[str, str]) -> LogOptions:
    """`ValueError` says which option is wrong, and what is allowed."""
    given = {name.lower(): value for name, value in options.items()}
    paths = tuple(paths_of(options))
    bootstrap = given.get("kafka.bootstrap.servers") or given.get("bootstrap.servers")
    controllers = given.get("controllers")
    if paths and (bootstrap or controllers):
        raise ValueError("options path and bootstrap.servers or controllers: expected one of them")
    if not (paths or bootstrap or controllers):
        raise ValueError("one of the options path, bootstrap.servers, controllers is needed")
    for servers in (bootstrap, controllers):
        if servers:
            parse_addresses(servers)
    include = given.get("include", ALL)
    if include not in (ALL, CONFIRMED, UNCONFIRMED):
        raise ValueError(f"option include={include!r}: allowed is {ALL}, {CONFIRMED}, {UNCONFIRMED}")
    form = given.get("fields", "json")
    if form not in ("json", "variant"):
        raise ValueError(f"option fields={form!r}: allowed is json, variant")
    return LogOptions(
        paths=paths,
        cluster_id=given.get("clusterid"),
        bootstrap=bootstrap,
        controllers=controllers,
        tls=security_of(given),
        wanted=Wanted(
            first_offset=_number(given, "startingOffset", -1),
            end_offset=_number(given, "endingOffset", _OFFSET_MAX),
            types=_types(given),
        ),
        include=include,
        max_offsets_per_trigger=_number(given, "maxOffsetsPerTrigger", 0) or None,
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        pushdown=_flag(given, "pushdown", default=False),
        has_variants=form == "variant",
    )


def wanted_by(filters: Iterable[Any], wanted: Wanted) -> tuple[Wanted, list[Any]]:
    """What filters of Spark leave to be wanted, and the filters that Spark must still apply itself.

    Offsets are only narrowed, and Spark looks again: rows of a snapshot all have the same one.
    """
    left = []
    for one in filters:
        narrowed, is_done = _narrowed(one, wanted)
        wanted = narrowed
        if not is_done:
            left.append(one)
    return wanted, left


def _narrowed(one: Any, wanted: Wanted) -> tuple[Wanted, bool]:
    from pyspark.sql import datasource as d

    column = ".".join(getattr(one, "attribute", ()))
    if column == "type":
        if isinstance(one, d.EqualTo):
            return _with_types(wanted, {one.value}), True
        if isinstance(one, d.In):
            return _with_types(wanted, one.value), True
    if column == "offset":
        first, end = wanted.first_offset, wanted.end_offset
        match one:
            case d.EqualTo():
                first, end = max(first, one.value), min(end, one.value + 1)
            case d.GreaterThan():
                first = max(first, one.value + 1)
            case d.GreaterThanOrEqual():
                first = max(first, one.value)
            case d.LessThan():
                end = min(end, one.value)
            case d.LessThanOrEqual():
                end = min(end, one.value + 1)
        return replace(wanted, first_offset=first, end_offset=end), False
    return wanted, False


def _with_types(wanted: Wanted, types: Iterable[str]) -> Wanted:
    some = frozenset(types)
    return replace(wanted, types=some if wanted.types is None else some & wanted.types)


def _types(given: Mapping[str, str]) -> frozenset[str] | None:
    text = given.get("recordtypes")
    if text is None:
        return None
    names = frozenset(filter(None, (one.strip() for one in text.split(","))))
    if not names:
        raise ValueError(
            f"option recordTypes={text!r}: expected names like PartitionRecord, with commas between"
        )
    return names


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"option {name}={text!r}: expected a number from 0 on")
    return int(text)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"option {name}={text!r}: expected true or false")
    return text.lower() == "true"
