"""What the directories in a log directory are called.

- `topic-N`: a partition.
- `topic-N.<id>-delete`: one that was deleted: the name goes first, in an instant; the files follow.
- `topic-N.<id>-future`: a copy that will replace the one in another directory. It does so in an instant that
  survives everything: when that other one gets the name `topic-N.<id>-delete`, with the same id. Whoever
  finds both knows that the copy is the replica now, and gives it its name.
- `topic-N.<id>-stray`: one that the cluster no longer assigns to this broker; kept for people to look at.
- `__cluster_metadata-0`, which belongs to the quorum, and is no partition of a broker.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from quorate.storage.checkpoints import PartitionName

__all__ = ["DirectoryKind", "PartitionDirectory", "can_be_moved", "parse_name", "renamed"]

_METADATA_NAME: Final = "__cluster_metadata-0"
_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_RENAMED: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)\.([^\s.]+)-(delete|future|stray)")
_NAME_CHARACTERS_MAX: Final = 255


class DirectoryKind(Enum):
    """What a directory of a partition is."""

    CURRENT = ""
    DELETED = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A directory of a partition, by the name that it has. The current one needs nothing to be unique."""

    name: str
    partition: PartitionName
    kind: DirectoryKind
    unique: str = ""


def parse_name(name: str) -> PartitionDirectory | None:
    """Whose directory it is; None if it is no partition's.

    >>> parse_name("orders-2.c41f-delete")
    PartitionDirectory(name='orders-2.c41f-delete', ... 'delete'>, unique='c41f')
    """
    renamed = _RENAMED.fullmatch(name)
    if renamed is not None:
        partition = PartitionName(renamed[1], int(renamed[2]))
        return PartitionDirectory(name, partition, DirectoryKind(renamed[4]), renamed[3])
    current = _NAME.fullmatch(name)
    if current is None or name == _METADATA_NAME:
        return None
    return PartitionDirectory(name, PartitionName(current[1], int(current[2])), DirectoryKind.CURRENT)


def renamed(partition: PartitionName, unique: str, kind: DirectoryKind) -> str:
    """What a directory is called that is not, or no longer, the current one. Long topics are cut: the rest
    makes it unique."""
    assert kind is not DirectoryKind.CURRENT
    suffix = f"-{partition.partition}.{unique}-{kind.value}"
    return partition.topic[: _NAME_CHARACTERS_MAX - len(suffix)] + suffix


def can_be_moved(partition: PartitionName) -> bool:
    """Whether the name of a copy has room for all of the topic's name. (Kafka's rule as well.)"""
    return len(f"{partition}.{'0' * 32}-{DirectoryKind.FUTURE.value}") <= _NAME_CHARACTERS_MAX
