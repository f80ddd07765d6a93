"""Fetch sessions: what a consumer or follower fetches, remembered, so that it need not say it every time.

A first, full fetch opens a session, if there is room for it. After that both sides say only what is
different: a request lists the partitions that are new, moved on or forgotten, an answer those that have
records or news. An epoch that counts the requests tells both whether the other knows what they know. A client
that finds its session gone or its epoch wrong begins anew, so a session may be dropped at any time.

A fetch looks at what is restless in its session, not at all that is wanted. What it has said everything of
goes to rest where it is (see `resting`), and is restless again when it stirs there, when a request lists it,
or when the whole session is fetched in another manner than before. What has records, or an error, or anything
else to say that is not over with being said stays restless.

Pure. How many sessions there are is limited; whoever wants one when there is no room takes the place of one
that has not been used for long, or of one that is worth less: followers' sessions are worth more than those
of consumers, and among equals large ones more than small ones, once the small ones have had their time.

    session id, epoch
    0, -1       everything is listed; no session is wanted
    0, 0        everything is listed, and remembered
    s, 0        the same, and session s is over
    s, -1       everything is listed; session s is over
    s, n        what is different, as the n-th request of session s
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from random import Random
from typing import Any, Final, Protocol

from quorate.broker.leadership import Follower, Heard
from quorate.broker.resting import Resting
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["EVICTABLE_AFTER_MS", "FetchRound", "FetchSession", "FetchSessions", "Parked", "Wanted"]

EVICTABLE_AFTER_MS: Final = 120_000
TOPIC_IDS_SINCE: Final = 13

_NO_SESSION: Final = 0
_FIRST_REQUEST: Final = 0
_LAST_REQUEST: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF
_SESSION_ID_MAX: Final = 0x7FFFFFFF
_UNKNOWN: Final = -1

Key = tuple[str | Uuid, int]  # a topic by its name or, in newer versions, by its id; and a partition


class Place(Protocol):
    """Where a partition is, which says when it stirs."""

    resting: Resting[Wanted]


class Parked(Protocol):
    """A fetch that waits for data."""

    def join(self, one: Wanted) -> None:
        """A partition of the session has stirred: there may be something in it now."""

    def finish(self) -> None:
        """It waits no longer."""


@dataclass(slots=True, eq=False)
class Wanted:
    """A partition that is fetched: what is asked for, and what was answered last.

    `turn` is its place in the order in which the partitions of a session are read. `rests_at` is where it is
    at rest, None while it is restless."""

    key: Key
    topic: str
    topic_id: Uuid
    partition_id: int
    turn: int
    offset: int = 0
    max_bytes: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1  # the asker's, if it is a follower
    told_high_watermark: int = _UNKNOWN
    told_log_start_offset: int = _UNKNOWN
    rests_at: Place | None = None

    def ask(self, asked: FetchRequest.Topic.Partition) -> None:
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def tell(self, high_watermark: int, log_start_offset: int) -> bool:
        """This will be answered. Whether it is something new."""
        if high_watermark == self.told_high_watermark and log_start_offset == self.told_log_start_offset:
            return False
        self.told_high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return True

    def tell_error(self) -> None:
        """An error will be answered. When it is over, that will be something new."""
        self.told_high_watermark = _UNKNOWN


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one asker wants. `heard` is when it asked last; `manner` is how, as far as that decides what there
    is to say."""

    id: int
    uses_topic_ids: bool
    is_of_follower: bool
    created_ms: float
    used_ms: float
    wanted: dict[Key, Wanted]
    turn: int  # of whoever comes last now
    restless: dict[Key, Wanted]
    epoch: int = 1  # of the next request
    heard: Heard = field(default_factory=Heard)
    manner: tuple[Any, ...] = ()
    parked: Parked | None = None
    resting_topics: dict[str | Uuid, int] = field(default_factory=dict)
    """How many partitions of a topic are at rest, if any are."""
    is_over: bool = False

    @property
    def worth(self) -> tuple[bool, int, int]:
        return self.is_of_follower, len(self.wanted), self.id

    def rest(self, one: Wanted, place: Place, follower: Follower | None) -> None:
        """All is said of a partition, until it stirs."""
        if self.is_over or self.restless.get(one.key) is not one:
            return  # somebody has done something to the session meanwhile
        del self.restless[one.key]
        one.rests_at = place
        place.resting.enter(self, one, follower)
        topic = one.key[0]
        self.resting_topics[topic] = self.resting_topics.get(topic, 0) + 1

    def stirred(self, place: Wanted) -> None:
        """There may be something to say of a partition."""
        self._is_restless(place)
        if self.parked is not None:
            self.parked.join(place)
        place.rests_at = None

    def stir(self, one: Wanted) -> None:
        """The asker has something to say of a partition."""
        if one.rests_at is not None:
            one.rests_at.resting.leave(self)
            one.rests_at = None
            self._is_restless(one)

    def stir_all(self) -> None:
        """Everything has to be looked at again."""
        if self.resting_topics:
            for one in self.wanted.values():
                self.stir(one)

    def _is_restless(self, one: Wanted) -> None:
        self.restless[one.key] = one
        topic = one.key[0]
        left = self.resting_topics[topic] - 1
        if left:
            self.resting_topics[topic] = left
        else:
            del self.resting_topics[topic]

    def add(self, request: FetchRequest) -> None:
        """Takes in what a request lists."""
        wanted = self.wanted
        for key, topic, asked in _listed(request, uses_topic_ids=self.uses_topic_ids):
            one = wanted.get(key)
            if one is None:
                one = wanted[key] = Wanted(key, topic.topic, topic.topic_id, asked.partition, self.turn)
                self.turn += 1
            elif one.rests_at is not None:
                self.stir(one)
            one.ask(asked)
            self.restless[key] = one

    def forget(self, key: Key) -> None:
        one = self.wanted.pop(key, None)
        if one is not None:
            self.stir(one)
            del self.restless[key]

    def last(self, moved: Collection[Wanted]) -> None:
        for one in moved:
            one.turn = self.turn
            self.turn += 1

    def end(self) -> None:
        """Nothing rests anywhere any more, and nobody waits for that."""
        self.stir_all()
        self.is_over = True
        self.finish_parked()

    def finish_parked(self) -> None:
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.finish()


