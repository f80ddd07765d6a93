"""Brokers come, crash and lose their sessions, controllers with them; topics are made, grown and deleted.
When it is over, what stands in ZooKeeper, what the controller knows and what brokers were told is the same.

QUORATE_STORMS says how many seeds are tried.
"""

import asyncio
import os
import random

import pytest
from plane_town import Town
from sessions import DEADLINE_S, expire, session_at, until
from test_controller_duties import creation

from quorate.protocol.api.topics import CreatePartitionsRequest, DeleteTopicsRequest
from quorate.protocol.errors import ApiError
from quorate.protocol.types import ZERO_UUID
from quorate.zookeeper import paths
from quorate.zookeeper.jute import Get, GetChildren
from quorate.zookeeper.znodes import PartitionState, TopicNode

pytestmark = pytest.mark.zookeeper

BROKERS = (1, 2, 3, 4)
STEPS = 25


@pytest.mark.parametrize("seed", range(int(os.environ.get("QUORATE_STORMS", "3"))))
def test_everybody_agrees_after_a_storm(connect, seed):
    asyncio.run(asyncio.wait_for(storm(connect, random.Random(seed)), 4 * DEADLINE_S))


async def storm(connect: str, chance: random.Random) -> None:
    town = Town(connect, session_timeout_ms=1000)
    seen = Epochs()
    try:
        await town.add(*BROKERS)
        await town.until_controlled()
        names = iter(f"t{number}" for number in range(1000))
        topics: list[str] = []
        for _ in range(STEPS):
            await step(town, connect, chance, topics, names)
            seen.look(town)
        await town.add(*(one for one in BROKERS if one not in town.clerks))
        await settle(town, seen)
        await check(town, connect, topics)
    finally:
        for clerk in list(town.clerks.values()):
            await clerk.stop()


async def step(town, connect, chance, topics, names) -> None:
    kind = chance.choice(["create", "create", "grow", "delete", "crash", "leave", "expire", "join", "join"])
    missing = [one for one in BROKERS if one not in town.clerks]
    try:
        if kind == "create":
            name = next(names)
            replicas = chance.sample(BROKERS, chance.randint(1, 3))
            request = creation(name, assignments=[replicas, list(reversed(replicas))])
            response = await town.ask(request)
            if not response.topics[0].error_code:
                topics.append(name)
        elif kind == "grow" and topics:
            topic = CreatePartitionsRequest.Topic(name=chance.choice(topics), count=4, assignments=None)
            await town.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False))
        elif kind == "delete" and topics:
            name = topics.pop(chance.randrange(len(topics)))
            asked = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
            await town.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=30_000))
        elif kind == "crash" and len(town.clerks) > 2:
            await town.clerks.pop(chance.choice(sorted(town.clerks))).vanish()
        elif kind == "leave" and len(town.clerks) > 2:
            leaving = town.clerks.pop(chance.choice(sorted(town.clerks)))
            await leaving.plane.controlled_shutdown()
            await leaving.stop()
        elif kind == "expire":
            clerk = town.clerks[chance.choice(sorted(town.clerks))]
            if not clerk.plane.session.expired.is_set():
                await expire(connect, clerk.plane.session)
        elif kind == "join" and missing:
            await town.add(chance.choice(missing))
    except ApiError:
        pass  # it was refused, or nobody could answer in time


class Epochs:
    """Epochs of controllers and brokers never go back, and no two controllers share one."""

    def __init__(self) -> None:
        self.controllers: dict[int, int] = {}
        self.brokers: dict[int, int] = {}

    def look(self, town) -> None:
        for number, clerk in town.clerks.items():
            assert clerk.epochs == sorted(clerk.epochs)
            assert clerk.plane.broker_epoch >= self.brokers.get(number, -1)
            self.brokers[number] = clerk.plane.broker_epoch
            if clerk.plane.is_controller:
                owner = self.controllers.setdefault(clerk.plane.controller_epoch, number)
                assert owner == number


async def settle(town, seen) -> None:
    def is_quiet() -> bool:
        if sum(one.plane.is_controller for one in town.clerks.values()) != 1:
            return False
        own = town.controller.plane._terms.own
        if not own.is_loaded.is_set() or own._events or set(town.context.members) != set(BROKERS):
            return False
        if town.office.deleting or town.context.leaderless(
            [key for key in town.context.keys() if _can_be_led(town, key)]  # noqa: SIM118
        ):
            return False
        return not any(town.office.channels.queued(one) for one in BROKERS)

    async def nothing() -> None:
        """When it is its turn, whatever was begun before is done."""

    while True:
        await until(is_quiet)
        try:
            await town.controller.plane._terms.own.ask(nothing)
        except ApiError:
            continue  # another is controller by now
        if is_quiet():
            break
    seen.look(town)


def _can_be_led(town, key) -> bool:
    state = town.context.states.get(key)
    return state is None or any(one in town.context.members for one in state.isr)


async def check(town, connect, topics) -> None:
    context = town.context
    async with session_at(connect) as session:
        listed = await session.ask(GetChildren(paths.TOPICS))
        assert set(listed.names) == set(context.topics)
        assert set(topics) <= set(context.topics)
        for name, topic in context.topics.items():
            node = TopicNode.read(name, (await session.ask(Get(paths.topic(name)))).data)
            assert node == topic.node()
            for number, assignment in topic.partitions.items():
                key = name, number
                path = paths.state(*key)
                found = await session.ask(Get(path))
                state = PartitionState.read(path, found.data, found.stat.version)
                assert state == context.states[key]
                assert set(state.isr) <= set(assignment.replicas)
                assert state.leader in state.isr
                assert state.leader in context.members
                for clerk in town.clerks.values():
                    told = clerk.metadata[key]
                    assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
                    assert (told.isr, told.zk_version) == (list(state.isr), state.partition_epoch)
                for broker_id in assignment.replicas:
                    told = town.clerks[broker_id].states[key]
                    assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
    for clerk in town.clerks.values():
        assert set(clerk.metadata) == set(context.states)
        assert clerk.brokers == set(BROKERS)
