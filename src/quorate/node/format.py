"""Formatting: making empty directories those of one node of one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from quorate.controller.features import default_features
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import FeatureLevelRecord
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.node.config import ConfigError, NodeConfig
from quorate.node.host import Host
from quorate.node.metadata_log import PARTITION_DIRECTORY
from quorate.protocol.types import Uuid
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.storage.bootstrap import write_bootstrap, write_first_voters
from quorate.storage.errors import StorageError
from quorate.storage.meta_properties import (
    MetaProperties,
    load_meta_properties,
    new_directory_id,
    store_meta_properties,
)

__all__ = ["FEATURES", "check_cluster_id", "format_storage", "parse_initial_controllers", "random_cluster_id"]

# The levels that a new cluster begins with: see docs/compatibility.md.
FEATURES: Final = default_features(METADATA_VERSION_LATEST)
_KRAFT_VERSIONS: Final = (0, 1)


def check_cluster_id(text: str) -> str:
    """A cluster id is a uuid in base64, as `quorate storage random-uuid` prints it."""
    try:
        Uuid.parse(text)
    except ValueError as error:
        raise ConfigError(f"cluster id {text!r}: {error}") from None
    return text


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """`id@host:port:directory-id,...`, the same on every node."""
    voters = []
    for part in text.split(","):
        try:
            voter_id, _, rest = part.strip().partition("@")
            address, _, directory = rest.rpartition(":")
            host, _, port = address.rpartition(":")
            endpoint = Endpoint(listener, host.strip("[]"), int(port))
            key = ReplicaKey(int(voter_id), Uuid.parse(directory))
        except ValueError:
            raise ConfigError(
                f"initial controllers: {part.strip()!r} is not id@host:port:directory-id"
            ) from None
        voters.append(Voter(key, (endpoint,), _KRAFT_VERSIONS))
    if len({voter.key.id for voter in voters}) != len(voters):
        raise ConfigError("initial controllers: an id stands twice")
    return VoterSet.of(voters)


async def format_storage(
    host: Host,
    config: NodeConfig,
    cluster_id: str,
    *,
    initial: VoterSet | None = None,
    is_standalone: bool = False,
    ignore_formatted: bool = False,
) -> list[str]:
    """Formats every directory of a node that is not yet; returns those that were.

    `meta.properties` is written last: a directory that was half formatted looks like one that was not.
    """
    check_cluster_id(cluster_id)
    if config.is_of_zookeeper:
        raise ConfigError(
            f"{config.path}: with zookeeper.connect and no process.roles, a broker formats its directories"
            f" itself, for the cluster that ZooKeeper knows"
        )
    if (initial is not None or is_standalone) and len(config.static_voters):
        raise ConfigError(
            f"{config.path}: controller.quorum.voters and initial controllers could become two quorums"
        )
    directories = list(dict.fromkeys([config.metadata_directory, *config.log_directories]))
    directories = [directory.rstrip("/") for directory in directories if directory]
    formatted = [one for one in directories if _meta(host, one) is not None]
    if formatted and not ignore_formatted:
        raise ConfigError(f"{formatted[0]} is already formatted")
    for directory in formatted:
        meta = _meta(host, directory)
        if meta is not None and meta.cluster_id != cluster_id:
            raise ConfigError(f"{directory} is formatted for cluster {meta.cluster_id}, not {cluster_id}")
    done = []
    for directory in directories:
        if directory not in formatted:
            await _format(host, config, directory, cluster_id, initial, is_standalone)
            done.append(directory)
    return done


def _meta(host: Host, directory: str) -> MetaProperties | None:
    return load_meta_properties(host.files, directory) if host.files.exists(directory) else None


async def _format(
    host: Host,
    config: NodeConfig,
    directory: str,
    cluster_id: str,
    initial: VoterSet | None,
    is_standalone: bool,
) -> None:
    files, now_ms = host.files, host.wall_ms()
    try:
        files.make_directory(directory)
        for parent in _parents(directory):
            with suppress(PermissionError):  # what may not be looked into was there before
                await files.fsync_dir(parent)  # or a power failure could take the whole directory away
    except OSError as error:
        raise StorageError.of(directory, error) from error
    directory_id = new_directory_id(host.random.randbytes)
    await write_bootstrap(files, directory, _bootstrap_records(), timestamp_ms=now_ms)
    if directory == config.metadata_directory:
        voters = initial
        if is_standalone:
            me = Voter(
                ReplicaKey(config.node_id, directory_id), (config.advertised_controller,), _KRAFT_VERSIONS
            )
            voters = VoterSet.of([me])
        if voters is not None:
            mine = voters.get(config.node_id)
            if mine is not None:
                directory_id = mine.key.directory
            metadata = f"{directory}/{PARTITION_DIRECTORY}"
            await write_first_voters(files, metadata, voters.to_record(), timestamp_ms=now_ms)
    meta = MetaProperties(cluster_id, config.node_id, directory_id)
    await store_meta_properties(files, directory, meta)


def _parents(directory: str) -> list[str]:
    """The directories that hold a directory, one in the other, the innermost first.

    >>> _parents("/var/data"), _parents("data/one")
    (['/var', '/'], ['data', '.'])
    """
    parents = []
    while directory not in ("", ".", "/"):
        directory = directory.rpartition("/")[0] or ("/" if directory.startswith("/") else ".")
        parents.append(directory)
    return parents


def _bootstrap_records() -> Sequence[bytes]:
    return [
        encode_record(FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in FEATURES.items()
    ]


def random_cluster_id(host: Host) -> str:
    """A new id that does not begin with a dash, which a command line would take for an option."""
    return str(new_directory_id(host.random.randbytes))
