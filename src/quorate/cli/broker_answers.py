"""Brokers as any broker knows them, of whatever make: asked by the protocol, not by admin endpoints."""

from __future__ import annotations

from collections import Counter
from typing import Any

from quorate.cli.asking import ask, listed, print_json, print_table, size
from quorate.cli.configs import SOURCES, UNSAID, config_text
from quorate.cli.tables import table
from quorate.client.admin import Admin, ClusterDescription, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.client.log_dirs import LogDirectory, describe_log_dirs
from quorate.client.metadata import Topic
from quorate.one_line import one_line
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["show_broker", "show_brokers"]


def show_brokers(bootstrap: str, *, as_json: bool) -> None:
    async def look(cluster: Cluster) -> tuple[ClusterDescription, dict[str, Topic]]:
        admin = Admin(cluster)
        return await admin.describe_cluster(), await admin.list_topics()

    described, topics = ask(bootstrap, look)
    leads, replicas = _counts(topics)
    found = [
        {
            "id": one.id,
            "state": _state(described, one.id),
            "rack": one.rack,
            "host": one.host,
            "port": one.port,
            "leaders": leads[one.id],
            "replicas": replicas[one.id],
        }
        for _, one in sorted(described.brokers.items())
    ]
    if as_json:
        print_json({"cluster_id": described.cluster_id, "brokers": found})
        return
    head = ("ID", "STATE", "RACK", "LEADS", "REPLICAS", "ADDRESS")
    rows = [
        (
            *(one[key] for key in ("id", "state", "rack", "leaders", "replicas")),
            f"{one['host']}:{one['port']}",
        )
        for one in found
    ]
    print_table(head, rows, "there are no brokers")


def show_broker(bootstrap: str, broker_id: int, *, as_json: bool) -> None:
    found = ask(bootstrap, lambda cluster: _broker(cluster, broker_id))
    if as_json:
        print_json(found)
        return
    rows = [
        ("broker", found["id"]),
        ("cluster", found["cluster_id"]),
        ("state", found["state"]),
        ("address", f"{found['host']}:{found['port']}"),
        ("rack", found["rack"]),
        ("leads", found["leaders"]),
        ("replicas", found["replicas"]),
    ]
    print("\n".join(table(rows)))
    for key, one in found["configs"].items():
        print(one_line(f"  {key}={one['value']} (set for: {one['set_for']})"))
    for one in found["log_directories"]:
        print()
        print(one_line(f"{one['path']}: {_directory_text(one)}"))
        stored = [
            (
                place["partition"],
                size(place["size_bytes"]),
                place["lag"],
                "future" if place["is_future"] else "",
            )
            for place in one["replicas"]
        ]
        if stored:
            print_table(("REPLICA", "SIZE", "LAG", "KIND"), stored, "")


async def _broker(cluster: Cluster, broker_id: int) -> dict[str, Any]:
    admin = Admin(cluster)
    described = await admin.describe_cluster()
    if broker_id not in described.brokers:
        known = listed(sorted(described.brokers))
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}; there are {known}"
        )
    one = described.brokers[broker_id]
    leads, replicas = _counts(await admin.list_topics())
    found: dict[str, Any] = {
        "id": one.id,
        "cluster_id": described.cluster_id,
        "state": _state(described, one.id),
        "rack": one.rack,
        "host": one.host,
        "port": one.port,
        "leaders": leads[one.id],
        "replicas": replicas[one.id],
        "configs": {},
        "log_directories": [],
    }
    if broker_id in described.fenced:
        return found  # nobody says that it can be asked
    configs = await admin.describe_configs(Resource(ResourceKind.BROKER, str(broker_id)))
    found["configs"] = {
        key: {"value": config_text(entry), "set_for": SOURCES.get(entry.source, str(entry.source))}
        for key, entry in sorted(configs.items())
        if entry.source not in UNSAID
    }
    found["log_directories"] = [_directory(one) for one in await describe_log_dirs(cluster, broker_id)]
    return found


def _counts(topics: dict[str, Topic]) -> tuple[Counter[int], Counter[int]]:
    """How many partitions each broker leads, and has."""
    partitions = [one for topic in topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    return leads, Counter(broker for one in partitions for broker in one.replicas)


def _state(described: ClusterDescription, broker_id: int) -> str:
    return "fenced" if broker_id in described.fenced else "active"


def _directory(one: LogDirectory) -> dict[str, Any]:
    return {
        "path": one.path,
        "error": None if one.error is ErrorCode.NONE else one.error.name,
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
        "is_cordoned": one.is_cordoned,
        "replicas": [
            {"partition": str(at), **stored._asdict()} for at, stored in sorted(one.replicas.items())
        ],
    }


def _directory_text(one: dict[str, Any]) -> str:
    if one["error"]:
        return f"failed, {one['error']}"
    used = sum(place["size_bytes"] for place in one["replicas"])
    space = (
        "" if one["total_bytes"] < 0 else f", {size(one['usable_bytes'])} of {size(one['total_bytes'])} free"
    )
    cordoned = ", cordoned" if one["is_cordoned"] else ""
    return f"{len(one['replicas'])} replicas, {size(used)}{space}{cordoned}"
