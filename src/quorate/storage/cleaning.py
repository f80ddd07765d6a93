"""Segments in the place of others, so that a crash at any moment leaves either.

Kafka's way, file by file, so that either can finish what the other began:

1. The new segments are there as `.cleaned`, and synced. A crash: they are deleted.
2. They become `.swap`, from the last to the first; when the last file has that name, it is decided. A crash
   before: a `.swap` with a `.cleaned` at or before its offset is not complete, and both are deleted.
3. The files of the old segments become `.deleted`, each log file before its indexes. A crash: what the swap
   files cover is deleted, and step 4 follows.
4. The new segments lose their suffix, each log file before its indexes. A crash: the others follow.
5. What is called `.deleted` is deleted.

Deciding (2) and the names of what was decided are synced before anything goes away, and step 4 is synced
before anybody reads it as done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.limits import LogConfig
from quorate.storage.places import headers_from
from quorate.storage.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, segment_path

__all__ = [
    "CLEANED",
    "DELETED",
    "SWAP",
    "ReplacementRefusedError",
    "check_cleaned",
    "finish_swaps",
    "open_sealed",
    "put_in_place",
    "remove_leftovers",
    "remove_segment",
]

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"

_SNAPSHOT: Final = ".snapshot"
_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)
_OWN_SUFFIXES: Final = tuple(one for one in _SUFFIXES if one != _SNAPSHOT)
_TEMPORARY: Final = re.compile(r"(\d{20})(\.[a-z]+)(\.cleaned|\.swap|\.deleted)")
_REGULAR: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)")


class ReplacementRefusedError(Exception):
    """The log is not the one any more that was compacted: something was cut off or deleted meanwhile."""


def check_cleaned(
    files: Files, directory: str, config: LogConfig, new: Sequence[int], end_offset: int
) -> None:
    """Refuses what is no log file with its indexes, or goes on too far, whoever wrote it."""
    for base_offset in new:
        try:
            segment = open_sealed(files, directory, config, base_offset, 0, name_suffix=CLEANED)
        except (OSError, StorageError) as error:
            raise ReplacementRefusedError(f"{directory}: {error}") from error
        segment.close()
        if segment.next_offset > end_offset:
            raise ReplacementRefusedError(f"{segment.path} goes on to {segment.next_offset}")


def open_sealed(
    files: Files, directory: str, config: LogConfig, base_offset: int, now_ms: int, *, name_suffix: str = ""
) -> Segment:
    """A segment that nobody writes to any more."""
    segment = Segment(files, directory, base_offset, config, now_ms, create=False, name_suffix=name_suffix)
    problem = segment.check()
    if problem is not None:
        segment.close()
        raise StorageError(segment.path, problem)
    segment.seal()
    return segment


async def put_in_place(files: Files, directory: str, old: Sequence[int], new: Sequence[int]) -> None:
    """Steps 1 to 4, for segments by their base offsets. Open files of the old ones can still be read."""
    for base_offset in new:
        for suffix in _OWN_SUFFIXES:
            path = segment_path(directory, base_offset, suffix + CLEANED)
            if files.exists(path):
                file = files.open(path)
                try:
                    await file.fsync()
                finally:
                    file.close()
    await files.fsync_dir(directory)
    for base_offset in sorted(new, reverse=True):
        _rename(files, directory, base_offset, CLEANED, SWAP)
    await files.fsync_dir(directory)
    for base_offset in old:
        suffixes = _OWN_SUFFIXES if base_offset in new else _SUFFIXES  # what producers were like then is so
        for suffix in suffixes:
            path = segment_path(directory, base_offset, suffix)
            if files.exists(path):
                files.rename(path, path + DELETED)
    for base_offset in new:
        _rename(files, directory, base_offset, SWAP, "")
    await files.fsync_dir(directory)


def finish_swaps(files: Files, directory: str) -> bool:
    """What a crash left of this, when a log is opened: finished or undone. Whether there was anything; the
    directory must be synced then."""
    names = [match for name in files.names(directory) if (match := _TEMPORARY.fullmatch(name))]
    if not names:
        return False
    cleaned = [int(match[1]) for match in names if match[3] == CLEANED]
    decided_below = min(cleaned) if cleaned else None
    swaps: list[tuple[int, str]] = []
    for match in names:
        base_offset = int(match[1])
        if match[3] == SWAP and (decided_below is None or base_offset < decided_below):
            swaps.append((base_offset, match[2]))
        elif match[3] == SWAP:
            files.unlink(f"{directory}/{match[0]}")
    for match in names:  # only now: without them, what was undone would look decided
        if match[3] != SWAP:
            files.unlink(f"{directory}/{match[0]}")
    _remove_replaced(files, directory, [base_offset for base_offset, suffix in swaps if suffix == LOG_SUFFIX])
    for suffix in _OWN_SUFFIXES:
        for base_offset, found in swaps:
            if found == suffix:
                path = segment_path(directory, base_offset, suffix)
                files.rename(path + SWAP, path)
    return True


def remove_leftovers(files: Files, directory: str) -> None:
    """Removes what an earlier attempt left that was not decided, and what was replaced."""
    for name in files.names(directory):
        match = _TEMPORARY.fullmatch(name)
        if match is not None and match[3] != SWAP:
            files.unlink(f"{directory}/{name}")


def remove_segment(files: Files, directory: str, base_offset: int, name_suffix: str) -> None:
    """Deletes the files of a segment that are called so."""
    for suffix in _SUFFIXES:
        path = segment_path(directory, base_offset, suffix + name_suffix)
        if files.exists(path):
            files.unlink(path)


def _rename(files: Files, directory: str, base_offset: int, before: str, after: str) -> None:
    for suffix in _OWN_SUFFIXES:
        path = segment_path(directory, base_offset, suffix)
        if files.exists(path + before):
            files.rename(path + before, path + after)


def _remove_replaced(files: Files, directory: str, swapped: Iterable[int]) -> None:
    """Removes the segments that swap files cover, each log file before its indexes."""
    first_offset, end_offset = None, -1
    for base_offset in swapped:
        file = files.open(segment_path(directory, base_offset, LOG_SUFFIX + SWAP))
        try:
            for _, header in headers_from(file, 0, file.size()):
                end_offset = max(end_offset, header.next_offset)
        finally:
            file.close()
        first_offset = base_offset if first_offset is None else min(first_offset, base_offset)
        end_offset = max(end_offset, base_offset + 1)  # even if nothing is left, it covers its beginning
    if first_offset is None:
        return
    found = [match for name in files.names(directory) if (match := _REGULAR.fullmatch(name))]
    covered = [one for one in found if first_offset <= int(one[1]) < end_offset]
    for match in sorted(covered, key=lambda one: one[2] != LOG_SUFFIX):
        files.unlink(f"{directory}/{match[0]}")
