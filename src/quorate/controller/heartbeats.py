"""Heartbeats: how a broker is admitted, fenced, and let go.

A heartbeat says that a broker lives, how far it has read the metadata log, and what it would like to be. The
answer is the state that it is in from now on:

    FENCED                registered, and not to be used: it does not lead, and is in sync for nothing
    UNFENCED              serving
    CONTROLLED_SHUTDOWN   it wants to go. It has been taken out of everything, and waits until all active
                          brokers have read that in the log, so that nobody comes to it in vain
    SHUTDOWN_NOW          it may go. In the log this is the same as fenced

Whether it is fenced stands in the log; that it waits to go, and for which offset, only this controller knows
(`Session.shutdown_offset`). After a change of controllers such a broker counts as unfenced, asks once more
and is let go all the same.

What a heartbeat *comes to* is a `Finding`, one of a few for each state; where each leads is in `TRANSITIONS`.
In CONTROLLED_SHUTDOWN nothing depends on what the broker asks for. Brokers that fell silent are fenced, one
at a time, and unfenced by their next ordinary heartbeat: they need not register again.

Disks that failed come first. A heartbeat that reports some leaves the state as it is, because both would be
decided from the same image and the second would not see what the first did; the next heartbeat goes on. A
broker that has no disk left is fenced, whatever it wants: it could serve nothing, and no record can say that
all of its directories are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from quorate.controller import fencing
from quorate.controller.decision import Change, Decision, Situation, count_records
from quorate.controller.events import (
    SHUT_DOWN,
    BrokerFenced,
    BrokerUnfenced,
    DirectoriesFailed,
    Event,
    HeartbeatRefused,
    ShutdownGranted,
    ShutdownStarted,
    ShutdownWaiting,
    UnfenceWithheld,
)
from quorate.controller.refusal import Refusal
from quorate.controller.sessions import Session, Sessions
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.metadata.versions import CORDONED, DIRECTORIES
from quorate.protocol.api.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = [
    "TRANSITIONS",
    "Finding",
    "State",
    "decide_expiry",
    "decide_heartbeat",
    "note_late_heartbeat",
]


class State(Enum):
    """What a broker is, as heartbeats see it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "free to go"


class Finding(Enum):
    """What a heartbeat comes to. The words are those of the events that tell of it."""

    CONTENT = "wants nothing else"
    CAUGHT_UP = "caught up"
    BEHIND = "metadata offset"
    WANTS_FENCE = "wants to be fenced"
    NO_DIRECTORY = "all log directories are offline"
    WANTS_SHUTDOWN = "wants to shut down, and nothing keeps it"
    WANTS_SHUTDOWN_LEADING = "wants to shut down, and leads"
    STILL_LEADING = "it still leads"
    UNSEEN = "others have not seen it leave"
    SEEN = "all others have seen it leave"


TRANSITIONS: Final[Mapping[tuple[State, Finding], State]] = {
    (State.FENCED, Finding.WANTS_SHUTDOWN): State.SHUTDOWN_NOW,
    (State.FENCED, Finding.WANTS_FENCE): State.FENCED,
    (State.FENCED, Finding.NO_DIRECTORY): State.FENCED,
    (State.FENCED, Finding.BEHIND): State.FENCED,
    (State.FENCED, Finding.CAUGHT_UP): State.UNFENCED,
    (State.UNFENCED, Finding.CONTENT): State.UNFENCED,
    (State.UNFENCED, Finding.WANTS_FENCE): State.FENCED,
    (State.UNFENCED, Finding.NO_DIRECTORY): State.FENCED,
    (State.UNFENCED, Finding.WANTS_SHUTDOWN): State.SHUTDOWN_NOW,
    (State.UNFENCED, Finding.WANTS_SHUTDOWN_LEADING): State.CONTROLLED_SHUTDOWN,
    (State.CONTROLLED_SHUTDOWN, Finding.STILL_LEADING): State.CONTROLLED_SHUTDOWN,
    (State.CONTROLLED_SHUTDOWN, Finding.UNSEEN): State.CONTROLLED_SHUTDOWN,
    (State.CONTROLLED_SHUTDOWN, Finding.SEEN): State.SHUTDOWN_NOW,
}


