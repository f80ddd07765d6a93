"""Where brokers can be reached: a broker has an address for each of its listeners, as it advertises it.

A client is told of the brokers that are alive and have the listener that it came in by, at the addresses of
that listener. Brokers reach each other by the listener that is theirs (`inter.broker.listener.name`).
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from quorate.metadata.brokers import BrokerRegistration, Listener
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED, Rows
from quorate.protocol.types import Uuid

__all__ = ["Reachable", "address_of", "endpoint_of"]

_TABLE_MAX = 1 << 16  # ids of brokers up to here are looked up in a table


def endpoint_of(broker: BrokerRegistration, listener: str) -> Listener | None:
    """Where a broker is for those who come by a listener, if it has that one."""
    for one in broker.listeners:
        if one.name == listener or one.name.upper() == listener.upper():
            return one
    return None


def address_of(image: ClusterImage, broker_id: int, listener: str) -> tuple[str, int] | None:
    """Where a broker is, fenced or not: a leader may be asked before it is heard that it leads."""
    broker = image.brokers.get(broker_id)
    found = None if broker is None else endpoint_of(broker, listener)
    return None if found is None else (found.host, found.port)


class Reachable:
    """The brokers of a cluster, now, as a client of one listener sees them."""

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self._image = image
        self.endpoints: dict[int, Listener] = {}  # of everyone who has the listener
        for broker_id in sorted(image.brokers):
            endpoint = endpoint_of(image.brokers[broker_id], listener)
            if endpoint is not None:
                self.endpoints[broker_id] = endpoint
        self.alive = [one for one in self.endpoints if not image.brokers[one].is_fenced]

    # One replica

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._alive

    def is_offline(self, broker_id: int, directory: Uuid) -> bool:
        """Whether a replica cannot be used: its broker, the way to it, or its log directory is not there."""
        return broker_id not in self._alive or self._has_failed(directory)

    def _has_failed(self, directory: Uuid) -> bool:
        """Whether a directory is lost, or no broker has it online: it is one broker's, and of no other."""
        return directory == LOST or (self._online is not None and directory not in self._online)

    @cached_property
    def _alive(self) -> frozenset[int]:
        return frozenset(self.alive)

    @cached_property
    def _online(self) -> frozenset[Uuid] | None:
        """All directories that are online. None as long as a broker names none: then it is an old cluster."""
        named = [broker.directories for broker in self._image.brokers.values()]
        return frozenset((UNASSIGNED, MIGRATING, *chain(*named))) if all(named) else None

    # Many

    def alive_among(self, broker_ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of many ids are of brokers that are alive; -1 is nobody's."""
        return _members(broker_ids, self._alive_table, self.alive)

    def reachable_among(self, broker_ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of many ids are of brokers that have the listener, fenced or not."""
        return _members(broker_ids, self._reachable_table, list(self.endpoints))

    def offline_among(self, rows: Rows, replicas: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of the replicas of some rows are offline; -1 is nobody's."""
        offline = ~self.alive_among(replicas)
        if self._failed_directories.any():
            offline |= self._failed_directories[rows.block.directories[rows.index]]
        offline &= replicas >= 0
        return offline

    @cached_property
    def _alive_table(self) -> NDArray[np.bool_] | None:
        return _table(self.alive)

    @cached_property
    def _reachable_table(self) -> NDArray[np.bool_] | None:
        return _table(list(self.endpoints))

    @cached_property
    def _failed_directories(self) -> NDArray[np.bool_]:
        """By the numbers of directories, whether they are of no use."""
        return np.array(list(map(self._has_failed, self._image.partitions.directory_ids.ids)), np.bool_)


def _table(broker_ids: list[int]) -> NDArray[np.bool_] | None:
    """Whether each id is one of them, by id; the last entry stands for -1. None if ids are too large."""
    if broker_ids and broker_ids[-1] >= _TABLE_MAX:
        return None
    table = np.zeros(_TABLE_MAX + 1, np.bool_)
    table[broker_ids] = True
    return table


def _members(
    broker_ids: NDArray[np.int32], table: NDArray[np.bool_] | None, some: list[int]
) -> NDArray[np.bool_]:
    if table is None or (broker_ids.size and broker_ids.max() >= _TABLE_MAX):
        return np.isin(broker_ids, some)
    found: NDArray[np.bool_] = table[broker_ids]
    return found
