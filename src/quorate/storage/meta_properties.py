"""`meta.properties`: which cluster and node a log directory belongs to.

Written last when a directory is formatted, so that one that was half formatted looks like one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.properties import format_properties, parse_properties
from quorate.storage.whole_files import read_whole, store_whole
from quorate.values import dataclass

__all__ = [
    "META_PROPERTIES_NAME",
    "MetaProperties",
    "check_meta_properties",
    "load_meta_properties",
    "new_directory_id",
    "store_meta_properties",
]

META_PROPERTIES_NAME: Final = "meta.properties"

_VERSION, _CLUSTER_ID, _NODE_ID, _BROKER_ID, _DIRECTORY_ID = (
    "version",
    "cluster.id",
    "node.id",
    "broker.id",
    "directory.id",
)
_INT32_MAX: Final = (1 << 31) - 1
_RESERVED_IDS: Final = 100  # the first hundred directory ids mean "unassigned", "lost" and the like


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory it is. Version 0, of the ZooKeeper era, may lack any of these."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1

    def text(self) -> str:
        """As it stands in the file; what is missing cannot be written."""
        assert self.cluster_id is not None, "it has a cluster.id"
        assert self.node_id is not None, "it has a node.id"
        id_key = _NODE_ID if self.version == 1 else _BROKER_ID
        fields = {_VERSION: str(self.version), _CLUSTER_ID: self.cluster_id, id_key: str(self.node_id)}
        if self.directory_id is not None:
            fields[_DIRECTORY_ID] = str(self.directory_id)
        return format_properties(fields)

    @classmethod
    def parse(cls, text: str) -> MetaProperties:
        """Raises ValueError with the reason."""
        fields = parse_properties(text)
        version = fields.get(_VERSION)
        if version not in ("0", "1"):
            raise ValueError(f"version is {version!r}, not 0 or 1" if version else "version is missing")
        found = cls(
            cluster_id=fields.get(_CLUSTER_ID),
            node_id=_node_id(fields, _NODE_ID if version == "1" else _BROKER_ID),
            directory_id=_directory_id(fields),
            version=int(version),
        )
        if found.version == 1 and not found.cluster_id:
            raise ValueError(f"{_CLUSTER_ID} is missing")
        if found.version == 1 and found.node_id is None:
            raise ValueError(f"{_NODE_ID} is missing")
        return found


def load_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """Whose directory it is; None if it was not formatted."""
    path = f"{directory}/{META_PROPERTIES_NAME}"
    data = read_whole(files, path)
    if data is None:
        return None
    try:
        return MetaProperties.parse(data.decode("latin-1"))  # as Java reads it
    except ValueError as error:
        raise StorageError(path, str(error)) from None


async def store_meta_properties(files: Files, directory: str, meta: MetaProperties) -> None:
    """Says whose directory it is, durably."""
    await store_whole(files, f"{directory}/{META_PROPERTIES_NAME}", meta.text().encode("ascii"))


def check_meta_properties(
    directory: str, meta: MetaProperties, *, cluster_id: str | None, node_id: int
) -> None:
    """Raises if a directory is another node's or cluster's. A cluster id of None is not known yet."""
    path = f"{directory}/{META_PROPERTIES_NAME}"
    if cluster_id is not None and meta.cluster_id not in (None, cluster_id):
        raise StorageError(path, f"{_CLUSTER_ID} is {meta.cluster_id}, but this cluster is {cluster_id}")
    if meta.node_id not in (None, node_id):
        key = _NODE_ID if meta.version == 1 else _BROKER_ID
        raise StorageError(path, f"{key} is {meta.node_id}, but this node is {node_id}")


def new_directory_id(random_bytes: Callable[[int], bytes]) -> Uuid:
    """An id that means nothing else, and that no command line takes for an option."""
    while True:
        directory_id = Uuid(random_bytes(16))
        if not _is_reserved(directory_id) and not str(directory_id).startswith("-"):
            return directory_id


def _node_id(fields: Mapping[str, str], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and int(value) <= _INT32_MAX):
        raise ValueError(f"{key} is {value!r}, not a number from 0 to {_INT32_MAX}")
    return int(value)


def _directory_id(fields: Mapping[str, str]) -> Uuid | None:
    value = fields.get(_DIRECTORY_ID)
    if value is None:
        return None
    try:
        directory_id = Uuid.parse(value)
    except ValueError as error:
        raise ValueError(f"{_DIRECTORY_ID} is {error}") from None
    if _is_reserved(directory_id):
        raise ValueError(f"{_DIRECTORY_ID} is {value}, which is reserved")
    return directory_id


def _is_reserved(directory_id: Uuid) -> bool:
    """As Kafka decides: the upper half is zero, and the lower one, which has a sign, is below a hundred."""
    upper, lower = directory_id[:8], int.from_bytes(directory_id[8:], "big", signed=True)
    return upper == bytes(8) and lower < _RESERVED_IDS
