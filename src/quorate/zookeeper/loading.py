"""A new controller finds out how things are: brokers, topics, and the state of every partition.

What it reads it watches as well, in the same act: whatever changes after that is told. All of it is linear in
the number of partitions; reads are pipelined, and nothing waits for brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quorate.controller.ids import new_id
from quorate.zookeeper import paths, znodes
from quorate.zookeeper.context import Topic
from quorate.zookeeper.errors import MalformedZnode, NodeExists, NoNode, ZooKeeperError
from quorate.zookeeper.jute import Children, Content, Delete, Exists, Get, GetChildren, Watch
from quorate.zookeeper.membership import members_among
from quorate.zookeeper.office import AT_ONCE, Office
from quorate.zookeeper.reassignments import write_topic
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.znodes import TopicNode

__all__ = ["Watchers", "discard_notifications", "ensure_features", "load", "read_brokers", "read_topics"]

NOTIFICATIONS: Final = (paths.LOG_DIR_EVENTS, paths.ISR_CHANGES)

_logger = logging.getLogger("quorate.zookeeper")


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told when what is watched has changed."""

    brokers: Watch  # who is registered
    broker: Watch  # what one of them says of itself
    topics: Watch  # which there are
    topic: Watch  # the partitions of one
    deletions: Watch
    isr_changes: Watch
    log_dir_events: Watch
    reassignments: Watch
    elections: Watch


async def load(office: Office, watchers: Watchers) -> None:
    """Fills the context. Nobody is told anything yet."""
    await ensure_features(office)
    await office.session.ask_all(
        [
            Exists(paths.REASSIGN_PARTITIONS, watchers.reassignments),
            Exists(paths.PREFERRED_ELECTION, watchers.elections),
            GetChildren(paths.ISR_CHANGES, watchers.isr_changes),
            GetChildren(paths.LOG_DIR_EVENTS, watchers.log_dir_events),
        ]
    )
    for parent in NOTIFICATIONS:
        await discard_notifications(office, parent)  # what they are about is read anyway
    office.context.put_members(await read_brokers(office, watchers))
    await read_topics(office, watchers)
    keys = list(office.context.keys())
    office.context.states.update(await office.read_states(keys))


async def ensure_features(office: Office) -> None:
    """The node says that no feature is finalized; one that is there stays."""
    (result,) = await office.fence.write_all([office.create(paths.FEATURE, znodes.feature({}))])
    if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExists):
        raise result


async def discard_notifications(office: Office, parent: str) -> None:
    listed: Children = await office.session.ask(GetChildren(parent))
    await office.fence.write_all([Delete(f"{parent}/{name}") for name in listed.names])


async def read_brokers(office: Office, watchers: Watchers) -> dict[int, Member]:
    """Everybody who is registered; each of them, and their list, is watched."""
    listed: Children = await office.session.ask(GetChildren(paths.BROKER_IDS, watchers.brokers))
    await office.session.ask_all(
        [Exists(f"{paths.BROKER_IDS}/{name}", watchers.broker) for name in listed.names]
    )
    return await members_among(office.session, listed.names)


async def read_topics(office: Office, watchers: Watchers) -> tuple[list[str], list[str]]:
    """Which topics are new, and which are gone; the new ones are read and watched."""
    context = office.context
    listed: Children = await office.session.ask(GetChildren(paths.TOPICS, watchers.topics))
    names = set(listed.names)
    gone = [name for name in context.topics if name not in names]
    new = sorted(name for name in names if name not in context.topics)
    read: list[str] = []
    for start in range(0, len(new), AT_ONCE):
        read += await read_some(office, new[start : start + AT_ONCE], watchers)
    return read, gone


async def read_some(office: Office, names: Sequence[str], watchers: Watchers) -> list[str]:
    """Takes in topics as their nodes describe them; returns those that were there and made sense."""
    read: list[str] = []
    results = await office.session.ask_all([Get(paths.topic(name), watchers.topic) for name in names])
    for name, result in zip(names, results, strict=True):
        if isinstance(result, NoNode):
            continue
        if isinstance(result, ZooKeeperError):
            raise result
        topic = _taken_in(office, name, result)
        if topic is None:
            continue
        read.append(name)
        if not any(topic.id):  # from before topics had ids
            topic.id = new_id(office.random, office.context.names, ())
            office.context.names[topic.id] = name
            await write_topic(office, topic)
    return read


def _taken_in(office: Office, name: str, found: Content) -> Topic | None:
    try:
        node = TopicNode.read(paths.topic(name), found.data)
    except MalformedZnode as error:
        _logger.error("a topic is ignored: %s", error)
        return None
    return office.context.put_topic(name, node, found.stat.version)
