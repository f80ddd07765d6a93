"""One replica of the metadata log: a step at a time, without I/O.

Every input (`start`, `tick`, `receive`, `answered`, `append`, `flushed`, ...) returns `Effects`, which the
shell performs completely before the next input; `effects` says in which order. Time comes in with every
input, random numbers from the generator that is given.

The rules, in one place each: which role may follow which is `state.TRANSITIONS`; who gets a vote is
`election.grants`; where a replica may go on is `positions.LogPositions.check`; what is committed is
`replication.high_watermark`; how voters change is `reconfiguration`.

Of the two times in `Now`, deadlines use the monotonic one; the wall clock only gets into records and reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeVar

from quorate.protocol import batch as batches
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.raft import election, replication
from quorate.raft.control import ControlRecords, leader_change_batch
from quorate.raft.effects import (
    Effects,
    ElectionState,
    Leadership,
    Peer,
    ReadLog,
    ReadSnapshot,
    Reply,
    Send,
)
from quorate.raft.following import Following
from quorate.raft.leading import Leading
from quorate.raft.messages import (
    AddVoter,
    Answer,
    Ask,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Probe,
    ProbeAnswer,
    RemoveVoter,
    SnapshotAnswer,
    UpdateVoter,
    Vote,
    VoteAnswer,
)
from quorate.raft.positions import LogPositions, Position
from quorate.raft.reconfiguration import VoterChanges
from quorate.raft.state import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    SafetyError,
    Tally,
    Unattached,
    is_allowed,
)
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

__all__ = ["Now", "Quorum", "QuorumSettings", "SafetyError"]

BATCH_BYTES_MAX: Final = 8 << 20

_T = TypeVar("_T")


class Chance(Protocol):
    """Where random numbers come from: a `random.Random`, seeded by whoever runs this."""

    def randrange(self, stop: int, /) -> int: ...
    def choice(self, options: Sequence[_T], /) -> _T: ...


class Now(NamedTuple):
    ms: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """The timeouts under `controller.quorum.`, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    is_flushed_before_fetch: bool = True  # a broker's fetch promises nothing, and need not wait

    @property
    def check_quorum_ms(self) -> float:
        """How long a leader goes on without hearing from a majority."""
        return 1.5 * self.fetch_timeout_ms


