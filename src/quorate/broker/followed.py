"""What is followed from one leader: what its session has been told, and what has changed since.

A request lists what is new or has moved, and what the session should forget; all else the leader knows. So a
request costs something for what has changed, not for what is followed.

A partition is held for a while after an error or while a throttle is exceeded, and until its metadata changes
if nothing else would help. The session forgets it meanwhile, and is told of it anew. So it is with one of
which an answer could not be taken in: a leader says only once what is new, such as the high watermark, and
again to whom it does not know. That takes two requests, as a leader adds what is listed before it forgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from quorate.broker.partition import Partition
from quorate.client.fetch_session import FetchSession, Row, SessionPart
from quorate.client.metadata import TopicPartition as Place
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Followed", "FollowedPartitions"]

Key = tuple[Uuid, int]


@dataclass(slots=True, eq=False)
class Followed:
    """A partition that is followed, in one epoch of its leader."""

    key: Key
    partition: Partition
    epoch: int
    row: Row | None = None  # as the session was told
    is_in_sync: bool = False  # it has everything that was committed when the leader answered last

    @property
    def is_throttled(self) -> bool:
        """Whether the topic lists it among those who may only take so much."""
        return self.partition.key.partition_id in self.partition.config.throttled_as_follower


class FollowedPartitions:
    """Everything that one broker leads and we follow. `bytes_max` is what one of them gives at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._all: dict[Key, Followed] = {}
        self._held: dict[Key, Followed] = {}
        self._resume: list[tuple[float, int, Followed]] = []  # a heap of those that are held for a time
        self._numbers = count()
        self._behind: dict[Key, Followed] = {}  # those that are not in sync
        self._told: dict[Key, Followed] = {}  # what is in the session
        self._changed: dict[Key, Followed] = {}  # what may be other than the session was told
        self._leaving: dict[Key, None] = {}  # what it has to forget first

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, one: Followed) -> bool:
        return self._all.get(one.key) is one

    @property
    def has_any(self) -> bool:
        """Whether there is something to ask for now."""
        return len(self._held) < len(self._all)

    # What is followed

    def add(self, partition: Partition) -> None:
        key = partition.key.topic_id, partition.key.partition_id
        one = Followed(key, partition, partition.leader_epoch)
        self._all[key] = self._behind[key] = self._changed[key] = one

    def remove(self, partition: Partition) -> None:
        key = partition.key.topic_id, partition.key.partition_id
        if self._all.pop(key, None) is not None:
            for some in (self._held, self._behind, self._changed):
                some.pop(key, None)
            self._leaving[key] = None

    def moved(self, partition: Partition) -> None:
        """Its log begins or ends elsewhere than before."""
        key = partition.key.topic_id, partition.key.partition_id
        if (one := self._all.get(key)) is not None:
            self._changed[key] = one

    def tell_anew(self, one: Followed) -> None:
        """The leader has said something that was not taken in."""
        self._leaving[one.key] = None
        if (now := self._all.get(one.key)) is not None:
            self._changed[one.key] = now

    def take_in(self, one: Followed, *, is_in_sync: bool) -> None:
        """What the leader has said is taken in."""
        one.is_in_sync = is_in_sync
        key = one.key
        if self._all.get(key) is one:
            self._changed[key] = one
            if is_in_sync:
                self._behind.pop(key, None)
            else:
                self._behind[key] = one

    # What is held

    def hold(self, one: Followed, until_ms: float | None) -> None:
        """Nothing is asked for, until then; or until it is followed in another epoch."""
        if one in self and one.key not in self._held:
            self._held[one.key] = one
            self._leaving[one.key] = None
            if until_ms is not None:
                heappush(self._resume, (until_ms, next(self._numbers), one))

    def resume(self, now_ms: float) -> None:
        """Whose time has come is asked for again."""
        while self._resume and self._resume[0][0] <= now_ms:
            one = heappop(self._resume)[2]
            if self._held.get(one.key) is one:
                del self._held[one.key]
                self._changed[one.key] = one

    @property
    def resume_at_ms(self) -> float | None:
        return self._resume[0][0] if self._resume else None

    def behind(self) -> Iterator[Followed]:
        """Those that would be asked for now, and are not in sync."""
        return iter([one for key, one in self._behind.items() if key not in self._held])

    # What is said

    def asked(self, topic_id: Uuid, partition_id: int) -> Followed | None:
        """What the last request asked for, by its own words or by earlier ones of its session."""
        return self._told.get((topic_id, partition_id))

    @property
    def has_more_to_say(self) -> bool:
        """Whether there was something that the last request could not say."""
        return bool(self._changed)

    def next(self, session: FetchSession) -> SessionPart:
        """How to ask for everything that is not held."""
        if not session.is_open:
            self._told = {key: one for key, one in self._all.items() if key not in self._held}
            self._changed, self._leaving = {}, {}
            return session.difference([_tell(one, self._row(one)) for one in self._told.values()], [])
        gone: dict[Place, Row] = {}
        for key in self._leaving:
            one = self._told.pop(key, None)
            if one is not None and one.row is not None:
                gone[_place(one)] = one.row
        later: dict[Key, Followed] = {}
        told: list[tuple[Place, Row]] = []
        for key, one in self._changed.items():
            if key in self._held:
                continue
            if gone and _place(one) in gone:
                later[key] = one
                continue
            row = self._row(one)
            if one.row != row or self._told.get(key) is not one:
                self._told[key] = one
                told.append(_tell(one, row))
        self._changed, self._leaving = later, {}
        return session.difference(told, gone.items())

    def _row(self, one: Followed) -> Row:
        log = one.partition.log
        last_epoch = log.epochs.latest_epoch
        return Row(
            one.key[0],
            one.epoch,
            log.end_offset,
            self._bytes_max,
            -1 if last_epoch is None else last_epoch,
            log.start_offset,
        )


def _tell(one: Followed, row: Row) -> tuple[Place, Row]:
    """The session will know this of it."""
    one.row = row
    return _place(one), row


def _place(one: Followed) -> Place:
    return Place(one.partition.key.topic, one.partition.key.partition_id)