def decide_heartbeat(situation: Situation, request: BrokerHeartbeatRequest) -> Decision:
    """Looks at one heartbeat. A stale epoch is refused; it has counted as a sign of life for nobody."""
    beat = _Beat.of(situation, request)
    if beat.failed and beat.has_directory:
        return _fail_directories(beat)
    finding = _FINDINGS[beat.state](beat)
    following = TRANSITIONS[beat.state, finding]
    return _OUTCOMES[beat.state, following](beat, finding)


def decide_expiry(situation: Situation) -> Decision | None:
    """Fences the one broker that has been silent for longest, if that is too long. None if nobody has."""
    sessions = situation.sessions
    while (expired := sessions.next_expired(situation.now_ms)) is not None:
        broker_id, epoch = expired
        broker = situation.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch and not broker.is_fenced:
            return _fence_silent(situation, broker)
        sessions.expire(broker_id, epoch)
    return None


def _fence_silent(situation: Situation, broker: BrokerRegistration) -> Decision:
    sessions = situation.sessions
    found = fencing.fence(situation, broker.id)
    event = _fenced(situation, broker, "missed heartbeats", found)
    return Decision(
        records=found.records, events=[event], then=lambda _: sessions.expire(broker.id, broker.epoch)
    )


def note_late_heartbeat(sessions: Sessions, request: BrokerHeartbeatRequest, now_ms: float) -> None:
    """A heartbeat waited too long to be looked at: what it says counts, what it asks for does not."""
    session = sessions.of(request.broker_id)
    if session is not None and session.epoch == request.broker_epoch and not session.has_left:
        session.metadata_offset = request.current_metadata_offset
        sessions.contact(request.broker_id, request.broker_epoch, now_ms)


# One heartbeat


@dataclass(frozen=True, slots=True)
class _Beat:
    """A heartbeat of a registered broker, with what there is to know about its sender."""

    situation: Situation
    request: BrokerHeartbeatRequest
    broker: BrokerRegistration
    session: Session
    state: State
    failed: tuple[Uuid, ...]  # its directories that went offline, and are not known yet to be

    @classmethod
    def of(cls, situation: Situation, request: BrokerHeartbeatRequest) -> _Beat:
        broker = _check_epoch(situation, request)
        session = situation.sessions.of(broker.id)
        if session is None or session.epoch != broker.epoch:
            session = Session(broker.id, broker.epoch)
        failed = _failed_directories(situation, request, broker)
        return cls(situation, request, broker, session, _state_of(broker, session), failed)

    @property
    def has_directory(self) -> bool:
        """Whether one remains; a broker that names none is from before there were any."""
        return not self.failed or len(self.failed) < len(self.broker.directories)

    @property
    def must_be_fenced(self) -> bool:
        return self.request.want_fence or not self.has_directory

    @property
    def is_caught_up(self) -> bool:
        """Unfencing is measured against the broker's own registration, not against the end of the log."""
        return self.request.current_metadata_offset >= self.broker.registration_offset

    @property
    def is_leading(self) -> bool:
        """A scan of all partitions: only for those who want to go."""
        return self.situation.image.partitions.is_leading(self.broker.id)

    def slowest(self) -> tuple[int, float]:
        brokers = self.situation.image.brokers.values()
        return self.situation.sessions.slowest(one.id for one in brokers if one.is_active)

    def decision(
        self,
        following: State,
        records: Iterable[Change] = (),
        events: Sequence[Event] = (),
        check: str = "",
    ) -> Decision:
        """What all outcomes have in common; `check` is what holds the broker back."""
        situation, broker_id, epoch = self.situation, self.broker.id, self.broker.epoch
        sessions, now_ms = situation.sessions, situation.now_ms
        offset, want_fence = self.request.current_metadata_offset, self.request.want_fence

        def then(last_offset: int) -> None:
            sessions.touch(broker_id, epoch, offset, now_ms, want_fence=want_fence)
            sessions.withhold(broker_id, check)
            if following is State.CONTROLLED_SHUTDOWN:
                sessions.begin_shutdown(broker_id, last_offset)
            elif following is State.SHUTDOWN_NOW:
                sessions.end(broker_id)

        return Decision(
            reply=BrokerHeartbeatResponse(
                throttle_time_ms=0,
                error_code=ErrorCode.NONE,
                is_caught_up=self.is_caught_up,
                is_fenced=following in (State.FENCED, State.SHUTDOWN_NOW),
                should_shut_down=following is State.SHUTDOWN_NOW,
            ),
            records=[*records, *_cordon(self)],
            events=events,
            then=then,
        )


