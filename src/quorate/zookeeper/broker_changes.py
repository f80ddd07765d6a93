"""Brokers come, go, come back, and ask to go.

A watch says that something has changed, not what: who came and who went follows from comparing what is read
with what is known. A broker that left and came back between two looks has another epoch; it is treated as one
that has failed and another that joined, since whatever it was told is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from quorate.protocol.api.zookeeper_era import ControlledShutdownRequest, ControlledShutdownResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.zookeeper.context import Key
from quorate.zookeeper.events import BrokersChanged, ControlledShutdownServed, ReplicasFailed
from quorate.zookeeper.leader_choice import (
    Choice,
    for_controlled_shutdown,
    when_offline,
    without_replica,
)
from quorate.zookeeper.office import Changed, Office, slices
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import PartitionState

__all__ = [
    "Comings",
    "apply_members",
    "compare",
    "fail_brokers",
    "fail_replicas",
    "join",
    "shut_down",
    "tell_all_that_it_has",
]


class Comings(NamedTuple):
    """What is different from before, by broker id."""

    new: list[int]
    dead: list[int]
    bounced: list[int]
    moved: list[int]  # with other endpoints, features or rack


def compare(before: Mapping[int, Member], after: Mapping[int, Member]) -> Comings:
    return Comings(
        new=sorted(after.keys() - before.keys()),
        dead=sorted(before.keys() - after.keys()),
        bounced=sorted(one for one in before.keys() & after.keys() if after[one].epoch > before[one].epoch),
        moved=sorted(
            one
            for one in before.keys() & after.keys()
            if after[one].epoch == before[one].epoch
            and (after[one].listeners, after[one].rack) != (before[one].listeners, before[one].rack)
        ),
    )


async def apply_members(office: Office, members: Mapping[int, Member]) -> Comings:
    """Takes in who is registered now; returns what is different."""
    context, channels = office.context, office.channels
    found = compare(context.members, members)
    if not any(found):
        return found
    changed = BrokersChanged(context.epoch, *found, now=sorted(members))
    office.saw([changed])
    for broker_id in (*found.dead, *found.bounced):
        channels.close(broker_id)
        context.shutting_down.discard(broker_id)
        context.failed_replicas.pop(broker_id, None)
    context.put_members(members)
    for broker_id in (*found.new, *found.bounced, *found.moved):
        channels.open(members[broker_id])
    if found.dead or found.bounced:
        await fail_brokers(office, {*found.dead, *found.bounced})
    if found.new or found.bounced:
        await join(office, [*found.new, *found.bounced])
    if found.moved:
        await office.tell_some([one for one in members if one not in found.moved], [])
        await office.tell_everything(found.moved)  # what was under way to their old places is lost
        for broker_id in found.moved:
            await tell_all_that_it_has(office, broker_id)
    return found


async def join(office: Office, broker_ids: Collection[int]) -> Changed:
    """Brokers are told everything; what they can help is elected."""
    context = office.context
    # Before they follow anybody they must know where everybody is.
    await office.tell_some([one for one in context.members if one not in broker_ids], [])
    await office.tell_everything(broker_ids)
    for broker_id in broker_ids:
        await tell_all_that_it_has(office, broker_id)
    helped = {key: None for broker_id in broker_ids for key in context.hosted_by(broker_id)}
    return await office.elect_where_needed(helped)


async def tell_all_that_it_has(office: Office, broker_id: int) -> None:
    """What a broker leads and follows, for it alone: the others know."""
    for some in slices(office.context.hosted_by(broker_id)):
        batch = office.batch()
        for key in some:
            if key in office.context.states and key[0] not in office.forgotten:
                batch.lead_or_follow([broker_id], key)
        office.channels.send(broker_id, batch.requests().get(broker_id, []))
        await asyncio.sleep(0)


async def fail_brokers(office: Office, broker_ids: Collection[int]) -> Changed:
    """Leaders move away from brokers that are gone, and they leave the in-sync replicas."""
    keys = dict.fromkeys(key for one in sorted(broker_ids) for key in office.context.hosted_by(one))
    return await _fail(office, broker_ids, list(keys), lambda one, _: one in broker_ids)


async def fail_replicas(office: Office, broker_id: int, keys: Collection[Key]) -> Changed:
    """The same for replicas on a disk that failed."""
    failed = frozenset(keys)
    return await _fail(
        office, [broker_id], sorted(failed), lambda one, key: one == broker_id and key in failed
    )


async def _fail(
    office: Office,
    broker_ids: Collection[int],
    keys: list[Key],
    has_failed: Callable[[int, Key], bool],
) -> Changed:
    context, loop = office.context, asyncio.get_running_loop()
    began = loop.time()
    keys = [key for key in keys if key[0] not in office.deleting]

    def is_online(one: int, key: Key) -> bool:
        return context.is_online(one, key) and not has_failed(one, key)

    def choose(key: Key, state: PartitionState) -> Choice | None:
        assignment = context.assignment(key)
        if assignment is None:
            return None
        others = tuple(
            one for one in assignment.replicas if context.is_reachable(one, key) and not has_failed(one, key)
        )
        if has_failed(state.leader, key):
            chosen = when_offline(
                assignment,
                state,
                lambda one: is_online(one, key),
                context.epoch,
                allows_unclean=lambda: False,
            )
            if chosen is not None:
                return chosen
        shrunk: PartitionState | None = None
        for one in assignment.replicas:
            if has_failed(one, key):
                shrunk = _merged(shrunk or state, state, one, context.epoch) or shrunk
        return None if shrunk is None else Choice(shrunk, others)

    changed = Changed()
    for some in slices(keys):
        settled = await office.change(some, choose)
        batch = office.batch()
        for key, choice in settled.done.items():
            batch.lead_or_follow(choice.recipients, key)
        batch.tell_everyone(some)  # who has which replicas offline is different, even where nothing else is
        office.send(batch)
        changed.done |= settled.done
    if not keys:
        await office.tell_some(list(context.members), [])
    leaderless = [
        key for key in keys if key in context.states and not is_online(context.states[key].leader, key)
    ]
    elected = await office.elect_offline(leaderless, is_online)
    await office.tell_chosen(elected.done)
    changed.done |= elected.done
    changed.failed = elected.failed
    office.saw(
        [
            ReplicasFailed(
                controller_epoch=context.epoch,
                brokers=sorted(broker_ids),
                partitions=len(keys),
                changed=len(changed.done),
                leaderless=len(changed.failed),
                ms=round((loop.time() - began) * 1000),
            )
        ]
    )
    return changed


def _merged(
    so_far: PartitionState, before: PartitionState, broker_id: int, controller_epoch: int
) -> PartitionState | None:
    """One more replica gone, within one and the same leader epoch."""
    shrunk = without_replica(so_far, broker_id, controller_epoch)
    if shrunk is None:
        return None
    return PartitionState(
        shrunk.leader,
        before.leader_epoch + 1,
        shrunk.isr,
        shrunk.controller_epoch,
        shrunk.is_recovering,
        shrunk.partition_epoch,
    )


async def shut_down(office: Office, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    """Moves everything away from a broker that asks to go; the answer is what it still leads."""
    context, broker_id = office.context, request.broker_id
    member = context.members.get(broker_id)
    if member is None:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
    if 0 <= request.broker_epoch < member.epoch:
        reason = f"broker {broker_id} sent epoch {request.broker_epoch}, and is registered at {member.epoch}"
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, reason)
    context.shutting_down.add(broker_id)
    loop = asyncio.get_running_loop()
    began = loop.time()
    keys = [
        key
        for key in context.hosted_by(broker_id)
        if key in context.states
        and key[0] not in office.deleting
        and (assignment := context.assignment(key)) is not None
        and len(assignment.replicas) > 1
    ]

    def choose(key: Key, state: PartitionState) -> Choice | None:
        assignment = context.assignment(key)
        assert assignment is not None
        if state.leader == broker_id:
            return for_controlled_shutdown(
                assignment,
                state,
                lambda one: context.is_reachable(one, key),
                lambda one: one in context.shutting_down,
                context.epoch,
            )
        shrunk = without_replica(state, broker_id, context.epoch)
        if shrunk is None:
            return None
        others = tuple(
            one for one in assignment.replicas if one != broker_id and context.is_reachable(one, key)
        )
        return Choice(shrunk, others)

    followed = [key for key in keys if context.states[key].leader != broker_id]
    moved = 0
    for some in slices(keys):
        changed = await office.change(some, choose)
        moved += len(changed.done)
        await office.tell_chosen(changed.done)
    for some in slices(followed):
        batch = office.batch()
        for key in some:
            batch.stop(broker_id, key, context.states[key].leader_epoch, is_deleted=False)
        office.send(batch)
    remaining = [key for key in keys if context.states[key].leader == broker_id]
    served = ControlledShutdownServed(
        controller_epoch=context.epoch,
        broker_id=broker_id,
        partitions=len(keys),
        moved=moved,
        remaining=len(remaining),
        ms=round((loop.time() - began) * 1000),
    )
    office.saw([served])
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=number)
            for topic, number in remaining
        ],
    )
