"""The life of a broker, as the broker itself sees it.

    NOT_RUNNING                  not started
    STARTING                     registers, and reads the metadata log up to its own registration
    RECOVERY                     has read it; puts its logs in order, then asks to be unfenced
    RUNNING                      was unfenced: it may lead
    PENDING_CONTROLLED_SHUTDOWN  asked to stop; the controller moves its leaderships away
    SHUTTING_DOWN                the end: nothing is sent any more

Which state follows which, and upon what, stands in `TRANSITIONS`.

A broker has one conversation with the active controller: a request, its answer, a pause, the next request.
While it has no epoch the request is a registration, afterwards a heartbeat. At most one is on its way. What
is lost, refused or late is asked again after a pause that doubles; where the answer shows that somebody else
should have been asked, `Effects.looks_elsewhere` says so, and the shell finds out who.

The *incarnation* is this process, the *epoch* what the controller gave it. Only its own copy of the metadata
tells a broker that it is not a member any more; an answer STALE_BROKER_EPOCH may come from a controller that
was deposed and does not know it yet. It makes the broker look, and it goes on with its heartbeats meanwhile:

| its own metadata say, at or after its epoch           | it                                               |
|-------------------------------------------------------|--------------------------------------------------|
| registered, this incarnation, this epoch              | goes on                                          |
| registered, this incarnation, a later epoch           | takes that epoch: a late request registered it   |
| registered, another incarnation, a later epoch        | stops: it was replaced                           |
| registered, another incarnation, an earlier epoch     | goes on: that is its predecessor, read too early |
| not registered, though it has seen itself registered  | registers again                                  |
| not registered, never seen, and its epoch is stale    | registers again: a snapshot hid both records     |
| not registered, never seen                            | goes on: its record is still to come             |

It registers again as the same incarnation. For the controller that is a new broker when the id is free, and
changes nothing if the id is ours after all; if somebody else lives under it, it is refused. A broker that was
once a member never gives up: `initial.broker.registration.timeout.ms` is about the first registration only.

`Lifecycle` does nothing by itself. Each input returns what the shell has to do, as `Effects`, and until when
it may wait for another input before it calls `tick`: `deadline_ms`. Inputs can be recorded and replayed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol

from quorate.broker.events import (
    BrokerGaveUp,
    BrokerStateChanged,
    ContactLost,
    ContactRegained,
    DirectoriesReported,
    EpochObtained,
    FencingNoticed,
    UnfencingNoticed,
)
from quorate.controller.events import Event
from quorate.metadata.brokers import BrokerRegistration
from quorate.protocol.api.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

__all__ = [
    "TRANSITIONS",
    "Chance",
    "Effects",
    "Input",
    "Lifecycle",
    "LifecycleSettings",
    "Send",
    "State",
    "Stop",
    "TransitionError",
    "Trigger",
    "replay",
]


class State(IntEnum):
    """The numbers are those of Kafka's metric `BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Trigger(StrEnum):
    """What changes a state. The words are those of the events that tell of it."""

    START = "started"
    CAUGHT_UP = "has read its own registration"
    UNFENCED = "was unfenced"
    UNREGISTERED = "is not registered any more"
    LEAVES_IN_ORDER = "was asked to stop, and may be in use"
    LEAVES_AT_ONCE = "was asked to stop, and has nothing to wait for"
    LET_GO = "may go"
    OVERDUE = "was not let go in time"
    NOT_ADMITTED = "was not registered in time"
    REPLACED = "was replaced"
    DISK_UNREPORTED = "could not report a failed log directory in time"


TRANSITIONS: Final[Mapping[tuple[State, Trigger], State]] = {
    (State.NOT_RUNNING, Trigger.START): State.STARTING,
    (State.NOT_RUNNING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.CAUGHT_UP): State.RECOVERY,
    (State.STARTING, Trigger.UNREGISTERED): State.STARTING,
    (State.STARTING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.NOT_ADMITTED): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.UNFENCED): State.RUNNING,
    (State.RECOVERY, Trigger.UNREGISTERED): State.STARTING,
    # It has asked to be unfenced, and may be without knowing it.
    (State.RECOVERY, Trigger.LEAVES_IN_ORDER): State.PENDING_CONTROLLED_SHUTDOWN,
    (State.RECOVERY, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.UNREGISTERED): State.STARTING,
    (State.RUNNING, Trigger.LEAVES_IN_ORDER): State.PENDING_CONTROLLED_SHUTDOWN,
    (State.RUNNING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LET_GO): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.OVERDUE): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    # Whoever is not registered leads nothing, so nobody needs to wait for anything.
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.UNREGISTERED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
}

