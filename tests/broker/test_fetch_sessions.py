"""Fetch sessions: opened, gone on with, forgotten, evicted; and always what a model of them says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, topic_id, turns, wanted

from quorate.broker.fetch_sessions import EVICTABLE_AFTER_MS, FetchSessions
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.errors import ApiError, ErrorCode

NEWEST = 17
LONG_MS = 100_000
NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH


def told(response: Any) -> list[tuple[int, int]]:
    """Partition and number of records of everything in an answer, in order."""
    assert response.error_code == 0
    return [
        (one.partition_index, len(offsets_in(one.records)))
        for topic in response.responses
        for one in topic.partitions
    ]


class Asker:
    """One who fetches partitions of topic t."""

    def __init__(self, serving: Serving, version: int = NEWEST) -> None:
        self.serving = serving
        self.version = version
        self.session = 0, 0

    async def ask(self, *partitions: Any, **about: Any) -> Any:
        request = fetch(*partitions, version=self.version, session=self.session, **about)
        response = await self.serving.ask(request, self.version)
        if response.error_code == 0:
            self.session = response.session_id, self.session[1] + 1
        return response


async def filled(serving: Serving, partition: int = 0, batches: int = 1) -> int:
    data = a_batch(2)
    for _ in range(batches):
        await serving.ask(produce(("t", partition, bytearray(data))), 12)
    return len(data)


# As clients see them


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17, 18])
@in_loop
async def test_a_session_tells_what_is_new(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    await filled(serving, 1)
    asker = Asker(serving, version)
    response = await asker.ask(*(wanted("t", index) for index in range(3)))
    assert told(response) == [(0, 0), (1, 2), (2, 0)], "at first everything"
    assert response.session_id > 0
    assert told(await asker.ask(wanted("t", 1, 2))) == [], "then nothing, as nothing has changed"
    await filled(serving, 2)
    assert told(await asker.ask()) == [(2, 2)]
    assert told(await asker.ask()) == [(2, 2)], "as it was not moved on"
    assert told(await asker.ask(wanted("t", 2, 2))) == []
    await serving.partition("t", 0).delete_before(0)
    assert told(await asker.ask()) == []
    await serving.partition("t", 2).delete_before(1)
    assert told(await asker.ask()) == [(2, 0)], "the start of the log is news"
    assert told(await asker.ask()) == []
    assert len(serving.fetch_handler.sessions) == 1
    await serving.close()


@in_loop
async def test_without_a_session_everything_is_told(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    for session in ((0, -1), (77, -1)):
        response = await serving.ask(fetch(wanted("t"), wanted("t", 1), version=12, session=session), 12)
        assert (response.session_id, told(response)) == (0, [(0, 0), (1, 0)])
    assert len(serving.fetch_handler.sessions) == 0
    await serving.close()


@in_loop
async def test_the_high_watermark_is_news(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    asker = Asker(serving)
    await asker.ask(wanted("t", 0, 0), replica_id=2)
    await filled(serving)
    assert told(await asker.ask(replica_id=2)) == [(0, 2)]
    response = await asker.ask(wanted("t", 0, 2), replica_id=2)
    assert told(response) == [(0, 0)]
    assert response.responses[0].partitions[0].high_watermark == 2
    assert told(await asker.ask(replica_id=2)) == []
    await serving.close()


@in_loop
async def test_errors_are_told_and_so_is_their_end(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=1)
    asker = Asker(serving)
    await asker.ask(wanted("t", 0), wanted("t", 5))
    for _ in range(2):
        response = await asker.ask()
        assert told(response) == [(5, 0)]
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await serving.assign("t", 5)
    assert told(await asker.ask()) == [(5, 0)]
    assert told(await asker.ask()) == []
    await serving.close()


@in_loop
async def test_partitions_are_added_moved_and_forgotten(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=4)
    for index in range(4):
        await filled(serving, index, batches=2)
    asker = Asker(serving)
    assert told(await asker.ask(wanted("t", 0), wanted("t", 1))) == [(0, 4), (1, 4)]
    response = await asker.ask(wanted("t", 2, 2), wanted("t", 0, 4), forget=[("t", 1), ("t", 9), ("x", 0)])
    assert told(response) == [(2, 2)]
    assert told(await asker.ask(forget=[("t", 0)])) == [(2, 2)]
    session_id = asker.session[0]
    response = await asker.ask(forget=[("t", 2)])
    assert (response.session_id, told(response)) == (0, []), "an empty session is over"
    assert serving.fetch_handler.sessions.get(session_id) is None
    await serving.close()


@in_loop
async def test_who_had_records_goes_last(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    for index in range(3):
        size = await filled(serving, index, batches=9)
    asker = Asker(serving)
    order = [wanted("t", index, max_bytes=size) for index in range(3)]
    assert told(await asker.ask(*order, max_bytes=size)) == [(0, 2), (1, 0), (2, 0)]
    for expected in (0, 1, 2, 0, 1, 2):
        answer = told(await asker.ask(max_bytes=size))
        assert [index for index, count in answer if count] == [expected]
    await serving.close()


@in_loop
async def test_sessions_that_are_not_as_they_should_be(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    asker = Asker(serving, 12)
    await asker.ask(wanted("t"))
    session_id, epoch = asker.session

    async def code(session: tuple[int, int], version: int = 12) -> ErrorCode:
        response = await serving.ask(fetch(version=version, session=session), version)
        if response.error_code:
            assert (response.session_id, response.responses) == (0, [])
        return ErrorCode(response.error_code)

    assert await code((session_id + 1, epoch)) is NOT_FOUND
    assert await code((0, 5)) is NOT_FOUND
    assert await code((session_id, epoch + 1)) is WRONG_EPOCH
    assert await code((session_id, 0)) is ErrorCode.NONE
    # that was the first request of another session, which ended this one
    assert await code((session_id, epoch)) is NOT_FOUND
    asker.session = 0, 0
    await asker.ask(wanted("t"))
    session_id, epoch = asker.session
    assert await code((session_id, -5)) is WRONG_EPOCH
    assert await code((session_id, epoch), 13) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert await code((session_id, epoch)) is ErrorCode.NONE
    assert await code((session_id, -1)) is ErrorCode.NONE
    assert await code((session_id, epoch + 1)) is NOT_FOUND
    await serving.close()


@in_loop
async def test_a_new_session_takes_the_place_of_the_old(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    asker = Asker(serving)
    await asker.ask(wanted("t"))
    first = asker.session[0]
    asker.session = first, 0
    await asker.ask(wanted("t"))
    assert asker.session[0] not in (0, first)
    assert serving.fetch_handler.sessions.get(first) is None
    await serving.close()


@in_loop
async def test_a_session_that_went_on_without_one_of_its_requests(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    asker = Asker(serving)
    await asker.ask(wanted("t"))
    session_id, epoch = asker.session
    request = fetch(version=NEWEST, session=(session_id, epoch), max_wait_ms=LONG_MS)
    parked = serving.park(request, NEWEST)
    await turns()
    await serving.ask(fetch(version=NEWEST, session=(session_id, epoch + 1)), NEWEST)
    await filled(serving)
    assert (await parked).error_code == WRONG_EPOCH
    await serving.close()


@in_loop
async def test_a_session_waits_at_all_its_partitions(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=5)
    asker = Asker(serving)
    await asker.ask(*(wanted("t", index) for index in range(5)))
    parked = asyncio.ensure_future(asker.ask(max_wait_ms=LONG_MS))
    await turns()
    await filled(serving, 3)
    assert told(await parked) == [(3, 2)]
    await serving.close()


# How many there are


class Sessions:
    """Sessions with a clock, and nobody who reads."""

    def __init__(self, limit: int) -> None:
        self.now_ms = 0.0
        self.all = FetchSessions(limit, Random(1), lambda: self.now_ms)

    def open(self, size: int = 1, *, follower: bool = False) -> int:
        order = [wanted("t", index) for index in range(size)]
        begun = self.all.begin(fetch(*order, version=12, session=(0, 0)), 12, is_of_follower=follower)
        return self.all.end(begun)

    def use(self, session_id: int, epoch: int) -> None:
        self.all.end(self.all.begin(fetch(version=12, session=(session_id, epoch)), 12, is_of_follower=False))

    def has(self, session_id: int) -> bool:
        return self.all.get(session_id) is not None


def test_there_are_no_more_than_may_be():
    sessions = Sessions(2)
    first, second = sessions.open(), sessions.open()
    assert first != second
    assert min(first, second) > 0
    assert sessions.open() == 0
    assert len(sessions.all) == 2
    assert Sessions(0).open() == 0


def test_what_was_not_used_for_long_makes_room():
    sessions = Sessions(2)
    first, second = sessions.open(9), sessions.open(9)
    sessions.now_ms = EVICTABLE_AFTER_MS - 1
    sessions.use(first, 1)
    sessions.now_ms = EVICTABLE_AFTER_MS
    assert sessions.open() == 0
    sessions.now_ms += 1
    third = sessions.open()
    assert third
    assert (sessions.has(first), sessions.has(second)) == (True, False)


def test_large_sessions_take_the_place_of_small_ones_in_time():
    sessions = Sessions(2)
    first, second = sessions.open(3), sessions.open(2)
    assert sessions.open(9) == 0, "they have not had their time"
    sessions.now_ms = EVICTABLE_AFTER_MS + 1
    sessions.use(first, 1)
    sessions.use(second, 1)
    assert sessions.open(1) == 0, "it is worth less"
    third = sessions.open(5)
    assert third
    assert (sessions.has(first), sessions.has(second)) == (True, False)


def test_followers_come_first():
    sessions = Sessions(2)
    consumers = [sessions.open(9), sessions.open(8)]
    followers = [sessions.open(1, follower=True), sessions.open(1, follower=True)]
    assert all(followers), "at once, however large the others are"
    assert not any(map(sessions.has, consumers))
    assert sessions.open(1, follower=True) == 0
    assert sessions.open(99) == 0
    sessions.now_ms = EVICTABLE_AFTER_MS + 1
    for one in followers:
        sessions.use(one, 1)
    assert sessions.open(99) == 0, "a consumer never drives a follower away"
    assert sessions.open(2, follower=True)


def test_epochs_begin_again():
    sessions = Sessions(1)
    session_id = sessions.open()
    session = sessions.all.get(session_id)
    assert session is not None
    session.epoch = 0x7FFFFFFF
    sessions.use(session_id, 0x7FFFFFFF)
    sessions.use(session_id, 1)


def test_a_session_of_nothing_is_not_opened():
    assert Sessions(1).open(0) == 0


# Against a model

PARTITIONS = 5


class Model:
    """A client that knows what the answer must be: it remembers what was told, and sees the logs."""

    def __init__(self) -> None:
        self.session: tuple[int, int] | None = None
        self.offsets: dict[int, int] = {}
        self.told: dict[int, tuple[int, int] | None] = {}

    def expected(self, logs: dict[int, tuple[int, int]], *, is_full: bool) -> dict[int, int]:
        """The partitions that must be told, and their records; then they are."""
        answer = {}
        for index, offset in self.offsets.items():
            start, end = logs[index]
            if not start <= offset <= end:
                answer[index], self.told[index] = -1, None
                continue
            if is_full or offset < end or self.told.get(index) != (end, start):
                answer[index] = end - offset
            self.told[index] = end, start
        return answer


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, PARTITIONS - 1), st.integers(0, 3)),
    st.tuples(
        st.just("fetch"),
        st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 8), max_size=PARTITIONS),
        st.sets(st.integers(0, PARTITIONS - 1), max_size=2),
    ),
    st.tuples(
        st.just("open"), st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 8)), st.just(0)
    ),
    st.tuples(st.just("lose"), st.just(0), st.just(0)),
)


class Logs:
    """Sessions whose partitions are numbers: where a log begins and ends."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(3, Random(1), lambda: 0.0)
        self.logs = dict.fromkeys(range(PARTITIONS), (0, 0))

    def fetch(self, request: FetchRequest) -> tuple[int, dict[int, int]]:
        """What a broker does with a session, without reading."""
        begun = self.sessions.begin(request, 12, is_of_follower=False)
        session_id = self.sessions.end(begun)
        answer, moved = {}, []
        for one in begun.in_turn():
            start, end = self.logs[one.partition_id]
            if not start <= one.offset <= end:
                one.tell_error()
                answer[one.partition_id] = -1
                continue
            has_news = one.tell(end, start)
            if one.offset < end:
                moved.append(one)
            if one.offset < end or has_news or not begun.is_incremental:
                answer[one.partition_id] = end - one.offset
        order = [one.partition_id for one in begun.in_turn()]
        begun.last(moved)
        if begun.session is not None:
            last = [one.partition_id for one in moved]
            now = [one.partition_id for one in begun.in_turn()]
            assert now == [one for one in order if one not in last] + last
        return session_id, answer


