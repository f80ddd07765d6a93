"""What a log directory remembers of all its partitions, and whether it was left in order.

Offset checkpoints are small texts, replaced as a whole every few seconds: how far each log is synced, where
it begins, up to where it is replicated, and up to where it is compacted. They may lag behind.

`.kafka_cleanshutdown` is there only while no broker uses the directory, and only if the last one closed all
of its logs. It is deleted, durably, before anything is changed. So finding it means that no log must be
recovered; and the broker epoch in it lets a controller see that nothing was lost in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files
from quorate.storage.whole_files import store_whole

__all__ = [
    "CLEANED_NAME",
    "CLEAN_SHUTDOWN_NAME",
    "HIGH_WATERMARKS_NAME",
    "RECOVERY_POINTS_NAME",
    "START_OFFSETS_NAME",
    "PartitionName",
    "delete_clean_shutdown",
    "has_clean_shutdown",
    "load_checkpoint",
    "load_clean_shutdown",
    "parse_checkpoint",
    "store_checkpoint",
    "store_clean_shutdown",
]

RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME: Final = "replication-offset-checkpoint"
CLEANED_NAME: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"

_VERSION: Final = 0
_CHECKPOINT_BYTES_MAX: Final = 256 << 20  # of a million partitions with long names
_CLEAN_SHUTDOWN_BYTES_MAX: Final = 4096


class PartitionName(NamedTuple):
    """A partition as people call it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def format_checkpoint(offsets: Mapping[PartitionName, int]) -> str:
    """
    >>> format_checkpoint({PartitionName("t", 3): 70})
    '0\\n1\\nt 3 70\\n'
    """
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}"


def parse_checkpoint(text: str) -> dict[PartitionName, int]:
    """Raises ValueError with the reason."""
    lines = text.splitlines()
    if not lines or lines[0] != str(_VERSION):
        raise ValueError(f"version {lines[0]!r}, not {_VERSION}" if lines else "it is empty")
    if len(lines) < 2 or not _is_number(lines[1]):
        raise ValueError("it does not say how many entries follow")
    if int(lines[1]) != len(lines) - 2:
        raise ValueError(f"{lines[1]} entries announced, and {len(lines) - 2} found")
    found: dict[PartitionName, int] = {}
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != 3 or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise ValueError(f"line {number}: {line!r} is no topic, partition and offset")
        found[PartitionName(fields[0], int(fields[1]))] = int(fields[2])
    return found


def load_checkpoint(files: Files, directory: str, name: str) -> dict[PartitionName, int]:
    """The offsets of an offset checkpoint; none if there is no file."""
    path = f"{directory}/{name}"
    data = _read(files, path, _CHECKPOINT_BYTES_MAX)
    if not data:
        return {}  # Kafka makes an empty file when it starts
    try:
        return parse_checkpoint(data.decode("utf-8"))
    except ValueError as error:
        raise StorageError(path, f"not an offset checkpoint: {error}") from None


async def store_checkpoint(
    files: Files, directory: str, name: str, offsets: Mapping[PartitionName, int]
) -> None:
    """Replaces an offset checkpoint, durably."""
    await store_whole(files, f"{directory}/{name}", format_checkpoint(offsets).encode("utf-8"))


def has_clean_shutdown(files: Files, directory: str) -> bool:
    """Whether the last broker closed all logs of the directory."""
    path = f"{directory}/{CLEAN_SHUTDOWN_NAME}"
    with storage_errors(path):
        return files.exists(path)


def load_clean_shutdown(files: Files, directory: str) -> int | None:
    """The epoch of the broker that left the directory in order; None if none did, or did not say."""
    data = _read(files, f"{directory}/{CLEAN_SHUTDOWN_NAME}", _CLEAN_SHUTDOWN_BYTES_MAX)
    try:
        content = json.loads(data or b"")
    except ValueError:
        return None  # Kafka's from before there were epochs in it are empty
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 0 else None


async def store_clean_shutdown(files: Files, directory: str, broker_epoch: int) -> None:
    """All logs of the directory are closed."""
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    await store_whole(files, f"{directory}/{CLEAN_SHUTDOWN_NAME}", content.encode("ascii"))


async def delete_clean_shutdown(files: Files, directory: str) -> None:
    """Logs of the directory may change from now on."""
    path = f"{directory}/{CLEAN_SHUTDOWN_NAME}"
    with storage_errors(path):
        if files.exists(path):
            files.unlink(path)
            await files.fsync_dir(directory)


def _read(files: Files, path: str, bytes_max: int) -> bytes | None:
    with storage_errors(path):
        if not files.exists(path):
            return None
        file = files.open(path)
        try:
            if file.size() > bytes_max:
                raise StorageError(path, f"{file.size()} bytes, more than the limit of {bytes_max}")
            return file.read(0, file.size())
        finally:
            file.close()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
