"""Topics are deleted: a mark is made, replicas are deleted, and when all of them are, the znodes go.

Whoever wants a topic deleted makes `/admin/delete_topics/<topic>`. As long as a broker with a replica is
away, or a partition is being reassigned, the topic waits. Then everybody forgets it, its replicas are stopped
and deleted, and each broker says for each replica whether it could. One that could not halts the topic until
a broker joins. A replica goes through these states:

    OFFLINE -> STARTED -> SUCCESSFUL
                       -> INELIGIBLE -> OFFLINE, when there is hope again
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from quorate.zookeeper import paths
from quorate.zookeeper.batch import EPOCH_OF_DELETION
from quorate.zookeeper.context import Key
from quorate.zookeeper.errors import NoNode, ZooKeeperError
from quorate.zookeeper.jute import Delete, GetChildren
from quorate.zookeeper.office import Office

__all__ = ["TRANSITIONS", "Deletion", "Deletions", "ReplicaState"]

_logger = logging.getLogger("quorate.zookeeper")


class ReplicaState(Enum):
    """Of a topic that is being deleted."""

    OFFLINE = "offline"
    STARTED = "deletion started"
    SUCCESSFUL = "deleted"
    INELIGIBLE = "could not be deleted"


TRANSITIONS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.OFFLINE: frozenset({ReplicaState.STARTED, ReplicaState.INELIGIBLE}),
    ReplicaState.STARTED: frozenset({ReplicaState.SUCCESSFUL, ReplicaState.INELIGIBLE}),
    ReplicaState.INELIGIBLE: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.SUCCESSFUL: frozenset(),
}

Replica = tuple[int, int]  # broker and partition


class Deletion:
    """Of one topic: how far each of its replicas is. Pure."""

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self.states: dict[Replica, ReplicaState] = dict.fromkeys(replicas, ReplicaState.OFFLINE)

    def move(self, replica: Replica, state: ReplicaState) -> bool:
        """Whether that was possible; what is not in the table is not done."""
        before = self.states.get(replica)
        if before is None or state not in TRANSITIONS[before]:
            return False
        self.states[replica] = state
        return True

    def replicas_in(self, state: ReplicaState) -> list[Replica]:
        return [replica for replica, one in self.states.items() if one is state]

    def is_done(self) -> bool:
        return all(one is ReplicaState.SUCCESSFUL for one in self.states.values())

    def take_heart(self) -> None:
        """What could not be deleted may be tried again."""
        for replica in self.replicas_in(ReplicaState.INELIGIBLE):
            self.move(replica, ReplicaState.OFFLINE)


class Deletions:
    """All topics that are marked. `office.deleting` has their names, so that nobody elects for them."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._under_way: dict[str, Deletion] = {}

    def mark(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._office.deleting.setdefault(name, None)

    def broker_joined(self, broker_ids: Iterable[int]) -> None:
        """There is hope again for what could not be deleted; what it was told before it has forgotten."""
        for deletion in self._under_way.values():
            deletion.take_heart()
            for broker_id in broker_ids:
                for replica in deletion.replicas_in(ReplicaState.STARTED):
                    if replica[0] == broker_id:
                        deletion.move(replica, ReplicaState.INELIGIBLE)
                        deletion.move(replica, ReplicaState.OFFLINE)

    def brokers_left(self, broker_ids: Iterable[int]) -> None:
        gone = set(broker_ids)
        for deletion in self._under_way.values():
            for replica in deletion.replicas_in(ReplicaState.STARTED):
                if replica[0] in gone:
                    deletion.move(replica, ReplicaState.INELIGIBLE)

    def answered(self, broker_id: int, errors: Mapping[Key, int]) -> list[str]:
        """A broker says which replicas it has deleted; returns the topics that it was about."""
        touched: dict[str, None] = {}
        for (topic, number), code in errors.items():
            deletion = self._under_way.get(topic)
            if deletion is None:
                continue
            state = ReplicaState.INELIGIBLE if code else ReplicaState.SUCCESSFUL
            if deletion.move((broker_id, number), state):
                touched[topic] = None
                if code:
                    _logger.warning(
                        "broker %d could not delete %s-%d: error %d", broker_id, topic, number, code
                    )
        return list(touched)

    async def resume(self) -> None:
        """Goes on with whatever can go on."""
        for name in list(self._office.deleting):
            await self._resume(name)

    async def _resume(self, name: str) -> None:
        office, context = self._office, self._office.context
        topic = context.topics.get(name)
        if topic is None:
            await self._erase(name)
            return
        deletion = self._under_way.get(name)
        if deletion is None:
            if not self._is_eligible(name):
                return
            deletion = self._under_way[name] = Deletion(
                (broker_id, number)
                for number, assignment in topic.partitions.items()
                for broker_id in assignment.replicas
            )
            _logger.info("topic %s is being deleted partitions=%d", name, len(topic.partitions))
            office.forgotten.add(name)
            batch = office.batch()
            batch.forget(topic.keys())
            office.send(batch)
        batch = office.batch()
        for broker_id, number in deletion.replicas_in(ReplicaState.OFFLINE):
            if not context.is_registered(broker_id):
                deletion.move((broker_id, number), ReplicaState.INELIGIBLE)
            elif deletion.move((broker_id, number), ReplicaState.STARTED):
                batch.stop(broker_id, (name, number), EPOCH_OF_DELETION, is_deleted=True)
        office.send(batch)
        if deletion.is_done():
            await self._erase(name)

    def _is_eligible(self, name: str) -> bool:
        context = self._office.context
        topic = context.topics[name]
        return all(
            not assignment.is_reassigning
            and all(context.is_reachable(one, (name, number)) for one in assignment.replicas)
            for number, assignment in topic.partitions.items()
        )

    async def _erase(self, name: str) -> None:
        """All znodes of a topic, its mark last: a successor would go on from here."""
        await _delete_tree(self._office, paths.topic(name))
        await _delete_tree(self._office, paths.config(f"{paths.CONFIG_TOPICS}/{name}"))
        await _delete_tree(self._office, paths.topic_deletion(name))
        self._office.context.remove_topic(name)
        self._office.deleting.pop(name, None)
        self._under_way.pop(name, None)
        self._office.forgotten.discard(name)
        _logger.info("topic %s is deleted", name)

    async def refuse(self, topics: Iterable[str]) -> None:
        """Takes marks away that nothing will be done about."""
        await self._office.fence.write_all([Delete(paths.topic_deletion(name)) for name in topics])


async def _delete_tree(office: Office, path: str) -> None:
    """A node and what is below it, level by level."""
    levels: list[list[str]] = [[path]]
    while levels[-1]:
        below: list[str] = []
        results = await office.session.ask_all([GetChildren(one) for one in levels[-1]])
        for parent, result in zip(levels[-1], results, strict=True):
            if isinstance(result, NoNode):
                continue
            if isinstance(result, ZooKeeperError):
                raise result
            below += (f"{parent}/{name}" for name in result.names)
        levels.append(below)
    for level in reversed(levels):
        for result in await office.fence.write_all([Delete(one) for one in level]):
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNode):
                raise result
