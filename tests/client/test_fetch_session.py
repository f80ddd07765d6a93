"""What is listed in a fetch, and what a broker already knows."""

from quorate.client.fetch_session import FetchSession, Row
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.produce_fetch import FetchResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid

ID = Uuid(b"1" * 16)
OTHER_ID = Uuid(b"2" * 16)


def rows(topic_id: Uuid = ID, **offsets: int) -> dict[TopicPartition, Row]:
    return {
        TopicPartition("t", int(name[1:])): Row(topic_id, 0, offset, 100) for name, offset in offsets.items()
    }


def listed(part) -> dict[int, int]:
    return {one.partition: one.fetch_offset for topic in part.topics for one in topic.partitions}


def forgotten(part) -> list[tuple[Uuid, int]]:
    return [(topic.topic_id, one) for topic in part.forgotten for one in topic.partitions]


def answer(session_id: int = 9, error_code: int = 0) -> FetchResponse:
    return FetchResponse(session_id=session_id, error_code=error_code, responses=[])


def open_session(**offsets: int) -> FetchSession:
    session = FetchSession()
    session.next(rows(**offsets))
    session.answered(answer())
    return session


def test_the_first_request_lists_everything_and_later_ones_what_changed():
    session = FetchSession()
    part = session.next(rows(p0=5, p1=6))
    assert (part.session_id, part.session_epoch, listed(part)) == (0, 0, {0: 5, 1: 6})
    session.answered(answer())
    part = session.next(rows(p0=5, p1=7, p2=0))
    assert (part.session_id, part.session_epoch, listed(part)) == (9, 1, {1: 7, 2: 0})
    session.answered(answer())
    part = session.next(rows(p1=7, p2=0))
    assert (part.session_epoch, listed(part), forgotten(part)) == (2, {}, [(ID, 0)])


def test_a_topic_that_was_created_again_is_another_one():
    part = open_session(p0=5).next(rows(OTHER_ID, p0=0))
    assert listed(part) == {0: 0}
    assert forgotten(part) == [(ID, 0)]


def test_without_an_answer_a_new_session_takes_the_place_of_the_old():
    session = open_session(p0=5, p1=6)
    session.next(rows(p0=6, p1=6))
    session.lost()
    part = session.next(rows(p0=6, p1=6))
    assert (part.session_id, part.session_epoch, listed(part), forgotten(part)) == (9, 0, {0: 6, 1: 6}, [])


def test_what_the_broker_says_of_the_session():
    for code, session_id in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ):
        session = open_session(p0=5)
        session.next(rows(p0=6))
        session.answered(answer(0, code))
        part = session.next(rows(p0=6))
        assert (part.session_id, part.session_epoch, listed(part)) == (session_id, 0, {0: 6})


def test_a_broker_without_sessions_is_told_everything_every_time():
    session = FetchSession()
    for _ in range(3):
        part = session.next(rows(p0=5))
        assert (part.session_id, part.session_epoch, listed(part)) == (0, 0, {0: 5})
        session.answered(answer(session_id=0))


def test_names_and_ids_do_not_mix():
    session = open_session(p0=5)
    part = session.next(rows(ZERO_UUID, p0=5))
    assert (part.session_id, part.session_epoch, part.knows_ids) == (9, 0, False)
    session.answered(answer(10))
    assert session.next(rows(ZERO_UUID, p0=5)).session_epoch == 1


def test_the_epoch_goes_on_at_one():
    session = open_session(p0=5)
    session._epoch = 0x7FFFFFFF
    session.answered(answer())
    assert session.next(rows(p0=5)).session_epoch == 1
