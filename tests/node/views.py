"""A controller as its admin endpoint sees it, made of a small cluster of a test."""

from __future__ import annotations

import random
from pathlib import Path

from controller_cluster import Cluster
from quorate.controller.events import BrokerFenced, UnfenceWithheld
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.node.admin import AdminRoutes
from quorate.node.admin_view import QuorumView, VoterView
from quorate.node.event_journal import EventJournal
from quorate.node.host import Host
from quorate.node.metrics import NodeMetrics
from quorate.protocol.types import Uuid
from quorate.storage.files import RealFiles

WALL_MS = 1_700_000_000_000
EPOCH = 5


class Active:
    def __init__(self, cluster: Cluster) -> None:
        self.image: ClusterImage = cluster.image
        self.sessions: Sessions = cluster.sessions
        self.epoch = EPOCH


class View:
    """An `AdminView`. `is_active` and `leader_id` make it that of a standby."""

    def __init__(self, cluster: Cluster, node_id: int = 3000) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.is_active = True
        self.leader_id = node_id
        self.behind: tuple[int, ...] = ()
        self.addresses: dict[int, str] = {}
        self.applied_timestamp_ms = WALL_MS - 250

    @property
    def settings(self) -> ControllerSettings:
        return self.cluster.settings

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    @property
    def applied_offset(self) -> int:
        return self.cluster.next_offset - 1

    @property
    def active(self) -> Active | None:
        return Active(self.cluster) if self.is_active else None

    def quorum(self) -> QuorumView:
        end = self.cluster.next_offset
        voters = [VoterView(one, None, None, None, None) for one in (3000, 3001, 3002)]
        if self.is_active:
            voters = [
                VoterView(one, end - 7, 7, 9000.0, False)
                if one in self.behind
                else VoterView(one, end, 0, 12.5, True)
                for one in (3000, 3001, 3002)
            ]
        return QuorumView(self.leader_id, EPOCH, end, end, tuple(voters))

    def now_ms(self) -> float:
        return self.cluster.now_ms

    def wall_ms(self) -> int:
        return WALL_MS

    def admin_address_of(self, node_id: int) -> str | None:
        return self.addresses.get(node_id)


def real_files_host(name: str = "c1") -> Host:
    return Host(name, RealFiles(), random.Random(1), lambda: WALL_MS, None)


def small_cluster() -> Cluster:
    """Three brokers, the third of which has read too little to be unfenced."""
    cluster = Cluster([1, 2])
    epoch = cluster.register(3, fenced=True, rack="b")
    cluster.create(1, [(1, 2), (2, 1), (1,)], name="orders")
    cluster.sessions.restart(
        [(one.id, one.epoch) for one in cluster.image.brokers.values()], cluster.now_ms - 1000
    )
    cluster.sessions.touch(3, epoch, 2, cluster.now_ms - 400)
    return cluster


def routes_of(view: View, directory: Path) -> AdminRoutes:
    """The routes of a controller that has had three things to say."""
    journal = EventJournal(real_files_host(), str(directory), view.node_id, Uuid(b"incarnation 0001"))
    metrics = NodeMetrics()
    for event in (
        BrokerFenced(3, 4, "missed heartbeats", 9001.0, 9000, 1, 1, 0),
        UnfenceWithheld(3, 4, "metadata offset", 2, 4),
        UnfenceWithheld(3, 4, "metadata offset", 3, 4),
    ):
        journal.append(event, WALL_MS)
        metrics.saw(event)
    return AdminRoutes(view, metrics, journal)
