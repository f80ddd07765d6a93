"""Partitions move to other replicas.

The topic's node says what is under way (replicas of both sides, and which are added and removed), so a
successor can go on. It is written before anybody is told, and again at the very end: until then it is the
only record of what there was before.

    begin      target and original together; the newcomers get their replicas, the leader epoch grows
    arrive     when all of the target are in sync: the leader is one of the target, the others are stopped
               and deleted, and the node is written without a trace of the move
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from quorate.controller.assignment import check_assignment
from quorate.metadata.image import ClusterImage
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.zookeeper import paths
from quorate.zookeeper.context import Key, Topic
from quorate.zookeeper.errors import BadVersion, MalformedZnode, ZooKeeperError
from quorate.zookeeper.jute import Content, Get, Set, Stat
from quorate.zookeeper.leader_choice import Choice, for_reassignment
from quorate.zookeeper.legacy_requests import drop_reassignment
from quorate.zookeeper.office import Office
from quorate.zookeeper.znodes import PartitionAssignment, PartitionState, TopicNode

__all__ = ["cancel", "go_on", "move", "write_topic"]

_logger = logging.getLogger("quorate.zookeeper")


async def write_topic(office: Office, topic: Topic) -> None:
    """Writes the node of a topic as we know it. Somebody else may have added partitions to it: then these are
    kept, and it is written again."""
    while True:
        operation = Set(paths.topic(topic.name), topic.node().encode(), topic.version)
        (result,) = await office.fence.write_all([operation])
        if isinstance(result, Stat):
            topic.version = result.version
            return
        if not isinstance(result, BadVersion):
            raise result
        found: Content = await office.session.ask(Get(paths.topic(topic.name)))
        try:
            node = TopicNode.read(paths.topic(topic.name), found.data)
        except MalformedZnode as error:
            _logger.error("it is written anew: %s", error)
            node = topic.node()
        topic.version = found.stat.version
        for number, assignment in node.partitions.items():
            if number not in topic.partitions:
                office.context.assign((topic.name, number), assignment)


async def move(office: Office, key: Key, target: Sequence[int], image: ClusterImage) -> None:
    """Begins to move a partition. `ApiError` if it cannot be."""
    context = office.context
    topic, before = _found(office, key)
    check_assignment(image, target, None)
    state = context.states.get(key)
    if state is None:
        reason = f"{key[0]}-{key[1]} has no leader yet: it cannot be moved before it has one"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if key[0] in office.deleting:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key[0]} is being deleted")
    if not before.is_reassigning and tuple(target) == before.replicas:
        return
    dropped = [one for one in before.adding if one not in target]  # newcomers of a move that this replaces
    context.assign(key, before.moving_to(target))
    await write_topic(office, topic)
    await _stop(office, key, dropped)
    if key not in context.moving:
        await _arrive(office, key, target)  # the same replicas in another order
        return
    _logger.info("reassignment begins partition=%s-%d from=%s to=%s", *key, before.original, tuple(target))
    await go_on(office, [key], is_beginning=True)


async def cancel(office: Office, key: Key) -> None:
    """Takes a move back: to what there was before it began."""
    _, before = _found(office, key)
    if not before.is_reassigning:
        reason = f"{key[0]}-{key[1]} is not being reassigned"
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reason)
    state = office.context.states.get(key)
    original = before.original
    if state is None or not any(one in state.isr and office.context.is_online(one, key) for one in original):
        reason = f"none of the original replicas {list(original)} of {key[0]}-{key[1]} is alive and in sync"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    context = office.context
    topic = context.topics[key[0]]
    context.assign(key, PartitionAssignment(before.replicas, (), before.adding))
    await write_topic(office, topic)
    await _arrive(office, key, original)


def _found(office: Office, key: Key) -> tuple[Topic, PartitionAssignment]:
    topic = office.context.topics.get(key[0])
    assignment = None if topic is None else topic.partitions.get(key[1])
    if topic is None or assignment is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {key[0]}-{key[1]}")
    return topic, assignment


async def go_on(office: Office, keys: Iterable[Key], *, is_beginning: bool = False) -> None:
    """Partitions whose target is in sync arrive; the others are told once more what to do."""
    context = office.context
    waiting: list[Key] = []
    for key in list(keys):
        assignment, state = context.assignment(key), context.states.get(key)
        if assignment is None or state is None or not assignment.is_reassigning:
            continue
        if set(assignment.target) <= set(state.isr):
            await _arrive(office, key, assignment.target)
        else:
            waiting.append(key)
    if not is_beginning:
        return

    def bump(key: Key, state: PartitionState) -> Choice | None:
        assignment = context.assignment(key)
        if assignment is None:
            return None
        bumped = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
        return Choice(bumped, assignment.replicas)

    changed = await office.change(waiting, bump)
    batch = office.batch()
    for key, choice in changed.done.items():
        assignment = context.assignment(key)
        added = () if assignment is None else assignment.adding
        batch.lead_or_follow([one for one in choice.recipients if one not in added], key)
        batch.lead_or_follow([one for one in choice.recipients if one in added], key, is_new=True)
    office.send(batch)


async def _arrive(office: Office, key: Key, target: Sequence[int]) -> None:
    """The target is all there is."""
    context = office.context
    before = context.assignment(key)
    assert before is not None
    removed = [one for one in before.replicas if one not in target]

    def choose(_: Key, state: PartitionState) -> Choice | None:
        chosen: Choice | None
        if state.leader in target and context.is_online(state.leader, key):
            bumped = state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
            chosen = Choice(bumped, tuple(target))
        else:
            moved = PartitionAssignment(tuple(target))
            chosen = for_reassignment(moved, state, lambda one: context.is_online(one, key), context.epoch)
        if chosen is None:
            return None
        isr = tuple(one for one in chosen.state.isr if one in target)
        return Choice(chosen.state._replace(isr=isr), tuple(target))

    changed = await office.change([key], choose)
    if not changed.done:
        return  # nobody of the target can lead now; it is tried again when a broker joins
    context.assign(key, PartitionAssignment(tuple(target)))
    batch = office.batch()
    batch.lead_or_follow(target, key)
    office.send(batch)
    await _stop(office, key, removed)
    topic = context.topics.get(key[0])
    if topic is not None:
        await write_topic(office, topic)
    await _drop_from_legacy_node(office, key)
    batch = office.batch()
    batch.tell_everyone([key])
    office.send(batch)
    _logger.info("reassignment ends partition=%s-%d replicas=%s", *key, tuple(target))


async def _stop(office: Office, key: Key, removed: Iterable[int]) -> None:
    """Replicas that are not wanted any more are deleted. Nobody waits for it: whoever is away now deletes
    what is not his when he is back."""
    state = office.context.states.get(key)
    batch = office.batch()
    for broker_id in removed:
        batch.stop(broker_id, key, -1 if state is None else state.leader_epoch, is_deleted=True)
    office.send(batch)


async def _drop_from_legacy_node(office: Office, key: Key) -> None:
    """Moves that were asked for by a znode leave it when they are done; the node goes with the last."""
    try:
        await drop_reassignment(office, key)
    except ZooKeeperError as error:
        _logger.warning("%s", error)
