"""Conversations of consumers with a coordinator over real connections, noted so that two can be compared.

What each of them heard is noted in plain values, for each by itself: who is answered first when two wait is
chance. Member ids are random, so they are replaced by the names of those who got them. Whoever waits for an
answer waits in a task; `until` waits for the group to be in a state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quorate.coordinator.consumer_protocol import ConsumerProtocolSubscription
from quorate.net.client import Connection
from quorate.protocol import codec
from quorate.protocol.api import groups as api
from quorate.protocol.errors import ErrorCode

ANSWER_MS = 20_000
NOBODYS, NEW = "nobody's", "new"  # groups that nobody is in, and that nobody gets into
Talk = Callable[["Table"], Awaitable[None]]


def subscription(*topics: str) -> bytes:
    return b"\0\1" + bytes(codec.encode(ConsumerProtocolSubscription(topics=list(topics)), 1))


class Table:
    """Where a group and its coordinator talk."""

    def __init__(self, host: str, port: int, group_id: str) -> None:
        self._host, self._port = host, port
        self.group_id = group_id
        self._notes: dict[str, list[Any]] = {}
        self._ids: dict[str, str] = {}
        self._connections: list[Connection] = []
        self._admin: Connection | None = None

    async def connect(self, client_id: str = "c") -> Connection:
        made = await Connection.connect(self._host, self._port, timeout_ms=ANSWER_MS, client_id=client_id)
        self._connections.append(made)
        return made

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    def knows(self, name: str, member_id: str) -> None:
        """Somebody was given an id."""
        self._ids.setdefault(member_id, f"{name} {sum(one.startswith(name) for one in self._ids.values())}")

    def note(self, *what: Any, who: str = "") -> None:
        self._notes.setdefault(who, []).append(what)

    @property
    def heard(self) -> list[str]:
        """What was heard, a line for each answer."""
        return [f"{who}: {self._plain(what)}" for who, notes in sorted(self._notes.items()) for what in notes]

    def _plain(self, what: Any) -> Any:
        if isinstance(what, str):
            return self._ids.get(what, what)
        if isinstance(what, tuple):
            return tuple(map(self._plain, what))
        return sorted(map(self._plain, what), key=repr) if isinstance(what, list) else what

    async def ask(self, request: Any, version: int) -> Any:
        """Asks as an administrator; while there is no coordinator yet, again."""
        if self._admin is None:
            self._admin = await self.connect("admin")
        while True:
            answer = await self._admin.request(request, version, timeout_ms=ANSWER_MS)
            if getattr(answer, "error_code", 0) not in (14, 15, 16):
                return answer
            await asyncio.sleep(0.05)

    async def describe(self, group_id: str | None = None) -> Any:
        wanted = self.group_id if group_id is None else group_id
        return (await self.ask(api.DescribeGroupsRequest(groups=[wanted]), 5)).groups[0]

    async def until(self, state: str) -> None:
        async with asyncio.timeout(ANSWER_MS / 1000):
            while (await self.describe()).group_state != state:
                await asyncio.sleep(0.02)

    async def begin(self) -> None:
        """All coordinators that will be asked are there: before that nothing can be compared."""
        async with asyncio.timeout(60):
            for group_id in (self.group_id, NOBODYS, NEW):
                request = api.FindCoordinatorRequest(coordinator_keys=[group_id], key_type=0)
                while (await self.ask(request, 4)).coordinators[0].error_code:
                    await asyncio.sleep(0.1)
                while (await self.describe(group_id)).error_code:
                    await asyncio.sleep(0.1)

    async def member(self, name: str, **about: Any) -> Member:
        return Member(self, name, await self.connect(name), **about)


class Member:
    """A consumer with a connection of its own."""

    def __init__(
        self,
        table: Table,
        name: str,
        connection: Connection,
        *,
        instance_id: str | None = None,
        version: int = 9,
        protocols: list[tuple[str, bytes]] | None = None,
    ) -> None:
        self.table = table
        self.name = name
        self._connection = connection
        self.instance_id = instance_id
        self.version = version
        self.protocols = protocols or [("range", subscription("t"))]
        self.member_id = ""
        self.generation = -1

    def _note(self, *what: Any) -> None:
        self.table.note(*what, who=self.name)

    async def ask(self, request: Any, version: int) -> Any:
        return await self._connection.request(request, version, timeout_ms=ANSWER_MS)

    async def asks_to_join(self, **changes: Any) -> Any:
        request = api.JoinGroupRequest(
            **{
                "group_id": self.table.group_id,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 30_000,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocols": [
                    api.JoinGroupRequest.Protocol(name=name, metadata=metadata)
                    for name, metadata in self.protocols
                ],
            }
            | changes
        )
        answer = await self.ask(request, self.version)
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = answer.member_id
            self.table.knows(self.name, answer.member_id)
        if answer.error_code == ErrorCode.NONE:
            self.generation = answer.generation_id
        self._note(
            "joined",
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader,
            answer.member_id,
            answer.skip_assignment,
            [(one.member_id, one.group_instance_id, bytes(one.metadata)) for one in answer.members],
        )
        return answer

    async def joins(self) -> Any:
        answer = await self.asks_to_join()
        return await self.asks_to_join() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else answer

    async def syncs(self, assignments: dict[Member, bytes] | None = None, **changes: Any) -> Any:
        version = changes.pop("version", 5)
        request = api.SyncGroupRequest(
            **{
                "group_id": self.table.group_id,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocol_name": self.protocols[0][0],
                "assignments": [
                    api.SyncGroupRequest.Assignment(member_id=one.member_id, assignment=assignment)
                    for one, assignment in (assignments or {}).items()
                ],
            }
            | changes
        )
        answer = await self.ask(request, version)
        self._note("synced", answer.error_code, answer.protocol_name, bytes(answer.assignment))
        return answer

    async def beats(self, **changes: Any) -> None:
        request = api.HeartbeatRequest(
            **{
                "group_id": self.table.group_id,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
            }
            | changes
        )
        self._note("heartbeat", (await self.ask(request, 4)).error_code)

    async def leaves(self, *others: Any, version: int = 5, group_id: str | None = None) -> None:
        identity = api.LeaveGroupRequest.MemberIdentity
        group_id = self.table.group_id if group_id is None else group_id
        if version < 3:
            request = api.LeaveGroupRequest(group_id=group_id, member_id=self.member_id)
        else:
            request = api.LeaveGroupRequest(
                group_id=group_id,
                members=[
                    identity(member_id=one.member_id, group_instance_id=one.instance_id)
                    for one in (self, *others)
                ],
            )
        answer = await self.ask(request, version)
        self._note("left", answer.error_code, [one.error_code for one in answer.members])

    async def commits(self, offset: int, topic: str = "t", **changes: Any) -> None:
        version = changes.pop("version", 9)
        metadata = changes.pop("metadata", "")
        topics = api.OffsetCommitRequest.Topic
        request = api.OffsetCommitRequest(
            **{
                "group_id": self.table.group_id,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "topics": [
                    topics(
                        name=topic,
                        partitions=[
                            topics.Partition(
                                partition_index=0, committed_offset=offset, committed_metadata=metadata
                            )
                        ],
                    )
                ],
            }
            | changes
        )
        answer = await self.ask(request, version)
        self._note("committed", answer.topics[0].partitions[0].error_code)


# The conversations


async def two_members_start(table: Table) -> None:
    a, b = await table.member("a"), await table.member("b")
    await a.joins()
    await a.beats()
    await a.commits(1)
    await a.syncs({a: b"all"})
    await a.beats()
    await a.commits(1)
    joining = asyncio.create_task(b.joins())
    await table.until("PreparingRebalance")
    await a.beats()
    await a.syncs()
    await a.commits(2)
    await a.joins()
    await joining
    await b.beats()
    await b.commits(3)
    described = await table.describe()
    table.note(described.group_state, described.protocol_data, len(described.members))
    syncing = asyncio.create_task(b.syncs())
    await a.syncs({a: b"1", b: b"2"})
    await syncing
    await b.joins()
    described = await table.describe()
    table.note(
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        sorted((one.client_id, one.client_host, bytes(one.member_assignment)) for one in described.members),
    )


async def stable(table: Table, **about: Any) -> tuple[Member, Member]:
    """Two members of a stable group; the first one leads, if anybody can choose."""
    a, b = await table.member("a", **about), await table.member("b", **(about | {"instance_id": None}))
    await a.joins()
    await a.syncs({a: b"all"})
    joining = asyncio.create_task(b.joins())
    await table.until("PreparingRebalance")
    await a.joins()
    await joining
    syncing = asyncio.create_task(b.syncs())
    await a.syncs({a: b"1", b: b"2"})
    await syncing
    return a, b


async def who_speaks(table: Table) -> None:
    a, _b = await stable(table, instance_id="i")
    for changes in (
        {"generation_id": 9},
        {"member_id": "x", "group_instance_id": None},
        {"member_id": "x"},
        {"group_instance_id": "x"},
        {"group_id": NOBODYS},
        {"group_id": ""},
    ):
        table.note(sorted(changes))
        await a.beats(**changes)
        await a.syncs(**changes)
    for protocol in ({"protocol_name": "x"}, {"protocol_type": "x"}, {"protocol_name": None}):
        await a.syncs(**protocol)
    await a.syncs(version=4)
    for commit in (
        {"generation_id_or_member_epoch": 9},
        {"generation_id_or_member_epoch": -1},
        {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
        {"member_id": "x"},
        {"member_id": "x", "group_instance_id": None},
        {"metadata": "x" * 4096},
        {"metadata": "x" * 4097},
        {"group_id": NOBODYS},
        {"group_id": NOBODYS, "version": 8},
    ):
        await a.commits(5, **commit)


async def who_may_join(table: Table) -> None:
    a, _b = await stable(table)
    c = await table.member("c")
    for changes in (
        {"session_timeout_ms": 5_999},
        {"session_timeout_ms": 1_800_001},
        {"group_id": ""},
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [api.JoinGroupRequest.Protocol(name="other", metadata=b"")]},
        {"member_id": "x"},
        {"member_id": "x", "group_id": NOBODYS},
        {"member_id": a.member_id, "group_instance_id": "x"},
        {"protocol_type": "", "group_id": NEW},
    ):
        await c.asks_to_join(**changes)
    c.version = 4
    await c.asks_to_join(member_id="x")


async def an_id_is_given_back(table: Table) -> None:
    a, _b = await stable(table)
    c = await table.member("c")
    await c.asks_to_join()
    await c.beats()
    await c.leaves()
    table.note((await table.describe()).group_state)
    await c.asks_to_join()
    await a.beats()


async def static_members(table: Table) -> None:
    for version in (5, 9):
        a, b = await stable(table, instance_id=f"i{version}", version=version)
        again = await table.member("again", instance_id=f"i{version}", version=version)
        await again.asks_to_join()
        await again.syncs()
        await a.beats()
        await a.syncs()
        await a.commits(1)
        await a.asks_to_join()
        await a.leaves()
        await again.beats()
        await b.beats()
        described = await table.describe()
        table.note(described.group_state, len(described.members))
        other = await table.member(
            "other", instance_id=f"i{version}", version=version, protocols=[("range", subscription("u"))]
        )
        await other.asks_to_join()
        described = await table.describe()
        table.note(
            described.group_state,
            [
                (one.client_id, one.group_instance_id, one.member_id, bytes(one.member_metadata))
                for one in described.members
            ],
        )
        by_name = await table.member("admin", instance_id=f"i{version}")
        await by_name.leaves()
        await other.beats()
        await b.leaves()
        await table.until("Empty")


async def static_members_of_a_group_that_rebalances(table: Table) -> None:
    a, b = await stable(table, instance_id="i")
    joining = asyncio.create_task(a.asks_to_join())
    await table.until("PreparingRebalance")
    described = await table.describe()
    table.note(
        described.protocol_data,
        [
            (one.client_id, bytes(one.member_metadata), bytes(one.member_assignment))
            for one in described.members
        ],
    )
    again = await table.member("again", instance_id="i")
    rejoining = asyncio.create_task(again.asks_to_join())
    await joining
    await b.beats()
    await b.joins()
    await rejoining
    syncing = asyncio.create_task(b.syncs())
    third = await table.member("third", instance_id="i")
    rejoining = asyncio.create_task(third.asks_to_join())
    await syncing
    await again.syncs({b: b"too late"})
    await again.beats()
    await b.joins()
    await rejoining


async def joining_again(table: Table) -> None:
    a, b = await stable(table)
    await b.asks_to_join()
    b.protocols = [("range", subscription("t", "u"))]
    joining = asyncio.create_task(b.asks_to_join())
    await table.until("PreparingRebalance")
    await a.joins()
    await joining
    await a.asks_to_join()
    await b.asks_to_join()
    await a.syncs({a: b"only mine"})
    await b.syncs()
    await a.syncs({a: b"once more", b: b"late"})
    joining = asyncio.create_task(a.asks_to_join())
    await table.until("PreparingRebalance")
    await b.beats()
    await b.joins()
    await joining
    syncing = asyncio.create_task(b.syncs({a: b"not yours", b: b"to give"}))
    a.protocols = [("range", b"other")]
    joining = asyncio.create_task(a.asks_to_join())
    await syncing
    await b.joins()
    await joining


async def members_that_do_not_ask_for_ids(table: Table) -> None:
    for version in (0, 1, 2, 3):
        a = await table.member(f"v{version}", version=version)
        await a.asks_to_join()
        await a.syncs({a: b"all"}, version=0)
        await a.beats()
        await a.leaves(version=0)


async def workers(table: Table) -> None:
    a = await table.member("a")
    await a.asks_to_join(protocol_type="connect")
    await a.asks_to_join(protocol_type="connect")
    await a.syncs({a: b"all"}, protocol_type="connect")
    await a.commits(3)
    partition = api.OffsetDeleteRequest.Topic.Partition(partition_index=0)
    topics = [api.OffsetDeleteRequest.Topic(name="t", partitions=[partition])]
    request = api.OffsetDeleteRequest(group_id=table.group_id, topics=topics)
    table.note((await table.ask(request, 0)).error_code)
    await a.leaves()
    table.note((await table.ask(request, 0)).error_code)
    alone = await table.member("alone")
    await alone.commits(4)
    request = api.DeleteGroupsRequest(groups_names=[table.group_id])
    table.note([one.error_code for one in (await table.ask(request, 2)).results])
    table.note((await table.describe()).group_state)
    await alone.commits(4)
    table.note((await table.describe()).group_state)


async def leaving(table: Table) -> None:
    a, b = await stable(table)
    stranger = await table.member("x")
    stranger.member_id = "stranger"
    await stranger.leaves(version=2)
    await stranger.leaves()
    await stranger.leaves(version=2, group_id=NOBODYS)
    await stranger.leaves(version=3, group_id=NOBODYS)
    await b.leaves(stranger)
    await a.beats()
    await a.joins()
    await a.leaves(version=2)
    described = await table.describe()
    table.note(described.group_state, described.protocol_type, described.members)
    await a.joins()
    a.member_id = ""
    await a.joins()


async def offsets(table: Table) -> None:
    alone = await table.member("alone")
    await alone.commits(5)
    await alone.commits(6, "t", generation_id_or_member_epoch=3, member_id="x")
    for version in (2, 7, 8, 9):
        if version < 8:
            named = [api.OffsetFetchRequest.Topic(name="t", partition_indexes=[0, 1])]
            request = api.OffsetFetchRequest(group_id=table.group_id, topics=named)
            topics = (await table.ask(request, version)).topics
        else:
            group = api.OffsetFetchRequest.Group(group_id=table.group_id, topics=None)
            topics = (await table.ask(api.OffsetFetchRequest(groups=[group]), version)).groups[0].topics
        table.note(
            [
                (topic.name, one.partition_index, one.committed_offset, one.metadata, one.error_code)
                for topic in topics
                for one in topic.partitions
            ]
        )
    group = api.OffsetFetchRequest.Group(group_id=NOBODYS, topics=None)
    answer = (await table.ask(api.OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
    table.note(answer.error_code, answer.topics)
    a, _b = await stable(table)
    await a.commits(7)
    for topic, group_id in (("t", table.group_id), ("t", NOBODYS)):
        request = api.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                api.OffsetDeleteRequest.Topic(
                    name=topic,
                    partitions=[api.OffsetDeleteRequest.Topic.Partition(partition_index=0)],
                )
            ],
        )
        answer = await table.ask(request, 0)
        table.note(answer.error_code, [one.error_code for topic in answer.topics for one in topic.partitions])
    request = api.DeleteGroupsRequest(groups_names=[table.group_id, NOBODYS])
    answer = await table.ask(request, 2)
    table.note(sorted(one.error_code for one in answer.results))


async def administration(table: Table) -> None:
    await stable(table)
    for version in (5, 6):
        answer = (await table.ask(api.DescribeGroupsRequest(groups=[NOBODYS]), version)).groups[0]
        table.note(answer.error_code, answer.group_state, answer.protocol_type, answer.error_message)
    for states, types in (
        ([], []),
        (["stable"], []),
        (["Empty"], []),
        (["Stable"], ["Classic"]),
        ([], ["consumer"]),
    ):
        answer = await table.ask(api.ListGroupsRequest(states_filter=states, types_filter=types), 5)
        table.note(
            answer.error_code,
            [
                (one.protocol_type, one.group_state, one.group_type)
                for one in answer.groups
                if one.group_id == table.group_id
            ],
        )


TALKS: dict[str, Talk] = {
    talk.__name__: talk
    for talk in (
        two_members_start,
        who_speaks,
        who_may_join,
        an_id_is_given_back,
        static_members,
        static_members_of_a_group_that_rebalances,
        joining_again,
        members_that_do_not_ask_for_ids,
        workers,
        leaving,
        offsets,
        administration,
    )
}
