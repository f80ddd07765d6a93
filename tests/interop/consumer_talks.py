"""Conversations of the consumer group protocol with a coordinator, noted so that two can be compared.

Which partitions somebody gets is the assignor's business: it is noted how many of which topic. What is told
in words is noted too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from group_talks import ANSWER_MS, Table, subscription

from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment
from quorate.net.client import Connection
from quorate.protocol import codec
from quorate.protocol.api import groups as api
from quorate.protocol.api.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

GROUP_RESOURCE = 32
INTERVAL = "consumer.assignment.interval.ms"


class ConsumerTable(Table):
    """Where a group of the new protocol and its coordinator talk."""

    names: dict[Uuid, str]

    async def prepare(self) -> None:
        """Targets may follow each other at once, so that time plays no part."""
        await self.begin()
        answer = await self.ask(MetadataRequest(topics=None), 12)
        self.names = {topic.topic_id: topic.name for topic in answer.topics}
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(name=INTERVAL, config_operation=0, value="0")
        asked = resource(resource_type=GROUP_RESOURCE, resource_name=self.group_id, configs=[config])
        changed = await self.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), 1)
        assert changed.responses[0].error_code == ErrorCode.NONE, changed
        described = DescribeConfigsRequest.Resource(
            resource_type=GROUP_RESOURCE, resource_name=self.group_id, configuration_keys=[INTERVAL]
        )
        async with asyncio.timeout(ANSWER_MS / 1000):
            while (await self.ask(DescribeConfigsRequest(resources=[described]), 4)).results[0].configs[
                0
            ].value != "0":
                await asyncio.sleep(0.02)

    async def consumer(self, name: str, **about: Any) -> NewMember:
        return NewMember(self, name, await self.connect(name), **about)

    async def describes(self) -> None:
        request = api.ConsumerGroupDescribeRequest(
            group_ids=[self.group_id], include_authorized_operations=False
        )
        row = (await self.ask(request, 1)).groups[0]
        self.note(
            "described",
            row.error_code,
            row.group_state,
            row.group_epoch,
            row.assignment_epoch,
            row.assignor_name,
            [
                (
                    one.member_id,
                    one.instance_id,
                    one.rack_id,
                    one.member_epoch,
                    one.client_id,
                    one.client_host,
                    tuple(one.subscribed_topic_names),
                    one.subscribed_topic_regex,
                    one.member_type,
                    _by_topic(one.assignment),
                    _by_topic(one.target_assignment),
                )
                for one in row.members
            ],
        )


def _by_topic(assignment: Any) -> list[tuple[str, int]]:
    """How many partitions of each topic; in which order topics stand, Apache's hashes decide."""
    return sorted((entry.topic_name, len(entry.partitions)) for entry in assignment.topic_partitions)


class NewMember:
    """A consumer of the new protocol with a connection of its own."""

    def __init__(
        self,
        table: ConsumerTable,
        name: str,
        connection: Connection,
        *,
        instance_id: str | None = None,
        version: int = 1,
        member_id: str | None = None,
    ) -> None:
        self.table, self.name, self._connection = table, name, connection
        self.instance_id, self.version = instance_id, version
        self.member_id = name if member_id is None else member_id
        self.epoch = 0
        self.held: dict[Uuid, list[int]] = {}

    async def sends(self, *, hears: bool = True, **fields: Any) -> Any:
        request = api.ConsumerGroupHeartbeatRequest(
            **{
                "group_id": self.table.group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance_id,
            }
            | fields
        )
        answer = await self._connection.request(request, self.version, timeout_ms=ANSWER_MS)
        told = None
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            told = sorted((self.table.names.get(one.topic_id, "?"), len(one.partitions)) for one in parts)
        self.table.note(
            answer.error_code,
            answer.error_message,
            self.name if answer.member_id == self.member_id else answer.member_id and "a new id",
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            told,
            who=self.name,
        )
        if hears and answer.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = answer.member_id, answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.held = {one.topic_id: list(one.partitions) for one in parts}
        return answer

    async def joins(self, *names: str, **fields: Any) -> Any:
        self.epoch, self.held = 0, {}
        return await self.sends(
            **{
                "rebalance_timeout_ms": 30_000,
                "subscribed_topic_names": list(names or ("t",)),
                "topic_partitions": [],
            }
            | fields
        )

    def owned(self) -> list[api.ConsumerGroupHeartbeatRequest.TopicPartitions]:
        made = api.ConsumerGroupHeartbeatRequest.TopicPartitions
        return [made(topic_id=topic_id, partitions=held) for topic_id, held in self.held.items()]

    async def gives_back(self, **fields: Any) -> Any:
        return await self.sends(topic_partitions=self.owned(), **fields)

    async def commits(self, partition: int, epoch: int, **fields: Any) -> None:
        version = fields.pop("version", 9)
        topics = api.OffsetCommitRequest.Topic
        request = api.OffsetCommitRequest(
            **{
                "group_id": self.table.group_id,
                "generation_id_or_member_epoch": epoch,
                "member_id": self.member_id,
                "topics": [
                    topics(
                        name="t",
                        partitions=[
                            topics.Partition(
                                partition_index=partition, committed_offset=1, committed_metadata=""
                            )
                        ],
                    )
                ],
            }
            | fields
        )
        answer = await self._connection.request(request, version, timeout_ms=ANSWER_MS)
        self.table.note("committed", answer.topics[0].partitions[0].error_code, who=self.name)


# The conversations