def _check_epoch(situation: Situation, request: BrokerHeartbeatRequest) -> BrokerRegistration:
    broker = situation.image.brokers.get(request.broker_id)
    if broker is not None and broker.epoch == request.broker_epoch:
        return broker
    event = HeartbeatRefused(
        broker_id=request.broker_id,
        epoch=request.broker_epoch,
        registered_epoch=-1 if broker is None else broker.epoch,
        check="not registered" if broker is None else "epoch",
    )
    if broker is None:
        reason = f"broker {request.broker_id} is not registered; restart it to register it"
    else:
        reason = (
            f"broker {request.broker_id} is registered at epoch {broker.epoch}, not {request.broker_epoch}:"
            f" another process has taken its id"
        )
    raise Refusal(ErrorCode.STALE_BROKER_EPOCH, reason, event)


def _state_of(broker: BrokerRegistration, session: Session) -> State:
    if session.shutdown_offset >= 0:
        return State.CONTROLLED_SHUTDOWN
    return State.FENCED if broker.is_fenced else State.UNFENCED


# What it comes to


def _find_of_fenced(beat: _Beat) -> Finding:
    if beat.request.want_shut_down:
        return Finding.WANTS_SHUTDOWN
    if beat.must_be_fenced:
        return _why_to_be_fenced(beat)
    return Finding.CAUGHT_UP if beat.is_caught_up else Finding.BEHIND


def _find_of_unfenced(beat: _Beat) -> Finding:
    if not beat.request.want_shut_down:
        return _why_to_be_fenced(beat) if beat.must_be_fenced else Finding.CONTENT
    # Whoever is to be fenced as well need not wait for others to take over.
    is_patient = not beat.must_be_fenced and beat.is_leading
    return Finding.WANTS_SHUTDOWN_LEADING if is_patient else Finding.WANTS_SHUTDOWN


def _why_to_be_fenced(beat: _Beat) -> Finding:
    return Finding.WANTS_FENCE if beat.has_directory else Finding.NO_DIRECTORY


def _find_of_leaving(beat: _Beat) -> Finding:
    if beat.is_leading:
        return Finding.STILL_LEADING
    _, offset = beat.slowest()
    return Finding.SEEN if beat.session.shutdown_offset <= offset else Finding.UNSEEN


_FINDINGS: Final[Mapping[State, Callable[[_Beat], Finding]]] = {
    State.FENCED: _find_of_fenced,
    State.UNFENCED: _find_of_unfenced,
    State.CONTROLLED_SHUTDOWN: _find_of_leaving,
}


# What follows from it


def _stay_unfenced(beat: _Beat, _finding: Finding) -> Decision:
    return beat.decision(State.UNFENCED)


def _stay_fenced(beat: _Beat, finding: Finding) -> Decision:
    events = []
    if beat.session.check != finding.value:
        events.append(
            UnfenceWithheld(
                broker_id=beat.broker.id,
                epoch=beat.broker.epoch,
                check=finding.value,
                metadata_offset=beat.request.current_metadata_offset,
                registration_offset=beat.broker.registration_offset,
            )
        )
    return beat.decision(State.FENCED, events=events, check=finding.value)


def _unfence(beat: _Beat, _finding: Finding) -> Decision:
    found = fencing.unfence(beat.situation, beat.broker.id)
    event = BrokerUnfenced(
        broker_id=beat.broker.id,
        epoch=beat.broker.epoch,
        metadata_offset=beat.request.current_metadata_offset,
        registration_offset=beat.broker.registration_offset,
        leaderships=found.leaderships,
        unclean=found.unclean,
    )
    return beat.decision(State.UNFENCED, found.records, [event])


def _fence(beat: _Beat, finding: Finding) -> Decision:
    found = fencing.fence(beat.situation, beat.broker.id)
    check = "asked to be fenced" if finding is Finding.WANTS_FENCE else finding.value
    event = _fenced(beat.situation, beat.broker, check, found)
    return beat.decision(State.FENCED, found.records, [event], check=finding.value)


def _begin_shutdown(beat: _Beat, _finding: Finding) -> Decision:
    found = fencing.begin_shutdown(beat.situation, beat.broker.id)
    # The same offset that the session will remember: that of the last record.
    count = count_records([*found.records, *_cordon(beat)])
    event = ShutdownStarted(
        broker_id=beat.broker.id,
        epoch=beat.broker.epoch,
        partitions=found.partitions,
        leaderships=found.leaderships,
        leaderless=found.leaderless,
        controlled_shutdown_offset=beat.situation.next_offset + count - 1,
        unclean=found.unclean,
    )
    return beat.decision(State.CONTROLLED_SHUTDOWN, found.records, [event])