_ERRORS: Final = frozenset({Trigger.OVERDUE, Trigger.NOT_ADMITTED, Trigger.REPLACED, Trigger.DISK_UNREPORTED})
"""Reasons to stop that nobody wished for."""


class TransitionError(Exception):
    """Something happened in a state in which it cannot."""


class Chance(Protocol):
    """Where random numbers come from: a `random.Random`, seeded by whoever runs this."""

    def uniform(self, a: float, b: float, /) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """Names and defaults are those of Kafka's configuration."""

    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    initial_broker_registration_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    log_dir_failure_timeout_ms: int = 30_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_timeout_ms: int = 300_000

    @property
    def patience_ms(self) -> float:
        """How long to wait for an answer. Another controller must be asked before the session is over."""
        return min(self.request_timeout_ms, self.broker_session_timeout_ms / 2)


# What comes out


@dataclass(frozen=True, slots=True)
class Send:
    """A request to the active controller; its answer, or its failure, is reported under its number."""

    number: int
    request: BrokerRegistrationRequest | BrokerHeartbeatRequest


@dataclass(frozen=True, slots=True)
class Stop:
    """The broker must stop, and why."""

    reason: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """What a step asks of the shell: first all that has changed, then `send`."""

    looks_elsewhere: bool = False  # whoever was asked last is not the one to ask: find another
    state: State | None = None
    epoch: int | None = None  # obtained
    is_fenced: bool | None = None
    acknowledged_offline: tuple[Uuid, ...] = ()  # directories whose failure the controller now knows
    acknowledged_cordoned: tuple[Uuid, ...] | None = None
    events: tuple[Event, ...] = ()
    stop: Stop | None = None
    send: Send | None = None


