"""The active controller: one after the other, requests become records, and replies wait for their commit.

There is one of these for every epoch in which this node leads. It works on an image of its own, the
*speculative* one: a copy of the committed image that already contains what it has decided. The records of a
decision are applied to it before they are appended, so a record that cannot be applied never reaches the log.
A reply is held until the last record of its decision is committed; a decision without records has read what
others have not committed yet, and is held until that is. When leadership is lost the whole object is thrown
away, with its image, its sessions and whatever it had decided in vain.

What is due by the clock comes before the next request: whoever has fallen silent is fenced before its
successor is looked at.

A decision that fails unexpectedly fails its request and nothing else: decisions change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from quorate.controller import elections, features, fencing, heartbeats, tokens
from quorate.controller.decision import (
    RECORDS_MAX,
    Asker,
    Decision,
    Random,
    Situation,
    check_count,
    count_records,
)
from quorate.controller.events import (
    ControllerActivated,
    ControllerResigned,
    DecisionFailed,
    Event,
    HeartbeatRefused,
    HeartbeatTimedOut,
    LeadershipMoved,
    RequestTimedOut,
)
from quorate.controller.mutation_quota import MutationQuota
from quorate.controller.refusal import Refusal
from quorate.controller.refusals import refusal
from quorate.controller.requests import DECISIONS, timeout_ms
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.metadata.records import NoOpRecord
from quorate.metadata.sections import SECTION_BYTES_MAX, Section, encode_sections
from quorate.protocol.api.admin import AlterConfigsRequest, IncrementalAlterConfigsRequest
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record, Request, Response
from quorate.values import dataclass

__all__ = ["ActiveController", "Held", "Moment", "Work"]

ELECTIONS_MAX: Final = 1000  # in one run of the balancer or the sweep; the rest follows soon
_SOON_MS: Final = 10
_AFTER_FAILURE_MS: Final = 60_000
_CONTENT_MAX: Final = 500
_STALE_MAX: Final = 10_000  # incarnations of brokers
_WITH_SECRETS: Final = (
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    RenewDelegationTokenRequest,
)


class Moment(NamedTuple):
    """Now: monotonic, by the clock on the wall, and by the quorum: the offset that the next record will get,
    and the ids of those who vote."""

    ms: float
    wall_ms: int
    next_offset: int
    voters: tuple[int, ...] = ()


class Held(NamedTuple):
    """A reply, and whose it is."""

    token: object
    reply: Response


@dataclass(slots=True)
class Work:
    """What a step comes to: batches to append, replies that need not wait, and what there is to say."""

    sections: list[Section] = field(default_factory=list)
    replies: list[Held] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


# A decision that nobody asked for, and whether all that was to be done is done.
_Periodic = Callable[[Situation], tuple[Decision | None, bool]]


class _Timer:
    """Work that comes back: when it is due, and what it is."""

    __slots__ = ("decide", "due_ms", "every_ms", "name")

    def __init__(self, name: str, every_ms: float, decide: _Periodic, now_ms: float) -> None:
        self.name = name
        self.every_ms = every_ms
        self.decide = decide
        self.due_ms = now_ms + every_ms


class ActiveController:
    """Leads one epoch. `committed` is where the log is committed up to, the offset after the last record."""

    def __init__(
        self,
        image: ClusterImage,
        epoch: int,
        settings: ControllerSettings,
        random: Random,
        now: Moment,
    ) -> None:
        self.epoch = epoch
        self.settings = settings
        self.image = image.copy()
        self.committed_offset = now.next_offset
        self.next_offset = now.next_offset
        self.sessions = Sessions(settings.broker_session_timeout_ms)
        unfenced = [(one.id, one.epoch) for one in image.brokers.values() if not one.is_fenced]
        self.sessions.restart(unfenced, now.ms)
        self.mutations = MutationQuota()
        self._random = random
        self._held: deque[tuple[int, Held]] = deque()  # with the offset of the last record to be committed
        self._timers = self._start_timers(now.ms)
        self._expiry_from_ms = 0.0  # nobody is fenced for silence before that
        # Incarnations (id and epoch) that were told to be stale, and which epoch is registered instead.
        self._stale: dict[tuple[int, int], int] = {}

    # Steps

    def activate(self, bootstrap: Sequence[Record], now: Moment) -> Work:
        """The first step of an epoch: what an empty log, or an interrupted transaction, needs."""
        work = Work()
        self.next_offset = now.next_offset
        records = features.activation_records(self.image, bootstrap, self.settings)
        work.events.append(
            ControllerActivated(
                node_id=self.settings.node_id,
                epoch=self.epoch,
                next_offset=self.next_offset,
                brokers=len(self.image.brokers),
                partitions=len(self.image.partitions),
            )
        )
        self._carry_out(work, Decision(records=records))
        return work

    def handle(self, token: object, request: Request, asker: Asker, arrived_ms: float, now: Moment) -> Work:
        """One request, after everything that is due."""
        work = self.tick(now)
        waited_ms = now.ms - arrived_ms
        patience_ms = timeout_ms(request, self.settings)
        if waited_ms > patience_ms:
            work.events.append(self._note_late(request, waited_ms, patience_ms, now))
            late = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"it waited {waited_ms:.0f} ms to be looked at")
            work.replies.append(Held(token, refusal(request, late, asker.api_version)))
            return work
        situation = self._situation(now, asker)
        try:
            decision = DECISIONS[type(request)](situation, request)
            sections = self._encode(decision)
        except ApiError as error:
            if isinstance(error, Refusal) and self._is_news(error.event):
                work.events.append(error.event)
            self._hold(work, token, refusal(request, error, asker.api_version))
        except Exception as error:  # whatever it is, it is the problem of this request alone
            work.events.append(_failed(error, request))
            failed = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller failed to decide; see its log")
            self._hold(work, token, refusal(request, failed, asker.api_version))
        else:
            self._apply(work, decision, sections)
            assert decision.reply is not None, f"{type(request).__name__} has no reply"
            self._hold(work, token, decision.reply)
        return work

    def heard(self, request: BrokerHeartbeatRequest, now_ms: float) -> None:
        """A heartbeat has arrived. It may wait to be looked at; that its sender lives is known now."""
        self.sessions.contact(request.broker_id, request.broker_epoch, now_ms)

    def tick(self, now: Moment) -> Work:
        """Whatever is due."""
        work = Work()
        self.next_offset = now.next_offset
        if self._expiry_deadline_ms <= now.ms:
            wait_ms = self._run_due(work, "fencing", 0, _expire, now)
            self._expiry_from_ms = now.ms + wait_ms
        for timer in self._timers:
            if timer.due_ms <= now.ms:
                wait_ms = self._run_due(work, timer.name, timer.every_ms, timer.decide, now)
                timer.due_ms = now.ms + wait_ms
        return work

    @property
    def deadline_ms(self) -> float:
        """When the next `tick` has something to do."""
        return min(self._expiry_deadline_ms, *(timer.due_ms for timer in self._timers))

    @property
    def _expiry_deadline_ms(self) -> float:
        return max(self.sessions.deadline_ms, self._expiry_from_ms)

    def committed(self, offset: int) -> list[Held]:
        """Everything below an offset is committed: the replies that waited for it."""
        self.committed_offset = max(self.committed_offset, offset)
        ready = []
        while self._held and self._held[0][0] < offset:
            ready.append(self._held.popleft()[1])
        return ready

    def resign(self) -> tuple[list[object], ControllerResigned]:
        """Leadership is lost: whoever still waits, and what to say. Do not use it any more."""
        tokens_left = [held.token for _, held in self._held]
        self._held.clear()
        discarded = max(0, self.next_offset - self.committed_offset)
        return tokens_left, ControllerResigned(self.settings.node_id, self.epoch, discarded)

    @property
    def count_waiting(self) -> int:
        return len(self._held)

    # Carrying out

    def _situation(self, now: Moment, asker: Asker | None = None) -> Situation:
        return Situation(
            image=self.image,
            sessions=self.sessions,
            settings=self.settings,
            random=self._random,
            now_ms=now.ms,
            wall_ms=now.wall_ms,
            next_offset=self.next_offset,
            asker=Asker() if asker is None else asker,
            voters=now.voters,
            mutations=self.mutations,
        )

    def _encode(self, decision: Decision) -> list[Section]:
        if not decision.records:
            return []
        if decision.is_atomic:
            check_count(decision.records)
        sections = encode_sections(decision.records, self.image.metadata_version, records_max=RECORDS_MAX)
        if any(len(section.data) > SECTION_BYTES_MAX for section in sections):
            reason = f"one of its records would take more than {SECTION_BYTES_MAX} bytes: say less"
            raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
        if decision.is_atomic and len(sections) > 1:
            reason = f"its {count_records(decision.records)} records do not fit into one batch"
            raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
        return sections

    def _carry_out(self, work: Work, decision: Decision) -> None:
        self._apply(work, decision, self._encode(decision))

    def _apply(self, work: Work, decision: Decision, sections: Iterable[Section]) -> None:
        """From here on it counts. What fails now is fatal: an image that is half changed."""
        if decision.records:
            self.image.apply_changes(decision.records, self.next_offset)
            for section in sections:
                work.sections.append(section)
                self.next_offset += section.count
        if decision.then is not None:
            decision.then(self.next_offset - 1)
        work.events.extend(decision.events)

    def _note_late(self, request: Request, waited_ms: float, patience_ms: float, now: Moment) -> Event:
        """A request waited too long. Of a heartbeat it counts that it came."""
        if isinstance(request, BrokerHeartbeatRequest):
            heartbeats.note_late_heartbeat(self.sessions, request, now.ms)
            return HeartbeatTimedOut(request.broker_id, request.broker_epoch, round(waited_ms))
        return RequestTimedOut(type(request).__name__, round(waited_ms), round(patience_ms))

    def _is_news(self, event: Event) -> bool:
        """A process that was replaced goes on sending heartbeats: it is told each time, and we hear it once,
        until another epoch is registered."""
        if not isinstance(event, HeartbeatRefused):
            return True
        incarnation = event.broker_id, event.epoch
        if self._stale.get(incarnation) == event.registered_epoch:
            return False
        self._stale.pop(incarnation, None)
        if len(self._stale) >= _STALE_MAX:
            del self._stale[next(iter(self._stale))]
        self._stale[incarnation] = event.registered_epoch
        return True

    def _hold(self, work: Work, token: object, reply: Response) -> None:
        last_offset = self.next_offset - 1
        if last_offset < self.committed_offset:
            work.replies.append(Held(token, reply))
        else:
            self._held.append((last_offset, Held(token, reply)))

    # What is due

    def _start_timers(self, now_ms: float) -> list[_Timer]:
        settings = self.settings
        timers = [
            _Timer(
                "unclean elections",
                settings.unclean_leader_election_interval_ms,
                self._sweep_leaderless,
                now_ms,
            )
        ]
        if settings.metadata_max_idle_interval_ms:
            every_ms = settings.metadata_max_idle_interval_ms
            timers.append(
                _Timer("no-op", every_ms, lambda _: (Decision(records=[NoOpRecord()]), True), now_ms)
            )
        if settings.auto_leader_rebalance_enable:
            every_ms = settings.leader_imbalance_check_interval_s * 1000
            timers.append(_Timer("preferred leaders", every_ms, self._balance, now_ms))
        if settings.delegation_token_secret:
            timers.append(
                _Timer(
                    "tokens",
                    settings.delegation_token_expiry_check_interval_ms,
                    lambda situation: (tokens.sweep_tokens(situation), True),
                    now_ms,
                )
            )
        return timers

    def _run_due(self, work: Work, name: str, every_ms: float, decide: _Periodic, now: Moment) -> float:
        """Runs periodic work; returns how long it may rest. One that fails must not take others with it."""
        try:
            decision, is_done = decide(self._situation(now))
            sections = [] if decision is None else self._encode(decision)
        except Exception as error:
            work.events.append(DecisionFailed(name, repr(error), "", _where(error)))
            return _AFTER_FAILURE_MS
        if decision is not None:
            self._apply(work, decision, sections)
        return every_ms if is_done else _SOON_MS

    def _balance(self, situation: Situation) -> tuple[Decision | None, bool]:
        decision = elections.balance_leaders(situation, ELECTIONS_MAX)
        return decision, count_records(decision.records) < ELECTIONS_MAX

    def _sweep_leaderless(self, situation: Situation) -> tuple[Decision | None, bool]:
        found = fencing.elect_leaderless(situation, limit=ELECTIONS_MAX)
        events = []
        if found.records:
            events.append(
                LeadershipMoved("unclean election", found.partitions, found.leaderless, found.unclean)
            )
        decision = Decision(records=found.records, events=events)
        return decision, count_records(found.records) < ELECTIONS_MAX


def _failed(error: Exception, request: Request) -> DecisionFailed:
    """What there is to say about a bug; but nothing of what was said in secret, which errors may repeat."""
    name = type(request).__name__
    if isinstance(request, _WITH_SECRETS):
        return DecisionFailed(name, type(error).__name__, "", _where(error))
    return DecisionFailed(name, repr(error), repr(request)[:_CONTENT_MAX], _where(error))


def _where(error: Exception) -> str:
    """The innermost function that an exception went through, and the line there."""
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    if found is None:
        return ""
    frame = found.tb_frame
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}:{found.tb_lineno}"


def _expire(situation: Situation) -> tuple[Decision | None, bool]:
    """Fences one broker that has fallen silent. The next one has its own deadline."""
    return heartbeats.decide_expiry(situation), True
