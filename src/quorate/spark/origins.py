"""Where logs come from: a live cluster, or copies of directories; and whose they are.

One origin is one cluster, so that each stream reads one cluster's log and its checkpoint means that cluster
and no other. Directories of several clusters are several origins.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from quorate.client.admin import Admin
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.net.tls import TlsError, TlsSettings, client_context
from quorate.spark.log_places import EVENTS_DIRECTORY, GROUPS, METADATA, find_places
from quorate.spark.security_options import security_of

__all__ = ["NothingToRead", "Origin", "files_in", "live_cluster"]

_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "records": METADATA,
    "group_records": GROUPS,
    "events": EVENTS_DIRECTORY,
}
_SETTINGS: Final = ClusterSettings(deadline_ms=10_000)


class NothingToRead(Exception):  # noqa: N818
    """What was named has no log, or does not answer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The logs of one cluster. `options` are those of the data source, by the table that it feeds."""

    cluster_id: str
    kind: str  # "live" or "files"
    options: Mapping[str, Mapping[str, str]]
    bootstrap: str | None = None
    paths: tuple[str, ...] = ()
    tls: TlsSettings | None = None

    def stream(self, table: str) -> str:
        """The name of the stream into a table: where its checkpoint is."""
        return f"{table}/{quote(self.cluster_id, safe='')}/{self.kind}"

    def where(self, table: str) -> str:
        """What feeds a table, in words; keys and passwords are nobody's business."""
        return ", ".join(one for name, one in self.options[table].items() if not name.startswith("kafka."))


def live_cluster(
    bootstrap: str, controllers: str | None = None, secured: Mapping[str, str] | None = None
) -> Origin:
    """The cluster that answers there; `NothingToRead` if none does. `secured` are options of the source that
    say how connections are secured."""

    async def describe(settings: ClusterSettings) -> str | None:
        async with Cluster(bootstrap, settings=settings) as cluster:
            await cluster.refresh()  # without waiting: somebody sits in front of this
            return (await Admin(cluster).describe_cluster()).cluster_id

    try:
        tls = security_of(secured or {})
        context = client_context(tls) if tls is not None else None
        cluster_id = asyncio.run(describe(replace(_SETTINGS, tls=context)))
    except TlsError as error:
        raise NothingToRead(str(error)) from None
    except (Unavailable, ValueError) as error:
        raise NothingToRead(f"no broker answers at {bootstrap}: is the cluster up? ({error})") from None
    if not cluster_id:
        raise NothingToRead(f"the cluster at {bootstrap} has no id")
    options = {"bootstrap.servers": bootstrap, **({"controllers": controllers} if controllers else {})}
    options |= secured or {}
    return Origin(cluster_id, "live", dict.fromkeys(_PATTERNS, options), bootstrap, tls=tls)


def files_in(paths: Sequence[str]) -> list[Origin]:
    """The clusters whose logs are under these paths; `NothingToRead` if there is not one log."""
    absent = [
        path for path in paths if not any(letter in path for letter in "*?[") and not Path(path).exists()
    ]
    if absent:
        raise NothingToRead(f"{', '.join(absent)}: no such directory")
    by_cluster: dict[str, dict[str, list[str]]] = {}
    for table, pattern in _PATTERNS.items():
        found = find_places(paths, pattern)
        for place in found.found:
            at = str(Path(place.directory, place.only)) if place.only else place.directory
            by_cluster.setdefault(place.cluster_id, {}).setdefault(table, []).append(at)
    if not by_cluster:
        raise NothingToRead(
            f"{', '.join(paths)}: no log of a cluster is there; it would be in a directory like"
            " __cluster_metadata-0"
        )
    return [
        Origin(
            cluster_id,
            "files",
            {table: {"paths": json.dumps(sorted(places))} for table, places in tables.items()},
            paths=tuple(sorted({place for places in tables.values() for place in places})),
        )
        for cluster_id, tables in sorted(by_cluster.items())
    ]