class Quorum:
    """The replica. `role`, `log`, `voters` and `high_watermark` may be read by anyone."""

    def __init__(
        self,
        me: ReplicaKey,
        endpoints: tuple[Endpoint, ...],
        *,
        log: LogPositions,
        voters: VoterHistory,
        bootstrap: Sequence[Endpoint] = (),
        settings: QuorumSettings | None = None,
        random: Chance,
        can_vote: bool = True,
    ) -> None:
        self.me = me
        self.endpoints = endpoints
        self.log = log
        self.voters = voters
        self.settings = settings or QuorumSettings()
        self.high_watermark: int | None = None
        self.changes = VoterChanges(self)
        self.leading = Leading(self)
        self.following = Following(self)
        self.bootstrap = [Peer(-2 - index, endpoint) for index, endpoint in enumerate(bootstrap)]
        self.chance = random
        self._can_vote = can_vote  # a broker never does, whatever its id
        self.effects = Effects()
        self._outstanding: dict[int, Send] = {}
        self._backoff_until_ms: dict[int, float] = {}
        self._next_number = 1
        self._reported: Leadership | None = None
        self.role: Role = Unattached(0, float("inf"))

    # What anyone may ask

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        """Who leads this epoch as far as is known; -1 for nobody."""
        role = self.role
        if isinstance(role, (Leader, Resigned)):
            return self.me.id
        return -1 if isinstance(role, Candidate) else role.leader_id

    @property
    def is_voter(self) -> bool:
        return self._can_vote and self.voters.latest.contains(self.me)

    @property
    def election_state(self) -> ElectionState:
        """What has to be on disk for this role."""
        role = self.role
        if isinstance(role, Candidate):
            return ElectionState(role.epoch, -1, self.me)
        if isinstance(role, (Leader, Resigned)):
            return ElectionState(role.epoch, self.me.id, None)
        return ElectionState(role.epoch, role.leader_id, role.voted)

    @property
    def deadline_ms(self) -> float:
        """When `tick` has something to do at the latest."""
        role = self.role
        if isinstance(role, Leader):
            due_ms = self.leading.deadline_ms(role)
        elif isinstance(role, Follower):
            due_ms = role.fetch_deadline_ms
            if self.changes.wants_update(role) and self.may_send_to(role.leader_id):
                due_ms = min(due_ms, role.update_due_ms)
        else:
            due_ms = role.deadline_ms
        return min(due_ms, *self._backoff_until_ms.values(), float("inf"))

    # Inputs

    def start(self, stored: ElectionState, now: Now) -> Effects:
        """Takes up the role that the stored state and the log call for."""
        timeout_ms = self._election_deadline(now)
        if stored.epoch < self.log.last_epoch:
            # The file is lost or older than the log: nothing it says about its epoch counts.
            self.role = Unattached(self.log.last_epoch, timeout_ms)
            self.effects.persist = self.election_state
        elif stored.leader_id == self.me.id and self._can_vote:
            # Never leader again of an epoch whose unflushed records may have vanished.
            unacked = dict.fromkeys(peer.id for peer in self.other_voters())
            self.role = Resigned(stored.epoch, self._random_timeout(now), (), unacked)
        elif (
            stored.leader_id < 0
            and stored.voted is not None
            and stored.voted.id == self.me.id
            and self.is_voter
        ):
            self.role = Candidate(stored.epoch, timeout_ms, Tally(self.voters.latest, self.me))
        else:
            endpoint = self._endpoint_of(stored.leader_id)
            if endpoint is not None:
                fetch_deadline_ms = now.ms + self.settings.fetch_timeout_ms
                self.role = Follower(
                    stored.epoch, stored.leader_id, endpoint, fetch_deadline_ms, stored.voted
                )
            else:
                self.role = Unattached(stored.epoch, timeout_ms, stored.leader_id, stored.voted)
        if self.voters.latest.is_only(self.me) and self._can_vote:
            self._elect_only_voter(now)
        return self._finish(now)

    def tick(self, now: Now) -> Effects:
        """Acts on every deadline that has passed."""
        for peer_id, until_ms in list(self._backoff_until_ms.items()):
            if until_ms <= now.ms:
                del self._backoff_until_ms[peer_id]
        role = self.role
        if isinstance(role, Unattached):
            if role.deadline_ms <= now.ms and self.is_voter:
                self._become_prospective(now)
        elif isinstance(role, Prospective):
            if role.deadline_ms <= now.ms:
                self._give_up_prospective(role, now)
        elif isinstance(role, Candidate):
            if role.deadline_ms <= now.ms:
                self._become_prospective(now)
        elif isinstance(role, Follower):
            if role.fetch_deadline_ms <= now.ms:
                self._on_silent_leader(role, now)
        elif isinstance(role, Resigned):
            if role.deadline_ms <= now.ms:
                self._become_unattached(role.epoch + 1, now)
        else:
            self.leading.tick(role, now)
        return self._finish(now)

    def receive(self, token: object, ask: Ask, now: Now) -> Effects:
        """An ask of another replica; its answer will be a `Reply` with the same token, now or later."""
        if isinstance(ask, Vote):
            self.reply(token, self._on_vote(ask, now))
        elif isinstance(ask, BeginEpoch):
            self.reply(token, self._on_begin_epoch(ask, now))
        elif isinstance(ask, EndEpoch):
            self.reply(token, self._on_end_epoch(ask, now))
        elif isinstance(ask, Fetch):
            self.leading.on_fetch(token, ask, now)
        elif isinstance(ask, FetchSnapshot):
            self.leading.on_fetch_snapshot(token, ask, now)
        elif isinstance(ask, AddVoter):
            self.changes.on_add(token, ask, now)
        elif isinstance(ask, RemoveVoter):
            self.changes.on_remove(token, ask, now)
        elif isinstance(ask, UpdateVoter):
            self.changes.on_update(token, ask, now)
        else:
            raise AssertionError(f"nobody asks us for {ask}")
        return self._finish(now)

    def answered(self, number: int, answer: Answer | None, now: Now) -> Effects:
        """The answer to a `Send`, or None if there was none. An answer that nobody waits for is ignored."""
        send = self._outstanding.pop(number, None)
        if send is None:
            return self._finish(now)
        if answer is None:
            self.back_off(send.to.id, now)
        elif isinstance(send.ask, Probe):
            self.changes.on_probe(answer if isinstance(answer, ProbeAnswer) else None, now)
        elif self._on_common_answer(send, answer, now):
            self._on_answer(send, answer, now)
        return self._finish(now)

    def append(self, values: Sequence[bytes], epoch: int, now: Now) -> tuple[int, Effects]:
        """Appends records as one batch; returns the offset of the last one. Only for the leader of `epoch`.

        They are committed when `Effects.committed` passes that offset, or never if leadership is lost first.
        """
        if not isinstance(self.role, Leader) or self.role.epoch != epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of epoch {epoch}")
        base = self.log.end_offset
        records = [batches.Record(base + i, now.wall_ms, None, value) for i, value in enumerate(values)]
        data = batches.build(records, base_offset=base, leader_epoch=epoch)
        if len(data) > BATCH_BYTES_MAX:
            reason = f"{len(values)} records take {len(data)} bytes; a batch has at most {BATCH_BYTES_MAX}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, reason)
        self.leading.append(data)
        return self.log.end_offset - 1, self._finish(now)

    def flushed(self, end_offset: int, generation: int, now: Now) -> Effects:
        """The log is on disk up to an offset.

        `generation` is that of the log when the sync began: a report from before a truncation must not vouch
        for what was written after it.
        """
        if generation == self.log.generation:
            self.log.flushed_offset = max(self.log.flushed_offset, min(end_offset, self.log.end_offset))
        if isinstance(self.role, Leader):
            self.leading.advance_high_watermark(self.role, now)
        return self._finish(now)

    def installed(self, snapshot: Position, voters: VoterSet | None, kraft_version: int, now: Now) -> Effects:
        """A fetched snapshot was verified and has taken the place of the log."""
        self.log.begin_at(snapshot)
        self.voters.reset(voters, kraft_version, snapshot.offset)
        self.high_watermark = max(self.high_watermark or 0, snapshot.offset)
        self.effects.committed = self.high_watermark
        if isinstance(self.role, Follower):
            self.role.download = None
        return self._finish(now)

    def install_failed(self, now: Now) -> Effects:
        """A fetched snapshot was not what it should be: back to fetching."""
        if isinstance(self.role, Follower):
            self.role.download = None
            self.back_off(self.role.leader_id, now)
        return self._finish(now)

    def resign(self, now: Now) -> Effects:
        """A leader gives up its epoch and asks others to take over."""
        if isinstance(self.role, Leader):
            self.resign_from(self.role, now)
        return self._finish(now)

    # Elections

    def _on_vote(self, ask: Vote, now: Now) -> VoteAnswer:
        if not election.is_well_formed(ask):
            return VoteAnswer(ErrorCode.INVALID_REQUEST, self.epoch, self.leader_id)
        if ask.epoch < self.epoch:
            return self._vote_answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.candidate.id < 0:
            return self._vote_answer(ErrorCode.INVALID_REQUEST)
        if ask.epoch > self.epoch:
            self._become_unattached(ask.epoch, now)
        if not self._is_me(ask.voter):
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY)
        granted = self.me.id >= 0 and election.grants(self.role, ask, self.log.end)
        if granted and not ask.pre_vote:
            self._grant(ask.candidate, now)
        return self._vote_answer(ErrorCode.NONE, granted)

    def _grant(self, candidate: ReplicaKey, now: Now) -> None:
        role = self.role
        assert isinstance(role, (Unattached, Prospective)), "only these grant votes"
        if role.voted is not None:
            return
        deadline_ms = self._election_deadline(now)
        if isinstance(role, Unattached):
            self.role = replace(role, voted=candidate, deadline_ms=deadline_ms)
        else:
            tally = Tally(self.voters.latest, self.me)
            self.role = replace(role, voted=candidate, deadline_ms=deadline_ms, tally=tally)
        self.effects.persist = self.election_state

    def _vote_answer(self, error: ErrorCode, granted: bool = False) -> VoteAnswer:
        return VoteAnswer(error, self.epoch, self.leader_id, self.leader_endpoint, "", granted)

    def _on_begin_epoch(self, ask: BeginEpoch, now: Now) -> Answer:
        if ask.epoch < self.epoch:
            return self.answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.leader_id < 0:
            return self.answer(ErrorCode.INVALID_REQUEST)
        self._learn(ask.epoch, ask.leader_id, ask.endpoints[0] if ask.endpoints else None, now)
        if not self._is_me(ask.voter):
            return self.answer(ErrorCode.INVALID_VOTER_KEY)
        return self.answer(ErrorCode.NONE)

    def _on_end_epoch(self, ask: EndEpoch, now: Now) -> Answer:
        if ask.epoch < self.epoch:
            return self.answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.leader_id < 0:
            return self.answer(ErrorCode.INVALID_REQUEST)
        self._learn(ask.epoch, ask.leader_id, None, now)
        role = self.role
        if isinstance(role, Follower) and role.leader_id == ask.leader_id:
            max_ms = self.settings.election_backoff_max_ms
            delay_ms = election.successor_delay_ms(ask.successors, self.me, max_ms)
            role.fetch_deadline_ms = now.ms + delay_ms
        return self.answer(ErrorCode.NONE)

    def _become_prospective(self, now: Now) -> None:
        role = self.role
        leader_id, endpoint, voted = -1, None, None
        if isinstance(role, Follower):
            leader_id, endpoint, voted = role.leader_id, role.endpoint, role.voted
        elif isinstance(role, Candidate):
            voted = self.me
        elif isinstance(role, Unattached):
            leader_id, voted = role.leader_id, role.voted
        tally = Tally(self.voters.latest, self.me)
        deadline_ms = self._election_deadline(now)
        self._become(
            Prospective(self.epoch, deadline_ms, tally, leader_id, endpoint, voted), is_durable=False
        )
        if tally.is_won:
            self._become_candidate(now)

    def _on_silent_leader(self, role: Follower, now: Now) -> None:
        if self.is_voter:
            self._become_prospective(now)
        else:
            role.is_leader_silent = True  # others may know a new one
            role.fetch_deadline_ms = now.ms + self.settings.fetch_timeout_ms

    def _give_up_prospective(self, role: Prospective, now: Now) -> None:
        """Back to where we came from: a leader we know is still the best guess."""
        if role.leader_endpoint is not None:
            deadline_ms = now.ms + self.settings.fetch_timeout_ms
            self._become(Follower(role.epoch, role.leader_id, role.leader_endpoint, deadline_ms, role.voted))
        else:
            deadline_ms = self._election_deadline(now)
            self._become(Unattached(role.epoch, deadline_ms, role.leader_id, role.voted))

    def _become_candidate(self, now: Now) -> None:
        tally = Tally(self.voters.latest, self.me)
        self._become(Candidate(self.epoch + 1, self._election_deadline(now), tally))
        if tally.is_won:
            self._become_leader(tally, now)

    def _elect_only_voter(self, now: Now) -> None:
        if isinstance(self.role, Resigned):
            self._become_unattached(self.role.epoch + 1, now)
        if isinstance(self.role, Candidate):
            self._become_leader(self.role.tally, now)
        else:
            self._become_prospective(now)

    def _become_leader(self, tally: Tally, now: Now) -> None:
        epoch, start_offset = self.epoch, self.log.end_offset
        check_ms = now.ms + 1.5 * self.settings.fetch_timeout_ms
        self._become(Leader(epoch, start_offset, check_ms))
        self.high_watermark = None  # what was committed before is known again once this epoch has committed
        self.log.begin_epoch(epoch, start_offset)
        change = leader_change_batch(
            self.voters, self.my_voter, tally.granting, start_offset, epoch, now.wall_ms
        )
        self.leading.append(change)

    def resign_from(self, role: Leader, now: Now) -> None:
        successors = replication.successors(role, self.voters.latest, self.me)
        unacked = dict.fromkeys(peer.id for peer in self.other_voters())
        self._become(Resigned(role.epoch, self._random_timeout(now), successors, unacked), is_durable=False)

    # Changing roles

    def _become(self, role: Role, *, is_durable: bool = True) -> None:
        old = self.role
        if not is_allowed(old, role):
            raise SafetyError(
                f"{type(old).__name__}@{old.epoch} may not become {type(role).__name__}@{role.epoch}"
            )
        if isinstance(role, Follower) and role.leader_id == self.me.id:
            raise SafetyError(f"a follower of itself in epoch {role.epoch}")
        if isinstance(old, Leader):
            for parked in old.parked:
                self.reply(parked.token, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, role.epoch))
            self.changes.fail_pending()
        self.role = role
        if isinstance(role, Resigned):
            self.high_watermark = None
        if is_durable:
            self.effects.persist = self.election_state
        # Answers to what an earlier role asked mean nothing to this one.
        self._outstanding.clear()
        self._backoff_until_ms.clear()

    def _become_unattached(self, epoch: int, now: Now, leader_id: int = -1) -> None:
        role = self.role
        deadline_ms = self._election_deadline(now)
        if isinstance(role, (Unattached, Candidate, Prospective)):
            # The time that has passed counts: someone who keeps raising the epoch must not hold us back.
            deadline_ms = role.deadline_ms
        if not self.is_voter:
            deadline_ms = float("inf")
        self._become(Unattached(epoch, deadline_ms, leader_id))

    def _learn(self, epoch: int, leader_id: int, endpoint: Endpoint | None, now: Now) -> None:
        """Someone says who leads which epoch."""
        if epoch < self.epoch:
            return
        if leader_id == self.me.id:
            if epoch > self.epoch:
                self._become_unattached(epoch, now)
            return  # we know best whether we lead this epoch
        known = self.leader_id
        if epoch == self.epoch:
            if leader_id < 0:
                return
            if known >= 0 and known != leader_id:
                raise SafetyError(f"two leaders in epoch {epoch}: {known} and {leader_id}")
        endpoint = endpoint or self._endpoint_of(leader_id)
        role = self.role
        if leader_id < 0 or endpoint is None:
            if epoch > self.epoch:
                self._become_unattached(epoch, now, leader_id)
            elif isinstance(role, (Candidate, Unattached, Prospective)) and known < 0:
                # Its leader cannot be reached yet, but nobody else may be voted for any more.
                self._hold_leader(role, leader_id, now)
            return
        if epoch == self.epoch and isinstance(role, Follower):
            role.endpoint = endpoint
            return
        if epoch == self.epoch and isinstance(role, Prospective) and role.leader_endpoint is not None:
            return  # no news: it is the leader that we have not heard from
        voted = role.voted if epoch == self.epoch and isinstance(role, (Unattached, Prospective)) else None
        if epoch == self.epoch and isinstance(role, Candidate):
            voted = self.me
        deadline_ms = now.ms + self.settings.fetch_timeout_ms
        self._become(Follower(epoch, leader_id, endpoint, deadline_ms, voted))

    def _hold_leader(self, role: Candidate | Unattached | Prospective, leader_id: int, now: Now) -> None:
        if isinstance(role, Candidate):
            self._become_prospective(now)
            role = self.role  # type: ignore[assignment]
        if isinstance(role, (Unattached, Prospective)):
            role.leader_id = leader_id
            self.effects.persist = self.election_state

    # Replication, the follower's side

    def _on_common_answer(self, send: Send, answer: Answer, now: Now) -> bool:
        """What every answer means. Returns whether its own content is still of interest."""
        if answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH or 0 <= answer.epoch < self.epoch:
            self.back_off(send.to.id, now)
            return False
        if answer.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(send.ask, Vote) and send.ask.pre_vote:
            if isinstance(self.role, Prospective):
                self._become_candidate(now)
            return False
        if answer.epoch >= 0:
            self._learn(answer.epoch, answer.leader_id, answer.leader_endpoint, now)
        if answer.error is ErrorCode.NONE or isinstance(answer, SnapshotAnswer):
            return answer.epoch == self.epoch
        self.back_off(send.to.id, now)
        return False

    def _on_answer(self, send: Send, answer: Answer, now: Now) -> None:
        role = self.role
        if isinstance(answer, VoteAnswer) and isinstance(role, (Prospective, Candidate)):
            self._on_vote_answer(send, answer, role, now)
        elif isinstance(answer, FetchAnswer) and isinstance(role, Follower):
            self.following.on_fetch_answer(send, answer, role, now)
        elif isinstance(answer, SnapshotAnswer) and isinstance(role, Follower):
            self.following.on_snapshot_answer(send, answer, role, now)
        elif isinstance(send.ask, EndEpoch) and isinstance(role, Resigned):
            role.unacked.pop(send.to.id, None)
        elif isinstance(send.ask, UpdateVoter) and isinstance(role, Follower):
            self.following.heard(role, now)

    def _on_vote_answer(
        self, send: Send, answer: VoteAnswer, role: Prospective | Candidate, now: Now
    ) -> None:
        assert isinstance(send.ask, Vote)
        if send.ask.pre_vote != isinstance(role, Prospective):
            return
        role.tally.record(send.to.id, answer.granted)
        if role.tally.is_won:
            if isinstance(role, Prospective):
                self._become_candidate(now)
            else:
                self._become_leader(role.tally, now)
        elif role.tally.is_lost and isinstance(role, Prospective):
            self._give_up_prospective(role, now)

    # Sending what is due

    def _finish(self, now: Now) -> Effects:
        self._send_due(now)
        self._report_leadership()
        effects, self.effects = self.effects, Effects()
        return effects

    def _send_due(self, now: Now) -> None:
        role = self.role
        if isinstance(role, Unattached):
            self.following.discover()
        elif isinstance(role, (Prospective, Candidate)):
            pre_vote = isinstance(role, Prospective)
            for voter_id in role.tally.unanswered:
                peer = self._voter_peer(voter_id)
                if peer is not None:
                    ask = Vote(role.epoch, self.me, self.log.end, pre_vote, self.key_of(voter_id))
                    self.send(peer, ask)
        elif isinstance(role, Leader):
            self.leading.send_due(role, now)
        elif isinstance(role, Resigned):
            for voter_id in list(role.unacked):
                peer = self._voter_peer(voter_id)
                if peer is not None:
                    self.send(peer, EndEpoch(role.epoch, self.me.id, role.successors))
        else:
            self.following.send_due(role, now)

    def send(self, to: Peer, ask: Ask) -> bool:
        """Sends unless something is under way to the same peer, or it has just failed."""
        if not self.may_send_to(to.id):
            return False
        send = Send(self._next_number, to, ask)
        self._next_number += 1
        self._outstanding[send.number] = send
        self.effects.send.append(send)
        return True

    def may_send_to(self, peer_id: int) -> bool:
        if peer_id in self._backoff_until_ms:
            return False
        return all(send.to.id != peer_id for send in self._outstanding.values())

    @property
    def is_idle(self) -> bool:
        return not self._outstanding

    def apply_control(self, control: ControlRecords) -> None:
        """What control records say about voters counts as soon as it is written."""
        for offset, version in control.versions:
            self.voters.add_version(offset, version)
        for offset, voters in control.voters:
            self.voters.add_voters(offset, voters)

    def back_off(self, peer_id: int, now: Now) -> None:
        self._backoff_until_ms[peer_id] = now.ms + self.settings.retry_backoff_ms

    def reply(self, token: object, answer: Answer, read: ReadLog | ReadSnapshot | None = None) -> None:
        self.effects.reply.append(Reply(token, answer, read))

    def answer(self, error: ErrorCode, message: str = "") -> Answer:
        return Answer(error, self.epoch, self.leader_id, self.leader_endpoint, message)

    def _report_leadership(self) -> None:
        """Tells the state machine who leads; itself only once it has committed in its epoch."""
        role = self.role
        report = Leadership(role.epoch, None)
        if isinstance(role, Follower):
            report = Leadership(role.epoch, role.leader_id)
        elif isinstance(role, Leader) and (self.high_watermark or -1) > role.start_offset:
            report = Leadership(role.epoch, self.me.id, role.start_offset)
        if report != self._reported:
            self._reported = self.effects.leadership = report

    # Who is who

    def _is_me(self, voter: ReplicaKey | None) -> bool:
        """Whether we are the voter that someone meant to ask."""
        if voter is None or voter.id < 0:
            return True
        return voter.id == self.me.id and (not any(voter.directory) or voter.directory == self.me.directory)

    @property
    def my_voter(self) -> Voter:
        return Voter(self.me, self.endpoints, (0, 1))

    def key_of(self, voter_id: int) -> ReplicaKey | None:
        voter = self.voters.latest.get(voter_id)
        return None if voter is None else voter.key

    def _endpoint_of(self, node_id: int) -> Endpoint | None:
        voter = self.voters.latest.get(node_id) if node_id >= 0 and node_id != self.me.id else None
        return voter.endpoints[0] if voter is not None and voter.endpoints else None

    @property
    def leader_endpoint(self) -> Endpoint | None:
        role = self.role
        if isinstance(role, (Leader, Resigned)):
            return self.endpoints[0] if self.endpoints else None
        if isinstance(role, Follower):
            return role.endpoint
        return role.leader_endpoint if isinstance(role, Prospective) else None

    def _voter_peer(self, voter_id: int) -> Peer | None:
        endpoint = self._endpoint_of(voter_id)
        return None if endpoint is None else Peer(voter_id, endpoint)

    def other_voters(self) -> list[Peer]:
        others = [voter for voter in self.voters.latest if voter.key.id != self.me.id]
        return [Peer(voter.key.id, voter.endpoints[0]) for voter in others if voter.endpoints]

    def _election_deadline(self, now: Now) -> float:
        return self._random_timeout(now) if self.is_voter else float("inf")

    def _random_timeout(self, now: Now) -> float:
        base_ms = self.settings.election_timeout_ms
        return now.ms + base_ms + self.chance.randrange(base_ms)
