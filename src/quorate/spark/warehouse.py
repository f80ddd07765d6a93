"""Where the pipeline keeps its tables: a directory whose content is one value that changes as a whole.

    warehouse.json            what this directory is, and in which format the raw tables are
    running                   locked while a pipeline runs here
    versions/NNN.json         the content: which parts make up which table (see `swap`)
    tables/TABLE/part=PART/cluster_id=ID/*.parquet
    answers/part=PART/*.parquet
    checkpoints/, spool/      where streams are, and samples that are not in a table yet

A part is a directory that is complete before a version names it and that nobody changes afterwards. So a
crash leaves at most parts that no version names: the next run removes them. One version names everything,
raw tables and answers: whoever reads sees a state that was true at one moment, beside a running pipeline
too.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from quorate.spark.swap import HeldVersion, Versions, write_whole

__all__ = ["FORMATS", "Contents", "Part", "StreamState", "Warehouse", "WarehouseError"]

FORMATS: Final = ("parquet", "delta", "iceberg")

_LAYOUT: Final = 1
_SIGN: Final = "warehouse.json"


class WarehouseError(Exception):
    """The warehouse cannot be used; the message is for whoever named it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows in a directory of their own. `clusters` are those that it has rows of."""

    name: str
    rows: int
    size_bytes: int
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is: its last batch, and from which offset to which it has covered each partition."""

    batch_id: int
    covered: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Contents:
    """What one version says."""

    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    # What files do not prove yet, by table and cluster; each run replaces it.
    unconfirmed: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    answers: Mapping[str, Part] = field(default_factory=dict)
    answers_ms: int = 0
    answers_of: str = ""  # what they were computed from

    def with_part(self, table: str, part: Part) -> Contents:
        return self.with_parts(table, (*self.tables.get(table, ()), part))

    def with_parts(self, table: str, parts: tuple[Part, ...]) -> Contents:
        return replace(self, tables={**self.tables, table: parts})

    def with_stream(self, name: str, state: StreamState) -> Contents:
        return replace(self, streams={**self.streams, name: state})

    def with_unconfirmed(self, table: str, cluster_id: str, part: Part | None) -> Contents:
        others = {key: one for key, one in self.unconfirmed.get(table, {}).items() if key != cluster_id}
        mine = {} if part is None else {cluster_id: part}
        return replace(self, unconfirmed={**self.unconfirmed, table: {**others, **mine}})

    def streams_of(self, table: str) -> dict[str, StreamState]:
        """The streams into one table, by name."""
        return {name: one for name, one in self.streams.items() if name.startswith(f"{table}/")}

    @property
    def clusters(self) -> tuple[str, ...]:
        """Of which there are records, in the order of their names."""
        confirmed = {one for part in self.tables.get("records", ()) for one in part.clusters}
        return tuple(sorted(confirmed | set(self.unconfirmed.get("records", {}))))

    def places(self) -> set[str]:
        """The directories of all parts, relative to the warehouse."""
        raw = {_raw_place(table, part.name) for table, parts in self.tables.items() for part in parts}
        for table, by_cluster in self.unconfirmed.items():
            raw |= {_raw_place(table, part.name) for part in by_cluster.values()}
        return raw | {_answer_place(part.name) for part in self.answers.values()}

    def as_json(self) -> dict[str, Any]:
        return {
            "layout": _LAYOUT,
            "tables": {
                table: [_part_as_json(part) for part in parts] for table, parts in self.tables.items()
            },
            "unconfirmed": {
                table: {cluster_id: _part_as_json(part) for cluster_id, part in parts.items()}
                for table, parts in self.unconfirmed.items()
            },
            "streams": {
                name: {"batch_id": one.batch_id, "covered": one.covered} for name, one in self.streams.items()
            },
            "answers": {table: _part_as_json(part) for table, part in self.answers.items()},
            "answers_ms": self.answers_ms,
            "answers_of": self.answers_of,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Contents:
        return cls(
            tables={table: tuple(map(_part, parts)) for table, parts in value["tables"].items()},
            unconfirmed={
                table: {cluster_id: _part(part) for cluster_id, part in parts.items()}
                for table, parts in value["unconfirmed"].items()
            },
            streams={
                name: StreamState(
                    one["batch_id"], {key: (at[0], at[1]) for key, at in one["covered"].items()}
                )
                for name, one in value["streams"].items()
            },
            answers={table: _part(part) for table, part in value["answers"].items()},
            answers_ms=value["answers_ms"],
            answers_of=value["answers_of"],
        )


class Warehouse:
    """One directory with tables. `Warehouse.open` for those who read, `Warehouse.create` for those who
    write."""

    def __init__(self, directory: Path, raw_format: str) -> None:
        self.directory = directory
        self.raw_format = raw_format
        self._versions = Versions(directory / "versions")
        self._unfinished: set[str] = set()  # places that are being written now

    @classmethod
    def open(cls, directory: Path | str) -> Warehouse:
        """One that is there already."""
        place = Path(directory).absolute()
        sign = place / _SIGN
        if not sign.is_file():
            what = "is not a warehouse" if place.exists() else "is not there"
            raise WarehouseError(f"{place} {what}: quorate pipeline run --warehouse {directory} makes one")
        facts = json.loads(sign.read_text())
        if facts.get("layout") != _LAYOUT:
            raise WarehouseError(
                f"{sign}: layout {facts.get('layout')!r}; this quorate knows layout {_LAYOUT}"
            )
        return cls(place, facts["format"])

    @classmethod
    def create(cls, directory: Path | str, raw_format: str = "parquet") -> Warehouse:
        """One that is there already, or a new one in a directory that is empty or not there."""
        place = Path(directory).absolute()
        if (place / _SIGN).is_file():
            found = cls.open(place)
            if found.raw_format != raw_format:
                raise WarehouseError(
                    f"{place} has {found.raw_format} tables: a warehouse keeps the format it began with"
                )
            return found
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise WarehouseError(f"{place} has other things in it: a warehouse needs a directory of its own")
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / _SIGN, json.dumps({"layout": _LAYOUT, "format": raw_format}).encode())
        return cls(place, raw_format)

    # What is in it

    def contents(self) -> Contents:
        value = self._versions.current()
        return Contents() if value is None else Contents.from_json(value)

    def hold(self) -> tuple[Contents, HeldVersion | None]:
        """What is in it, and what keeps its parts there: release it when they are not read any more."""
        held = self._versions.hold()
        return (Contents() if held is None else Contents.from_json(held.value)), held

    def change(self, how: Callable[[Contents], Contents | None]) -> Contents:
        """The next version is what `how` makes of the newest; None changes nothing."""
        seen = Contents()

        def next_value(value: dict[str, Any] | None) -> dict[str, Any] | None:
            nonlocal seen
            seen = Contents() if value is None else Contents.from_json(value)
            changed = how(seen)
            if changed is None:
                return None
            seen = changed
            return changed.as_json()

        self._versions.change(next_value)
        return seen

    # Its places

    def table_place(self, table: str, part_name: str = "") -> Path:
        return self.directory / _raw_place(table, part_name)

    def answer_place(self, part_name: str) -> Path:
        return self.directory / _answer_place(part_name)

    @contextmanager
    def new_part(self, table: str) -> Iterator[str]:
        """A name for rows of a raw table. What is not named by a version when the block ends is removed."""
        with self._new(lambda name: _raw_place(table, name)) as name:
            yield name

    @contextmanager
    def new_answer(self) -> Iterator[str]:
        """A name for the rows of an answer, likewise."""
        with self._new(_answer_place) as name:
            yield name

    @contextmanager
    def _new(self, place_of: Callable[[str], str]) -> Iterator[str]:
        # A name that no part had or will have: what a crash left behind is never taken for new.
        name = f"{int(time.time() * 1000):013}-{secrets.token_hex(4)}"
        place = place_of(name)
        self._unfinished.add(place)
        try:
            yield name
        finally:
            if place not in self.contents().places():
                shutil.rmtree(self.directory / place, ignore_errors=True)
            self._unfinished.discard(place)

    def checkpoint(self, stream: str) -> Path:
        """Where Spark keeps how far a stream is. Names of streams have a cluster in them."""
        return self.directory / "checkpoints" / stream

    @property
    def spool(self) -> Path:
        return self.directory / "spool"

    # Keeping order

    @contextmanager
    def running(self) -> Iterator[None]:
        """The one pipeline that runs here now; `WarehouseError` if there is another."""
        path = self.directory / "running"
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip() or "another process"
                raise WarehouseError(
                    f"a pipeline already runs on {self.directory} ({who}): let it end, or take another place"
                ) from None
            file.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    def tidy(self) -> int:
        """Removes parts that no version names which is new or in use; how many. Only for who runs here."""
        named = set(self._unfinished)  # first: what is finished meanwhile is in a version
        for value in self._versions.tidy():
            named |= Contents.from_json(value).places()
        removed = 0
        for place in [*self.directory.glob("answers/part=*"), *self.directory.glob("tables/*/part=*")]:
            if str(place.relative_to(self.directory)) not in named:
                shutil.rmtree(place, ignore_errors=True)
                removed += 1
        return removed


def _raw_place(table: str, part_name: str) -> str:
    return f"tables/{table}/part={part_name}" if part_name else f"tables/{table}"


def _answer_place(part_name: str) -> str:
    return f"answers/part={part_name}"


def _part_as_json(part: Part) -> dict[str, Any]:
    return {"name": part.name, "rows": part.rows, "bytes": part.size_bytes, "clusters": list(part.clusters)}


def _part(value: Mapping[str, Any]) -> Part:
    return Part(value["name"], value["rows"], value["bytes"], tuple(value["clusters"]))
