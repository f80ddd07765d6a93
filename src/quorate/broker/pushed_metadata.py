"""What an elected controller tells of the cluster, as the same records that a metadata log would have.

Pure. In ZooKeeper mode nobody reads a log: the controller sends every broker who is alive (always all of
them) and what has become of partitions (only those that changed). Translated into records and applied to a
`ClusterImage`, that is the image that everything else on a broker goes by, in either mode.

What a broker has to do itself it is told by other requests: see `pushed_replicas`. The image does not decide
about replicas, because it may come earlier, later, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from quorate.metadata.brokers import BrokerRegistration, Listener
from quorate.metadata.image import ClusterImage
from quorate.metadata.partition import MIGRATING, NO_LEADER
from quorate.metadata.records import (
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from quorate.protocol.api.zookeeper_era import UpdateMetadataPartitionState, UpdateMetadataRequest
from quorate.protocol.message import Record
from quorate.protocol.types import ZERO_UUID, Uuid

__all__ = ["AT_ONCE", "BEING_DELETED", "EPOCH_UNKNOWN", "FULL", "PushedMetadata"]

AT_ONCE: Final = 1_000  # records: others get a turn after so many

BEING_DELETED: Final = -2
"""The leader of a partition whose topic is being deleted: it is to be forgotten."""
EPOCH_UNKNOWN: Final = -1
"""The epoch of a broker, which the controller does not tell."""
FULL: Final = 2
"""The type of a request that leaves nothing out."""

_State = UpdateMetadataPartitionState


class PushedMetadata:
    """Translates one request after the other, for one image, which must have the records applied in between.

    Partitions of a topic are forgotten one by one, but the image knows only of topics that are gone: so it is
    remembered which partitions are, until all of them are.
    """

    def __init__(self) -> None:
        self._forgotten: dict[Uuid, set[int]] = {}

    def records(self, image: ClusterImage, request: UpdateMetadataRequest) -> Iterator[Sequence[Record]]:
        """The records that a request stands for, some at a time: these must have been applied before the next
        are asked for."""
        yield list(_brokers(image, request.live_brokers))
        for topic in request.topic_states:
            yield from self._topic(image, topic)
        if request.type == FULL:
            named = {topic.topic_id for topic in request.topic_states}
            yield [self._removed(one) for one in image.topics.by_id if one not in named]

    def _topic(
        self, image: ClusterImage, topic: UpdateMetadataRequest.TopicState
    ) -> Iterator[Sequence[Record]]:
        if topic.topic_id == ZERO_UUID:
            return  # from before topics had ids, which no controller that we can work with sends
        known = image.topics.by_name.get(topic.topic_name)
        living = [one for one in topic.partition_states if one.leader != BEING_DELETED]
        gone = [one.partition_index for one in topic.partition_states if one.leader == BEING_DELETED]
        if known is not None and known.id != topic.topic_id:
            if not living:
                return  # of an earlier topic of this name, which is gone already
            yield (self._removed(known.id),)
            known = None
        if living and known is None:
            yield (TopicRecord(name=topic.topic_name, topic_id=topic.topic_id),)
        for first in range(0, len(living), AT_ONCE):
            yield [_partition(topic.topic_id, one) for one in living[first : first + AT_ONCE]]
        if gone and (living or known is not None):
            yield list(self._forget(image, topic.topic_id, gone))

    def _forget(self, image: ClusterImage, topic_id: Uuid, gone: Iterable[int]) -> Iterator[Record]:
        forgotten = self._forgotten.setdefault(topic_id, set())
        forgotten.update(gone)
        if all(partition_id in forgotten for partition_id, _ in image.partitions_of(topic_id)):
            yield self._removed(topic_id)

    def _removed(self, topic_id: Uuid) -> Record:
        self._forgotten.pop(topic_id, None)
        return RemoveTopicRecord(topic_id=topic_id)


def _partition(topic_id: Uuid, state: _State) -> PartitionRecord:
    """A replica that is on its way out of the assignment may still be in sync; the image has no place for it,
    and nobody waits for it."""
    replicas = list(state.replicas)
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=replicas,
        isr=[one for one in state.isr if one in replicas],
        removing_replicas=[],
        adding_replicas=[],
        leader=max(state.leader, NO_LEADER),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=[MIGRATING] * len(replicas),
    )


def _brokers(image: ClusterImage, live: Iterable[UpdateMetadataRequest.Broker]) -> Iterator[Record]:
    """Who came, who went, and who is elsewhere now."""
    alive = {one.id: one for one in live}
    for broker_id in [one for one in image.brokers if one not in alive]:
        yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=image.brokers[broker_id].epoch)
    for broker_id, one in alive.items():
        if not _is_as_known(image.brokers.get(broker_id), one):
            yield RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=ZERO_UUID,
                broker_epoch=EPOCH_UNKNOWN,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name=each.listener,
                        host=each.host,
                        port=each.port,
                        security_protocol=each.security_protocol,
                    )
                    for each in one.endpoints
                ],
                features=[],
                rack=one.rack or None,
                fenced=False,
            )


def _is_as_known(known: BrokerRegistration | None, one: UpdateMetadataRequest.Broker) -> bool:
    listeners = tuple(
        Listener(each.listener, each.host, each.port, each.security_protocol) for each in one.endpoints
    )
    return known is not None and known.listeners == listeners and known.rack == (one.rack or None)
