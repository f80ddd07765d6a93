"""Which connections are those of brokers and controllers: they are kept where clients' have to go.

A request that only brokers and controllers send says whose it is. If that is one of the cluster, so is the
connection (`net.admitted`). Whether it is true is not looked into: who may send such requests at all is a
matter of rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from quorate.net.admitted import Admitted
from quorate.net.routes import Handler, RequestContext, RouteTable
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest, OffsetForLeaderEpochRequest
from quorate.protocol.api.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from quorate.protocol.api.zookeeper_era import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

__all__ = ["note_peers"]

_NOBODY: Final = -1


def note_peers(table: RouteTable, listener: str, admitted: Admitted, is_peer: Callable[[int], bool]) -> None:
    """From now on the connections are kept that have a request for this table of somebody of whom `is_peer`
    says that it is a broker or controller of the cluster."""
    for route_id, (handler, answer) in list(table.by_route_id.items()):
        sender = _SENDERS.get(route_id >> 16)
        if sender is not None:
            table.by_route_id[route_id] = _noting(handler, listener, admitted, sender, is_peer), answer


def _noting(
    handler: Handler,
    listener: str,
    admitted: Admitted,
    sender: Callable[[Any], int],
    is_peer: Callable[[int], bool],
) -> Handler:
    def note_and_handle(context: RequestContext, header: RequestHeader, request: Any) -> Any:
        peer_id = sender(request)
        if peer_id >= 0 and is_peer(peer_id):
            admitted.keep(listener, context.client_host, context.client_port, peer_id)
        return handler(context, header, request)

    return note_and_handle


def _of_fetch(request: FetchRequest) -> int:
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def _of_vote(request: VoteRequest) -> int:
    return next((one.replica_id for topic in request.topics for one in topic.partitions), _NOBODY)


def _of_leader(request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> int:
    return next((one.leader_id for topic in request.topics for one in topic.partitions), _NOBODY)


_broker_id: Final = attrgetter("broker_id")
_replica_id: Final = attrgetter("replica_id")
_controller_id: Final = attrgetter("controller_id")

_SENDERS: Final[Mapping[int, Callable[[Any], int]]] = {
    FetchRequest.__key__: _of_fetch,
    FetchSnapshotRequest.__key__: _replica_id,
    OffsetForLeaderEpochRequest.__key__: _replica_id,
    VoteRequest.__key__: _of_vote,
    BeginQuorumEpochRequest.__key__: _of_leader,
    EndQuorumEpochRequest.__key__: _of_leader,
    BrokerRegistrationRequest.__key__: _broker_id,
    BrokerHeartbeatRequest.__key__: _broker_id,
    AlterPartitionRequest.__key__: _broker_id,
    AllocateProducerIdsRequest.__key__: _broker_id,
    AssignReplicasToDirsRequest.__key__: _broker_id,
    ControllerRegistrationRequest.__key__: _controller_id,
    LeaderAndIsrRequest.__key__: _controller_id,
    StopReplicaRequest.__key__: _controller_id,
    UpdateMetadataRequest.__key__: _controller_id,
    ControlledShutdownRequest.__key__: _broker_id,
}
"""Who sends a request, by its key, as it says itself."""
