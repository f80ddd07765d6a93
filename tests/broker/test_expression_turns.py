"""Expressions of groups are looked up a part at a time, in turn, and the loop goes on in between."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.serving import Serving, in_loop
from quorate.broker import expressions
from quorate.broker.coordinators import Hosted
from quorate.broker.groups import OFFSETS_TOPIC, Groups
from quorate.broker.handlers.group_members import GroupMembers
from quorate.coordinator.settings import GroupSettings
from quorate.coordinator.shard import GroupShard
from quorate.metadata.event import Event
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ErrorCode

ELSEWHERE = 2  # a broker whose topics these are
CHANCE = random.Random(25)
LONG_NAMES = ["".join(CHANCE.choices("ab", k=200)) for _ in range(50)]
SLOW = "(?:a|b|\\b|\\B){999}"
"""Of such an expression, a turn has steps for one or two of the long names."""


class Subscribing(Serving):
    """A broker that coordinates all groups, and has seen the long names."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, groups=GroupSettings())
        self.saw: list[Event] = []
        self.groups = Groups(self.broker, self.saw.extend)
        self.replicas.when_led = self.groups.led
        for route in GroupMembers(self.broker, self.groups).routes():
            self.handlers[route.request] = route.handler

    async def begins(self) -> None:
        await self.topic(OFFSETS_TOPIC, partitions=2)
        while self.groups.shards.is_loading:
            await asyncio.sleep(0)
        for name in ("orders", *LONG_NAMES):
            await self.topic(name, replicas=[ELSEWHERE], leader=ELSEWHERE)
        self.groups.follow(self.image, None)

    async def joins(self, group: str, expression: str) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=expression,
            topic_partitions=[],
        )
        assert (await self.ask(request, 1)).error_code == ErrorCode.NONE

    def hosted(self, group: str) -> Hosted[GroupShard]:
        return self.groups.of(group)

    def found(self, group: str) -> dict[str, int]:
        """For each expression of a group that is looked up, how many topics it matches."""
        known = self.hosted(group).shard.consumer_groups.get(group)
        assert known is not None
        return {expression: len(one.topics) for expression, one in known.state.regexes.items()}


@pytest.fixture
def serving(tmp_path: Path) -> Subscribing:
    return Subscribing(tmp_path)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0)


@in_loop
async def test_one_that_takes_long_does_not_keep_others_from_their_turn(serving: Subscribing) -> None:
    await serving.begins()
    await serving.joins("slow", SLOW)
    await serving.joins("slower", f"{SLOW}|orders")
    await serving.joins("ordinary", "ord.*")
    await until(lambda: serving.found("ordinary"))
    assert serving.found("ordinary") == {"ord.*": 1}
    assert (serving.found("slow"), serving.found("slower")) == ({}, {})
    await until(lambda: serving.found("slower"))
    assert serving.found("slow") == {SLOW: len(LONG_NAMES)}
    assert serving.found("slower") == {f"{SLOW}|orders": len(LONG_NAMES) + 1}


@in_loop
async def test_a_coordinator_that_goes_in_between_leaves_the_others_their_turns(serving: Subscribing) -> None:
    await serving.begins()
    names = [f"g{number}" for number in range(10)]
    here = next(name for name in names if serving.groups.partition_of(name) == 0)
    there = next(name for name in names if serving.groups.partition_of(name) == 1)
    await serving.joins(here, SLOW)
    await serving.joins(there, f"{SLOW}|orders")
    await asyncio.sleep(0)
    serving.hosted(here).drop()
    await until(lambda: serving.found(there))


@in_loop
async def test_a_bug_in_one_leaves_the_others_their_turns(
    serving: Subscribing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "PAUSE_S", 0)
    await serving.begins()
    reached: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reached.append(context["exception"]))
    failing = serving.hosted("failing").shard

    def resolve(group_id: str, *more: Any) -> Any:
        if group_id == "failing":
            raise ZeroDivisionError
        return GroupShard.resolve(failing, group_id, *more)

    monkeypatch.setattr(failing, "resolve", resolve)
    await serving.joins("failing", "orders")
    await serving.joins("ordinary", "ord.*")
    await until(lambda: serving.found("ordinary"))
    assert [type(one) for one in reached] == [ZeroDivisionError]
