"""Whose the log directories of a broker of ZooKeeper mode are: nobody formats them, the broker does.

A directory without `meta.properties` becomes this broker's when it starts; one of another cluster, of another
broker, or of a KRaft node is refused.
"""

from __future__ import annotations

from quorate.node.config import ConfigError, NodeConfig
from quorate.node.host import Host
from quorate.storage.errors import StorageError
from quorate.storage.meta_properties import MetaProperties, load_meta_properties, store_meta_properties
from quorate.values import dataclass

__all__ = ["KnownIds", "known_ids", "mark_directories"]

_OF_ZOOKEEPER = 0  # the version of meta.properties


@dataclass(frozen=True, slots=True)
class KnownIds:
    """What the directories say; None if they say nothing."""

    cluster_id: str | None
    broker_id: int | None


def known_ids(host: Host, config: NodeConfig) -> KnownIds:
    """What was written down when the broker was started before. `ConfigError` if the directories contradict
    each other or the file, or are not of this mode. A directory that cannot be read is left for later: the
    broker may do without it."""
    found: dict[str, MetaProperties] = {}
    for path in _paths(config):
        try:
            meta = load_meta_properties(host.files, path) if host.files.exists(path) else None
        except StorageError:
            continue
        if meta is not None and meta.version != _OF_ZOOKEEPER:
            raise ConfigError(
                f"{path} is formatted for KRaft: process.roles is missing, or this is the wrong directory"
            )
        if meta is not None:
            found[path] = meta
    clusters = {one.cluster_id for one in found.values()} - {None}
    brokers = {one.node_id for one in found.values()} - {None}
    if len(clusters) > 1 or len(brokers) > 1:
        said = ", ".join(f"{path} {one.cluster_id}/{one.node_id}" for path, one in found.items())
        raise ConfigError(f"log.dirs are of several brokers or clusters: {said}")
    broker_id = next(iter(brokers), None)
    if config.node_id >= 0 and broker_id not in (None, config.node_id):
        raise ConfigError(
            f"{config.path}: broker.id={config.node_id}: {next(iter(found))} is of broker {broker_id};"
            f" use that number, or an empty directory"
        )
    return KnownIds(next(iter(clusters), None), broker_id)


async def mark_directories(host: Host, config: NodeConfig, cluster_id: str, broker_id: int) -> None:
    """Writes down in all directories whose they are, where that is not written yet. One whose disk fails is
    found out when it is opened."""
    for path in _paths(config):
        try:
            host.files.make_directory(path)
            if load_meta_properties(host.files, path) is None:
                meta = MetaProperties(cluster_id, broker_id, version=_OF_ZOOKEEPER)
                await store_meta_properties(host.files, path, meta)
        except (OSError, StorageError):
            continue


def _paths(config: NodeConfig) -> list[str]:
    return [path.rstrip("/") for path in config.log_directories if path]
