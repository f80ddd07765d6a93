"""Reads topics together with the other members of a group.

    async with Cluster("127.0.0.1:9092") as cluster, GroupConsumer(cluster, "bills", ["orders"]) as consumer:
        while True:
            for part in await consumer.fetch():
                for record in part.records():
                    ...
            await consumer.commit()

Partitions come and go inside `fetch`, and nowhere else: whoever is between two calls has what it was given to
itself. A partition is read from what the group has committed, or from where the settings say. With
`commits_on_revoke`, what was given out before the last call of `fetch` is committed before a partition is
given up: everything is then seen at least once, and seldom twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from types import TracebackType
from typing import Final

from quorate.client.classic_membership import ClassicMembership
from quorate.client.cluster import Cluster
from quorate.client.consumer_membership import ConsumerMembership
from quorate.client.errors import Unavailable
from quorate.client.fetched import Fetched
from quorate.client.fetcher import Fetcher, FetcherSettings
from quorate.client.group_offsets import Committed, commit_offsets, committed_offsets
from quorate.client.membership import Membership, MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.protocol.errors import ApiError
from quorate.values import dataclass

__all__ = ["GroupConsumer", "GroupConsumerSettings", "GroupProtocol"]

_LAST_COMMIT_MS: Final = 5_000


class GroupProtocol(Enum):
    """Who divides the partitions: a member, or the coordinator."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumerSettings:
    """How a group consumer takes part, and how it reads."""

    protocol: GroupProtocol = GroupProtocol.CLASSIC
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    fetcher: FetcherSettings = field(default_factory=FetcherSettings)
    commits_on_revoke: bool = True


class GroupConsumer:
    """One member. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        settings: GroupConsumerSettings | None = None,
        *,
        when_assigned: Callable[[frozenset[TopicPartition]], None] = lambda _: None,
        logger: logging.Logger | None = None,
    ) -> None:
        """`when_assigned` is told, inside `fetch`, what is ours whenever that has changed."""
        self.settings = GroupConsumerSettings() if settings is None else settings
        self._cluster = cluster
        self._group = group
        self._when_assigned = when_assigned
        self._logger = logging.getLogger("quorate.client") if logger is None else logger
        self._fetcher = Fetcher(cluster, self.settings.fetcher, logger=logger)
        kind = ClassicMembership if self.settings.protocol is GroupProtocol.CLASSIC else ConsumerMembership
        self._membership: Membership = kind(cluster, group, topics, self.settings.membership)
        self._reading: frozenset[TopicPartition] = frozenset()
        self._done: dict[TopicPartition, Committed] = {}  # what was given out before the last `fetch`

    async def __aenter__(self) -> GroupConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours to read."""
        return self._reading

    @property
    def member_id(self) -> str:
        """Empty until the coordinator knows us."""
        return self._membership.member.id

    @property
    def generation(self) -> int:
        """The generation of a classic group, or our epoch in a consumer group."""
        return self._membership.member.generation

    def position(self, at: tuple[str, int]) -> int | None:
        """The offset of the next record that `fetch` gives out of a partition of ours; None if not known."""
        return self._fetcher.position(at) if TopicPartition(*at) in self._reading else None

    async def fetch(self, *, timeout_ms: float | None = None) -> list[Fetched]:
        """Records of partitions that are ours; nothing if none come in time. Takes part in rebalances."""
        self._done = self._positions()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            if self._membership.news.is_set():
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._follow_membership()
                except BaseException as error:
                    self._membership.news.set()  # the rest of it comes the next time
                    if isinstance(error, TimeoutError):
                        return []
                    raise
            left_ms = None if deadline is None else max(0.0, deadline - loop.time()) * 1000
            found = await self._fetch_or_news(left_ms)
            if found or (deadline is not None and loop.time() >= deadline):
                return found

    async def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        """Commits everything that was given out, or these places in partitions of ours. Raises `ApiError` if
        it is not ours to commit any more."""
        wanted = self._positions() if offsets is None else offsets
        await commit_offsets(self._cluster, self._group, wanted, self._membership.member)
        self._done |= wanted  # so that leaving does not go back

    async def close(self) -> None:
        """Commits as at a revocation, leaves the group, and ends."""
        with contextlib.suppress(ApiError, Unavailable):
            await self._commit_done(self._reading, timeout_ms=_LAST_COMMIT_MS)
        await self._membership.close()
        await self._fetcher.close()

    # How

    async def _fetch_or_news(self, timeout_ms: float | None) -> list[Fetched]:
        """What arrives first: records, or something that concerns our membership."""
        if not self._reading:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._membership.news.wait()
            return []
        loop = asyncio.get_running_loop()
        fetching = loop.create_task(self._fetcher.fetch(timeout_ms=timeout_ms))
        hearing = loop.create_task(self._membership.news.wait())
        try:
            await asyncio.wait((fetching, hearing), return_when=asyncio.FIRST_COMPLETED)
            return fetching.result() if fetching.done() else []
        finally:
            hearing.cancel()
            fetching.cancel()

    async def _follow_membership(self) -> None:
        membership = self._membership
        if membership.lose_all():
            self._logger.warning("lost all partitions of group %s: others may read them", self._group)
            self._read(frozenset())
        while revoked := membership.to_revoke & self._reading:
            try:
                await self._commit_done(revoked)
            except (ApiError, Unavailable) as error:
                self._logger.warning("not committed before a rebalance of group %s: %s", self._group, error)
            self._read(self._reading - revoked)
        await membership.settle()
        gained = membership.assigned - self._reading
        if gained:
            places = await committed_offsets(self._cluster, self._group, gained, membership.member)
            starts: dict[tuple[str, int], int | None] = dict.fromkeys(sorted(self._reading))
            for at in sorted(gained):
                starts[at] = places[at].offset if at in places else None
            self._fetcher.assign(starts)
            self._reading = frozenset(starts)  # type: ignore[arg-type]
            self._when_assigned(self._reading)

    def _read(self, partitions: frozenset[TopicPartition]) -> None:
        """Reads only these of what was read before."""
        if partitions != self._reading:
            self._fetcher.assign(dict.fromkeys(sorted(partitions)))
            self._reading = partitions
            self._done = {at: one for at, one in self._done.items() if at in partitions}
            self._when_assigned(partitions)

    async def _commit_done(
        self, partitions: frozenset[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        offsets = {at: one for at, one in self._done.items() if at in partitions}
        if self.settings.commits_on_revoke and offsets:
            await commit_offsets(
                self._cluster, self._group, offsets, self._membership.member, timeout_ms=timeout_ms
            )

    def _positions(self) -> dict[TopicPartition, Committed]:
        found = {}
        for at in sorted(self._reading):
            offset = self._fetcher.position(at)
            if offset is not None:
                found[at] = Committed(offset)
        return found