def _wait_to_go(beat: _Beat, finding: Finding) -> Decision:
    events = []
    if beat.session.check != finding.value:
        slowest_broker, slowest_offset = beat.slowest() if finding is Finding.UNSEEN else (-1, -1)
        events.append(
            ShutdownWaiting(
                broker_id=beat.broker.id,
                epoch=beat.broker.epoch,
                check=finding.value,
                controlled_shutdown_offset=beat.session.shutdown_offset,
                slowest_broker=slowest_broker,
                slowest_offset=int(slowest_offset),
            )
        )
    return beat.decision(State.CONTROLLED_SHUTDOWN, events=events, check=finding.value)


def _let_go(beat: _Beat, _finding: Finding) -> Decision:
    granted = ShutdownGranted(beat.broker.id, beat.broker.epoch, beat.session.shutdown_offset)
    if beat.broker.is_fenced:  # there is nothing left that it could be taken out of
        return beat.decision(State.SHUTDOWN_NOW, events=[granted])
    found = fencing.fence(beat.situation, beat.broker.id)
    event = _fenced(beat.situation, beat.broker, SHUT_DOWN, found)
    return beat.decision(State.SHUTDOWN_NOW, found.records, [granted, event])


_OUTCOMES: Final[Mapping[tuple[State, State], Callable[[_Beat, Finding], Decision]]] = {
    (State.FENCED, State.FENCED): _stay_fenced,
    (State.FENCED, State.UNFENCED): _unfence,
    (State.FENCED, State.SHUTDOWN_NOW): _let_go,
    (State.UNFENCED, State.UNFENCED): _stay_unfenced,
    (State.UNFENCED, State.FENCED): _fence,
    (State.UNFENCED, State.CONTROLLED_SHUTDOWN): _begin_shutdown,
    (State.UNFENCED, State.SHUTDOWN_NOW): _let_go,
    (State.CONTROLLED_SHUTDOWN, State.CONTROLLED_SHUTDOWN): _wait_to_go,
    (State.CONTROLLED_SHUTDOWN, State.SHUTDOWN_NOW): _let_go,
}


# Disks


def _failed_directories(
    situation: Situation, request: BrokerHeartbeatRequest, broker: BrokerRegistration
) -> tuple[Uuid, ...]:
    """Those that are reported as offline and still registered. Brokers repeat them in every heartbeat."""
    if not request.offline_log_dirs or situation.image.metadata_version < DIRECTORIES:
        return ()
    offline = set(request.offline_log_dirs)
    return tuple(one for one in broker.directories if one in offline)


def _fail_directories(beat: _Beat) -> Decision:
    found = fencing.fail_directories(beat.situation, beat.broker.id, beat.failed)
    event = DirectoriesFailed(
        broker_id=beat.broker.id,
        epoch=beat.broker.epoch,
        directories=tuple(str(one) for one in beat.failed),
        partitions=found.partitions,
        leaderless=found.leaderless,
        unclean=found.unclean,
    )
    return beat.decision(beat.state, found.records, [event], check=beat.session.check)


def _cordon(beat: _Beat) -> list[BrokerRegistrationChangeRecord]:
    """The record that says which directories get no new replicas, if it is not what is known already."""
    wanted = beat.request.cordoned_log_dirs
    if wanted is None or beat.situation.image.metadata_version < CORDONED:
        return []
    cordoned = sorted(set(wanted).intersection(beat.broker.directories))
    if set(cordoned) == set(beat.broker.cordoned):
        return []
    broker = beat.broker
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
        )
    ]


# Saying it


def _fenced(
    situation: Situation, broker: BrokerRegistration, check: str, found: fencing.Consequences
) -> BrokerFenced:
    return BrokerFenced(
        broker_id=broker.id,
        epoch=broker.epoch,
        check=check,
        ms_since_heartbeat=situation.sessions.silence_ms(broker.id, broker.epoch, situation.now_ms),
        session_timeout_ms=situation.sessions.timeout_ms,
        partitions=found.partitions,
        leaderships=found.leaderships,
        leaderless=found.leaderless,
        unclean=found.unclean,
    )
