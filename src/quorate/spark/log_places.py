"""Where logs are, of all that an option `path` names: a directory, several, or a pattern over many copies.

A copy is whatever somebody copied: a node's log directory, a directory of such directories, the directory of
one log, a single file. Whose it is says `meta.properties` beside the log; if that was not copied, the option
`clusterId` can say it, and otherwise the path stands in for the id.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.protocol.types import Uuid
from quorate.spark.found_problems import Problem
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.meta_properties import META_PROPERTIES_NAME, MetaProperties, load_meta_properties

__all__ = ["EVENTS_DIRECTORY", "GROUPS", "METADATA", "LogPlace", "Places", "find_places", "paths_of"]

METADATA: Final = re.compile(r"__cluster_metadata-0")
GROUPS: Final = re.compile(r"__consumer_offsets-(\d+)")
EVENTS_DIRECTORY: Final = re.compile(r"events")  # or any with such files: a node has them beside the logs
# What the files of a log are called, and which directories that have such files are surely another's
_FILES: Final = {
    METADATA: re.compile(r"\d{20}\.log|\d{20}-\d{10}\.checkpoint"),
    GROUPS: re.compile(r"\d{20}\.log"),
    EVENTS_DIRECTORY: re.compile(r"events-\d{20}\.jsonl"),
}
_OTHER_LOG: Final = re.compile(r"__.*-\d+")
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_PATTERN: Final = re.compile(r"[*?\[]")
_DEPTH_MAX: Final = 8
_PLACES_MAX: Final = 100_000
_UNKNOWN_CLUSTER: Final = "path:"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A directory with a log in it, and whose it is. `only` is the one file of it that was asked for."""

    directory: str
    cluster_id: str
    node_id: int | None = None
    directory_id: Uuid | None = None
    only: str | None = None

    @property
    def name(self) -> str:
        return Path(self.directory).name


@dataclass(frozen=True, slots=True)
class Places:
    found: tuple[LogPlace, ...]
    problems: tuple[Problem, ...]


def paths_of(options: Mapping[str, str]) -> list[str]:
    """What the options `path` and `paths` name: one path or pattern, several with commas between, or JSON."""
    given = {name.lower(): value for name, value in options.items()}
    paths: list[str] = []
    if given.get("paths"):
        listed = json.loads(given["paths"])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise ValueError(f"option paths={given['paths']!r}: expected a JSON array of paths")
        paths += listed
    text = given.get("path", "")
    if text:
        paths += [text] if Path(text).exists() else [one.strip() for one in text.split(",") if one.strip()]
    return [one.removeprefix("file://") for one in paths]


def find_places(paths: Sequence[str], wanted: re.Pattern[str], cluster_id: str | None = None) -> Places:
    """The logs of one kind under these paths, in order; what is none and was named is a problem."""
    found: dict[tuple[str, str | None], LogPlace] = {}
    problems: list[Problem] = []
    for path in paths:
        names = _matching(path) if _PATTERN.search(path) else [Path(path)]
        has_any, problems_before = False, len(problems)
        for name in names:
            for place in _within(name, wanted, cluster_id, problems):
                has_any = True  # which may have been found on the way of another path as well
                found.setdefault((place.directory, place.only), place)
                if len(found) > _PLACES_MAX:
                    raise ValueError(f"path {path}: more than {_PLACES_MAX} logs")
        if not has_any and len(problems) == problems_before:
            problems.append(Problem("missing", path, "nothing there is a log of the kind that was asked for"))
    return Places(tuple(found.values()), tuple(problems))


def _matching(pattern: str) -> list[Path]:
    root = Path(pattern).anchor
    return sorted(Path(root or ".").glob(pattern.removeprefix(root)))


def _within(
    path: Path, wanted: re.Pattern[str], cluster_id: str | None, problems: list[Problem]
) -> Iterator[LogPlace]:
    if path.is_file():
        if _FILES[wanted].fullmatch(path.name) and _may_be_of(path.parent, wanted):
            yield _place(path.parent, cluster_id, problems, path.name)
        elif not any(pattern.fullmatch(path.name) for pattern in _FILES.values()):
            problems.append(Problem("foreign", str(path), "by its name it is no file of a log"))
        return
    directories = list(_directories(path, wanted, 0))
    if not directories and path.is_dir() and _may_be_of(path, wanted):
        # A copy of one log may have been given another name.
        is_log = any(_FILES[wanted].fullmatch(inside.name) for inside in path.iterdir() if inside.is_file())
        directories = [path] if is_log else []
    for directory in directories:
        yield _place(directory, cluster_id, problems)


def _may_be_of(directory: Path, wanted: re.Pattern[str]) -> bool:
    """Whether a directory under this name may hold such a log. Of a log of groups it says the partition."""
    if wanted.fullmatch(directory.name):
        return True
    return wanted is not GROUPS and not _OTHER_LOG.fullmatch(directory.name)


def _directories(path: Path, wanted: re.Pattern[str], depth: int) -> Iterator[Path]:
    if not path.is_dir():
        return
    if wanted.fullmatch(path.name):
        yield path
        return
    if depth >= _DEPTH_MAX:
        return
    with os.scandir(path) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    if wanted is EVENTS_DIRECTORY and any(_FILES[wanted].fullmatch(entry.name) for entry in inside):
        yield path
    # A directory with segments is that of a partition: brokers have thousands, and no log is below them.
    if not any(_SEGMENT.fullmatch(entry.name) for entry in inside):
        for entry in inside:
            if entry.is_dir():
                yield from _directories(Path(entry.path), wanted, depth + 1)


def _place(
    directory: Path, cluster_id: str | None, problems: list[Problem], only: str | None = None
) -> LogPlace:
    meta = _meta_of(directory, problems)
    said = cluster_id or (meta.cluster_id if meta else None)
    if said is None:
        source = str(directory)
        text = f"no {META_PROPERTIES_NAME} beside it says of which cluster it is; the option clusterId can"
        problems.append(Problem("no_cluster_id", source, text))
        said = f"{_UNKNOWN_CLUSTER}{directory}"
    if meta is None:
        return LogPlace(str(directory), said, only=only)
    return LogPlace(str(directory), said, meta.node_id, meta.directory_id, only)


def _meta_of(directory: Path, problems: list[Problem]) -> MetaProperties | None:
    """Beside the log, or in the directory itself; journals once stood one directory deeper."""
    files = ReadOnlyFiles()
    for beside in (directory, directory.parent, directory.parent.parent):
        try:
            meta = load_meta_properties(files, str(beside))
        except StorageError as error:
            problems.append(Problem("foreign", f"{beside}/{META_PROPERTIES_NAME}", str(error)))
            return None
        if meta is not None:
            return meta
    return None
