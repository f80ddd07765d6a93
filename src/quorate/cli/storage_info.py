"""`quorate storage info`: what is in the directories of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quorate.cli.asking import NOT_ASKED, fail, print_json, print_table, size
from quorate.cli.tables import table
from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.looking import DirectoryContents, LogRange, MetadataContents, ReplicaContents, look_into

__all__ = ["show_directories"]


def show_directories(paths: Sequence[str], config: str, *, as_json: bool) -> None:
    """Shows directories, or those that a configuration names."""
    try:
        if config:
            named = load_config(config)
            paths = [*paths, *dict.fromkeys([named.metadata_directory, *named.log_directories])]
        if not paths:
            fail("which one? Say a directory, or --config FILE")
        found = [look_into(ReadOnlyFiles(), path.rstrip("/") or "/") for path in dict.fromkeys(paths)]
    except (ConfigError, StorageError) as error:
        fail(str(error), NOT_ASKED)
    if as_json:
        print_json([_json(one) for one in found])
        return
    for index, one in enumerate(found):
        if index:
            print()
        _print(one)


def _json(one: DirectoryContents) -> dict[str, Any]:
    meta = one.meta
    return {
        "path": one.path,
        "meta_properties": None
        if meta is None
        else {
            "version": meta.version,
            "cluster_id": meta.cluster_id,
            "node_id": meta.node_id,
            "directory_id": None if meta.directory_id is None else str(meta.directory_id),
        },
        "has_bootstrap": one.has_bootstrap,
        "is_in_order": one.is_in_order,
        "metadata": None if one.metadata is None else _metadata_json(one.metadata),
        "replicas": [_replica_json(replica) for replica in one.replicas],
    }


def _metadata_json(one: MetadataContents) -> dict[str, Any]:
    state = one.quorum_state
    return {
        "log": _range_json(one.log),
        "snapshots": [str(snapshot) for snapshot in one.snapshots],
        "quorum_state": None
        if state is None
        else {
            "leader_epoch": state.leader_epoch,
            "leader_id": state.leader_id,
            "voted_id": state.voted_id,
        },
    }


def _replica_json(one: ReplicaContents) -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "kind": one.kind.value or "current",
        "topic_id": None if one.topic_id is None else str(one.topic_id),
        "log": _range_json(one.log),
        "high_watermark": one.high_watermark,
        "recovery_point": one.recovery_point,
    }


def _range_json(one: LogRange | None) -> dict[str, int] | None:
    if one is None:
        return None
    return {
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "segments": one.segment_count,
        "size_bytes": one.size_bytes,
    }


def _print(one: DirectoryContents) -> None:
    print(one.path)
    meta = one.meta
    rows: list[tuple[str, object]] = [("formatted", "no")]
    if meta is not None:
        rows = [
            ("cluster", meta.cluster_id),
            ("node", meta.node_id),
            ("directory", meta.directory_id),
            ("bootstrap.checkpoint", "yes" if one.has_bootstrap else "no"),
            ("left in order", "yes" if one.is_in_order else "no: in use, or to be recovered"),
        ]
    metadata = one.metadata
    if metadata is not None:
        rows += [
            ("metadata log", _range_text(metadata.log)),
            ("snapshots", ", ".join(map(str, metadata.snapshots))),
        ]
        state = metadata.quorum_state
        if state is not None:
            leader = "nobody" if state.leader_id is None else f"node {state.leader_id}"
            voted = "" if state.voted_id is None else f", voted for {state.voted_id}"
            rows.append(("election", f"epoch {state.leader_epoch}, led by {leader}{voted}"))
    for line in table(rows):
        print(f"  {line}")
    head = ("REPLICA", "KIND", "FIRST", "END", "HIGH WATERMARK", "SYNCED TO", "SIZE", "SEGMENTS")
    replicas = [
        (
            one.partition,
            one.kind.value or "current",
            one.log and one.log.start_offset,
            one.log and one.log.end_offset,
            one.high_watermark,
            one.recovery_point,
            one.log and size(one.log.size_bytes),
            one.log and one.log.segment_count,
        )
        for one in one.replicas
    ]
    if replicas:
        print_table(head, replicas, "")


def _range_text(one: LogRange | None) -> str | None:
    if one is None:
        return None
    place = f"offsets {one.start_offset} to {one.end_offset - 1}"
    return f"{place}, {one.segment_count} segments, {size(one.size_bytes)}"
