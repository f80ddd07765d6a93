"""A coordinator and consumers that talk to it, for tests that read as conversations.

    groups = Groups()
    a, b = groups.consumer("a"), groups.consumer("b")
    a.joins(); b.joins()              # each asks for an id first, then joins with it, and waits
    groups.passes(3000)               # the clock goes on; whatever is due happens on the way
    a.syncs({a: b"1", b: b"2"})       # the leader assigns
    assert b.syncs().assignment == b"2"

Every record goes through its bytes into a log; every answer is encoded in the version of its request, and
must come exactly once. `fails_over` loads another coordinator from that log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from quorate.coordinator import log_format
from quorate.coordinator.consumer_protocol import ConsumerProtocolSubscription
from quorate.coordinator.effects import Caller, Effects, LogRecord, Moment
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.shard import GroupShard
from quorate.coordinator.topics_view import Topic, Topics
from quorate.protocol import codec
from quorate.protocol.api.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

START_WALL_MS = 1_700_000_000_000
GROUP = "g"
OK = ErrorCode.NONE
TICKS_AT_ONCE_MAX = 5_000
"""So much may be due at one time, with hundreds of members."""
TICKS_PER_SECOND_MAX = 10


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def subscription(*topics: str, version: int = 1) -> bytes:
    """What a consumer says about itself under each of its protocols."""
    said = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + bytes(codec.encode(said, version))


@dataclass(eq=False)
class Reply:
    """The answer to a request, once it is there."""

    version: int
    heard: Callable[[Any], None] = lambda _response: None
    response: Any = None

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def code(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)

    @property
    def assignment(self) -> bytes:
        assert self.code is OK, self.code
        return bytes(self.response.assignment)

    def arrive(self, response: Any) -> None:
        assert self.response is None, f"answered twice: {self.response} and {response}"
        codec.encode(response, self.version)
        self.response = response
        self.heard(response)


@dataclass
class Logged:
    key: bytes
    value: bytes | None
    producer_id: int = -1
    marker: str = ""  # commit or abort, instead of a record


class Groups:
    """The coordinator, its log and its clock."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.log: list[Logged] = []
        self.now_ms = 1000.0
        self.events: list[Any] = []
        self.refuses: ErrorCode | None = None
        """What the log says to the next step that has records."""
        self.commits = True
        """Whether what is appended is committed at once."""
        self._held: list[Effects] = []
        self._tickets = count(1)
        self._ids = count(1)
        self.replies: dict[int, Reply] = {}
        self.shard = self._new_shard()
        self._do(self.shard.loaded(self.moment))
        self.events.clear()

    def consumer(self, client_id: str, **about: Any) -> Consumer:
        return Consumer(self, client_id, **about)

    def started(self, *client_ids: str, **about: Any) -> tuple[Consumer, ...]:
        """Consumers in a stable group, the first one leads. The assignment of each is its client's id."""
        consumers = tuple(self.consumer(client_id, **about) for client_id in client_ids)
        for consumer in consumers:
            consumer.joins()
        self.passes(self.settings.group_initial_rebalance_delay_ms)
        self.passes(self.settings.group_initial_rebalance_delay_ms)
        self.settles(*consumers)
        return consumers

    def settles(self, *consumers: Consumer) -> None:
        """The leader assigns, and the others ask for it."""
        leader = next(one for one in consumers if one.leads)
        leader.syncs({one: one.client_id.encode() for one in consumers})
        for consumer in consumers:
            assert consumer is leader or consumer.syncs().code is OK

    # Time

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, START_WALL_MS + round(self.now_ms))

    def passes(self, ms: float) -> None:
        """The clock goes on, and whatever is due on the way happens at its time.

        However little time members give each other, the coordinator is not woken up all the time.
        """
        until_ms = self.now_ms + ms
        ticks_left = TICKS_AT_ONCE_MAX + ms / 1000 * TICKS_PER_SECOND_MAX
        while self.shard.next_deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, self.shard.next_deadline_ms)
            self._do(self.shard.tick(self.moment))
            ticks_left -= 1
            assert ticks_left > 0, "the coordinator does not rest"
        self.now_ms = until_ms

    # Asking

    def ask(
        self, version: int, step: Callable[[int, Moment], Effects], heard: Callable[[Any], None] | None = None
    ) -> Reply:
        ticket = next(self._tickets)
        reply = self.replies[ticket] = Reply(version) if heard is None else Reply(version, heard)
        self._do(step(ticket, self.moment))
        return reply

    @property
    def waiting(self) -> int:
        return sum(reply.waits for reply in self.replies.values())

    def is_committed(self) -> None:
        """All that was appended is committed now."""
        held, self._held = self._held, []
        for effects in held:
            self._answer(effects)

    def times_out(self) -> None:
        """What was appended is not committed in time."""
        held, self._held = self._held, []
        for effects in held:
            self._do(self.shard.append_refused(effects, ErrorCode.REQUEST_TIMED_OUT, self.moment))

    def _do(self, effects: Effects) -> None:
        self.events += effects.events
        if effects.records and self.refuses is not None:
            code, self.refuses = self.refuses, None
            self._do(self.shard.append_refused(effects, code, self.moment))
            return
        producer_id = -1 if effects.producer is None else effects.producer.id
        for record in effects.records:
            key, value = log_format.encode(record)
            self.log.append(Logged(key, value, producer_id))
            self.shard.apply(record, len(self.log) - 1, producer_id)
        if effects.is_answered_at_once:
            self._answer(effects)
            effects = effects._replace(answers=())
        if not self.commits and (effects.records or (effects.reads_uncommitted and self._held)):
            self._held.append(effects)
        else:
            self._answer(effects)

    def _answer(self, effects: Effects) -> None:
        for answer in effects.answers:
            self.replies[answer.ticket].arrive(answer.response)

    # Another coordinator

    def marks(self, producer_id: int, marker: str) -> None:
        """A transaction ends: `commit` or `abort`."""
        self.log.append(Logged(b"", None, producer_id, marker))
        getattr(self.shard, f"{marker}_transaction")(producer_id)

    def replayed(self) -> GroupShard:
        """What the log alone says."""
        shard = self._new_shard()
        for offset, logged in enumerate(self.log):
            if logged.marker:
                getattr(shard, f"{logged.marker}_transaction")(logged.producer_id)
            else:
                record = log_format.decode(logged.key, logged.value)
                assert record is not None
                shard.apply(record, offset, logged.producer_id)
        return shard

    def fails_over(self) -> None:
        """The partition goes to another broker, which finds only what the log says."""
        self._held.clear()
        self._answer(self.shard.unload())
        self.shard = self.replayed()
        self._do(self.shard.loaded(self.moment))

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: f"id{next(self._ids)}", 7)

    # Looking

    def records(self, since: int = 0) -> list[LogRecord]:
        decoded = [log_format.decode(one.key, one.value) for one in self.log[since:] if not one.marker]
        return [record for record in decoded if record is not None]

    def kinds_of_records(self, since: int = 0) -> list[str]:
        return [
            type(record.key).__name__.removesuffix("Key") + ("" if record.value is not None else " gone")
            for record in self.records(since)
        ]

    def told(self, kind: str) -> list[Any]:
        """The events of a kind, oldest first."""
        return [event for event in self.events if event.kind == kind]

    def described(self, group_id: str = GROUP, version: int = 6) -> Any:
        caller = Caller(version, "admin", "/127.0.0.9")
        (described,) = self.shard.describe(DescribeGroupsRequest(groups=[group_id]), caller)
        return described

    @property
    def state(self) -> str:
        return str(self.described().group_state)

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return self.shard.list_groups(request, Caller(5, "admin", "/127.0.0.9"))

    # Administrators and consumers without a group

    def commits_offset(
        self, offset: int, topic: str = "t", partition: int = 0, group_id: str = GROUP, **more: Any
    ) -> Reply:
        return self.consumer("admin", group_id=group_id).commits(offset, topic, partition, **more)

    def fetched(
        self, topic: str = "t", partition: int = 0, group_id: str = GROUP, *, stable: bool = False
    ) -> tuple[int, ErrorCode]:
        """The offset and the error of one partition."""
        reply = self.fetches({topic: [partition]}, group_id, stable=stable)
        found = reply.response.groups[0].topics[0].partitions[0]
        return found.committed_offset, ErrorCode(found.error_code)

    def fetches(
        self, topics: Mapping[str, list[int]] | None, group_id: str = GROUP, *, stable: bool = False
    ) -> Reply:
        group = OffsetFetchRequest.Group
        wanted = None
        if topics is not None:
            wanted = [
                group.Topics(name=topic, partition_indexes=partitions) for topic, partitions in topics.items()
            ]
        request = OffsetFetchRequest(groups=[group(group_id=group_id, topics=wanted)], require_stable=stable)
        caller = Caller(9, "admin", "/127.0.0.9")
        return self.ask(9, lambda ticket, moment: self.shard.offset_fetch(ticket, request, caller, moment))

    def deletes_offsets(self, topic: str, partitions: Sequence[int], group_id: str = GROUP) -> Reply:
        topics = OffsetDeleteRequest.Topic
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                topics(name=topic, partitions=[topics.Partition(partition_index=one) for one in partitions])
            ],
        )
        caller = Caller(0, "admin", "/127.0.0.9")
        return self.ask(0, lambda ticket, moment: self.shard.offset_delete(ticket, request, caller, moment))

    def deletes(self, *group_ids: str) -> list[ErrorCode]:
        request = DeleteGroupsRequest(groups_names=list(group_ids))
        caller = Caller(2, "admin", "/127.0.0.9")
        reply = self.ask(2, lambda ticket, moment: self.shard.delete_groups(ticket, request, caller, moment))
        return [ErrorCode(result.error_code) for result in reply.response.results]

    def commits_in_transaction(
        self, producer_id: int, offset: int, topic: str = "t", partition: int = 0, **about: Any
    ) -> Reply:
        version = about.pop("version", 5)
        topics = TxnOffsetCommitRequest.Topic
        request = TxnOffsetCommitRequest(
            **{
                "transactional_id": "tx",
                "group_id": GROUP,
                "producer_id": producer_id,
                "producer_epoch": 0,
                "topics": [
                    topics(
                        name=topic,
                        partitions=[
                            topics.Partition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata=about.pop("metadata", ""),
                            )
                        ],
                    )
                ],
                **about,
            }
        )
        caller = Caller(version, "producer", "/127.0.0.9")
        return self.ask(
            version, lambda ticket, moment: self.shard.txn_offset_commit(ticket, request, caller, moment)
        )

    def asks_to_leave(self, request: LeaveGroupRequest, caller: Caller) -> Reply:
        return self.ask(
            caller.version, lambda ticket, moment: self.shard.leave(ticket, request, caller, moment)
        )

    def has_topics(self, **partition_counts: int) -> None:
        """The topics of the cluster, which consumer groups are assigned from."""
        topics = [Topic(topic_id(name), name, number) for name, number in partition_counts.items()]
        self.shard.topics_changed(Topics(topics), partition_counts)

    def hears(self, member_id: str, epoch: int = 0, **about: Any) -> Reply:
        """A heartbeat of the consumer protocol."""
        group_id = about.pop("group_id", GROUP)
        if epoch == 0:
            about = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
            } | about
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **about
        )
        caller = Caller(1, "modern", "/host-of-modern")
        return self.ask(
            1, lambda ticket, moment: self.shard.consumer_group_heartbeat(ticket, request, caller, moment)
        )

    def deletes_topics(self, *names: str) -> None:
        self._do(self.shard.topics_deleted(names, self.moment))


