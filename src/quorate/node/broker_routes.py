"""What a broker's listeners serve, and who answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.broker.groups import Groups
from quorate.broker.handlers.alter_configs import AlteringConfigs
from quorate.broker.handlers.delete_records import DeletingRecords
from quorate.broker.handlers.describe import Describing
from quorate.broker.handlers.describe_producers import DescribingProducers
from quorate.broker.handlers.fetch import FetchHandler
from quorate.broker.handlers.find_coordinator import FindCoordinatorHandler
from quorate.broker.handlers.forwarding import Forwarding, limit_to_controller
from quorate.broker.handlers.group_admin import GroupAdministration
from quorate.broker.handlers.group_members import GroupMembers
from quorate.broker.handlers.group_offsets import GroupOffsets
from quorate.broker.handlers.log_dirs import LogDirs
from quorate.broker.handlers.metadata import Metadata
from quorate.broker.handlers.offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from quorate.broker.handlers.own_view import OwnView
from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.handlers.producer_ids import InitProducerIdHandler
from quorate.broker.handlers.security import Security
from quorate.broker.handlers.topic_creation import TopicCreation
from quorate.broker.serving import Broker
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.versions import KRAFT_VERSION
from quorate.net.routes import Features, Handler, Route, RouteTable
from quorate.node.cluster_state import ClusterState
from quorate.node.controller_channel import KraftControlPlane
from quorate.node.replica import Replica
from quorate.protocol.api.groups import FindCoordinatorRequest
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from quorate.protocol.api.transactions import InitProducerIdRequest

__all__ = ["BrokerRoutes"]

_PRODUCE_MAX: Final = ProduceRequest.__served__[-1]


class BrokerRoutes:
    """`table` makes a table for each listener; what they keep, such as fetch sessions, they keep together."""

    def __init__(
        self,
        broker: Broker,
        control_plane: KraftControlPlane,
        replica: Replica,
        state: ClusterState,
        groups: Groups,
        log_dirs: LogDirs,
        carried_out: Callable[[], int],
    ) -> None:
        """`carried_out` is the offset of the metadata log up to which the broker has done what it says."""
        self._replica = replica
        self._state = state
        self._control_plane = control_plane
        self._creation = TopicCreation(broker.settings, control_plane)
        self._producer_ids = InitProducerIdHandler(broker)
        own_view = self.own_view = OwnView(
            broker.current_image, lambda: state.position.offset - 1, carried_out
        )
        state.when_applied.append(lambda _: own_view.applied())
        forwarding = Forwarding(control_plane, own_view)
        self._routes = [
            # Old librdkafka compresses only for those who claim to know version 0.
            Route(ProduceRequest, ProduceHandler(broker), advertised=range(_PRODUCE_MAX + 1)),
            Route(FetchRequest, FetchHandler(broker)),
            Route(ListOffsetsRequest, ListOffsetsHandler(broker)),
            Route(OffsetForLeaderEpochRequest, OffsetForLeaderEpochHandler(broker)),
            Route(InitProducerIdRequest, self._producer_ids),
            Route(FindCoordinatorRequest, FindCoordinatorHandler(broker, groups, self._creation)),
            *GroupMembers(broker, groups).routes(),
            *GroupOffsets(broker, groups).routes(),
            *GroupAdministration(broker, groups).routes(),
            *Metadata(broker, self._creation).routes(),
            *forwarding.routes(),
            *AlteringConfigs(broker, forwarding).routes(),
            *Security(broker, forwarding).routes(),
            *Describing(broker).routes(),
            *DeletingRecords(broker).routes(),
            *DescribingProducers(broker).routes(),
            *log_dirs.routes(),
        ]

    def table(self, wrap: Callable[[Handler], Handler]) -> RouteTable:
        """`wrap` goes around every handler."""
        routes = [Route(one.request, wrap(one.handler), one.versions, one.advertised) for one in self._routes]
        table = RouteTable(routes, self._features)
        limit_to_controller(table, self._control_plane)
        return table

    async def close(self) -> None:
        """Gives up what is under way for nobody in particular."""
        self._producer_ids.ids.close()
        await self._creation.close()

    def _features(self) -> Features:
        """What ApiVersions says of features: that of the quorum comes from there, the others from the log."""
        levels = {
            **self._state.image.features,
            KRAFT_VERSION: self._replica.quorum.voters.kraft_version,
        }
        return Features(
            supported={name: range(low, high + 1) for name, (low, high) in SUPPORTED_FEATURES.items()},
            finalized=dict(sorted(levels.items())),
            finalized_epoch=self._state.position.offset - 1,
        )
