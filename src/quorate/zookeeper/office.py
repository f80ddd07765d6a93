"""What every duty of a controller needs: what it knows, its fenced writes, and its channels to brokers.

States of partitions are changed here and nowhere else. A state is written on condition of the version that we
know. Where that fails it is read again, and accepted if it says what we meant: then it was our own write,
whose answer was lost. Otherwise it is decided anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from random import Random
from typing import Final

from quorate.controller.topic_settings import UNCLEAN
from quorate.metadata.event import Event
from quorate.values import dataclass
from quorate.zookeeper import paths, znodes
from quorate.zookeeper.batch import Batch
from quorate.zookeeper.channels import Channels
from quorate.zookeeper.context import Context, Key, Status
from quorate.zookeeper.errors import (
    BadVersion,
    ControllerMoved,
    MalformedZnode,
    NodeExists,
    NoNode,
    ZooKeeperError,
)
from quorate.zookeeper.fence import Fence
from quorate.zookeeper.jute import Create, Get, Set, Stat
from quorate.zookeeper.leader_choice import Choice, first_leader, when_offline
from quorate.zookeeper.membership import acl_for
from quorate.zookeeper.session import Session
from quorate.zookeeper.settings import ZooKeeperSettings
from quorate.zookeeper.znodes import PartitionState

__all__ = ["Changed", "Office", "slices"]

AT_ONCE: Final = 2_000  # partitions that are decided and written together; others get their turn in between

FULL_MAX: Final = 20_000  # partitions that one request may be about

Choose = Callable[[Key, PartitionState], Choice | None]

_logger = logging.getLogger("quorate.zookeeper")


@dataclass(slots=True)
class Changed:
    """What came of an attempt to change partitions: by key what was written, and where nothing could be."""

    done: dict[Key, Choice] = field(default_factory=dict)
    failed: list[Key] = field(default_factory=list)

    def add(self, other: Changed) -> None:
        self.done |= other.done
        self.failed += other.failed


def slices(keys: Sequence[Key]) -> list[Sequence[Key]]:
    """As many as are dealt with at once."""
    return [keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE)]


class Office:
    """One term of a controller."""

    def __init__(
        self,
        session: Session,
        fence: Fence,
        context: Context,
        channels: Channels,
        settings: ZooKeeperSettings,
        random: Random,
        wall_ms: Callable[[], int],
        saw: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        self.session = session
        self.fence = fence
        self.context = context
        self.channels = channels
        self.settings = settings
        self.random = random
        self.wall_ms = wall_ms
        self.saw = saw
        self.deleting: dict[str, None] = {}  # topics that are marked, see `deletion`
        self.forgotten: set[str] = set()  # those of them that nobody shall know any more

    def batch(self) -> Batch:
        return Batch(self.context, self.settings.inter_broker_listener)

    def send(self, batch: Batch) -> None:
        for broker_id, requests in batch.requests().items():
            self.channels.send(broker_id, requests)

    async def tell_of(self, keys: Sequence[Key]) -> None:
        """Tells brokers what to lead and to follow, and everybody of it, some partitions at a time."""
        for some in slices(keys):
            batch = self.batch()
            for key in some:
                assignment = self.context.assignment(key)
                if assignment is not None and key in self.context.states:
                    batch.lead_or_follow(assignment.replicas, key)
            self.send(batch)
            await asyncio.sleep(0)

    async def tell_chosen(self, choices: Mapping[Key, Choice], *, is_new: bool = False) -> None:
        """The same of partitions that have changed."""
        for some in slices(list(choices)):
            batch = self.batch()
            for key in some:
                batch.lead_or_follow(choices[key].recipients, key, is_new=is_new)
            self.send(batch)
            await asyncio.sleep(0)

    async def tell_some(self, broker_ids: Collection[int], keys: Sequence[Key]) -> None:
        """Tells some brokers who the brokers are, and of partitions."""
        for some in slices(keys) or [()]:
            batch = self.batch()
            batch.tell(broker_ids, some)
            self.send(batch)
            await asyncio.sleep(0)

    async def tell_everything(self, broker_ids: Collection[int]) -> None:
        """Tells brokers of all partitions that there are, and thereby of those that there are no more: one
        that was no member for a while has not heard of topics that were deleted meanwhile. Where there are
        too many for one request, it does not hear of that."""
        keys = self.shown(list(self.context.states))
        if len(keys) > FULL_MAX:
            await self.tell_some(broker_ids, keys)
            return
        batch = self.batch()
        batch.tell_everything(broker_ids, keys)
        self.send(batch)

    def shown(self, keys: Sequence[Key]) -> list[Key]:
        """Without partitions of topics that everybody has been told to forget."""
        return [key for key in keys if key[0] not in self.forgotten] if self.forgotten else list(keys)

    # Elections

    async def elect_where_needed(self, keys: Iterable[Key], *, unclean: bool = False) -> Changed:
        """Gives a leader to partitions that have none alive, and tells everybody. `unclean` asks no topic."""
        needy = [key for key in self.context.leaderless(keys) if key[0] not in self.deleting]
        new = [key for key in needy if self.context.status(key) is Status.NEW]
        offline = [key for key in needy if self.context.status(key) is Status.OFFLINE]
        changed = Changed()
        for some in slices(new):
            begun = await self._begin(some)
            await self.tell_chosen(begun.done, is_new=True)
            changed.add(begun)
        for some in slices(offline):
            elected = await self.elect_offline(some, unclean=unclean)
            await self.tell_chosen(elected.done)
            changed.add(elected)
        return changed

    async def elect_offline(
        self,
        keys: Sequence[Key],
        is_online: Callable[[int, Key], bool] | None = None,
        *,
        unclean: bool = False,
    ) -> Changed:
        """Elections among the in-sync replicas; then, where there are none and the topic allows it, among all
        that are alive."""
        context = self.context
        online = context.is_online if is_online is None else is_online

        def choose(key: Key, state: PartitionState, *, allowed: bool = unclean) -> Choice | None:
            assignment = context.assignment(key)
            if assignment is None:
                return None
            return when_offline(
                assignment,
                state,
                lambda one: online(one, key),
                context.epoch,
                allows_unclean=lambda: allowed,
            )

        changed = await self.change(keys, choose)
        if unclean or not changed.failed:
            return changed
        permitted = await self._topics_that_allow_unclean({key[0] for key in changed.failed})
        second = [key for key in changed.failed if key[0] in permitted]
        if second:
            changed.failed = [key for key in changed.failed if key[0] not in permitted]
            again = await self.change(second, lambda key, state: choose(key, state, allowed=True))
            for key in again.done:
                _logger.warning("unclean election partition=%s-%d: records may be lost", *key)
            changed.add(again)
        return changed

    async def _topics_that_allow_unclean(self, topics: set[str]) -> set[str]:
        names = sorted(topics)
        default = self.settings.controller.topic_defaults.get(UNCLEAN, "false")
        found = set()
        operations = [Get(paths.config(f"{paths.CONFIG_TOPICS}/{name}")) for name in names]
        for name, result in zip(names, await self.session.ask_all(operations), strict=True):
            values: dict[str, str] = {}
            if not isinstance(result, ZooKeeperError):
                try:
                    values = znodes.config_in(paths.config(name), result.data)
                except MalformedZnode as error:
                    _logger.error("the configuration of topic %s is ignored: %s", name, error)
            if values.get(UNCLEAN, default).strip().lower() == "true":
                found.add(name)
        return found

    # Changing states

    async def change(self, keys: Iterable[Key], choose: Choose) -> Changed:
        """Writes what is chosen for partitions that have a state. Nobody is told yet."""
        changed = Changed()
        for some in slices(list(keys)):
            left = some
            while left:
                left = await self._change(left, choose, changed)
        return changed

    async def _change(self, keys: Sequence[Key], choose: Choose, changed: Changed) -> list[Key]:
        """One attempt; returns those that must be tried again."""
        wanted: list[tuple[Key, Choice]] = []
        for key in keys:
            state = self.context.states.get(key)
            choice = None if state is None else self._chosen(key, state, choose)
            if choice is None:
                changed.failed.append(key)
            else:
                wanted.append((key, choice))
        results = await self.fence.write_all(
            [
                Set(paths.state(*key), choice.state.encode(), choice.state.partition_epoch)
                for key, choice in wanted
            ]
        )
        raced: list[tuple[Key, Choice]] = []
        for (key, choice), result in zip(wanted, results, strict=True):
            if isinstance(result, Stat):
                self._changed(key, choice, result.version, changed)
            elif isinstance(result, BadVersion):
                raced.append((key, choice))
            elif isinstance(result, NoNode):
                self.context.states.pop(key, None)
                changed.failed.append(key)
            else:
                raise result
        return await self._read_again(raced, changed)

    def _chosen(self, key: Key, state: PartitionState, choose: Choose) -> Choice | None:
        if state.controller_epoch > self.context.epoch:
            raise ControllerMoved(f"{key[0]}-{key[1]} was changed at epoch {state.controller_epoch}")
        return choose(key, state)

    def _changed(self, key: Key, choice: Choice, version: int, changed: Changed) -> None:
        state = choice.state._replace(partition_epoch=version)
        self.context.states[key] = state
        changed.done[key] = Choice(state, choice.recipients)

    async def _read_again(self, raced: Sequence[tuple[Key, Choice]], changed: Changed) -> list[Key]:
        again = []
        found = await self.read_states([key for key, _ in raced])
        for key, choice in raced:
            state = found.get(key)
            if state is None:
                self.context.states.pop(key, None)
                changed.failed.append(key)
                continue
            self.context.states[key] = state
            if state.is_same(choice.state) and state.controller_epoch == choice.state.controller_epoch:
                self._changed(key, choice, state.partition_epoch, changed)
            else:
                again.append(key)
        return again

    async def read_states(self, keys: Sequence[Key]) -> dict[Key, PartitionState]:
        """The states of partitions as they stand in ZooKeeper; those that have none are not in it."""
        found = {}
        for some in slices(keys):
            results = await self.session.ask_all([Get(paths.state(*key)) for key in some])
            for key, result in zip(some, results, strict=True):
                if isinstance(result, NoNode):
                    continue
                if isinstance(result, ZooKeeperError):
                    raise result
                try:
                    found[key] = PartitionState.read(paths.state(*key), result.data, result.stat.version)
                except MalformedZnode as error:
                    _logger.error("a partition is left alone: %s", error)
        return found

    # New partitions

    async def _begin(self, keys: Sequence[Key]) -> Changed:
        """Makes the state nodes of new partitions, where there is a live replica to lead them."""
        context, changed = self.context, Changed()
        wanted: list[tuple[Key, Choice]] = []
        for key in keys:
            assignment = context.assignment(key)
            choice = None
            if assignment is not None:
                choice = first_leader(assignment, lambda one: context.is_online(one, key), context.epoch)  # noqa: B023
            if choice is None:
                changed.failed.append(key)
            else:
                wanted.append((key, choice))
        await self._make_parents(dict.fromkeys(key[0] for key, _ in wanted))
        await self._make_states(wanted, changed)
        return changed

    async def _make_parents(self, topics: Iterable[str]) -> None:
        operations = [self.create(paths.partitions(name), None) for name in topics]
        for result in await self.fence.write_all(operations):
            if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExists | NoNode):
                raise result

    async def _make_states(self, wanted: Sequence[tuple[Key, Choice]], changed: Changed) -> None:
        operations = []
        for key, choice in wanted:
            operations.append(self.create(paths.partition(*key), None))
            operations.append(self.create(paths.state(*key), choice.state.encode()))
        results = await self.fence.write_all(operations)
        there: list[Key] = []
        for (key, choice), parent, result in zip(wanted, results[::2], results[1::2], strict=True):
            if isinstance(result, str):
                self._changed(key, choice, 0, changed)
            elif isinstance(result, NodeExists):
                there.append(key)
            elif isinstance(result, NoNode) or isinstance(parent, NoNode):
                changed.failed.append(key)  # its topic was deleted meanwhile
            else:
                raise result
        # It is there already: our own attempt whose answer was lost, or a predecessor's.
        for key, state in (await self.read_states(there)).items():
            self.context.states[key] = state
            assignment = self.context.assignment(key)
            if assignment is not None:
                changed.done[key] = Choice(state, assignment.replicas)

    def create(self, path: str, data: bytes | None) -> Create:
        return Create(path, data, 0, acl_for(path, is_set=self.settings.is_acl_set))