async def one_comes_after_the_other(table: ConsumerTable) -> None:
    a, b = await table.consumer("a"), await table.consumer("b")
    await a.joins()
    await a.sends()
    await b.joins()
    await table.describes()
    await a.sends()
    await b.sends()
    await table.describes()
    await a.gives_back()
    await b.sends()
    await a.gives_back(rebalance_timeout_ms=30_000, subscribed_topic_names=["t"])
    await table.describes()
    await a.sends(member_epoch=-1)
    await b.sends()
    await b.gives_back()
    await b.sends(member_epoch=-1)
    await table.describes()
    await a.joins()


async def other_topics(table: ConsumerTable) -> None:
    a = await table.consumer("a")
    await a.joins("t", "nowhere")
    await a.sends(subscribed_topic_names=["t", "u"])
    await a.sends(subscribed_topic_names=["u", "t"])
    await a.sends(subscribed_topic_names=["u"])
    await a.sends()
    await a.gives_back()
    await a.sends(subscribed_topic_names=[])
    await a.gives_back()
    await a.sends(rack_id="r")
    await table.describes()


async def requests_that_cannot_be_meant(table: ConsumerTable) -> None:
    a = await table.consumer("a")
    for wrong in (
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"member_epoch": 1},
        {"member_epoch": -1},
        {"server_assignor": "sticky"},
        {"subscribed_topic_regex": "("},
        {"subscribed_topic_regex": "a**"},
        {"subscribed_topic_regex": "(?=a)"},
    ):
        await a.joins(**wrong)
    old = await table.consumer("old", version=0, member_id="")
    await old.sends(member_epoch=3)
    await old.joins()
    await old.sends()


async def epochs(table: ConsumerTable) -> None:
    a, b = await table.consumer("a"), await table.consumer("b")
    await a.joins()
    await a.sends(member_epoch=5)
    await b.sends(member_epoch=1)
    await b.joins()
    await a.sends()
    before = a.epoch
    await a.gives_back(hears=False)
    await a.gives_back()
    await a.sends(member_epoch=before)
    await a.sends(member_epoch=before, topic_partitions=[])
    await a.joins()
    await b.sends()
    await b.joins()
    await table.describes()


async def static_members(table: ConsumerTable) -> None:
    a, b = await table.consumer("a", instance_id="i"), await table.consumer("b", instance_id="i")
    await b.sends(member_epoch=-2)
    await a.joins()
    await b.joins()
    await b.sends(member_epoch=1)
    await b.sends(member_epoch=-1)
    await b.sends(member_epoch=-2)
    await a.sends(member_epoch=-2)
    await table.describes()
    await b.joins()
    await a.sends(member_epoch=1)
    await table.describes()
    await b.sends(member_epoch=-1)
    await table.describes()


async def offsets_of_members(table: ConsumerTable) -> None:
    a, b = await table.consumer("a"), await table.consumer("b")
    await a.joins()
    await a.commits(0, 1)
    await a.commits(0, 1, version=8)
    await a.commits(0, 0)
    await a.commits(0, 2)
    await a.commits(0, -1, member_id="")
    await b.commits(0, 1)
    await a.sends(subscribed_topic_names=["t", "u"])
    await a.commits(0, 1)
    await a.commits(0, 2)
    await a.sends(member_epoch=-1)
    await a.commits(0, -1, member_id="")
    await a.commits(0, 2)


async def expressions(table: ConsumerTable) -> None:
    a = await table.consumer("a")
    await a.joins(subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    async with asyncio.timeout(ANSWER_MS / 1000):
        while not a.held:
            table._notes["a"].pop()
            await a.sends()
    await table.describes()
    b = await table.consumer("b")
    await b.joins(subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    await b.sends(member_epoch=-1)
    await a.sends(subscribed_topic_names=["t"], subscribed_topic_regex="")
    await a.gives_back()
    await table.describes()


async def classic_among_new(table: ConsumerTable) -> None:
    new, old = await table.consumer("new"), await table.member("old")
    await new.joins()
    await old.joins()
    await old.syncs()
    await old.beats()
    await old.beats(generation_id=9)
    await new.sends()
    await new.gives_back()
    await old.beats()
    await old.joins()
    await old.syncs()
    await old.syncs(protocol_name="sticky")
    await old.beats()
    await table.describes()
    stranger = await table.member("stranger", protocols=[("roundrobin", subscription("t"))])
    await stranger.asks_to_join()
    await old.leaves()
    await old.beats()
    await new.sends()


async def up_and_down(table: ConsumerTable) -> None:
    part = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1])
    everything = b"\0\1" + bytes(codec.encode(ConsumerProtocolAssignment(assigned_partitions=[part]), 1))
    old, new = await table.member("old"), await table.consumer("new")
    await old.joins()
    await old.syncs({old: everything})
    await old.beats()
    await new.joins()
    await old.beats()
    await old.joins()
    await old.syncs()
    await old.beats()
    await new.sends()
    await table.describes()
    await new.sends(member_epoch=-1)
    described = await table.describe()
    table.note("as a classic group", described.group_state, described.protocol_data, len(described.members))
    await old.beats()
    await old.joins()
    await old.syncs({old: everything})
    await new.sends(member_epoch=1)
    await old.leaves()
    await new.joins()


Talk = Callable[[ConsumerTable], Awaitable[None]]
TALKS: dict[str, Talk] = {
    talk.__name__.replace("_", " "): talk
    for talk in (
        one_comes_after_the_other,
        other_topics,
        requests_that_cannot_be_meant,
        epochs,
        static_members,
        offsets_of_members,
        expressions,
        classic_among_new,
        up_and_down,
    )
}