class Input(NamedTuple):
    """One call of an input of `Lifecycle`, as it was made."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def replay(lifecycle: Lifecycle, inputs: Iterable[Input]) -> list[Effects]:
    """Makes the same calls again. With the same chance, the same follows."""
    return [getattr(lifecycle, one.name)(*one.args, **one.kwargs) for one in inputs]


_P = ParamSpec("_P")


def _recorded(
    method: Callable[Concatenate[Lifecycle, _P], Effects],
) -> Callable[Concatenate[Lifecycle, _P], Effects]:
    @functools.wraps(method)
    def recorded(self: Lifecycle, *args: _P.args, **kwargs: _P.kwargs) -> Effects:
        if self.record is not None:
            self.record(Input(method.__name__, args, kwargs))
        return method(self, *args, **kwargs)

    return recorded


# The machine

_STARTING_INTERVAL_MS: Final = 10  # whoever starts is impatient
_LEAVING_INTERVAL_MS: Final = 50  # so is whoever leaves, once
_TALKING: Final = (State.STARTING, State.RECOVERY, State.RUNNING, State.PENDING_CONTROLLED_SHUTDOWN)
_DOUBLINGS_MAX: Final = 30  # more make no difference, and could overflow
_NO_ANSWER: Final = "NO_ANSWER"


@dataclass(frozen=True, slots=True)
class _Flight:
    """A request on its way, with what it said."""

    number: int
    deadline_ms: float
    request: BrokerRegistrationRequest | BrokerHeartbeatRequest
    epoch: int
    offline: tuple[Uuid, ...]
    cordoned: tuple[Uuid, ...] | None

    @property
    def name(self) -> str:
        return "Registration" if isinstance(self.request, BrokerRegistrationRequest) else "Heartbeat"


class Lifecycle:
    """One run of a broker. `registration` is what it says of itself, its incarnation included.

    `record`, if given, is called with every input before it is looked at.
    """

    def __init__(
        self,
        registration: BrokerRegistrationRequest,
        settings: LifecycleSettings | None = None,
        *,
        chance: Chance,
        record: Callable[[Input], None] | None = None,
    ) -> None:
        self.settings = LifecycleSettings() if settings is None else settings
        self.record = record
        self.state = State.NOT_RUNNING
        self.epoch = -1  # -1 while it is not a member
        self.is_fenced = True
        self.is_ready = False
        self.last_error = "no controller was asked yet"
        self._registration = registration
        self._chance = chance
        self._effects = Effects()
        # The conversation
        self._number = 0
        self._flight: _Flight | None = None
        self._due_ms = math.inf  # when the next request leaves, if none is on its way
        self._is_urgent = False  # there is news that the request on its way does not carry
        self._failures = 0  # in a row
        self._error_said = ""  # so that the same is not said twice
        self._is_stale = False  # the controller said so, of this epoch
        self._wants_amendment = False
        self._beats_first = False  # an amendment was refused; a heartbeat comes before the next
        self._is_asked_again = False  # the controller has answered that we want to go, and must wait
        # The metadata log
        self._offset = -1
        self._known: BrokerRegistration | None = None
        self._highest_epoch = -1  # that this process ever had
        self._is_seen = False  # the metadata had this epoch
        self._seen_fenced: bool | None = None
        # Log directories
        self._offline: dict[Uuid, None] = {}
        self._unreported_until_ms: dict[Uuid, float] = {}
        self._cordoned: tuple[Uuid, ...] | None = None
        # Deadlines
        self._admission_deadline_ms = math.inf
        self._leave_deadline_ms = math.inf

    @property
    def broker_id(self) -> int:
        return self._registration.broker_id

    @property
    def deadline_ms(self) -> float:
        """When `tick` is due at the latest; infinity before the start and after the end."""
        if self.state not in _TALKING:
            return math.inf
        return min(
            self._due_ms if self._flight is None else self._flight.deadline_ms,
            self._admission_deadline_ms,
            self._leave_deadline_ms,
            min(self._unreported_until_ms.values(), default=math.inf),
        )

    # Inputs

    @_recorded
    def start(self, now_ms: float) -> Effects:
        """Begins to register. The metadata log may have been read before."""
        self._move(Trigger.START)
        self._admission_deadline_ms = now_ms + self.settings.initial_broker_registration_timeout_ms
        self._due_ms = now_ms
        return self._finish(now_ms)

    @_recorded
    def tick(self, now_ms: float) -> Effects:
        """Time has passed."""
        if self._flight is not None and now_ms >= self._flight.deadline_ms:
            self._fail(self._take_flight(), None, f"within {self.settings.patience_ms:.0f} ms", now_ms)
        if self.state in _TALKING:
            self._check_deadlines(now_ms)
        return self._finish(now_ms)

    @_recorded
    def answered(
        self,
        number: int,
        response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None,
        now_ms: float,
        why: str = "the connection was lost",
    ) -> Effects:
        """The request of this number was answered, or never will be and `why`."""
        if self._flight is None or self._flight.number != number:
            return self._finish(now_ms)  # given up before
        flight = self._take_flight()
        if response is None:
            self._fail(flight, None, why, now_ms)
        elif isinstance(response, BrokerRegistrationResponse):
            assert isinstance(flight.request, BrokerRegistrationRequest)
            self._hear_registration(flight, response, now_ms)
        else:
            assert isinstance(flight.request, BrokerHeartbeatRequest)
            self._hear_heartbeat(flight, flight.request, response, now_ms)
        return self._finish(now_ms)

    @_recorded
    def metadata_applied(
        self, offset: int, registration: BrokerRegistration | None, now_ms: float
    ) -> Effects:
        """Everything up to `offset` was applied, and this is what stands there about our id."""
        assert offset >= self._offset, "what is committed stays"
        assert registration is None or registration.id == self.broker_id
        self._offset = offset
        self._known = registration
        self._judge(now_ms)
        return self._finish(now_ms)

    @_recorded
    def ready(self, now_ms: float) -> Effects:
        """The broker can serve: it may be unfenced as soon as it has caught up."""
        if not self.is_ready:
            self.is_ready = True
            self._hurry(now_ms)
        return self._finish(now_ms)

    @_recorded
    def directories_failed(self, directories: Iterable[Uuid], now_ms: float) -> Effects:
        """Log directories went offline. They never come back in this run."""
        for one in directories:
            if one not in self._offline:
                self._offline[one] = None
                self._unreported_until_ms[one] = now_ms + self.settings.log_dir_failure_timeout_ms
                self._hurry(now_ms)
        return self._finish(now_ms)

    @_recorded
    def directories_cordoned(self, directories: Iterable[Uuid], now_ms: float) -> Effects:
        """These, and no others, are to get no new replicas. Not before the cluster knows what that means."""
        cordoned = tuple(sorted(directories))
        if cordoned != self._cordoned:
            self._cordoned = cordoned
            self._hurry(now_ms)
        return self._finish(now_ms)

    @_recorded
    def amend_registration(self, now_ms: float) -> Effects:
        """Says once more what it is: the log has no directories of ours, from before it could have them."""
        self._wants_amendment = True
        self._hurry(now_ms)
        return self._finish(now_ms)

    @_recorded
    def begin_shutdown(self, now_ms: float, timeout_ms: float | None = None) -> Effects:
        """Asks the controller for leave. The second time, and where nobody counts on us, just goes."""
        if self.state is State.SHUTTING_DOWN:
            return self._finish(now_ms)
        may_be_in_use = self.state is State.RUNNING or (self.state is State.RECOVERY and self.is_ready)
        if may_be_in_use and self.settings.controlled_shutdown_enable:
            patience_ms = self.settings.controlled_shutdown_timeout_ms if timeout_ms is None else timeout_ms
            self._leave_deadline_ms = now_ms + patience_ms
            self._move(Trigger.LEAVES_IN_ORDER)
            self._hurry(now_ms)
        else:
            self._stop(Trigger.LEAVES_AT_ONCE, f"it was asked to, while it was {self.state.name}")
        return self._finish(now_ms)

    # Answers

    def _hear_registration(
        self, flight: _Flight, response: BrokerRegistrationResponse, now_ms: float
    ) -> None:
        if response.error_code != ErrorCode.NONE:
            self._fail(flight, response.error_code, "", now_ms)
            return
        epoch = response.broker_epoch
        if epoch < max(self._highest_epoch, 0):
            why = f"it was told epoch {epoch}, after it had epoch {self._highest_epoch}"
            self._fail(flight, ErrorCode.UNKNOWN_SERVER_ERROR, why, now_ms)
            return
        self._succeed(flight)
        self._wants_amendment = False
        self._due_ms = now_ms
        if epoch != self.epoch:
            self._take_epoch(epoch, now_ms)

    def _hear_heartbeat(
        self,
        flight: _Flight,
        request: BrokerHeartbeatRequest,
        response: BrokerHeartbeatResponse,
        now_ms: float,
    ) -> None:
        if flight.epoch != self.epoch and response.error_code != ErrorCode.NOT_CONTROLLER:
            self._due_ms = now_ms  # it tells of somebody who we are not any more
            return
        if response.error_code != ErrorCode.NONE:
            self._fail(flight, response.error_code, "", now_ms)
            return
        self._succeed(flight)
        self._is_stale = False
        self._beats_first = False
        self._acknowledge(flight)
        self._due_ms = now_ms + self.settings.broker_heartbeat_interval_ms
        if self.state is State.STARTING:
            self._due_ms = now_ms + _STARTING_INTERVAL_MS
            if response.is_caught_up:
                self._move(Trigger.CAUGHT_UP)
        elif self.state is State.RECOVERY:
            if not response.is_fenced and not request.want_fence:
                self._move(Trigger.UNFENCED)
                self._set_fenced(False)
        elif self.state is State.RUNNING:
            self._notice_fenced(response.is_fenced)
        elif request.want_shut_down:
            self._hear_about_leaving(response, now_ms)
        if self._is_urgent:
            self._due_ms = now_ms
            self._is_urgent = False

    def _hear_about_leaving(self, response: BrokerHeartbeatResponse, now_ms: float) -> None:
        if response.should_shut_down:
            self._stop(Trigger.LET_GO, "the controller has let it go")
        elif not self._is_asked_again:
            self._is_asked_again = True
            self._due_ms = now_ms + _LEAVING_INTERVAL_MS

    def _acknowledge(self, flight: _Flight) -> None:
        reported = tuple(
            one for one in flight.offline if self._unreported_until_ms.pop(one, None) is not None
        )
        if reported:
            event = DirectoriesReported(self.broker_id, self.epoch, tuple(map(str, reported)))
            self._add(event, acknowledged_offline=reported)
        self._add(acknowledged_cordoned=flight.cordoned)

    def _succeed(self, flight: _Flight) -> None:
        if self._failures:
            self._add(ContactRegained(self.broker_id, flight.epoch, flight.name, self._failures))
        self._failures = 0
        self._error_said = ""

    def _fail(self, flight: _Flight, code: int | None, why: str, now_ms: float) -> None:
        """Not what we hoped for: `code` is what was answered, if anything was."""
        self._failures += 1
        self._is_urgent = False
        self._beats_first = True
        is_misdirected = code == ErrorCode.NOT_CONTROLLER
        if code is None or is_misdirected:
            self._add(looks_elsewhere=True)
        # Who is told that another leads asks there at once, but not round and round.
        delays = self._failures - 1 if is_misdirected else self._failures
        delay_ms = self._backoff_ms(delays) if delays else 0.0
        self._due_ms = now_ms + delay_ms
        error = _NO_ANSWER if code is None else _name_of(code)
        reason = why or _MEANINGS.get(code or 0, "the log of the controller may say why")
        self.last_error = f"{error}: {reason}"
        if self._error_said != error:
            self._error_said = error
            self._add(
                ContactLost(
                    self.broker_id, flight.epoch, flight.name, error, reason, self._failures, round(delay_ms)
                )
            )
        if code == ErrorCode.STALE_BROKER_EPOCH and flight.epoch == self.epoch:
            self._is_stale = True
            self._judge(now_ms)

    def _backoff_ms(self, failures: int) -> float:
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        limit_ms = self.settings.reconnect_backoff_max_ms
        delay_ms = min(self.settings.reconnect_backoff_ms * 2.0**doublings, limit_ms)
        return delay_ms * self._chance.uniform(0.8, 1.2)

    # Whether we are still who we think we are

    def _judge(self, now_ms: float) -> None:
        """Compares what we think with what the metadata say. The table is at the top."""
        known = self._known
        if self.state not in _TALKING or self._highest_epoch < 0:
            return  # whoever else is registered, we will take the id from
        if known is not None and known.incarnation_id != self._registration.incarnation_id:
            if known.epoch > self._highest_epoch:
                self._stop(
                    Trigger.REPLACED,
                    f"broker {self.broker_id} was registered by another process, incarnation"
                    f" {known.incarnation_id} with epoch {known.epoch}; ours was {self._highest_epoch}",
                )
        elif self.epoch < 0:
            return  # the answer to our registration will tell
        elif known is None:
            if self._offset >= self.epoch and (self._is_seen or self._is_stale):
                self._lose_epoch(now_ms)
        elif known.epoch > self.epoch:
            self._take_epoch(known.epoch, now_ms)
        elif known.epoch == self.epoch:
            self._see(known)

    def _see(self, known: BrokerRegistration) -> None:
        # That we are fenced at first is no news, even if it is read after we heard that we are not.
        if self.state is State.RUNNING and self._seen_fenced not in (None, known.is_fenced):
            self._notice_fenced(known.is_fenced)
        self._is_seen = True
        self._seen_fenced = known.is_fenced

    def _take_epoch(self, epoch: int, now_ms: float) -> None:
        assert epoch >= self._highest_epoch
        if self.epoch >= 0:
            self._lose_epoch(now_ms)
            if self.state is State.SHUTTING_DOWN:
                return
        self._add(
            EpochObtained(self.broker_id, epoch, self._registration.incarnation_id, self._highest_epoch),
            epoch=epoch,
        )
        self.epoch = self._highest_epoch = epoch
        self._admission_deadline_ms = math.inf
        self._judge(now_ms)  # the record may have been here before the answer

    def _lose_epoch(self, now_ms: float) -> None:
        """Our id was unregistered: everything begins again, but for what this process has done already."""
        if TRANSITIONS[self.state, Trigger.UNREGISTERED] is State.SHUTTING_DOWN:
            self._stop(Trigger.UNREGISTERED, "it was unregistered while it was about to leave")
            return
        self._move(Trigger.UNREGISTERED)
        self.epoch = -1
        self._is_seen = False
        self._seen_fenced = None
        self._is_stale = False
        self._wants_amendment = False
        self._due_ms = now_ms
        self._set_fenced(True)

    def _notice_fenced(self, is_fenced: bool) -> None:
        if is_fenced != self.is_fenced:
            self._set_fenced(is_fenced)
            kind = FencingNoticed if is_fenced else UnfencingNoticed
            self._add(kind(self.broker_id, self.epoch, self._offset))

    def _set_fenced(self, is_fenced: bool) -> None:
        if is_fenced != self.is_fenced:
            self.is_fenced = is_fenced
            self._add(is_fenced=is_fenced)

    # Deadlines

    def _check_deadlines(self, now_ms: float) -> None:
        settings = self.settings
        if now_ms >= self._admission_deadline_ms:
            self._stop(
                Trigger.NOT_ADMITTED,
                f"it was not registered within {settings.initial_broker_registration_timeout_ms} ms"
                f" (initial.broker.registration.timeout.ms); last error: {self.last_error}",
            )
        elif now_ms >= self._leave_deadline_ms:
            why = self.last_error if self._failures else "the controller let it wait"
            self._stop(Trigger.OVERDUE, f"its controlled shutdown took too long; {why}")
        else:
            late = [one for one, until_ms in self._unreported_until_ms.items() if now_ms >= until_ms]
            if late:
                self._stop(
                    Trigger.DISK_UNREPORTED,
                    f"the controller could not be told within {settings.log_dir_failure_timeout_ms} ms"
                    f" (log.dir.failure.timeout.ms) that log directories failed: {', '.join(map(str, late))}",
                )

    # Steps

    def _move(self, trigger: Trigger) -> None:
        before, after = self.state, TRANSITIONS.get((self.state, trigger))
        if after is None:
            raise TransitionError(f"a broker that is {before.name} cannot be one that {trigger.value}")
        self.state = after
        self._add(
            BrokerStateChanged(self.broker_id, self.epoch, before.name, after.name, trigger.value),
            state=after if after is not before else self._effects.state,
        )

    def _stop(self, trigger: Trigger, reason: str) -> None:
        self._move(trigger)
        self._flight = None
        is_error = trigger in _ERRORS
        self._add(stop=Stop(reason, is_error))
        if is_error:
            self._add(BrokerGaveUp(self.broker_id, self.epoch, trigger.value, reason))

    def _hurry(self, now_ms: float) -> None:
        """There is something to tell: now, or as soon as the answer to the request on its way is here."""
        if self._flight is not None:
            self._is_urgent = True
        elif self.epoch >= 0:
            self._due_ms = now_ms

    def _take_flight(self) -> _Flight:
        assert self._flight is not None
        flight, self._flight = self._flight, None
        return flight

    def _finish(self, now_ms: float) -> Effects:
        if self.state in _TALKING and self._flight is None and now_ms >= self._due_ms:
            self._send(now_ms)
        assert self.state not in _TALKING or self._flight is not None or self._due_ms < math.inf
        assert self.epoch in (-1, self._highest_epoch)
        effects, self._effects = self._effects, Effects()
        return effects

    def _send(self, now_ms: float) -> None:
        is_amending = self._wants_amendment and not self._beats_first
        request = self._register() if self.epoch < 0 or is_amending else self._beat()
        self._number += 1
        self._is_urgent = False
        self._due_ms = math.inf
        is_heartbeat = isinstance(request, BrokerHeartbeatRequest)
        self._flight = _Flight(
            self._number,
            now_ms + self.settings.patience_ms,
            request,
            self.epoch,
            tuple(self._offline) if is_heartbeat else (),
            self._cordoned if is_heartbeat else None,
        )
        self._add(send=Send(self._number, request))

    def _register(self) -> BrokerRegistrationRequest:
        given = self._registration
        return BrokerRegistrationRequest(
            broker_id=given.broker_id,
            cluster_id=given.cluster_id,
            incarnation_id=given.incarnation_id,
            listeners=list(given.listeners),
            features=list(given.features),
            rack=given.rack,
            is_migrating_zk_broker=given.is_migrating_zk_broker,
            log_dirs=[one for one in given.log_dirs if one not in self._offline],
            previous_broker_epoch=given.previous_broker_epoch,
        )

    def _beat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._offset,
            want_fence=not self.is_ready or self.state is State.STARTING,
            want_shut_down=self.state is State.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=None if self._cordoned is None else list(self._cordoned),
        )

    def _add(self, *events: Event, **changes: Any) -> None:
        self._effects = replace(self._effects, events=(*self._effects.events, *events), **changes)


_MEANINGS: Final[Mapping[int, str]] = {
    ErrorCode.NOT_CONTROLLER: "whoever was asked is not the active controller",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "another process lives under this id, or did a moment ago. The id is free once that one has been shut"
        " down, or has been silent for broker.session.timeout.ms; if both shall run, give one another node.id"
    ),
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "these controllers belong to another cluster: either the log directories were formatted for that one,"
        " or the wrong controllers are configured"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "the controller objects to the listeners, log directories or features of this broker; its log says why"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster uses a feature at a level that this broker does not know; the log of the controller says"
        " which"
    ),
    ErrorCode.STALE_BROKER_EPOCH: (
        "the controller knows this id with another epoch or not at all; the metadata log will tell"
    ),
    ErrorCode.REQUEST_TIMED_OUT: "the controller was too busy to look at it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this broker may not do CLUSTER_ACTION on the cluster",
}


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