@dataclass(eq=False)
class Consumer:
    """A client that does what clients do, one request at a time and as it is told."""

    groups: Groups
    client_id: str
    group_id: str = GROUP
    instance_id: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    protocol_type: str = "consumer"
    protocols: list[tuple[str, bytes]] = field(default_factory=lambda: [("range", subscription("t"))])
    join_version: int = 9
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocol: str | None = None
    members: list[str] = field(default_factory=list)
    skips_assignment: bool = False

    @property
    def leads(self) -> bool:
        return self.member_id != "" and self.leader == self.member_id

    def caller(self, version: int) -> Caller:
        return Caller(version, self.client_id, f"/host-of-{self.client_id}")

    # Joining

    def joins(self, reason: str | None = None) -> Reply:
        """Joins as clients do: who is told to come with an id comes again."""
        reply = self.asks_to_join(reason)
        if not reply.waits and reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.response.member_id
            reply = self.asks_to_join(reason)
        return reply

    def asks_to_join(self, reason: str | None = None, **changes: Any) -> Reply:
        """Sends one request."""
        request = JoinGroupRequest(
            **{
                "group_id": self.group_id,
                "session_timeout_ms": self.session_ms,
                "rebalance_timeout_ms": self.rebalance_ms,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": self.protocol_type,
                "protocols": [
                    JoinGroupRequest.Protocol(name=name, metadata=metadata)
                    for name, metadata in self.protocols
                ],
                "reason": reason,
                **changes,
            }
        )
        shard, caller = self.groups.shard, self.caller(self.join_version)
        return self.groups.ask(
            self.join_version,
            lambda ticket, moment: shard.join(ticket, request, caller, moment),
            self._hears_join,
        )

    def _hears_join(self, response: Any) -> None:
        if response.error_code == OK:
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.leader = response.leader
            self.protocol = response.protocol_name
            self.members = [member.member_id for member in response.members]
            self.skips_assignment = response.skip_assignment

    def restarts(self) -> Consumer:
        """The same program, started again: it remembers nothing."""
        return Consumer(
            self.groups,
            self.client_id,
            self.group_id,
            self.instance_id,
            self.session_ms,
            self.rebalance_ms,
            self.protocol_type,
            list(self.protocols),
            self.join_version,
        )

    # Afterwards

    def syncs(
        self, assignments: Mapping[Consumer, bytes] | None = None, version: int = 5, **changes: Any
    ) -> Reply:
        request = SyncGroupRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocol,
                "assignments": [
                    SyncGroupRequest.Assignment(member_id=consumer.member_id, assignment=assignment)
                    for consumer, assignment in (assignments or {}).items()
                ],
                **changes,
            }
        )
        shard, caller = self.groups.shard, self.caller(version)
        return self.groups.ask(version, lambda ticket, moment: shard.sync(ticket, request, caller, moment))

    def beats(self, **changes: Any) -> ErrorCode:
        request = HeartbeatRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                **changes,
            }
        )
        shard, caller = self.groups.shard, self.caller(4)
        reply = self.groups.ask(4, lambda ticket, moment: shard.heartbeat(ticket, request, caller, moment))
        return reply.code

    def leaves(self, *others: Consumer, reason: str | None = None, version: int = 5) -> Reply:
        identity = LeaveGroupRequest.MemberIdentity
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            request = LeaveGroupRequest(
                group_id=self.group_id,
                members=[
                    identity(member_id=one.member_id, group_instance_id=one.instance_id, reason=reason)
                    for one in (self, *others)
                ],
            )
        return self.groups.asks_to_leave(request, self.caller(version))

    def commits(
        self,
        offset: int,
        topic: str = "t",
        partition: int = 0,
        *,
        metadata: str | None = "",
        version: int = 9,
        **changes: Any,
    ) -> Reply:
        topics = OffsetCommitRequest.Topic
        request = OffsetCommitRequest(
            **{
                "group_id": self.group_id,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "topics": [
                    topics(
                        name=topic,
                        partitions=[
                            topics.Partition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=4,
                                committed_metadata=metadata,
                            )
                        ],
                    )
                ],
                **changes,
            }
        )
        shard, caller = self.groups.shard, self.caller(version)
        return self.groups.ask(
            version, lambda ticket, moment: shard.offset_commit(ticket, request, caller, moment)
        )


def code_of(reply: Reply) -> ErrorCode:
    """Of the only partition in the answer."""
    (topic,) = reply.response.topics
    (partition,) = topic.partitions
    return ErrorCode(partition.error_code)
