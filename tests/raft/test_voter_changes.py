"""Changes of voters that need more than a conversation: what the new node says of itself."""

from __future__ import annotations

from random import Random

import pytest
from memory_node import endpoint_of, voter_of

from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.effects import Effects, ElectionState, Send
from quorate.raft.messages import AddVoter, Answer, Fetch, Probe, ProbeAnswer
from quorate.raft.positions import LogPositions, Position
from quorate.raft.quorum import Now, Quorum
from quorate.raft.reconfiguration import CAUGHT_UP_WITHIN_MS
from quorate.raft.voters import ReplicaKey, VoterHistory, VoterSet

A = Uuid(b"a" * 16)
ME, FOUR, FIVE = ReplicaKey(1, A), ReplicaKey(4, A), ReplicaKey(5, A)
NOW = Now(1000.0, 1000)


def leader() -> Quorum:
    """Alone, and with everything committed."""
    history = VoterHistory()
    history.reset(VoterSet.of([voter_of(ME)]), 1, 0)
    log = LogPositions(snapshots=[Position(0, 0)])
    quorum = Quorum(ME, (endpoint_of(1),), log=log, voters=history, random=Random(1))
    quorum.start(ElectionState(), NOW)
    quorum.flushed(quorum.log.end_offset, 0, NOW)
    return quorum


def caught_up(quorum: Quorum, key: ReplicaKey, now: Now = NOW) -> None:
    quorum.receive("fetch", Fetch(quorum.epoch, key, quorum.log.end_offset, quorum.log.last_epoch), now)


def probe_of(effects: Effects) -> Send:
    (send,) = effects.send
    assert isinstance(send.ask, Probe)
    return send


def errors(effects: Effects) -> list[ErrorCode]:
    return [reply.answer.error for reply in effects.reply]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ProbeAnswer(kraft_versions=(0, 0)), ErrorCode.INVALID_REQUEST),
        (ProbeAnswer(kraft_versions=(2, 3)), ErrorCode.INVALID_REQUEST),
        (ProbeAnswer(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
        (Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_node_that_cannot_be_a_voter(answer: Answer, error: ErrorCode) -> None:
    quorum = leader()
    caught_up(quorum, FOUR)
    probe = probe_of(quorum.receive("client", AddVoter(voter_of(FOUR)), NOW))
    assert errors(quorum.answered(probe.number, answer, NOW)) == [error]
    assert len(quorum.voters.latest) == 1


def test_the_versions_that_it_supports_are_written_down() -> None:
    quorum = leader()
    caught_up(quorum, FOUR)
    probe = probe_of(quorum.receive("client", AddVoter(voter_of(FOUR, (0, 0))), NOW))
    effects = quorum.answered(probe.number, ProbeAnswer(kraft_versions=(0, 1)), NOW)
    assert effects.reply == []
    assert quorum.voters.latest.get(4) == voter_of(FOUR, (0, 1))


def test_a_node_that_was_silent_for_an_hour_is_not_caught_up() -> None:
    quorum = leader()
    caught_up(quorum, FOUR)
    later = Now(NOW.ms + CAUGHT_UP_WITHIN_MS + 1, 0)
    probe = probe_of(quorum.receive("client", AddVoter(voter_of(FOUR)), later))
    assert errors(quorum.answered(probe.number, ProbeAnswer(kraft_versions=(0, 1)), later)) == [
        ErrorCode.REQUEST_TIMED_OUT
    ]


def test_the_answer_of_one_node_says_nothing_about_another() -> None:
    """The first was asked and did not answer in time; it does when the second is being added."""
    quorum = leader()
    caught_up(quorum, FIVE)
    first = probe_of(quorum.receive("first", AddVoter(voter_of(FOUR)), NOW))
    later = Now(NOW.ms + quorum.settings.request_timeout_ms, 0)
    assert errors(quorum.tick(later)) == [ErrorCode.REQUEST_TIMED_OUT]
    second = probe_of(quorum.receive("second", AddVoter(voter_of(FIVE)), later))
    effects = quorum.answered(first.number, ProbeAnswer(kraft_versions=(0, 0)), later)
    assert errors(effects) == []
    quorum.answered(second.number, ProbeAnswer(kraft_versions=(0, 1)), later)
    assert quorum.voters.latest.contains(FIVE)


def test_a_node_that_does_not_answer_is_asked_again() -> None:
    quorum = leader()
    caught_up(quorum, FOUR)
    probe = probe_of(quorum.receive("client", AddVoter(voter_of(FOUR)), NOW))
    assert quorum.answered(probe.number, None, NOW).send == []
    later = Now(NOW.ms + quorum.settings.retry_backoff_ms, 0)
    assert probe_of(quorum.tick(later)).to.id == 4
