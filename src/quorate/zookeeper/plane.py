"""ZooKeeper's control plane as a broker sees it: `broker.control_plane.ControlPlane`, and a life around it.

    plane = ZooKeeperPlane(settings, random=..., wall_ms=..., connections=..., broker=...)
    await plane.connect(known_cluster_id=..., known_broker_id=...)   # from meta.properties, None if not there
    ...                       # plane.cluster_id and plane.broker_id go to meta.properties; logs are opened,
                              # listeners bound, with plane.routes() among what they serve
    await plane.register(listeners, rack=..., features=...)          # plane.broker_epoch from here on
    await plane.run()         # a duty, until it is cancelled; raises `Fatal` for what nobody can go on with
    await plane.controlled_shutdown()
    await plane.stop()

What the broker is to have and to lead comes as requests (LeaderAndIsr, UpdateMetadata, StopReplica) to its
listener, from whichever broker is the controller, itself included. Configurations come from znodes, as
records for the image (`BrokerSide.apply_records`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quorate.metadata.image import ClusterImage
from quorate.protocol.message import Record

__all__ = ["BrokerSide"]


class BrokerSide(Protocol):
    """What the plane asks of the broker that it belongs to."""

    def current_image(self) -> ClusterImage:
        """The cluster as this broker knows it: what configurations are judged by."""

    def apply_records(self, records: Sequence[Record]) -> None:
        """Configurations, quotas and credentials that have changed, or that there are at the beginning."""

    def epoch_changed(self, broker_epoch: int) -> None:
        """This broker is registered, perhaps once more: a request for an older epoch is not for it."""
