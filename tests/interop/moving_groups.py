"""Groups that a coordinator of one make begins, and one of another make goes on with.

A story has two parts. It begins with one coordinator; then the log moves, and it goes on with another, with
the same members on new connections. They must hear what they would have heard if nothing had moved.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from consumer_talks import ConsumerTable, NewMember
from group_talks import ANSWER_MS, Member, stable, subscription

from quorate.protocol.api import groups as api
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Struct

TOPICS = {"t": 4, "u": 2}

Who = Member | NewMember
Placed = Mapping[tuple[str, int], tuple[int, int, str | None]]  # offset, leader epoch and metadata by place


async def commit(table: ConsumerTable, places: Placed, who: Who | None = None) -> None:
    """Stores offsets, as a member or as nobody."""
    topic = api.OffsetCommitRequest.Topic
    made = [
        topic(
            name=name,
            partitions=[
                topic.Partition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            ],
        )
        for (name, partition), (offset, leader_epoch, metadata) in places.items()
    ]
    request = api.OffsetCommitRequest(group_id=table.group_id, topics=made)
    if who is not None:
        request.member_id, request.group_instance_id = who.member_id, who.instance_id
        request.generation_id_or_member_epoch = who.generation if isinstance(who, Member) else who.epoch
    answer = await table.ask(request, 9)
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    table.note("committed", *codes, who="" if who is None else who.name)


# Members of classic groups


async def two_begin(table: ConsumerTable) -> list[Who]:
    a, b = await stable(table, instance_id="i", protocols=[("range", subscription("t")), ("sticky", b"\0")])
    await commit(table, {("t", 0): (5, 3, "by a"), ("t", 1): (0, -1, "")}, a)
    await commit(table, {("t", 2): (1 << 40, 0, "by b: \u00e9\U0001f600"), ("u", 1): (7, 7, None)}, b)
    return [a, b]


async def two_go_on(table: ConsumerTable, a: Member, b: Member) -> None:
    await a.beats()
    await b.beats()
    await b.beats(generation_id=1)
    await commit(table, {("t", 0): (6, 4, "still by a")}, a)
    await commit(table, {("t", 3): (8, 4, "")}, b)
    await b.leaves()
    await a.beats()
    await a.joins()
    await a.syncs({a: b"all"})


async def a_worker_begins(table: ConsumerTable) -> list[Who]:
    """Of a kind of group that only its members understand."""
    about = {
        "protocol_type": "connect",
        "protocols": [api.JoinGroupRequest.Protocol(name="v1", metadata=b"m")],
    }
    a = await table.member("a")
    await a.asks_to_join(**about)
    await a.asks_to_join(**about)
    await a.syncs({a: b"tasks"}, protocol_type="connect", protocol_name="v1")
    return [a]


async def a_worker_goes_on(_: ConsumerTable, a: Member) -> None:
    await a.beats()
    await a.syncs(protocol_type="connect", protocol_name="v1")


async def all_left(table: ConsumerTable) -> list[Who]:
    a = await table.member("a")
    await a.joins()
    await a.syncs({a: b"all"})
    await commit(table, {("t", 0): (3, 1, "")}, a)
    await a.leaves()
    return [a]


async def one_comes_back(_: ConsumerTable, a: Member) -> None:
    await a.beats()
    a.member_id = ""
    await a.joins()
    await a.syncs({a: b"all"})


# Members of consumer groups


async def consumers_begin(table: ConsumerTable) -> list[Who]:
    a, b = await table.consumer("a"), await table.consumer("b", instance_id="i")
    await a.joins("t", "u", rack_id="r", server_assignor="range")
    await b.joins("t", "u")
    await a.sends()
    await a.gives_back()
    await b.sends()
    await commit(table, {("t", 0): (5, 3, "by a")}, a)
    await commit(table, {("u", 1): (6, 3, "by b")}, b)
    return [a, b]


async def consumers_go_on(table: ConsumerTable, a: NewMember, b: NewMember) -> None:
    await a.sends()
    await b.sends()
    await commit(table, {("t", 0): (7, 4, "still by a")}, a)
    await b.sends(member_epoch=-1)
    await a.sends()


async def a_handover_begins(table: ConsumerTable) -> list[Who]:
    """One has been told to give something back, and has not done it yet; the other waits for it."""
    a, b = await table.consumer("a"), await table.consumer("b")
    await a.joins()
    await b.joins()
    await a.sends()
    return [a, b]


async def a_handover_goes_on(_: ConsumerTable, a: NewMember, b: NewMember) -> None:
    await b.sends()
    await a.gives_back()
    await b.sends()


async def an_expression_begins(table: ConsumerTable) -> list[Who]:
    a = await table.consumer("a")
    await a.joins(subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    async with asyncio.timeout(ANSWER_MS / 1000):
        while not a.held:  # it is looked up in the background
            await a.sends()
    return [a]


async def an_expression_goes_on(_: ConsumerTable, a: NewMember) -> None:
    await a.sends()


async def both_kinds_begin(table: ConsumerTable) -> list[Who]:
    new, old = await table.consumer("new"), await table.member("old")
    await new.joins()
    await old.joins()
    await old.syncs()
    await new.sends()
    await new.gives_back()
    await old.joins()
    await old.syncs()
    await commit(table, {("t", 3): (9, 9, "by the classic one")}, old)
    return [new, old]


async def both_kinds_go_on(table: ConsumerTable, new: NewMember, old: Member) -> None:
    await new.sends()
    await old.beats()
    await old.syncs()
    await commit(table, {("t", 3): (10, 9, "")}, old)


# Groups without members


async def offsets_alone_begin(table: ConsumerTable) -> list[Who]:
    await commit(table, {("t", 0): (1, 0, "x" * 4096), ("t", 1): (2, -1, ""), ("u", 0): (3, 12, None)})
    await commit(table, {("t", 1): (4, 1, "newer"), ("t", 2): (5, 1, "forgotten")})
    topic = api.OffsetDeleteRequest.Topic
    forgotten = [topic(name="t", partitions=[topic.Partition(partition_index=2)])]
    answer = await table.ask(api.OffsetDeleteRequest(group_id=table.group_id, topics=forgotten), 0)
    assert answer.error_code == ErrorCode.NONE
    return []


async def offsets_alone_go_on(table: ConsumerTable) -> None:
    await commit(table, {("t", 2): (6, 2, ""), ("u", 0): (7, 13, "")})


async def a_deleted_group(table: ConsumerTable) -> list[Who]:
    await all_left(table)
    await _delete(table)
    return []


async def a_deleted_consumer_group(table: ConsumerTable) -> list[Who]:
    a = await table.consumer("a")
    await a.joins("t", "u")
    await commit(table, {("t", 0): (5, 3, "by a")}, a)
    await a.sends(member_epoch=-1)
    await _delete(table)
    return []


async def _delete(table: ConsumerTable) -> None:
    answer = await table.ask(api.DeleteGroupsRequest(groups_names=[table.group_id]), 2)
    assert [one.error_code for one in answer.results] == [ErrorCode.NONE]


async def it_begins_anew(table: ConsumerTable) -> None:
    a = await table.member("a")
    await a.joins()
    await a.syncs({a: b"all"})


class Story(NamedTuple):
    begins: Callable[[ConsumerTable], Awaitable[list[Who]]]
    goes_on: Callable[..., Awaitable[None]]


STORIES = {
    "two": Story(two_begin, two_go_on),
    "worker": Story(a_worker_begins, a_worker_goes_on),
    "left": Story(all_left, one_comes_back),
    "consumers": Story(consumers_begin, consumers_go_on),
    "handover": Story(a_handover_begins, a_handover_goes_on),
    "expression": Story(an_expression_begins, an_expression_goes_on),
    "both": Story(both_kinds_begin, both_kinds_go_on),
    "offsets": Story(offsets_alone_begin, offsets_alone_go_on),
    "deleted": Story(a_deleted_group, it_begins_anew),
    "deleted consumers": Story(a_deleted_consumer_group, it_begins_anew),
}
DELETED = ("deleted", "deleted consumers")


async def go_on(name: str, table: ConsumerTable, members: list[Who]) -> list[str]:
    """The second part of a story, at another table. What is heard in it."""
    moved = []
    for one in members:
        again = copy.copy(one)
        again.table, again._connection = table, await table.connect(one.name)
        moved.append(again)
    await STORIES[name].goes_on(table, *moved)
    return table.heard


TRANSACTIONS = "transactions"


def commit_in_transactions(servers: str) -> None:
    """One is committed, one aborted, and one stays open."""
    group = Consumer({"bootstrap.servers": servers, "group.id": TRANSACTIONS}).consumer_group_metadata()
    for number, ending in enumerate(("commit", "abort", "open")):
        settings = {"transactional.id": ending, "transaction.timeout.ms": 600_000, "log_level": 2}
        producer = Producer({"bootstrap.servers": servers, **settings})
        producer.init_transactions(ANSWER_MS / 1000)
        producer.begin_transaction()
        for partition in (number, 3):
            place = TopicPartition("t", partition, 10 + number)
            producer.send_offsets_to_transaction([place], group, ANSWER_MS / 1000)
        if ending == "commit":
            producer.commit_transaction(ANSWER_MS / 1000)
        elif ending == "abort":
            producer.abort_transaction(ANSWER_MS / 1000)


# What anybody is told


async def told(table: ConsumerTable) -> list[tuple[str, Any]]:
    """All that there is to ask about a group, and the answers."""
    groups = [table.group_id]
    described = await table.ask(api.DescribeGroupsRequest(groups=groups), 6)
    consumers = api.ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False)
    fetched = api.OffsetFetchRequest.Group(group_id=table.group_id, topics=None)
    listed = await table.ask(api.ListGroupsRequest(), 5)
    answers = {
        "as a classic group": described.groups,
        "as a consumer group": (await table.ask(consumers, 1)).groups,
        "offsets": (await table.ask(api.OffsetFetchRequest(groups=[fetched]), 9)).groups,
        "offsets that are certain": (
            await table.ask(api.OffsetFetchRequest(groups=[fetched], require_stable=True), 9)
        ).groups,
        "listed": [one for one in listed.groups if one.group_id == table.group_id],
    }
    return [(what, plain(answer)) for what, answer in answers.items()]


def plain(value: Any) -> Any:
    """In lists one order: nobody promises any."""
    if isinstance(value, Struct):
        return {one.name: plain(getattr(value, one.name)) for one in value.__fields__}
    if isinstance(value, list | tuple):
        return sorted(map(plain, value), key=repr)
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
