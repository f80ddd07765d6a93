"""Configurations of a broker in ZooKeeper mode: all of them at first, and those that change after.

Whoever changes one writes the entity's node and then a notification, a node with the next number below
`/config/changes`. Every broker watches these; a notification only says where to look, and what is looked at
is the entity's node. So one that is seen twice, or two that are seen as one, make no difference. Old ones are
taken away by whoever comes across them.

A topic's configuration is written before the topic is there, and nobody is notified: `read_topics` is for
whoever hears of a topic for the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quorate.protocol.message import Record
from quorate.zookeeper import paths, znodes
from quorate.zookeeper.config_entities import records_between
from quorate.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, NoNode, ZooKeeperError
from quorate.zookeeper.jute import SEQUENCE, Children, Create, Delete, Get, GetChildren, Set
from quorate.zookeeper.membership import acl_for, ensure_paths
from quorate.zookeeper.session import Session

__all__ = ["ConfigChanges"]

NOTIFICATION_AGE_MS: Final = 15 * 60 * 1000
AT_ONCE: Final = 2_000

_FOLDERS: Final = (
    paths.CONFIG_BROKERS,
    paths.CONFIG_TOPICS,
    paths.CONFIG_CLIENTS,
    paths.CONFIG_USERS,
    paths.CONFIG_IPS,
)

_logger = logging.getLogger("quorate.zookeeper")


class ConfigChanges:
    """What this broker knows of configurations. `apply` is given the records of what has changed."""

    def __init__(
        self, apply: Callable[[Sequence[Record]], None], wall_ms: Callable[[], int], *, is_acl_set: bool
    ) -> None:
        self._apply = apply
        self._wall_ms = wall_ms
        self._is_acl_set = is_acl_set
        self._known: dict[str, dict[str, str]] = {}  # values by entity path
        self._seen = -1  # the number of the newest notification

    def values_of(self, entity_path: str) -> Mapping[str, str]:
        return self._known.get(entity_path, {})

    async def read_all(self, session: Session) -> None:
        """Everything that there is; at first, and after a session was lost with its watches."""
        found: list[str] = []
        listed = await session.ask_all([GetChildren(f"{paths.CONFIG}/{folder}") for folder in _FOLDERS])
        for folder, result in zip(_FOLDERS, listed, strict=True):
            if isinstance(result, ZooKeeperError):
                _complain(result)
                continue
            found += (f"{folder}/{name}" for name in result.names)
        users = [path for path in found if path.startswith(f"{paths.CONFIG_USERS}/")]
        clients = await session.ask_all(
            [GetChildren(f"{paths.CONFIG}/{user}/{paths.CONFIG_CLIENTS}") for user in users]
        )
        for user, result in zip(users, clients, strict=True):
            if isinstance(result, Children):
                found += (f"{user}/{paths.CONFIG_CLIENTS}/{name}" for name in result.names)
        gone = [path for path in self._known if path not in set(found)]
        await self.read(session, [*found, *gone])

    async def read_topics(self, session: Session, topics: Sequence[str]) -> None:
        await self.read(session, [f"{paths.CONFIG_TOPICS}/{name}" for name in topics])

    async def read(self, session: Session, entity_paths: Sequence[str]) -> None:
        """Entities as their nodes describe them now."""
        for start in range(0, len(entity_paths), AT_ONCE):
            some = entity_paths[start : start + AT_ONCE]
            records: list[Record] = []
            results = await session.ask_all([Get(paths.config(path)) for path in some])
            for path, result in zip(some, results, strict=True):
                if isinstance(result, NoNode):
                    records += self._read_one(path, b"")
                elif isinstance(result, ZooKeeperError):
                    _complain(result)
                else:
                    records += self._read_one(path, result.data)
            if records:
                self._apply(records)

    def _read_one(self, entity_path: str, data: bytes) -> list[Record]:
        try:
            return self._changed(entity_path, znodes.config_in(paths.config(entity_path), data))
        except MalformedZnode as error:
            _complain(error)
            return []

    def _changed(self, entity_path: str, values: dict[str, str]) -> list[Record]:
        records = records_between(entity_path, self._known.get(entity_path, {}), values)
        if values:
            self._known[entity_path] = values
        else:
            self._known.pop(entity_path, None)
        return records

    # Notifications

    async def follow(self, session: Session, changed: Callable[[str], None]) -> None:
        """Takes in notifications that are new, and is told of the next by `changed`."""
        listed: Children = await session.ask(GetChildren(paths.CONFIG_CHANGES, changed))
        new = sorted(
            (number, name) for name in listed.names if (number := paths.sequence_of(name)) > self._seen
        )
        nodes = [f"{paths.CONFIG_CHANGES}/{name}" for _, name in new]
        entities: dict[str, None] = {}
        for path, result in zip(nodes, await session.ask_all([Get(one) for one in nodes]), strict=True):
            if isinstance(result, ZooKeeperError):
                if not isinstance(result, NoNode):
                    _complain(result)
                continue
            try:
                entities[znodes.entity_path_in(path, result.data)] = None
            except MalformedZnode as error:
                _complain(error)
        await self.read(session, list(entities))
        if new:
            self._seen = new[-1][0]
            await self._purge(session, [f"{paths.CONFIG_CHANGES}/{name}" for name in listed.names])

    async def _purge(self, session: Session, nodes: Sequence[str]) -> None:
        """Takes old notifications away; all brokers try, and one of them does it."""
        limit_ms = self._wall_ms() - NOTIFICATION_AGE_MS
        results = await session.ask_all([Get(path) for path in nodes])
        old = [
            Delete(path)
            for path, result in zip(nodes, results, strict=True)
            if not isinstance(result, ZooKeeperError) and result.stat.ctime_ms < limit_ms
        ]
        await session.ask_all(old)

    # Writing

    async def write(self, session: Session, entity_path: str, changes: Mapping[str, str | None]) -> None:
        """Changes values of an entity, and notifies everybody. Errors of ZooKeeper are raised."""
        path = paths.config(entity_path)
        while True:
            (found,) = await session.ask_all([Get(path)])
            if isinstance(found, NoNode):
                await self._make_parents(session, entity_path)
                values = {key: value for key, value in changes.items() if value is not None}
                acl = acl_for(path, is_set=self._is_acl_set)
                (result,) = await session.ask_all([Create(path, znodes.config(values), 0, acl)])
                if isinstance(result, NodeExists):
                    continue
            elif isinstance(found, ZooKeeperError):
                raise found
            else:
                before = znodes.config_in(path, found.data)
                merged = {**before, **changes}
                values = {key: value for key, value in merged.items() if value is not None}
                (result,) = await session.ask_all([Set(path, znodes.config(values), found.stat.version)])
                if isinstance(result, BadVersion):
                    continue
            if isinstance(result, ZooKeeperError):
                raise result
            break
        notification = f"{paths.CONFIG_CHANGES}/config_change_"
        acl = acl_for(notification, is_set=self._is_acl_set)
        await session.ask(Create(notification, znodes.config_change(entity_path), SEQUENCE, acl))

    async def _make_parents(self, session: Session, entity_path: str) -> None:
        parts = entity_path.split("/")[:-1]
        above = [f"{paths.CONFIG}/{'/'.join(parts[:depth])}" for depth in range(1, len(parts) + 1)]
        await ensure_paths(session, above, is_acl_set=self._is_acl_set)


def _complain(error: Exception) -> None:
    _logger.error("a configuration is left as it was: %s", error)
