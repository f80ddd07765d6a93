"""What a controller had to say, kept on its own disk for a while: one line of JSON per event.

    {"version":1,"node":1,"incarnation":"...","sequence":42,"time_ms":1700000000000,"kind":"BrokerFenced",...}

The lines stand in files `events-<sequence of the first line>.jsonl` beside `meta.properties`, at most so many
of at most so many bytes; the oldest goes when another begins. They have no directory of their own: Apache's
broker refuses to start in a log directory that has one which is not a partition's. Sequences go on after a
restart. Nothing is synced: what a power failure takes are the last seconds, and what was decided then still
stands in the metadata log. A sequence can be given again after one, so a reader takes it together with the
incarnation.

A disk that is full or broken costs events, never the node: they are counted, and a line `EventsDropped` says
how many as soon as there is room.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from quorate.controller.events import Event
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.files import File, RemovesDirectories
from quorate.values import dataclass

__all__ = ["POSITION_NAME", "EventJournal", "JournalLimits"]

POSITION_NAME: Final = "events-published"  # beside the journal: how far the publisher is
VERSION: Final = 1
DROPPED: Final = "EventsDropped"
_NAME: Final = re.compile(r"events-(\d{20})\.jsonl")
_FORMER_DIRECTORY: Final = "events"  # where all of it was
_FORMER_POSITION_NAME: Final = "published"
_FLUSH_INTERVAL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    files_max: int = 8
    file_bytes_max: int = 1 << 20
    waiting_max: int = 10_000  # events that have not been written yet
    text_chars_max: int = 2_000  # of one field


class EventJournal:
    """The journal of one node. Opening it reads where it left off; `run` writes what was appended."""

    def __init__(
        self,
        host: Host,
        metadata_directory: str,
        node_id: int,
        incarnation: Uuid,
        limits: JournalLimits | None = None,
    ) -> None:
        self._files = host.files
        self._directory = metadata_directory
        self._head = {"version": VERSION, "node": node_id, "incarnation": str(incarnation)}
        self._limits = JournalLimits() if limits is None else limits
        self._logger = logging.getLogger(f"quorate.controller.{host.name}")
        self._waiting: list[dict[str, Any]] = []
        self._has_some = asyncio.Event()
        self._file: File | None = None
        self._starts: list[int] | None = None  # of the files, in order; None until they have been looked at
        self._last_ms = 0
        self.next_sequence = 0
        self.written = 0
        self.dropped = 0
        self._unsaid = 0  # dropped, and no line says so yet
        self._is_failing = False
        try:
            self._look()
        except OSError as error:
            self._failed(error)

    # Writing

    def append(self, event: Event, wall_ms: int, *, untold: int = 0) -> None:
        """Logs an event, and keeps it to be written soon, with how many like it were not. Never raises."""
        self._logger.log(logging.WARNING if event.is_warning else logging.INFO, "%s", event.told(untold))
        self._last_ms = wall_ms
        if len(self._waiting) >= self._limits.waiting_max:
            self._drop(1)
            return
        fields = {name: self._plain(value) for name, value in event.to_json().items()}
        if untold:
            fields["untold"] = untold
        self._waiting.append({"time_ms": wall_ms, "kind": event.kind, **fields})
        self._has_some.set()

    def flush(self) -> None:
        """Writes what is waiting; what cannot be written is dropped. Never raises."""
        waiting, self._waiting = self._waiting, []
        self._has_some.clear()
        if self._unsaid:
            waiting.insert(0, {"time_ms": self._last_ms, "kind": DROPPED, "count": self._unsaid})
        if not waiting:
            return
        try:
            self._look()
            while waiting:
                self._write_some(waiting)
        except OSError as error:
            self._failed(error)
            self._drop(len([one for one in waiting if one["kind"] != DROPPED]))
        else:
            self._is_failing = False

    async def run(self) -> None:
        """Writes, a moment after something was appended, until it is cancelled."""
        try:
            while True:
                await self._has_some.wait()
                await asyncio.sleep(_FLUSH_INTERVAL_S)
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        self.flush()
        self._close_file()

    # Reading

    def read(self, from_sequence: int = 0) -> Iterator[dict[str, Any]]:
        """The events from a sequence on, as far as they are kept; lines that cannot be read are left out."""
        self.flush()
        starts = list(self._starts or ())
        ends = [*starts[1:], math.inf] if starts else []
        for start, end in zip(starts, ends, strict=True):
            if end <= from_sequence:
                continue
            for line in _lines_from(self._lines(start), from_sequence):
                entry = _parsed(line)
                # A line that could not be taken back may repeat in the next file.
                if entry is not None and from_sequence <= entry["sequence"] < end:
                    yield entry

    def _lines(self, start: int) -> list[bytes]:
        try:
            file = self._files.open(self._path(start))
        except OSError:
            return []  # it was removed meanwhile
        try:
            return file.read(0, file.size()).split(b"\n")
        except OSError as error:
            self._logger.warning("journal file unreadable path=%s reason=%s", file.path, error)
            return []
        finally:
            file.close()

    # Files

    def _path(self, start: int) -> str:
        return f"{self._directory}/events-{start:020d}.jsonl"

    def _look(self) -> None:
        """Finds out, once, what there is and where the sequence goes on."""
        if self._starts is not None:
            return
        self._files.make_directory(self._directory)
        self._take_over()
        names = [_NAME.fullmatch(name) for name in self._files.names(self._directory)]
        starts = [int(match[1]) for match in names if match is not None]
        if starts:
            try:
                self._file, self.next_sequence = self._open(starts[-1])
            except OSError as error:
                self._logger.warning(
                    "journal file unreadable path=%s reason=%s", self._path(starts[-1]), error
                )
                self.next_sequence = starts[-1] + self._limits.file_bytes_max  # it cannot hold so many lines
        self._starts = starts

    def _take_over(self) -> None:
        """Brings what stands where the journal was, in a directory of its own, here."""
        former = f"{self._directory}/{_FORMER_DIRECTORY}"
        if not self._files.exists(former):
            return
        names = {
            name: POSITION_NAME if name == _FORMER_POSITION_NAME else name
            for name in self._files.names(former)
            if name == _FORMER_POSITION_NAME or _NAME.fullmatch(name)
        }
        if any(self._files.exists(f"{self._directory}/{name}") for name in names.values()):
            # An older release ran here meanwhile, and its sequences began anew.
            self._logger.warning("events of an older release stay where they are path=%s", former)
            return
        for before, name in names.items():
            self._files.rename(f"{former}/{before}", f"{self._directory}/{name}")
        if isinstance(self._files, RemovesDirectories) and not self._files.names(former):
            self._files.remove_directory(former)

    def _open(self, start: int) -> tuple[File, int]:
        """A file to go on with, and the sequence of its next line. What follows its last whole line is cut
        off: a process died within a write, or the power failed."""
        file = self._files.open(self._path(start), create=True)
        try:
            content = file.read(0, file.size())
            end, next_sequence = _whole_end(content, start)
            if end < len(content):
                file.truncate(end)
        except OSError:
            file.close()
            raise
        return file, next_sequence

    def _write_some(self, waiting: list[dict[str, Any]]) -> None:
        """Writes from the beginning of the list as much as fits into one file."""
        file = self._file_with_room()
        before_bytes = size_bytes = file.size()
        lines: list[bytes] = []
        for entry in waiting:
            line = self._line(entry, self.next_sequence + len(lines))
            if (lines or before_bytes) and size_bytes + len(line) > self._limits.file_bytes_max:
                break
            lines.append(line)
            size_bytes += len(line)
        if not lines:
            self._close_file()  # it is full: the next one begins
            return
        try:
            file.append(lines)
        except OSError:
            self._take_back(file, before_bytes)
            raise
        self._unsaid = 0  # if there was anything to say, it came first
        self.next_sequence += len(lines)
        self.written += len(lines)
        del waiting[: len(lines)]

    def _file_with_room(self) -> File:
        if self._file is None:
            assert self._starts is not None
            start = self.next_sequence
            if start not in self._starts:
                while len(self._starts) >= self._limits.files_max:
                    oldest = self._path(self._starts[0])
                    if self._files.exists(oldest):
                        self._files.unlink(oldest)
                    self._starts.pop(0)
            self._file, self.next_sequence = self._open(start)
            if start not in self._starts:
                self._starts.append(start)
        return self._file

    def _take_back(self, file: File, size_bytes: int) -> None:
        try:
            file.truncate(size_bytes)
        except OSError:
            self._close_file()  # what is torn is cut off when it is opened again

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    # Lines

    def _line(self, entry: dict[str, Any], sequence: int) -> bytes:
        content = {**self._head, "sequence": sequence, **entry}
        return json.dumps(content, separators=(",", ":"), default=str).encode() + b"\n"

    def _plain(self, value: object) -> object:
        """What JSON can say, and not more of it than one would read."""
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, str) and len(value) > self._limits.text_chars_max:
            return value[: self._limits.text_chars_max] + "..."
        return value

    # Trouble

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unsaid += count

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._logger.warning("journal not written directory=%s reason=%s", self._directory, error)
        self._is_failing = True


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None if it is not one."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("sequence"), int):
        return None
    return entry


def _lines_from(lines: list[bytes], sequence: int) -> list[bytes]:
    """The lines from a sequence on: looked for from the end, where readers go on, so as not to parse all.

    >>> _lines_from([b'{"sequence":7}', b"damaged", b'{"sequence":9}'], 8)
    [b'damaged', b'{"sequence":9}']
    """
    begin = len(lines)
    while begin:
        entry = _parsed(lines[begin - 1])
        if entry is not None and entry["sequence"] < sequence:
            break
        begin -= 1
    return lines[begin:]


def _whole_end(content: bytes, start: int) -> tuple[int, int]:
    """Where the last line ends that is whole, and the sequence after it.

    >>> _whole_end(b'{"sequence":7}\\n{"sequ', 7)
    (15, 8)
    """
    end = content.rfind(b"\n") + 1
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        entry = _parsed(content[begin : end - 1])
        if entry is not None:
            return end, max(start, entry["sequence"] + 1)
        end = begin
    return 0, start
