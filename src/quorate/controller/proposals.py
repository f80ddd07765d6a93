"""What a leader asks of its controller, and is told: another set of in-sync replicas.

Both control planes are asked with AlterPartition. A leader has proposals and wants answers; what is between
them, the request and its response, is made and read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from quorate.protocol.api.brokers import AlterPartitionRequest, AlterPartitionResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["IsrAnswer", "Proposal", "Proposals", "TopicPartition", "alter_partition", "answers_in"]

_WITH_EPOCHS: Final = 3  # of AlterPartition
_RECOVERED: Final = 0


class TopicPartition(NamedTuple):
    topic: str
    topic_id: Uuid
    partition_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition_id}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR that the controller was asked for."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict, compare=False)
    """With which each follower in it has fetched when this was proposed, if it said so. One that has been
    restarted since, and may have come back with nothing, is not the one that was proposed."""


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What the controller says to a proposal."""

    error: ErrorCode
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1
    is_recovering: bool = False


Proposals = Sequence[tuple[TopicPartition, Proposal]]


def alter_partition(
    proposals: Proposals, broker_id: int, broker_epoch: int, version: int
) -> AlterPartitionRequest:
    """The request that carries proposals of a broker, for a version of it."""
    data = AlterPartitionRequest.TopicData
    topics: dict[Uuid, AlterPartitionRequest.TopicData] = {}
    for key, proposal in proposals:
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = data(topic_name=key.topic, topic_id=key.topic_id, partitions=[])
            topics[key.topic_id] = topic
        partition = data.PartitionData(
            partition_index=key.partition_id,
            leader_epoch=proposal.leader_epoch,
            leader_recovery_state=_RECOVERED,  # whoever leads has recovered whatever it could
            partition_epoch=proposal.partition_epoch,
        )
        if version >= _WITH_EPOCHS:
            epochs = {**proposal.broker_epochs, broker_id: broker_epoch}
            partition.new_isr_with_epochs = [
                data.PartitionData.BrokerState(broker_id=one, broker_epoch=epochs.get(one, -1))
                for one in proposal.isr
            ]
        else:
            partition.new_isr = list(proposal.isr)
        topic.partitions.append(partition)
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def answers_in(response: AlterPartitionResponse, proposals: Proposals) -> dict[TopicPartition, IsrAnswer]:
    """By the keys that were asked for. What is not answered is not in it."""
    asked = {(key.topic_id, key.partition_id): key for key, _ in proposals}
    found = {}
    for topic in response.topics:
        for one in topic.partitions:
            key = asked.get((topic.topic_id, one.partition_index))
            if key is None:
                continue
            try:
                error = ErrorCode(one.error_code)
            except ValueError:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            found[key] = IsrAnswer(
                error,
                tuple(one.isr),
                one.leader_epoch,
                one.partition_epoch,
                is_recovering=one.leader_recovery_state != _RECOVERED,
            )
    return found
