"""Journals of nodes: files of lines, each an event, of which the oldest go when new ones begin.

A place in a journal is the first sequence of a file and the number of a line in it, in one number that grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from quorate.spark.event_columns import JOURNAL, Line, event_batch
from quorate.spark.found_problems import Problem
from quorate.spark.log_places import LogPlace

__all__ = ["EventChunk", "JournalLog", "read_event_chunk", "read_journals"]

_NAME: Final = re.compile(r"events-(\d{20})\.jsonl")
_LINE_BITS: Final = 24
_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChunk:
    """Some lines of one file, to be read by one task."""

    cluster_id: str
    path: str
    first_line: int
    end_line: int
    is_confirmed: bool = True  # what a node wrote down, it wrote down


@dataclass(frozen=True, slots=True)
class JournalLog:
    """The journal of a node: its files with the number of whole lines in each."""

    cluster_id: str
    directory: str
    files: tuple[tuple[int, str, int], ...]  # the first sequence, the path, the lines
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.cluster_id}/{self.directory}"

    @property
    def end(self) -> int:
        return _place(self.files[-1][0], self.files[-1][2]) if self.files else 0

    def chunks(self, start: int, end: int) -> list[EventChunk]:
        found = []
        for begin, path, lines in self.files:
            first = max(0, start - _place(begin, 0))
            last = min(lines, end - _place(begin, 0))
            if first < last:
                chunk = EventChunk(cluster_id=self.cluster_id, path=path, first_line=first, end_line=last)
                found.append(chunk)
        return found

    def after(self, start: int, rows: int) -> int:
        """The place so many lines after another."""
        for chunk, begin in (
            (chunk, int(Path(chunk.path).stem[7:])) for chunk in self.chunks(start, self.end)
        ):
            lines = chunk.end_line - chunk.first_line
            if lines >= rows:
                return _place(begin, chunk.first_line + rows)
            rows -= lines
        return self.end


def read_journals(places: Sequence[LogPlace]) -> list[JournalLog]:
    return [_journal(place) for place in places]


def read_event_chunk(chunk: EventChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows of some lines, of these kinds."""
    lines = Path(chunk.path).read_bytes().split(b"\n")[chunk.first_line : chunk.end_line]
    if len(lines) < chunk.end_line - chunk.first_line:
        raise OSError(f"{chunk.path} has fewer lines than it had when the work was planned")
    for some in _batched(lines):
        found = event_batch(chunk.cluster_id, [Line(JOURNAL, None, line) for line in some])
        if types is not None:
            found = found.filter(pa.array([kind in types for kind in found.column("kind").to_pylist()]))
        yield found


def _batched(lines: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(lines), _ROWS):
        yield lines[start : start + _ROWS]


def _place(begin: int, line: int) -> int:
    return (begin << _LINE_BITS) + line


def _journal(place: LogPlace) -> JournalLog:
    files, problems = [], []
    for path in sorted(Path(place.directory).iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or place.only not in (None, path.name):
            continue
        try:
            content = path.read_bytes()
        except OSError as error:
            problems.append(Problem("unreadable", str(path), str(error), place.cluster_id, int(match[1])))
            continue
        if not content.endswith(b"\n") and content:
            text = "the last line is not whole (a journal in use may end so)"
            problems.append(Problem("truncated", str(path), text, place.cluster_id))
        files.append((int(match[1]), str(path), content.count(b"\n")))
    return JournalLog(place.cluster_id, place.directory, tuple(files), tuple(problems))