@settings(max_examples=200)
@given(st.lists(steps, max_size=40))
def test_a_session_tells_exactly_what_its_client_does_not_know(script: list[Any]):
    broker, model = Logs(), Model()
    for step in script:
        match step:
            case "append", index, count:
                start, end = broker.logs[index]
                broker.logs[index] = start, end + count
            case "delete", index, count:
                start, end = broker.logs[index]
                broker.logs[index] = min(start + count, end), end
            case "lose", _, _:
                if model.session is not None:
                    broker.sessions._by_id.clear()
            case "open", asked, _:
                old = model.session[0] if model.session is not None else 0
                model.offsets, model.told = dict(asked), {}
                request = _request(asked, (old, 0))
                session_id, answer = broker.fetch(request)
                assert answer == model.expected(broker.logs, is_full=True)
                assert (session_id > 0) is bool(asked)
                model.session = (session_id, 1) if asked else None
            case "fetch", asked, forgotten:
                if model.session is None:
                    continue
                request = _request(asked, model.session, forgotten)
                try:
                    session_id, answer = broker.fetch(request)
                except ApiError as error:
                    assert error.code is NOT_FOUND
                    assert not len(broker.sessions)
                    model.session = None
                    continue
                for index, offset in asked.items():
                    if index not in model.offsets:
                        model.told.pop(index, None)
                    model.offsets[index] = offset
                for index in forgotten:
                    model.offsets.pop(index, None)
                assert answer == model.expected(broker.logs, is_full=False)
                assert session_id == (model.session[0] if model.offsets else 0)
                model.session = (session_id, model.session[1] + 1) if model.offsets else None


def _request(asked: dict[int, int], session: tuple[int, int], forgotten: Any = ()) -> FetchRequest:
    order = [wanted("t", index, offset) for index, offset in asked.items()]
    return fetch(*order, version=12, session=session, forget=[("t", index) for index in sorted(forgotten)])


def test_sessions_know_topics_by_id_in_newer_versions():
    sessions = FetchSessions(1, Random(1), lambda: 0.0)
    request = fetch(wanted("t"), wanted("u"), version=13, session=(0, 0))
    for topic in request.topics:
        topic.topic = ""  # as it comes off the wire
    begun = sessions.begin(request, 13, is_of_follower=False)
    assert list(begun.wanted) == [(topic_id("t"), 0), (topic_id("u"), 0)]