@dataclass(slots=True)
class FetchRound:
    """One fetch, from the request to the answer."""

    wanted: dict[Key, Wanted]
    session: FetchSession | None = None  # of which only the difference is answered
    epoch: int = -1  # of the request after this one, in the session
    opens_session: bool = False
    uses_topic_ids: bool = False
    is_of_follower: bool = False

    @property
    def is_incremental(self) -> bool:
        return self.session is not None

    @property
    def has_resting(self) -> bool:
        """Whether there is more than what is looked at."""
        return self.session is not None and bool(self.session.resting_topics)

    def in_turn(self) -> list[Wanted]:
        """What has to be looked at, in order."""
        if self.session is None:
            return list(self.wanted.values())
        restless = self.session.restless
        return sorted(restless.values(), key=_turn) if len(restless) > 1 else list(restless.values())

    def last(self, moved: Collection[Wanted]) -> None:
        """These go last from now on: they had records, and should not keep others from having theirs."""
        if self.session is not None:
            self.session.last(moved)


class FetchSessions:
    """The sessions of a broker."""

    def __init__(self, sessions_max: int, random: Random, now_ms: Callable[[], float]) -> None:
        self._sessions_max = sessions_max
        self._random = random
        self._now_ms = now_ms
        self._by_id: dict[int, FetchSession] = {}  # the one that was not used for longest comes first

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, session_id: int) -> FetchSession | None:
        return self._by_id.get(session_id)

    def begin(self, request: FetchRequest, version: int, *, is_of_follower: bool) -> FetchRound:
        """What a request asks for. `ApiError` if it speaks of a session that is not as it thinks."""
        uses_topic_ids = version >= TOPIC_IDS_SINCE
        epoch = request.session_epoch
        if epoch in (_FIRST_REQUEST, _LAST_REQUEST):
            self._drop(request.session_id)
            return FetchRound(
                _all_listed(request, uses_topic_ids=uses_topic_ids),
                opens_session=epoch == _FIRST_REQUEST,
                uses_topic_ids=uses_topic_ids,
                is_of_follower=is_of_follower,
            )
        session = self._by_id.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session {request.session_id}")
        if session.epoch != epoch:
            reason = f"request {epoch} of session {session.id}, which is at {session.epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, reason)
        if session.uses_topic_ids != uses_topic_ids:
            reason = f"session {session.id} names topics in another way than version {version}"
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, reason)
        return self._go_on(session, request)

    def _go_on(self, session: FetchSession, request: FetchRequest) -> FetchRound:
        uses_topic_ids = session.uses_topic_ids
        if session.parked is not None:
            session.finish_parked()  # whoever asked before is told that it went on
        session.add(request)
        for topic in request.forgotten_topics_data:
            for partition_id in topic.partitions:
                session.forget(_key(topic.topic, topic.topic_id, partition_id, uses_topic_ids=uses_topic_ids))
        del self._by_id[session.id]
        if not session.wanted:
            session.end()
            return FetchRound({}, uses_topic_ids=uses_topic_ids)
        self._by_id[session.id] = session
        session.used_ms = self._now_ms()
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        return FetchRound(
            session.wanted, session, session.epoch, False, uses_topic_ids, session.is_of_follower
        )

    def end(self, fetch: FetchRound) -> int:
        """The session that the answer belongs to, 0 for none. `ApiError` if it has gone on without us."""
        session = fetch.session
        if session is not None:
            if session.epoch != fetch.epoch:
                reason = f"session {session.id} went on to {session.epoch} before {fetch.epoch} was answered"
                raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, reason)
            return session.id
        return self._open(fetch) if fetch.opens_session and fetch.wanted else _NO_SESSION

    def _open(self, fetch: FetchRound) -> int:
        now_ms = self._now_ms()
        session = FetchSession(
            id=self._new_id(),
            uses_topic_ids=fetch.uses_topic_ids,
            is_of_follower=fetch.is_of_follower,
            created_ms=now_ms,
            used_ms=now_ms,
            wanted=fetch.wanted,
            turn=len(fetch.wanted),
            restless=dict(fetch.wanted),
        )
        if len(self._by_id) >= self._sessions_max and not self._make_room(session, now_ms):
            return _NO_SESSION
        self._by_id[session.id] = session
        return session.id

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randint(1, _SESSION_ID_MAX)
            if session_id not in self._by_id:
                return session_id

    def _make_room(self, newcomer: FetchSession, now_ms: float) -> bool:
        victim = next(iter(self._by_id.values()), None)
        if victim is None:
            return False
        if now_ms - victim.used_ms <= EVICTABLE_AFTER_MS:
            evictable = [one for one in self._by_id.values() if _may_go(one, newcomer, now_ms)]
            victim = min(evictable, key=_worth, default=None)
            if victim is None or newcomer.worth < victim.worth:
                return False
        self._drop(victim.id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.end()


def _may_go(session: FetchSession, newcomer: FetchSession, now_ms: float) -> bool:
    """A consumer's session makes room for a follower at once, any other not before it had its time."""
    if newcomer.is_of_follower and not session.is_of_follower:
        return True
    return now_ms - session.created_ms > EVICTABLE_AFTER_MS


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.worth


def _key(topic: str, topic_id: Uuid, partition_id: int, *, uses_topic_ids: bool) -> Key:
    return (topic_id if uses_topic_ids else topic), partition_id


def _turn(one: Wanted) -> int:
    return one.turn


def _listed(
    request: FetchRequest, *, uses_topic_ids: bool
) -> Iterator[tuple[Key, FetchRequest.Topic, FetchRequest.Topic.Partition]]:
    """What a request lists."""
    for topic in request.topics:
        name = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            yield (name, asked.partition), topic, asked


def _all_listed(request: FetchRequest, *, uses_topic_ids: bool) -> dict[Key, Wanted]:
    """What a request wants that lists everything. Of one that is listed twice the last word counts."""
    wanted: dict[Key, Wanted] = {}
    for key, topic, asked in _listed(request, uses_topic_ids=uses_topic_ids):
        one = wanted.get(key)
        if one is None:
            one = wanted[key] = Wanted(key, topic.topic, topic.topic_id, asked.partition, len(wanted))
        one.ask(asked)
    return wanted
