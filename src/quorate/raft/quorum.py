"""One replica of the metadata log: a step at a time, without I/O.

Every input (`start`, `tick`, `receive`, `answered`, `append`, `flushed`, ...) returns `Effects`, which the
shell performs completely before the next input; `effects` says in which order. Time comes in with every
input, random numbers from the generator that is given.

The rules, in one place each: which role may follow which is `state.TRANSITIONS`; who gets a vote is
`election.grants`; where a replica may go on is `positions.LogPositions.check`; what is committed is
`replication.high_watermark`; how voters change is `reconfiguration`.

What a replica does is in a module for each side of it: `campaigning` for votes, `attaching` to a leader,
`following` one, `leading`, and `reconfiguration`. They change the replica only through what stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.protocol import batch as batches
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.raft.attaching import Attaching
from quorate.raft.campaigning import Campaigning
from quorate.raft.control import ControlRecords
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
from quorate.raft.settings import Chance, Now, QuorumSettings
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
        self.committed_offset = 0  # the highest that the high watermark ever was, whatever came after
        self.attaching = Attaching(self)
        self.campaigning = Campaigning(self)
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
    def may_stand(self) -> bool:
        """Whether we take part in elections: as a voter, or as one whose removal may never be committed.

        Kafka knows only the first. But if a leader removes itself from a set of two, and only its own log has
        got that, the other one needs a vote that the longer log will not give: somebody must lead the removal
        to its end. Whoever does counts for nothing in it, and resigns when it is committed.
        """
        sets = self.voters.undecided(self.committed_offset)
        return self._can_vote and any(voters.contains(self.me) for voters in sets)

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
        if stored.voted is not None and self.me.id < 0:
            raise SafetyError(f"a replica without an id has voted for {stored.voted}")
        timeout_ms = self.election_deadline(now)
        if stored.epoch < self.log.last_epoch:
            # The file is lost or older than the log: nothing it says about its epoch counts.
            self.role = Unattached(self.log.last_epoch, timeout_ms)
            self.effects.persist = self.election_state
        elif stored.leader_id == self.me.id and self._can_vote:
            # Never leader again of an epoch whose unflushed records may have vanished.
            unacked = dict.fromkeys(peer.id for peer in self.other_voters())
            self.role = Resigned(stored.epoch, self.random_timeout(now), (), unacked)
        elif (
            stored.leader_id < 0
            and stored.voted is not None
            and stored.voted.id == self.me.id
            and self.is_voter
        ):
            self.role = Candidate(stored.epoch, timeout_ms, Tally(self.voters.latest, self.me))
        else:
            endpoint = self.endpoint_of(stored.leader_id)
            if endpoint is not None:
                fetch_deadline_ms = now.ms + self.settings.fetch_timeout_ms
                self.role = Follower(
                    stored.epoch, stored.leader_id, endpoint, fetch_deadline_ms, stored.voted
                )
            else:
                self.role = Unattached(stored.epoch, timeout_ms, stored.leader_id, stored.voted)
        if self.voters.latest.is_only(self.me) and self._can_vote:
            self.campaigning.elect_only_voter(now)
        return self._finish(now)

    def tick(self, now: Now) -> Effects:
        """Acts on every deadline that has passed."""
        for peer_id, until_ms in list(self._backoff_until_ms.items()):
            if until_ms <= now.ms:
                del self._backoff_until_ms[peer_id]
        role = self.role
        if isinstance(role, Unattached):
            if role.deadline_ms <= now.ms and self.may_stand:
                self.campaigning.become_prospective(now)
        elif isinstance(role, Prospective):
            if role.deadline_ms <= now.ms:
                self.campaigning.give_up(role, now)
        elif isinstance(role, Candidate):
            if role.deadline_ms <= now.ms:
                self.campaigning.become_prospective(now)
        elif isinstance(role, Follower):
            if role.fetch_deadline_ms <= now.ms:
                self.following.on_silence(role, now)
        elif isinstance(role, Resigned):
            if role.deadline_ms <= now.ms:
                self.become_unattached(role.epoch + 1, now)
        else:
            self.leading.tick(role, now)
        return self._finish(now)

    def receive(self, token: object, ask: Ask, now: Now) -> Effects:
        """An ask of another replica; its answer will be a `Reply` with the same token, now or later."""
        if isinstance(ask, Vote):
            self.reply(token, self.campaigning.on_vote(ask, now))
        elif isinstance(ask, BeginEpoch):
            self.reply(token, self.attaching.on_begin_epoch(ask, now))
        elif isinstance(ask, EndEpoch):
            self.reply(token, self.attaching.on_end_epoch(ask, now))
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
            self.changes.on_probe(send.to.id, answer if isinstance(answer, ProbeAnswer) else None, now)
        elif self._on_common_answer(send, answer, now):
            self._on_answer(send, answer, now)
        return self._finish(now)

    def append(self, values: Sequence[bytes], epoch: int, now: Now) -> tuple[int, Effects]:
        """Appends records as one batch; returns the offset of the last one. Only for the leader of `epoch`.

        They are committed when `Effects.committed` passes that offset, or never if leadership is lost first.
        """
        assert values, "a batch has records"
        self._check_leading(epoch)
        base = self.log.end_offset
        records = [batches.Record(base + i, now.wall_ms, None, value) for i, value in enumerate(values)]
        data = batches.build(records, base_offset=base, leader_epoch=epoch)
        if len(data) > BATCH_BYTES_MAX:
            reason = f"{len(values)} records take {len(data)} bytes; a batch has at most {BATCH_BYTES_MAX}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, reason)
        self.leading.append(data)
        return self.log.end_offset - 1, self._finish(now)

    def append_sections(self, sections: Sequence[tuple[int, bytes]], epoch: int, now: Now) -> Effects:
        """Like `append`, for records that are encoded already: a batch for each count and record section."""
        self._check_leading(epoch)
        for count, section in sections:
            assert len(section) <= BATCH_BYTES_MAX, "who encodes keeps to the limit"
            data = batches.build_encoded(
                section, count, base_offset=self.log.end_offset, leader_epoch=epoch, timestamp=now.wall_ms
            )
            self.leading.append(data)
        return self._finish(now)

    def _check_leading(self, epoch: int) -> None:
        if not isinstance(self.role, Leader) or self.role.epoch != epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of epoch {epoch}")

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
        self.commit(snapshot.offset)
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
            self.leading.resign(self.role, now)
        return self._finish(now)

    # Changing roles

    def become(self, role: Role, *, is_durable: bool = True) -> None:
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

    def become_unattached(self, epoch: int, now: Now, leader_id: int = -1) -> None:
        role = self.role
        deadline_ms = self.election_deadline(now)
        if isinstance(role, (Unattached, Candidate, Prospective)):
            # The time that has passed counts: someone who keeps raising the epoch must not hold us back.
            deadline_ms = role.deadline_ms
        elif isinstance(role, Resigned) and role.deadline_ms > now.ms:
            deadline_ms = role.deadline_ms
        if not self.may_stand:
            deadline_ms = float("inf")
        self.become(Unattached(epoch, deadline_ms, leader_id))

    # Answers

    def _on_common_answer(self, send: Send, answer: Answer, now: Now) -> bool:
        """What every answer means. Returns whether its own content is still of interest."""
        if answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH or 0 <= answer.epoch < self.epoch:
            self.back_off(send.to.id, now)
            return False
        if answer.error is ErrorCode.UNSUPPORTED_VERSION and isinstance(send.ask, Vote) and send.ask.pre_vote:
            self.campaigning.on_unsupported(now)
            return False
        if answer.epoch >= 0:
            self.attaching.learn(answer.epoch, answer.leader_id, answer.leader_endpoint, now)
        if (
            answer.error is ErrorCode.NONE or isinstance(answer, SnapshotAnswer)
        ) and answer.epoch == self.epoch:
            return True
        self.back_off(send.to.id, now)
        return False

    def _on_answer(self, send: Send, answer: Answer, now: Now) -> None:
        role = self.role
        if isinstance(answer, VoteAnswer) and isinstance(role, (Prospective, Candidate)):
            self.campaigning.on_vote_answer(send, answer, role, now)
        elif isinstance(answer, FetchAnswer) and isinstance(role, Follower):
            self.following.on_fetch_answer(send, answer, role, now)
        elif isinstance(answer, SnapshotAnswer) and isinstance(role, Follower):
            self.following.on_snapshot_answer(send, answer, role, now)
        elif isinstance(send.ask, EndEpoch) and isinstance(role, Resigned):
            role.unacked.pop(send.to.id, None)
        elif isinstance(send.ask, UpdateVoter) and isinstance(role, Follower):
            self.following.heard(role, now)
        elif isinstance(role, Unattached):
            self.back_off(send.to.id, now)  # a leader answers, but nobody says where it can be reached

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
            self.campaigning.send_due(role)
        elif isinstance(role, Leader):
            self.leading.send_due(role, now)
        elif isinstance(role, Resigned):
            self.leading.send_end(role)
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

    def commit(self, high_watermark: int) -> None:
        assert high_watermark >= self.committed_offset, "what is committed stays committed"
        self.high_watermark = self.committed_offset = self.effects.committed = high_watermark

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

    def is_me(self, voter: ReplicaKey | None) -> bool:
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

    def endpoint_of(self, node_id: int) -> Endpoint | None:
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

    def voter_peer(self, voter_id: int) -> Peer | None:
        endpoint = self.endpoint_of(voter_id)
        return None if endpoint is None else Peer(voter_id, endpoint)

    def other_voters(self) -> list[Peer]:
        others = [voter for voter in self.voters.latest if voter.key.id != self.me.id]
        return [Peer(voter.key.id, voter.endpoints[0]) for voter in others if voter.endpoints]

    def election_deadline(self, now: Now) -> float:
        return self.random_timeout(now) if self.may_stand else float("inf")

    def random_timeout(self, now: Now) -> float:
        base_ms = self.settings.election_timeout_ms
        return now.ms + base_ms + self.chance.randrange(base_ms)
