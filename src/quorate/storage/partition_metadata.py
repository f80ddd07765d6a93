"""`partition.metadata`: which topic a directory of batches belongs to, whatever it is called."""

from __future__ import annotations

from typing import Final

from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.whole_files import read_whole, store_whole

__all__ = ["PARTITION_METADATA_NAME", "claim_directory", "read_topic_id"]

PARTITION_METADATA_NAME: Final = "partition.metadata"
_VERSION: Final = "0"


def read_topic_id(files: Files, directory: str) -> Uuid | None:
    """The topic that a directory belongs to; None if nobody claimed it."""
    path = f"{directory}/{PARTITION_METADATA_NAME}"
    data = read_whole(files, path)
    if data is None:
        return None
    fields = {}
    for line in data.decode("latin-1").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("version") != _VERSION:
        raise StorageError(path, f"version {fields.get('version')!r}, not {_VERSION}")
    try:
        return Uuid.parse(fields.get("topic_id", ""))
    except ValueError as error:
        raise StorageError(path, f"topic_id: {error}") from None


async def claim_directory(files: Files, directory: str, topic_id: Uuid) -> None:
    """Makes a directory that of a topic, durably, unless it is already; refuses that of another topic."""
    found = read_topic_id(files, directory)
    if found is None:
        # without a newline at its end, as Kafka writes it
        text = f"version: {_VERSION}\ntopic_id: {topic_id}"
        await store_whole(files, f"{directory}/{PARTITION_METADATA_NAME}", text.encode("ascii"))
    elif found != topic_id:
        path = f"{directory}/{PARTITION_METADATA_NAME}"
        raise StorageError(path, f"topic_id is {found}, but this should be the log of topic {topic_id}")
