"""A follower, and what a leader or the way from it does to it: bytes that are in no honest conversation."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from memory_node import endpoint_of, voter_of

from quorate.protocol import batch as batches
from quorate.protocol.batch import ControlType, Record
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.raft.effects import Effects, ElectionState
from quorate.raft.messages import FetchAnswer, FetchSnapshot, SnapshotAnswer, Vote, VoteAnswer
from quorate.raft.positions import LogPositions, Position
from quorate.raft.quorum import BATCH_BYTES_MAX, Now, Quorum, SafetyError
from quorate.raft.state import Candidate, Follower, Leader, Unattached
from quorate.raft.voters import ReplicaKey, VoterHistory, VoterSet

THREE = VoterSet.of(voter_of(ReplicaKey(node_id)) for node_id in (1, 2, 3))
NOW = Now(1000.0, 1000)
LATER = Now(1020.0, 1020)


def replica(
    log: LogPositions | None = None, leader_id: int = 2, epoch: int = 5, voters: VoterSet = THREE
) -> Quorum:
    quorum = Quorum(
        ReplicaKey(1),
        (endpoint_of(1),),
        log=log or LogPositions(),
        voters=VoterHistory(voters),
        random=Random(1),
    )
    quorum.start(ElectionState(epoch, leader_id), NOW)
    return quorum


def answer(quorum: Quorum, told: FetchAnswer | SnapshotAnswer | VoteAnswer, now: Now = NOW) -> Effects:
    """Answers what is under way."""
    (number,) = quorum._outstanding
    return quorum.answered(number, told, now)


def fetched(**fields: object) -> FetchAnswer:
    return replace(FetchAnswer(epoch=5, leader_id=2, leader_endpoint=endpoint_of(2)), **fields)  # type: ignore[arg-type]


def batch(offset: int, epoch: int, value: bytes = b"a") -> bytes:
    record = Record(offset, 0, None, value)
    return bytes(batches.build([record], base_offset=offset, leader_epoch=epoch))


# Batches


def test_whole_batches_are_taken() -> None:
    quorum = replica()
    both = batch(0, 3) + batch(1, 5)
    effects = answer(quorum, fetched(records=both + b"\0" * 9))  # and the beginning of a third
    assert b"".join(map(bytes, effects.append)) == both
    assert quorum.log.end == (2, 5)
    assert quorum.log.epochs == ((3, 0), (5, 1))


BAD_SECOND_BATCHES = {
    "flipped bit": batch(1, 5)[:-1] + b"\x01",
    "wrong offset": batch(2, 5),
    "future epoch": batch(1, 6),
    "past epoch": batch(1, 2),
    "no batch": b"\xff" * 80,
    "control record without a key": bytes(
        batches.build([Record(1, 0, None, b"")], base_offset=1, leader_epoch=5, is_control=True)
    ),
    "voters that are none": bytes(
        batches.build_control(
            [(ControlType.KRAFT_VOTERS, b"\xff")], timestamp=0, base_offset=1, leader_epoch=5
        )
    ),
}


@pytest.mark.parametrize("bad", BAD_SECOND_BATCHES.values(), ids=BAD_SECOND_BATCHES.keys())
def test_a_bad_batch_is_asked_for_again(bad: bytes) -> None:
    """KAFKA-18723: what came before it is kept; the follower neither stops nor asks without a pause."""
    quorum = replica()
    good = batch(0, 3)
    effects = answer(quorum, fetched(records=good + bad))
    assert [bytes(data) for data in effects.append] == [good]
    assert quorum.log.end == (1, 3)
    quorum.flushed(1, 0, NOW)
    assert not quorum.may_send_to(2)
    assert quorum.deadline_ms == LATER.ms
    (send,) = quorum.tick(LATER).send
    assert send.ask.offset == 1  # type: ignore[union-attr]


def test_a_batch_of_data_is_at_most_eight_mebibytes() -> None:
    """KAFKA-14204: it is refused, and nothing of it is appended."""
    quorum = replica(leader_id=-1, voters=VoterSet.of([voter_of(ReplicaKey(1))]))
    assert isinstance(quorum.role, Leader)
    end = quorum.log.end
    with pytest.raises(ApiError) as error:
        quorum.append([b"x" * BATCH_BYTES_MAX], quorum.epoch, NOW)
    assert error.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert quorum.log.end == end


@pytest.mark.parametrize("epoch", [5, 7])
def test_only_the_leader_of_the_epoch_appends(epoch: int) -> None:
    quorum = replica(leader_id=-1, voters=VoterSet.of([voter_of(ReplicaKey(1))]))
    assert quorum.epoch == 6
    with pytest.raises(ApiError) as error:
        quorum.append([b"a"], epoch, NOW)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Cutting


def long_log() -> LogPositions:
    return LogPositions(4, 9, [(2, 4), (3, 6)], [Position(4, 2)])


def test_what_was_deleted_cannot_be_cut_off() -> None:
    quorum = replica(long_log())
    with pytest.raises(SafetyError, match="cut the log at 2, below 4"):
        answer(quorum, fetched(diverging=Position(2, 0)))


def test_what_was_committed_in_another_role_cannot_be_cut_off() -> None:
    quorum = replica(long_log())
    quorum.commit(8)
    quorum.high_watermark = None  # as after leading
    with pytest.raises(SafetyError, match="below 8"):
        answer(quorum, fetched(diverging=Position(6, 2)))


def test_an_answer_for_another_place_is_not_used() -> None:
    """The log ends at the same offset as when it was asked for, but with another epoch."""
    quorum = replica(long_log())
    quorum.log.truncate(8)
    quorum.log.append(5, 8, 9)
    effects = answer(quorum, fetched(diverging=Position(6, 2)))
    assert effects.truncate is None
    assert quorum.log.end == (9, 5)


# Snapshots


def downloading() -> Quorum:
    quorum = replica()
    effects = answer(quorum, fetched(snapshot=Position(7, 4)))
    (send,) = effects.send
    assert isinstance(send.ask, FetchSnapshot)
    assert (send.ask.snapshot, send.ask.byte_position) == ((7, 4), 0)
    return quorum


def part(**fields: object) -> SnapshotAnswer:
    given = SnapshotAnswer(
        epoch=5,
        leader_id=2,
        leader_endpoint=endpoint_of(2),
        snapshot=Position(7, 4),
        size_bytes=10,
        byte_position=0,
        data=b"12345",
    )
    return replace(given, **fields)  # type: ignore[arg-type]


def test_a_snapshot_comes_in_parts() -> None:
    quorum = downloading()
    effects = answer(quorum, part())
    assert effects.chunk is not None
    assert (effects.chunk.byte_position, bytes(effects.chunk.data), effects.install) == (0, b"12345", None)
    effects = answer(quorum, part(byte_position=5))
    assert effects.install == (7, 4)
    assert effects.send == []  # first it has to be put in its place
    effects = quorum.installed(Position(7, 4), THREE, 0, NOW)
    assert (effects.committed, quorum.log.end, quorum.log.start_offset) == (7, (7, 4), 7)
    assert len(effects.send) == 1


BAD_PARTS = {
    "another snapshot": part(snapshot=Position(8, 4)),
    "another place": part(byte_position=5),
    "nothing": part(data=b""),
    "it is gone": part(error=ErrorCode.SNAPSHOT_NOT_FOUND, data=b""),
    "no name": part(error=ErrorCode.UNKNOWN_SERVER_ERROR, snapshot=Position(-1, -1), data=b""),
}


@pytest.mark.parametrize("bad", BAD_PARTS.values(), ids=BAD_PARTS.keys())
def test_a_bad_part_ends_the_download(bad: SnapshotAnswer) -> None:
    """Back to fetching, after a pause."""
    quorum = downloading()
    effects = answer(quorum, bad)
    assert effects.chunk is None
    assert effects.send == []
    assert isinstance(quorum.role, Follower)
    assert quorum.role.download is None
    assert quorum.deadline_ms == LATER.ms


def test_a_part_without_an_epoch_is_asked_for_again_after_a_pause() -> None:
    """As when the whole request was refused."""
    quorum = downloading()
    effects = answer(quorum, part(epoch=-1, error=ErrorCode.INVALID_REQUEST))
    assert effects.send == []
    assert quorum.deadline_ms == LATER.ms


def test_a_snapshot_that_was_not_what_it_should_be() -> None:
    quorum = downloading()
    answer(quorum, part(size_bytes=5))
    effects = quorum.install_failed(NOW)
    assert effects.send == []
    assert quorum.deadline_ms == LATER.ms


@pytest.mark.parametrize("snapshot", [Position(8, 3), Position(9, -1)])
def test_a_snapshot_that_would_take_us_back(snapshot: Position) -> None:
    quorum = replica(long_log())
    quorum.commit(8)
    effects = answer(quorum, fetched(snapshot=snapshot))
    assert effects.send == []
    assert quorum.deadline_ms == LATER.ms


# Who leads


def test_a_leader_that_answers_but_cannot_be_reached_is_not_asked_without_a_pause() -> None:
    quorum = replica(leader_id=-1)
    effects = answer(quorum, FetchAnswer(epoch=5, leader_id=9, records=batch(0, 5)))
    assert isinstance(quorum.role, Unattached)
    assert quorum.leader_id == 9
    assert effects.append == []
    assert len(effects.send) == 1  # somebody else may know
    effects = answer(quorum, FetchAnswer(epoch=5, leader_id=9))
    assert effects.send == []
    assert quorum.deadline_ms == LATER.ms


def test_what_a_leader_says_of_itself_counts_more_than_the_voter_set() -> None:
    quorum = replica()
    elsewhere = endpoint_of(2)._replace(host="elsewhere")
    answer(quorum, fetched(leader_endpoint=elsewhere))
    assert quorum.leader_endpoint == elsewhere
    answer(quorum, fetched(leader_endpoint=None))
    assert quorum.leader_endpoint == elsewhere


def test_one_voter_without_pre_votes_is_enough_to_stand() -> None:
    quorum = replica(leader_id=-1)
    effects = quorum.tick(Now(9000.0, 9000))
    votes = [send for send in effects.send if isinstance(send.ask, Vote)]
    assert [send.ask.pre_vote for send in votes if isinstance(send.ask, Vote)] == [True, True]
    effects = quorum.answered(votes[0].number, VoteAnswer(ErrorCode.UNSUPPORTED_VERSION), Now(9000.0, 9000))
    assert isinstance(quorum.role, Candidate)
    assert [send.ask.pre_vote for send in effects.send if isinstance(send.ask, Vote)] == [False, False]
