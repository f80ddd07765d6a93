"""What brokers are to be told because of one decision: LeaderAndIsr, UpdateMetadata and StopReplica.

Pure. One decision gathers a batch; `requests` makes of it what each broker gets, in this order, which is also
the order in which they must arrive. Whoever is told to lead or to follow is in the metadata as well, and the
metadata goes to everybody. A request has a limit, so a broker may get several of a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.metadata.brokers import Listener
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from quorate.protocol.message import Request
from quorate.protocol.types import ZERO_UUID
from quorate.zookeeper.context import Context, Key
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import PartitionState

__all__ = ["DELETED_LEADER", "EPOCH_OF_DELETION", "NO_EPOCH", "Batch", "Stop"]

PARTITIONS_MAX: Final = 5_000  # in one request
DELETED_LEADER: Final = -2
EPOCH_OF_DELETION: Final = -2
NO_EPOCH: Final = -1
FULL: Final = 2  # the type of a request that leaves nothing out


class Stop(NamedTuple):
    """A replica is to be stopped, and perhaps deleted."""

    leader_epoch: int
    is_deleted: bool


class Batch:
    """What has been gathered. Everything is taken from the context when requests are made."""

    def __init__(self, context: Context, listener: str) -> None:
        """`listener` is the one on which brokers talk to each other."""
        self._context = context
        self._listener = listener
        self._leading: dict[int, dict[Key, bool]] = {}  # by broker; whether the replica is new
        self._told: dict[int, dict[Key, None]] = {}  # metadata for some
        self._everyone: dict[Key, None] = {}  # metadata for all
        self._full: tuple[list[int], Sequence[Key]] = [], ()  # metadata that leaves nothing out, for some
        self._deleted: dict[Key, None] = {}
        self._stopped: dict[int, dict[Key, Stop]] = {}
        self._is_for_all = False

    def lead_or_follow(self, brokers: Iterable[int], key: Key, *, is_new: bool = False) -> None:
        """Brokers get the state of a partition that they have a replica of."""
        for broker_id in brokers:
            mine = self._leading.setdefault(broker_id, {})
            mine[key] = is_new or mine.get(key, False)
        self._everyone[key] = None

    def tell_everyone(self, keys: Iterable[Key] = ()) -> None:
        """All brokers get the list of brokers, and the metadata of partitions."""
        self._is_for_all = True
        self._everyone.update(dict.fromkeys(keys))

    def tell(self, broker_ids: Iterable[int], keys: Sequence[Key]) -> None:
        """Some brokers get the list of brokers, and the metadata of partitions."""
        for broker_id in broker_ids:
            self._told.setdefault(broker_id, {}).update(dict.fromkeys(keys))

    def tell_everything(self, broker_ids: Iterable[int], keys: Sequence[Key]) -> None:
        """Some brokers get, in one request, all partitions that there are: others they forget."""
        self._full = list(broker_ids), keys

    def forget(self, keys: Iterable[Key]) -> None:
        """All brokers are told that partitions are being deleted."""
        self._deleted.update(dict.fromkeys(keys))

    def stop(self, broker_id: int, key: Key, leader_epoch: int, *, is_deleted: bool) -> None:
        self._stopped.setdefault(broker_id, {})[key] = Stop(leader_epoch, is_deleted)

    def requests(self) -> dict[int, list[Request]]:
        """By broker; those that are no members get nothing."""
        found: dict[int, list[Request]] = {broker_id: [] for broker_id in self._context.members}
        brokers = self._brokers()
        for broker_id, keys in self._leading.items():
            if broker_id in found:
                found[broker_id] += self._leader_and_isr(self._context.members[broker_id], keys)
        self._add_metadata(found, brokers)
        for broker_id, stops in self._stopped.items():
            if broker_id in found:
                found[broker_id] += self._stop_replica(self._context.members[broker_id], stops)
        return {broker_id: requests for broker_id, requests in found.items() if requests}

    # LeaderAndIsr

    def _leader_and_isr(self, member: Member, keys: Mapping[Key, bool]) -> Iterator[Request]:
        context = self._context
        for some in _parts([key for key in keys if key in context.states]):
            topics: dict[str, LeaderAndIsrRequest.TopicState] = {}
            leaders: dict[int, None] = {}
            for key in some:
                state, assignment = context.states[key], context.assignment(key)
                if assignment is None:
                    continue
                leaders[state.leader] = None
                topic = topics.get(key[0])
                if topic is None:
                    topic = topics[key[0]] = LeaderAndIsrRequest.TopicState(
                        topic_name=key[0], topic_id=context.topics[key[0]].id, partition_states=[]
                    )
                topic.partition_states.append(
                    LeaderAndIsrPartitionState(
                        partition_index=key[1],
                        controller_epoch=state.controller_epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=list(state.isr),
                        partition_epoch=state.partition_epoch,
                        replicas=list(assignment.replicas),
                        adding_replicas=list(assignment.adding),
                        removing_replicas=list(assignment.removing),
                        is_new=keys[key],
                        leader_recovery_state=int(state.is_recovering),
                    )
                )
            yield LeaderAndIsrRequest(
                controller_id=context.broker_id,
                controller_epoch=context.epoch,
                broker_epoch=member.epoch,
                topic_states=list(topics.values()),
                live_leaders=[
                    LeaderAndIsrRequest.LiveLeader(broker_id=one, host_name=place.host, port=place.port)
                    for one in leaders
                    if (place := self._place(one)) is not None
                ],
            )

    def _place(self, broker_id: int) -> Listener | None:
        member = self._context.members.get(broker_id)
        return None if member is None else member.listener(self._listener)

    # UpdateMetadata

    def _add_metadata(
        self, found: dict[int, list[Request]], brokers: list[UpdateMetadataRequest.Broker]
    ) -> None:
        everyone = list(self._everyone)
        if self._is_for_all or everyone or self._deleted:
            parts = [self._topic_states(some) for some in _parts(everyone)]
            parts += [self._topic_states(some) for some in _parts(list(self._deleted))]
            for topics in parts or [[]]:
                for broker_id, member in self._context.members.items():
                    found[broker_id].append(self._update_metadata(member, topics, brokers))
        broker_ids, everything = self._full
        topics = self._topic_states(everything) if broker_ids else []
        for broker_id in broker_ids:
            if broker_id in found:
                request = self._update_metadata(self._context.members[broker_id], topics, brokers)
                request.type = FULL
                found[broker_id].append(request)
        for broker_id, keys in self._told.items():
            if broker_id in found:
                member = self._context.members[broker_id]
                for some in _parts(list(keys)) or [[]]:
                    topics = self._topic_states(some)
                    found[broker_id].append(self._update_metadata(member, topics, brokers))

    def _topic_states(self, keys: Sequence[Key]) -> list[UpdateMetadataRequest.TopicState]:
        context = self._context
        topics: dict[str, UpdateMetadataRequest.TopicState] = {}
        for key in keys:
            state, assignment = context.states.get(key), context.assignment(key)
            if assignment is None or (state is None and key not in self._deleted):
                continue
            topic = topics.get(key[0])
            if topic is None:
                topic_id = context.topics[key[0]].id if key[0] in context.topics else ZERO_UUID
                topic = topics[key[0]] = UpdateMetadataRequest.TopicState(
                    topic_name=key[0], topic_id=topic_id, partition_states=[]
                )
            if key in self._deleted:
                state = _deleted(state)
            assert state is not None
            topic.partition_states.append(
                UpdateMetadataPartitionState(
                    partition_index=key[1],
                    controller_epoch=state.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    zk_version=state.partition_epoch,
                    replicas=list(assignment.replicas),
                    offline_replicas=[
                        one for one in assignment.replicas if not context.is_reachable(one, key)
                    ],
                )
            )
        return list(topics.values())

    def _update_metadata(
        self,
        member: Member,
        topics: list[UpdateMetadataRequest.TopicState],
        brokers: list[UpdateMetadataRequest.Broker],
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self._context.broker_id,
            controller_epoch=self._context.epoch,
            broker_epoch=member.epoch,
            topic_states=topics,
            live_brokers=brokers,
        )

    def _brokers(self) -> list[UpdateMetadataRequest.Broker]:
        return [
            UpdateMetadataRequest.Broker(
                id=member.id,
                endpoints=[
                    UpdateMetadataRequest.Broker.Endpoint(
                        port=one.port,
                        host=one.host,
                        listener=one.name,
                        security_protocol=one.security_protocol,
                    )
                    for one in member.listeners
                ],
                rack=member.rack,
            )
            for member in self._context.members.values()
        ]

    # StopReplica

    def _stop_replica(self, member: Member, stops: Mapping[Key, Stop]) -> Iterator[Request]:
        for some in _parts(list(stops)):
            topics: dict[str, StopReplicaRequest.TopicState] = {}
            for key in some:
                topic = topics.setdefault(
                    key[0], StopReplicaRequest.TopicState(topic_name=key[0], partition_states=[])
                )
                topic.partition_states.append(
                    StopReplicaRequest.TopicState.PartitionState(
                        partition_index=key[1],
                        leader_epoch=stops[key].leader_epoch,
                        delete_partition=stops[key].is_deleted,
                    )
                )
            yield StopReplicaRequest(
                controller_id=self._context.broker_id,
                controller_epoch=self._context.epoch,
                broker_epoch=member.epoch,
                topic_states=list(topics.values()),
            )


def _deleted(state: PartitionState | None) -> PartitionState:
    """What brokers are told of a partition whose topic is being deleted."""
    if state is None:
        return PartitionState(DELETED_LEADER, EPOCH_OF_DELETION, (), 0)
    return PartitionState(
        DELETED_LEADER,
        state.leader_epoch,
        state.isr,
        state.controller_epoch,
        partition_epoch=state.partition_epoch,
    )


def _parts(keys: Sequence[Key]) -> list[Sequence[Key]]:
    return [keys[start : start + PARTITIONS_MAX] for start in range(0, len(keys), PARTITIONS_MAX)]
