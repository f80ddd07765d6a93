"""A coordinator with one consumer group, and members that talk to it, for tests that read as conversations.

    story = ConsumerStory({"t": 4})
    a, b = story.member("a"), story.member("b")
    assert a.joins("t").has == {"t": {0, 1, 2, 3}}
    b.joins("t")                      # gets nothing yet: a has everything
    assert a.beats().has == {"t": {0, 1}}
    a.gives_back()                    # says what it still has
    assert b.beats().has == {"t": {2, 3}}

A member keeps to the protocol: it knows its epoch and what it was assigned, and says what it has once it has
given something back. Every record goes through its bytes into a log and from there into the group; every
answer is encoded in the version of its request. `fails_over` loads another coordinator from the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from classic_payloads import assigned, subscription_bytes

from quorate.coordinator import log_format
from quorate.coordinator.classic import ClassicGroup
from quorate.coordinator.consumer_group import ConsumerGroup
from quorate.coordinator.consumer_groups import CONSUMER_KEYS, ConsumerGroups
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.effects import Caller, Effects, LogRecord, Moment
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.shard import GroupShard
from quorate.coordinator.topic_matches import Allowance, TopicMatches
from quorate.coordinator.topics_view import Topic, Topics
from quorate.metadata.event import Event
from quorate.protocol import codec
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

GROUP = "g"
OK = ErrorCode.NONE
START_WALL_MS = 1_700_000_000_000
TICKS_AT_ONCE_MAX = 1_000
"""So much may be due at one time."""
TICKS_PER_SECOND_MAX = 10


def topic_id(name: str) -> Uuid:
    return Uuid(hashlib.sha256(name.encode()).digest()[:16])


class ConsumerStory:
    """The coordinator."""

    def __init__(self, topics: Mapping[str, int], **settings: Any) -> None:
        self.settings = GroupSettings(**{"group_consumer_assignment_interval_ms": 0, **settings})
        self.sizes = dict(topics)
        self.topics_version = 1
        self.now_ms = 0.0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.written: list[LogRecord] = []  # by the last step
        self.answered: dict[int, Any] = {}  # by the last step
        self.replies: dict[int, Any] = {}  # by all of them
        self.ticket = 0  # of the last request
        self.events: list[Event] = []
        self.refuses = False  # the log takes nothing
        self.announced: list[bool] | None = None  # while members come of whom nobody is heard yet
        self._tickets = count(1)
        self._ids = count(1)
        self._start()
        self.shard.loaded(self.moment)

    def _start(self) -> None:
        self.resolving: list[str] = []  # groups whose expressions are looked up
        self.matches = TopicMatches()
        self.shard = GroupShard(
            self.settings,
            lambda: f"id-{next(self._ids)}",
            7,
            matches=self.matches,
            resolve_soon=self.resolving.append,
        )
        self.tell_topics()

    # The host

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, START_WALL_MS + int(self.now_ms))

    def carry_out(self, effects: Effects) -> None:
        """Appends, applies, answers."""
        self.events += effects.events
        self.written = list(effects.records)
        if self.refuses and effects.records:
            self.written = []
            effects = self.shard.append_refused(effects, ErrorCode.NOT_ENOUGH_REPLICAS, self.moment)
            assert not effects.records
        for record in effects.records:
            key, value = log_format.encode(record)
            self.log.append((key, value))
            self._apply(key, value, len(self.log) - 1)
        self.answered = {answer.ticket: answer.response for answer in effects.answers}
        assert len(self.answered) == len(effects.answers), "everybody is answered once"
        assert self.answered.keys().isdisjoint(self.replies), "and not again later"
        self.replies |= self.answered

    def _apply(self, key: bytes, value: bytes | None, offset: int) -> None:
        record = log_format.decode(key, value)
        assert record is not None
        self.shard.apply(record, offset)

    def fails_over(self) -> None:
        """Another coordinator takes over, with nothing but the log."""
        self._start()
        for offset, (key, value) in enumerate(self.log):
            self._apply(key, value, offset)
        self.carry_out(self.shard.loaded(self.moment))

    def passes(self, ms: float) -> None:
        """Time goes on; whatever is due happens on the way."""
        while self.resolving:
            self.resolves()
        end = self.now_ms + ms
        ticks_left = TICKS_AT_ONCE_MAX + ms / 1000 * TICKS_PER_SECOND_MAX
        while self.shard.next_deadline_ms <= end:
            self.now_ms = max(self.now_ms, self.shard.next_deadline_ms)
            self.carry_out(self.shard.tick(self.moment))
            ticks_left -= 1
            assert ticks_left > 0, "the coordinator does not rest"
        self.now_ms = end

    def resolves(self, steps: int = 1_000_000) -> None:
        """A part of the expressions of the group is looked up, of so many steps."""
        group_id = self.resolving.pop(0)
        self.carry_out(self.shard.resolve(group_id, Allowance(steps), self.moment))
        if self.shard.is_resolving(group_id):
            self.resolving.append(group_id)

    # The cluster

    def tell_topics(self, *changed: str) -> None:
        racks = getattr(self, "racks", {})
        self.topics = Topics(
            [Topic(topic_id(name), name, size, racks.get(name, ())) for name, size in self.sizes.items()],
            self.topics_version,
        )
        self.matches.topics_changed(self.topics, changed)
        self.shard.topics_changed(self.topics, changed)

    def has_topic(self, name: str, partitions: int) -> None:
        """A topic is created, or grows."""
        if name not in self.sizes:
            self.topics_version += 1
        self.sizes[name] = partitions
        self.tell_topics(name)

    def loses_topic(self, name: str) -> None:
        del self.sizes[name]
        self.tell_topics(name)

    def configures(self, **config: str) -> None:
        self.shard.configure(GROUP, {key.replace("_", "."): value for key, value in config.items()})

    # The group

    @property
    def group(self) -> ConsumerGroup | None:
        return self.shard.consumer_groups.get(GROUP)

    @property
    def classic_group(self) -> ClassicGroup | None:
        return self.shard.classic_groups.get(GROUP)

    @property
    def state(self) -> ConsumerGroupState:
        assert self.group is not None, "there is no consumer group"
        return self.group.state

    def describe(self) -> ConsumerGroupDescribeResponse.DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
        (row,) = self.shard.consumer_group_describe(request, Caller(1, "client", "/10.0.0.1"))
        response = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[row])
        return codec.decode(ConsumerGroupDescribeResponse, 1, codec.encode(response, 1)).groups[0]

    def replayed(self, log: Sequence[tuple[bytes, bytes | None]] | None = None) -> ConsumerGroupState:
        """The state that the log alone leads to."""
        groups = ConsumerGroups()
        for key, value in self.log if log is None else log:
            record = log_format.decode(key, value)
            if record is not None and isinstance(record.key, CONSUMER_KEYS):
                groups.apply(record)
        group = groups.get(GROUP)
        return ConsumerGroupState(GROUP) if group is None else group.state

    def member(self, member_id: str = "", **options: Any) -> Consumer:
        return Consumer(self, member_id, **options)

    def classic(self, name: str, **options: Any) -> ClassicConsumer:
        return ClassicConsumer(self, name, **options)

    # Requests

    def hears(self, caller: Caller, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": "", "member_epoch": 0, **fields}
        )
        sent = codec.decode(type(request), caller.version, codec.encode(request, caller.version))
        if self.announced is not None:
            self.carry_out(self.shard.announce(sent, caller, self.moment))
            self.announced.append(bool(self.written))
            return None
        ticket = self.ticket = next(self._tickets)
        self.carry_out(self.shard.consumer_group_heartbeat(ticket, sent, caller, self.moment))
        return self._answer(ticket, caller.version)

    def join_together(self, joins: Sequence[Callable[[], Consumer]]) -> list[bool]:
        """Several come before any of them is heard. Which of them could be announced."""
        self.announced = found = []
        for join in joins:
            join()
        self.announced = None
        for join in joins:
            join()
        return found

    def asks(self, request: Any, caller: Caller) -> Any:
        """A request of the classic protocol; the answer, or None if it waits."""
        ticket = self.ticket = next(self._tickets)
        ask: Any = {
            JoinGroupRequest: self.shard.join,
            SyncGroupRequest: self.shard.sync,
            HeartbeatRequest: self.shard.heartbeat,
            LeaveGroupRequest: self.shard.leave,
            OffsetCommitRequest: self.shard.offset_commit,
            OffsetFetchRequest: self.shard.offset_fetch,
            TxnOffsetCommitRequest: self.shard.txn_offset_commit,
        }[type(request)]
        self.carry_out(ask(ticket, request, caller, self.moment))
        return self._answer(ticket, caller.version)

    def _answer(self, ticket: int, version: int) -> Any:
        response = self.answered.get(ticket)
        if response is None:
            return None
        return codec.decode(type(response), version, codec.encode(response, version))


class Consumer:
    """A member that speaks the consumer protocol."""

    def __init__(
        self,
        story: ConsumerStory,
        member_id: str,
        *,
        instance: str | None = None,
        rack: str | None = None,
        version: int = 1,
        rebalance_ms: int = 30_000,
        client: str = "client",
    ) -> None:
        self.story = story
        self.id = member_id
        self.instance = instance
        self.rack = rack
        self.rebalance_ms = rebalance_ms
        self.caller = Caller(version, client, "/10.0.0.1")
        self.epoch = 0
        self.held: dict[str, set[int]] = {}
        self.told: dict[str, set[int]] | None = None  # by the last answer
        self.error = OK
        self.message: str | None = None
        self.interval_ms = 0
        self.names: list[str] | None = None
        self.regex: str | None = None

    @property
    def has(self) -> dict[str, set[int]]:
        return {name: set(partitions) for name, partitions in self.held.items() if partitions}

    def sends(self, *, keep: bool = False, **fields: Any) -> Consumer:
        """Any heartbeat; what comes back is taken over, unless the answer is lost on its way (`keep`)."""
        known = {"member_id": self.id, "member_epoch": self.epoch, "instance_id": self.instance}
        response = self.story.hears(self.caller, **{**known, **fields})
        if keep:
            return self
        if response is None:
            self.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return self
        self.error, self.message = ErrorCode(response.error_code), response.error_message
        if self.error is not OK:
            self.told = None
            return self
        self.id, self.epoch = response.member_id, response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        self.told = None
        if response.assignment is not None:
            names = {topic_id(name): name for name in self.story.sizes}
            self.told = {
                names.get(entry.topic_id, str(entry.topic_id)): set(entry.partitions)
                for entry in response.assignment.topic_partitions
            }
            self.held = {name: set(partitions) for name, partitions in self.told.items()}
        return self

    def joins(self, *names: str, regex: str | None = None, **fields: Any) -> Consumer:
        self.epoch, self.held = 0, {}
        self.names, self.regex = list(names), regex
        wanted: dict[str, Any] = {"subscribed_topic_names": list(names) if names or regex is None else None}
        if regex is not None:
            wanted["subscribed_topic_regex"] = regex
        return self.sends(
            rack_id=self.rack, rebalance_timeout_ms=self.rebalance_ms, topic_partitions=[], **wanted, **fields
        )

    def beats(self, **fields: Any) -> Consumer:
        return self.sends(**fields)

    def gives_back(self, **fields: Any) -> Consumer:
        """Says what it has, which is what it was last told to have."""
        return self.sends(topic_partitions=self.listed(self.held), **fields)

    def repeats(self) -> Consumer:
        """A full request, as after an error."""
        wanted: dict[str, Any] = {"subscribed_topic_names": self.names}
        if self.regex is not None:
            wanted["subscribed_topic_regex"] = self.regex
        return self.gives_back(rebalance_timeout_ms=self.rebalance_ms, **wanted)

    def wants(self, *names: str) -> Consumer:
        self.names = list(names)
        return self.sends(subscribed_topic_names=list(names))

    def leaves(self, epoch: int = -1) -> Consumer:
        return self.sends(member_epoch=epoch)

    def listed(self, held: Mapping[str, set[int]]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=topic_id(name), partitions=sorted(partitions)
            )
            for name, partitions in held.items()
        ]


class ClassicConsumer:
    """A member that speaks the classic protocol."""

    def __init__(
        self,
        story: ConsumerStory,
        name: str,
        *,
        instance: str | None = None,
        version: int = 9,
        protocol: str = "range",
        session_ms: int = 45_000,
        rebalance_ms: int = 60_000,
        eager: bool = True,
    ) -> None:
        self.story, self.instance, self.protocol, self.eager = story, instance, protocol, eager
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.caller = Caller(version, name, "/10.0.0.2")
        self.id = ""
        self.generation = -1
        self.names: list[str] = []
        self.held: dict[str, set[int]] = {}
        self.waits = False

    def joins(self, *names: str) -> Any:
        """Joins, with the id that it is given if it has none; the answer, or None if it has to wait."""
        self.names = list(names) or self.names
        response = self.asks_to_join()
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = response.member_id
            response = self.asks_to_join()
        self.waits = response is None
        if response is not None and response.error_code == OK:
            self.id, self.generation = response.member_id, response.generation_id
        return response

    def asks_to_join(self, **fields: Any) -> Any:
        held = {} if self.eager else self.held
        request = JoinGroupRequest(
            **{
                "group_id": GROUP,
                "session_timeout_ms": self.session_ms,
                "rebalance_timeout_ms": self.rebalance_ms,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "protocol_type": "consumer",
                "protocols": [
                    JoinGroupRequest.Protocol(
                        name=self.protocol, metadata=subscription_bytes(self.names, held)
                    )
                ],
                **fields,
            }
        )
        return self.story.asks(request, self.caller)

    def syncs(self, **fields: Any) -> Any:
        request = SyncGroupRequest(
            **{
                "group_id": GROUP,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "protocol_type": "consumer",
                "protocol_name": self.protocol,
                "assignments": [],
                **fields,
            }
        )
        response = self.story.asks(request, Caller(5, self.caller.client_id, self.caller.client_host))
        if response is not None and response.error_code == OK:
            self.held = assigned(response.assignment)
        return response

    def beats(self, **fields: Any) -> ErrorCode:
        request = HeartbeatRequest(
            **{
                "group_id": GROUP,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
                **fields,
            }
        )
        response = self.story.asks(request, Caller(4, self.caller.client_id, self.caller.client_host))
        return ErrorCode(response.error_code)

    def leaves(self) -> list[Any]:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        response = self.story.asks(request, Caller(5, self.caller.client_id, self.caller.client_host))
        answers: list[Any] = response.members
        return answers
