"""Where partitions are: the replica that a request means, or why there is none here; and who leads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from quorate.broker.partition import Partition
from quorate.broker.serving import Broker
from quorate.metadata.topics import Topic
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["LEADER_ERRORS", "Leader", "Leaders", "replica_by_id", "replica_named", "unknown_topic"]

_Made = TypeVar("_Made")

# What a client is told the leader of, in versions that can say it.
LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def replica_named(broker: Broker, topic: str, partition_id: int) -> Partition:
    """Our replica of a partition; `ApiError` if there is no such partition, or if we have none of it."""
    found = broker.replicas.named(topic, partition_id)
    if found is None:
        known = broker.image.topics.by_name.get(topic)
        if known is None:
            raise unknown_topic(topic)
        raise _elsewhere(broker, known, partition_id)
    return found


def replica_by_id(broker: Broker, topic_id: Uuid, partition_id: int) -> Partition:
    """The same, for a topic that is called by its id."""
    found = broker.replicas.of_topic(topic_id, partition_id)
    if found is None:
        known = broker.image.topics.by_id.get(topic_id)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        if broker.replicas.named(known.name, partition_id) is not None:
            # The topic was deleted and made again, and the replica here is still of the old one.
            reason = f"the replica of {known.name}-{partition_id} here is of another topic of that name"
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, reason)
        raise _elsewhere(broker, known, partition_id)
    return found


def unknown_topic(topic: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")


def _elsewhere(broker: Broker, topic: Topic, partition_id: int) -> ApiError:
    if broker.image.partitions.get(topic.slot, partition_id) is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {partition_id}")
    reason = f"broker {broker.settings.broker_id} has no replica of {topic.name}-{partition_id}"
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)


class Leader(NamedTuple):
    """Who leads a partition, -1 for nobody, and since which epoch."""

    broker_id: int
    epoch: int


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Leaders:
    """The leaders that one answer names, and where they listen: clients need not ask for metadata then."""

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._endpoints: dict[int, Endpoint] = {}

    def of(self, topic: str, partition_id: int) -> Leader | None:
        """Who leads, as the metadata has it."""
        image = self._broker.image
        found = image.topics.by_name.get(topic)
        state = None if found is None else image.partitions.get(found.slot, partition_id)
        if state is None:
            return None
        registration = image.brokers.get(state.leader)
        if registration is not None:
            for one in registration.listeners:
                if one.name == self._listener:
                    endpoint = Endpoint(state.leader, one.host, one.port, registration.rack)
                    self._endpoints[state.leader] = endpoint
        return Leader(state.leader, state.leader_epoch)

    def endpoints(self, make: Callable[..., _Made]) -> list[_Made]:
        """Where they are, in the words of the response."""
        return [
            make(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in self._endpoints.values()
        ]
