"""What a controller knows: brokers, topics with their assignments, and the state of every partition.

Pure. It mirrors znodes: whoever changes it has written them, or has read them, just before. The state of a
partition and of its replicas is not stored beside that but follows from it:

    partition   NEW      it has no state node yet: nobody was ever elected
                ONLINE   its leader is alive
                OFFLINE  it has none that is
    replica     online if its broker is a member and the disk it is on has not failed

so no state machine can disagree with what it is about. Only a topic that is being deleted has more to
remember (`deletion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.values import dataclass
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import PartitionAssignment, PartitionState, TopicNode

__all__ = ["Context", "Key", "Status", "Topic"]

Key = tuple[str, int]  # topic and partition

NO_LEADER: Final = -1


class Status(Enum):
    """Of a partition. Which may follow which: NEW and OFFLINE become ONLINE by an election, ONLINE becomes
    OFFLINE with its leader, and ONLINE follows ONLINE when the leader changes."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(slots=True)
class Topic:
    """`version` is that of its node."""

    name: str
    id: Uuid
    version: int
    partitions: dict[int, PartitionAssignment] = field(default_factory=dict)

    def node(self) -> TopicNode:
        return TopicNode(None if self.id == ZERO_UUID else self.id, dict(self.partitions))

    def keys(self) -> Iterator[Key]:
        return ((self.name, number) for number in self.partitions)


class Context:
    """Read its attributes; change them by its methods, which keep the indexes."""

    def __init__(self, broker_id: int, epoch: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.members: dict[int, Member] = {}
        self.shutting_down: set[int] = set()
        self.failed_replicas: dict[int, set[Key]] = {}  # on disks that failed, by broker
        self.topics: dict[str, Topic] = {}
        self.names: dict[Uuid, str] = {}
        self.states: dict[Key, PartitionState] = {}
        self.moving: set[Key] = set()  # being reassigned
        self._hosted: dict[int, dict[Key, None]] = {}  # by broker, in the order that they were heard of

    # Brokers

    def is_registered(self, broker_id: int) -> bool:
        return broker_id in self.members

    def is_live(self, broker_id: int) -> bool:
        """Whether it may be given something to lead."""
        return broker_id in self.members and broker_id not in self.shutting_down

    def has_failed(self, broker_id: int, key: Key) -> bool:
        """Whether its replica is on a disk that failed."""
        return key in self.failed_replicas.get(broker_id, ())

    def is_online(self, broker_id: int, key: Key) -> bool:
        return self.is_live(broker_id) and not self.has_failed(broker_id, key)

    def is_reachable(self, broker_id: int, key: Key) -> bool:
        """The same for one that is shutting down: it still serves, but is given nothing more."""
        return broker_id in self.members and not self.has_failed(broker_id, key)

    def put_members(self, members: Mapping[int, Member]) -> None:
        self.members = dict(members)
        self.shutting_down &= self.members.keys()

    # Topics

    def put_topic(self, name: str, node: TopicNode, version: int) -> Topic:
        """A topic as its node describes it."""
        topic_id = ZERO_UUID if node.topic_id is None else node.topic_id
        before = self.topics.get(name)
        if before is not None and before.id not in (ZERO_UUID, topic_id):
            self.remove_topic(name)  # deleted, and another made with its name, between two looks
            before = None
        topic = Topic(name, topic_id, version)
        if before is not None:
            topic.partitions = before.partitions
            self.names.pop(before.id, None)
        self.topics[name] = topic
        if topic_id != ZERO_UUID:
            self.names[topic_id] = name
        for number, assignment in node.partitions.items():
            self.assign((name, number), assignment)
        return topic

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self.names.pop(topic.id, None)
        for number, assignment in topic.partitions.items():
            key = name, number
            self.states.pop(key, None)
            self.moving.discard(key)
            for broker_id in assignment.replicas:
                self._hosted.get(broker_id, {}).pop(key, None)
        for failed in self.failed_replicas.values():
            failed -= {key for key in failed if key[0] == name}

    def assign(self, key: Key, assignment: PartitionAssignment) -> None:
        topic = self.topics[key[0]]
        before = topic.partitions.get(key[1])
        topic.partitions[key[1]] = assignment
        if before is not None:
            for broker_id in before.replicas:
                if broker_id not in assignment.replicas:
                    self._hosted.get(broker_id, {}).pop(key, None)
        for broker_id in assignment.replicas:
            self._hosted.setdefault(broker_id, {})[key] = None
        if assignment.is_reassigning:
            self.moving.add(key)
        else:
            self.moving.discard(key)

    def assignment(self, key: Key) -> PartitionAssignment | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def keys(self) -> Iterator[Key]:
        """All partitions."""
        for topic in self.topics.values():
            yield from topic.keys()

    def hosted_by(self, broker_id: int) -> Sequence[Key]:
        """The partitions with a replica on a broker."""
        return list(self._hosted.get(broker_id, ()))

    def hosts(self) -> list[int]:
        """The brokers that have a replica of anything, registered or not."""
        return sorted(one for one, keys in self._hosted.items() if keys)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    # Partitions

    def status(self, key: Key) -> Status:
        state = self.states.get(key)
        if state is None:
            return Status.NEW
        return Status.ONLINE if self.is_reachable(state.leader, key) else Status.OFFLINE

    def leaderless(self, keys: Iterable[Key]) -> list[Key]:
        """Those that an election would help."""
        return [key for key in keys if self.status(key) is not Status.ONLINE]

    def preferred_imbalance(self, broker_id: int) -> list[Key]:
        """The partitions that a broker should lead, being their first replica, and does not."""
        return [
            key
            for key in self.hosted_by(broker_id)
            if (assignment := self.assignment(key)) is not None
            and assignment.replicas[0] == broker_id
            and (state := self.states.get(key)) is not None
            and state.leader != broker_id
        ]

    def preferred_count(self, broker_id: int) -> int:
        return sum(
            1
            for key in self.hosted_by(broker_id)
            if (assignment := self.assignment(key)) is not None and assignment.replicas[0] == broker_id
        )
