"""What is known of a cluster: brokers, topics, and who leads which partition.

Metadata comes from any broker, and brokers learn of changes at different times. What a slow one says must not
undo what a quick one said: a leader with a lower epoch than the known one is not believed, as long as the
topic is the same (a topic that was deleted and created again has another id, and begins again at epoch 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import NamedTuple

from quorate.client.errors import code_of
from quorate.protocol.api.topics import MetadataResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.values import dataclass

__all__ = ["Broker", "Metadata", "Partition", "Topic", "TopicPartition", "parse_addresses"]

Address = tuple[str, int]


class TopicPartition(NamedTuple):
    """One partition. A plain tuple of name and number will do wherever one is expected."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is alive, at the address that it wants this client to use."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class Partition:
    """Who leads a partition, and who replicates it. Without a leader, `leader` is -1."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. Its id is `ZERO_UUID` if the broker is too old to know it."""

    name: str
    id: Uuid
    partitions: Mapping[int, Partition]
    is_internal: bool = False


@dataclass(slots=True)
class Metadata:
    """The cache: it knows the topics that somebody has asked for, and no others."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    # Why a topic that was asked for is not among them.
    errors: dict[str, ErrorCode] = field(default_factory=dict)
    _names: dict[Uuid, str] = field(default_factory=dict)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def partition(self, at: tuple[str, int]) -> Partition | None:
        topic = self.topics.get(at[0])
        return None if topic is None else topic.partitions.get(at[1])

    def leader(self, at: tuple[str, int]) -> Broker | None:
        """The broker that leads a partition, if there is one and it is known."""
        partition = self.partition(at)
        return None if partition is None else self.brokers.get(partition.leader)

    def learn(self, response: MetadataResponse) -> None:
        """Takes in what a broker says."""
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            one.node_id: Broker(one.node_id, one.host, one.port, one.rack) for one in response.brokers
        }
        for said in response.topics:
            if said.name is None:
                continue  # it was asked for by id, and there is none
            if said.error_code == ErrorCode.NONE:
                self._learn_topic(topic_of(said))
            else:
                self.errors[said.name] = code_of(said.error_code)
                self._forget_topic(said.name)

    def learn_leader(
        self, at: tuple[str, int], leader: int, epoch: int, brokers: Iterable[Broker] = ()
    ) -> bool:
        """Takes in who leads now, in the words of a broker that does not. Whether that is news."""
        for broker in brokers:
            self.brokers[broker.id] = broker
        topic, known = self.topics.get(at[0]), self.partition(at)
        if topic is None or known is None or epoch <= known.leader_epoch or leader not in self.brokers:
            return False
        newer = replace(known, leader=leader, leader_epoch=epoch)
        self.topics[at[0]] = replace(topic, partitions={**topic.partitions, at[1]: newer})
        return True

    def _learn_topic(self, said: Topic) -> None:
        known = self.topics.get(said.name)
        if known is not None and known.id == said.id:
            partitions = {
                index: _newer(known.partitions.get(index), one) for index, one in said.partitions.items()
            }
            said = replace(said, partitions=partitions)
        elif known is not None:
            self._forget_topic(said.name)
        self.topics[said.name] = said
        self.errors.pop(said.name, None)
        if said.id != ZERO_UUID:
            self._names[said.id] = said.name

    def _forget_topic(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            self._names.pop(known.id, None)


def topic_of(said: MetadataResponse.Topic) -> Topic:
    partitions = sorted(said.partitions, key=lambda one: one.partition_index)
    return Topic(
        said.name or "",
        said.topic_id,
        {
            one.partition_index: Partition(
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.offline_replicas),
            )
            for one in partitions
        },
        said.is_internal,
    )


def _newer(known: Partition | None, said: Partition) -> Partition:
    return known if known is not None and known.leader_epoch > said.leader_epoch else said


def parse_addresses(bootstrap: str) -> tuple[Address, ...]:
    """The addresses in a list such as people write it.

    >>> parse_addresses("kafka-1:9092, [::1]:9093")
    (('kafka-1', 9092), ('::1', 9093))
    """
    addresses = []
    for part in filter(None, (one.strip() for one in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"bootstrap address {part!r}: expected host:port, as in localhost:9092")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap address: expected host:port, as in localhost:9092")
    return tuple(addresses)
