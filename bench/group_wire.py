"""Members of groups that cost next to nothing: requests made beforehand, on plain sockets.

Whatever is measured of two coordinators is asked of both by these.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bench.broker_wire import CLIENT_ID, HOST, TIMEOUT_S, Wire
from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from quorate.protocol import codec, frame
from quorate.protocol.api import groups as api
from quorate.protocol.api.topics import CreateTopicsRequest, MetadataRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request
from quorate.protocol.types import Uuid

TOPIC = "measured"
HEARTBEAT_VERSION = 4
COMMIT_VERSION = 8
COMMITTED_OFFSET = 4711
JOIN_VERSION, SYNC_VERSION = 9, 5
CONSUMER_VERSION = 1
SESSION_MS = 60_000
REBALANCE_MS = 60_000
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def framed(request: Request, version: int) -> bytes:
    return bytes(frame.encode_request(request, version, 1, CLIENT_ID))


def subscription(user_data: bytes = b"") -> bytes:
    said = ConsumerProtocolSubscription(topics=[TOPIC], user_data=user_data)
    return b"\0\0" + bytes(codec.encode(said, 0))


def assignment(partitions: Sequence[int]) -> bytes:
    one = ConsumerProtocolAssignment.TopicPartition(topic=TOPIC, partitions=list(partitions))
    return b"\0\0" + bytes(codec.encode(ConsumerProtocolAssignment(assigned_partitions=[one]), 0))


def ever_further(commit: bytes) -> Callable[[int], bytes]:
    """A commit of the `COMMITTED_OFFSET` as a function that makes it one of an offset so much further, as
    consumers commit."""
    before, found, after = commit.partition(_OFFSET.pack(COMMITTED_OFFSET))
    assert found
    assert _OFFSET.pack(COMMITTED_OFFSET) not in after
    return lambda further: b"".join((before, _OFFSET.pack(COMMITTED_OFFSET + further), after))


class Crowd:
    """Connections, each with one request under way. Answers are looked at only where that is asked for."""

    def __init__(self, port: int, count: int) -> None:
        self._sockets = [socket.create_connection((HOST, port), TIMEOUT_S) for _ in range(count)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def __len__(self) -> int:
        return len(self._sockets)

    def send(self, at: int, data: bytes) -> None:
        self._sockets[at].sendall(data)

    def receive(self, at: int) -> bytes:
        """One answer, without its size."""
        one = self._sockets[at]
        found = one.recv(65536)
        while len(found) < 4 or len(found) < 4 + _SIZE.unpack_from(found)[0]:
            more = one.recv(1 << 20)
            assert more, "closed by the peer"
            found += more
        return found[4:]

    def ask(self, requests: Sequence[Request], version: int) -> list[Any]:
        """Sends a request on each connection, and then takes the answers, in the same order."""
        for at, request in enumerate(requests):
            self.send(at, framed(request, version))
        return [
            frame.decode_response(request.__key__, version, self.receive(at))[1]
            for at, request in enumerate(requests)
        ]

    def ask_many(self, requests: Sequence[Request], version: int) -> list[Any]:
        """As `ask`, however many there are."""
        found: list[Any] = []
        for first in range(0, len(requests), len(self)):
            found += self.ask(requests[first : first + len(self)], version)
        return found

    def rounds(self, frames: Sequence[bytes], times: int) -> int:
        """So often a frame on every connection, and then all the answers. How many there were."""
        sockets, number = self._sockets, len(frames)
        at = 0
        for _ in range(times):
            for one in sockets:
                one.sendall(frames[at])
                at = at + 1 if at + 1 < number else 0
            for one in sockets:
                one.recv(4096)
        return times * len(sockets)

    def closed_loop(self, frames: Sequence[Callable[[int], bytes]], times: int) -> float:
        """Each connection sends its next request, which differs from the one before it, when it has its
        answer. Seconds for so many of them."""
        poll = select.epoll()
        by_number = {one.fileno(): (one, data) for one, data in zip(self._sockets, frames, strict=True)}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        started = time.perf_counter()
        for one, data in by_number.values():
            one.send(data(0))
        sent, received = len(by_number), 0
        while received < times:
            for number, _ in poll.poll():
                one, data = by_number[number]
                one.recv(4096)
                received += 1
                if sent < times:
                    one.send(data(sent))
                    sent += 1
        took = time.perf_counter() - started
        poll.close()
        return took


def create_topic(port: int, partitions: int, copies: int = 1) -> Uuid:
    """The topic that groups read. Its id."""
    data = CreateTopicsRequest.CreatableTopic
    topic = data(name=TOPIC, num_partitions=partitions, replication_factor=copies, assignments=[], configs=[])
    with Wire(port) as wire:
        answer: Any = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)], allow_auto_topic_creation=False)
        while True:
            found: Any = wire.ask(request, 12)
            known = found.topics[0].partitions
            if len(known) == partitions and all(one.leader_id >= 0 for one in known):
                return found.topics[0].topic_id
            time.sleep(0.05)


def wait_for_coordinators(port: int, groups: Sequence[str]) -> dict[str, int]:
    """The node of each group, once all have one."""
    left, found = list(groups), {}
    deadline = time.monotonic() + 120
    with Wire(port) as wire:
        while left:
            assert time.monotonic() < deadline, f"{len(left)} groups have no coordinator"
            asked = left[:200]
            answer: Any = wire.ask(api.FindCoordinatorRequest(key_type=0, coordinator_keys=asked), 4)
            found.update({one.key: one.node_id for one in answer.coordinators if not one.error_code})
            left = [one for one in left if one not in found]
            if any(one.error_code for one in answer.coordinators):
                time.sleep(0.1)
    return found


# Classic members


@dataclass
class Classic:
    """A member of a classic group."""

    group: str
    id: str = ""
    generation: int = -1
    leads: bool = False

    def join(self, user_data: bytes = b"") -> api.JoinGroupRequest:
        protocol = api.JoinGroupRequest.Protocol(name="range", metadata=subscription(user_data))
        return api.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def joined(self, answer: Any) -> None:
        self.id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id

    def sync(self, parts: dict[str, bytes]) -> api.SyncGroupRequest:
        kind = api.SyncGroupRequest.Assignment
        return api.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[kind(member_id=one, assignment=part) for one, part in parts.items()],
        )

    def heartbeat(self) -> bytes:
        request = api.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=None
        )
        return framed(request, HEARTBEAT_VERSION)

    def commit(self, partition: int, offset: int = COMMITTED_OFFSET) -> bytes:
        topic = api.OffsetCommitRequest.Topic
        at = topic.Partition(partition_index=partition, committed_offset=offset, committed_metadata="")
        request = api.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=None,
            topics=[topic(name=TOPIC, partitions=[at])],
        )
        return framed(request, COMMIT_VERSION)


def until_taken(ask: Callable[[], list[Any]]) -> list[Any]:
    """Asks again as long as coordinators are being loaded."""
    while True:
        answers = ask()
        if not any(one.error_code in _NOT_YET for one in answers):
            return answers
        time.sleep(0.1)


def groups_of_one(crowd: Crowd, count: int, name: str = "single") -> list[Classic]:
    """So many groups with one member each."""
    members = [Classic(f"{name}-{number}") for number in range(count)]
    for one, answer in zip(
        members, until_taken(lambda: crowd.ask_many([m.join() for m in members], JOIN_VERSION)), strict=True
    ):
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
        one.id = answer.member_id
    for one, answer in zip(
        members, crowd.ask_many([one.join() for one in members], JOIN_VERSION), strict=True
    ):
        assert answer.error_code == ErrorCode.NONE, answer
        one.joined(answer)
    requests = [one.sync({one.id: assignment([0])}) for one in members]
    answers = crowd.ask_many(requests, SYNC_VERSION)
    assert all(answer.error_code == ErrorCode.NONE for answer in answers)
    return members


def join_alone(crowd: Crowd, group: str) -> Classic:
    """The one member of a group."""
    one = Classic(group)
    one.id = until_taken(lambda: crowd.ask([one.join()], JOIN_VERSION))[0].member_id
    one.joined(crowd.ask([one.join()], JOIN_VERSION)[0])
    (answer,) = crowd.ask([one.sync({one.id: assignment([0])})], SYNC_VERSION)
    assert answer.error_code == ErrorCode.NONE, answer
    return one


class ClassicGroup:
    """Members of one classic group, each on a connection of its own."""

    def __init__(self, crowd: Crowd, group: str, partitions: int) -> None:
        self._crowd = crowd
        self._partitions = partitions
        self._rounds = 0
        self.members = [Classic(group) for _ in range(len(crowd))]
        requests = [one.join() for one in self.members]
        for one, answer in zip(
            self.members, until_taken(lambda: crowd.ask(requests, JOIN_VERSION)), strict=True
        ):
            one.id = answer.member_id
        # The first begins a generation by itself; otherwise it would depend on chance who is in the first.
        self.members[0].joined(crowd.ask([self.members[0].join()], JOIN_VERSION)[0])

    def rebalance(self) -> float:
        """All join, each with something new to say, and are given their parts. Seconds."""
        crowd, members = self._crowd, self.members
        self._rounds += 1
        user_data = str(self._rounds).encode()
        frames = [framed(one.join(user_data), JOIN_VERSION) for one in members]
        parts = parts_of(self._partitions, len(members))
        began = time.perf_counter()
        for at, data in enumerate(frames):
            crowd.send(at, data)
        for at, one in enumerate(members):
            answer: Any = frame.decode_response(
                api.JoinGroupRequest.__key__, JOIN_VERSION, crowd.receive(at)
            )[1]
            assert answer.error_code == ErrorCode.NONE, answer
            one.joined(answer)
        assert len({one.generation for one in members}) == 1, "not all are in one generation"
        by_member = {one.id: assignment(part) for one, part in zip(members, parts, strict=True)}
        for at, one in enumerate(members):
            crowd.send(at, framed(one.sync(by_member if one.leads else {}), SYNC_VERSION))
        for at in range(len(members)):
            answer = frame.decode_response(api.SyncGroupRequest.__key__, SYNC_VERSION, crowd.receive(at))[1]
            assert answer.error_code == ErrorCode.NONE, answer
        return time.perf_counter() - began


def parts_of(partitions: int, members: int) -> list[list[int]]:
    return [list(range(first, partitions, members)) for first in range(members)]


# Members of consumer groups


@dataclass
class Consumer:
    """A member of a consumer group."""

    group: str
    id: str
    epoch: int = 0
    owned: dict[Uuid, list[int]] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """How many it has."""
        return sum(map(len, self.owned.values()))

    def begin(self) -> None:
        """It has not come yet."""
        self.epoch, self.owned = 0, {}

    def heartbeat(self) -> api.ConsumerGroupHeartbeatRequest:
        kind = api.ConsumerGroupHeartbeatRequest.TopicPartitions
        request = api.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            topic_partitions=[kind(topic_id=at, partitions=some) for at, some in self.owned.items()],
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [TOPIC]
        return request

    def heard(self, answer: Any) -> None:
        if answer.error_code in _NOT_YET:
            return
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {part.topic_id: list(part.partitions) for part in answer.assignment.topic_partitions}


class ConsumerGroup:
    """Members of one consumer group, each on a connection of its own."""

    def __init__(self, crowd: Crowd, group: str, partitions: int) -> None:
        self._crowd = crowd
        self._group = group
        self._partitions = partitions
        self._members = [Consumer(group, f"member-{number:05}") for number in range(len(crowd))]

    def rebalance(self) -> float:
        """All come to an empty group, are given their parts, and leave, which is not counted. Seconds."""
        took = self.settle()
        for one in self._members:
            one.epoch = -1
        self._crowd.ask([one.heartbeat() for one in self._members], CONSUMER_VERSION)
        return took

    def settle(self) -> float:
        """All come, and send heartbeats until everything is somebody's. Seconds."""
        for one in self._members:
            one.begin()
        began = time.perf_counter()
        rounds = 0
        while True:
            self._beat()
            rounds += 1
            owned = sum(one.partitions for one in self._members)
            if owned == self._partitions and len({one.epoch for one in self._members}) == 1:
                break
            assert rounds < 200, f"{owned} partitions are owned"
        return time.perf_counter() - began

    def _beat(self) -> None:
        requests = [one.heartbeat() for one in self._members]
        for one, answer in zip(self._members, self._crowd.ask(requests, CONSUMER_VERSION), strict=True):
            one.heard(answer)

    def heartbeats(self) -> list[bytes]:
        """Of members that are settled, with nothing to say."""
        return [
            framed(
                api.ConsumerGroupHeartbeatRequest(
                    group_id=self._group, member_id=one.id, member_epoch=one.epoch
                ),
                CONSUMER_VERSION,
            )
            for one in self._members
        ]
