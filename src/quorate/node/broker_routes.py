"""What a broker's listeners serve, and who answers it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from quorate.broker.control_plane import ControlPlane
from quorate.broker.groups import Groups
from quorate.broker.handlers.alter_configs import AlteringConfigs
from quorate.broker.handlers.delete_records import DeletingRecords
from quorate.broker.handlers.describe import Describing
from quorate.broker.handlers.describe_producers import DescribingProducers
from quorate.broker.handlers.fetch import FetchHandler
from quorate.broker.handlers.find_coordinator import FindCoordinatorHandler
from quorate.broker.handlers.forwarding import Forwarder, Forwarding, limit_to_controller
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
from quorate.net.no_sasl import NO_SASL
from quorate.net.routes import Features, Route, RouteTable
from quorate.node.cluster_state import ClusterState
from quorate.protocol.api.groups import FindCoordinatorRequest
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from quorate.protocol.api.transactions import InitProducerIdRequest
from quorate.protocol.message import Request
from quorate.protocol.types import Uuid

__all__ = ["BrokerRoutes", "ForwardingPlane"]

_PRODUCE_MAX: Final = ProduceRequest.__served__[-1]


class ForwardingPlane(Forwarder, ControlPlane, Protocol):
    """A control plane that also knows what the controller serves."""


class BrokerRoutes:
    """`table` makes a table for each listener; what they keep, such as fetch sessions, they keep together."""

    def __init__(
        self,
        broker: Broker,
        control_plane: ForwardingPlane,
        state: ClusterState,
        groups: Groups,
        log_dirs: LogDirs,
        carried_out: Callable[[], int],
        features: Callable[[], Features],
        *,
        is_coming: Callable[[Uuid], bool] = lambda _: False,
        without: Collection[type[Request]] = (),
    ) -> None:
        """`carried_out` is the offset of the metadata up to which the broker has done what they say;
        `is_coming` says of a topic that it has not come to its creation. Of requests in `without` this
        control plane knows nothing, and they are not served."""
        self._features = features
        self._control_plane = control_plane
        self._creation = TopicCreation(broker.settings, control_plane)
        self._producer_ids = InitProducerIdHandler(broker)
        own_view = self.own_view = OwnView(
            broker.current_image, lambda: state.position.offset - 1, carried_out, is_coming
        )
        state.when_applied.append(lambda _: own_view.applied())
        forwarding = Forwarding(control_plane, own_view)
        produce = ProduceHandler(broker)
        served = [
            # Old librdkafka compresses only for those who claim to know version 0.
            Route(
                ProduceRequest,
                produce,
                advertised=range(_PRODUCE_MAX + 1),
                series=produce.series,
                shortcut=produce.shortcut,
            ),
            Route(FetchRequest, FetchHandler(broker)),
            Route(ListOffsetsRequest, ListOffsetsHandler(broker)),
            Route(OffsetForLeaderEpochRequest, OffsetForLeaderEpochHandler(broker)),
            Route(InitProducerIdRequest, self._producer_ids),
            Route(FindCoordinatorRequest, FindCoordinatorHandler(broker, groups, self._creation)),
            *GroupMembers(broker, groups).routes(),
            *GroupOffsets(broker, groups).routes(),
            *GroupAdministration(broker, groups).routes(),
            *Metadata(broker, self._creation, own_view).routes(),
            *forwarding.routes(),
            *AlteringConfigs(broker, forwarding, own_view).routes(),
            *NO_SASL,
            *Security(broker, forwarding).routes(),
            *Describing(broker).routes(),
            *DeletingRecords(broker).routes(),
            *DescribingProducers(broker).routes(),
            *log_dirs.routes(),
        ]
        self._routes = [one for one in served if one.request not in without]

    def table(self, wrap: Callable[[Route], Route], more: Sequence[Route] = ()) -> RouteTable:
        """`wrap` is put around everything but what is served besides."""
        table = RouteTable([*map(wrap, self._routes), *more], self._features)
        limit_to_controller(table, self._control_plane)
        return table

    async def close(self) -> None:
        """Gives up what is under way for nobody in particular."""
        self._producer_ids.ids.close()
        await self._creation.close()
