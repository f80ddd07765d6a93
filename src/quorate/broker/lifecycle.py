"""The life of a broker, as the broker itself sees it.

    NOT_RUNNING                  not started
    STARTING                     registers, and reads the metadata log up to its own registration
    RECOVERY                     has read it; puts its logs in order, then asks to be unfenced
    RUNNING                      was unfenced: it may lead
    PENDING_CONTROLLED_SHUTDOWN  asked to stop; the controller moves its leaderships away
    SHUTTING_DOWN                the end: nothing is sent any more

Which state follows which, and upon what, stands in `lifecycle_states.TRANSITIONS`.

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

A broker that is about to leave waits for leave as long as the active controller answers. If none does, there
is nothing to wait for after `broker.session.timeout.ms`: who was not heard for so long is fenced, which moves
its leaderships as well; but it waits so long that another can have been elected. It goes earlier if so many
controllers refuse to be connected to that none of them can be elected, as when a whole cluster is stopped.

`Lifecycle` does nothing by itself. Each input returns what the shell has to do, as `Effects`, and until when
it may wait for another input before it calls `tick`: `deadline_ms`. Inputs can be recorded and replayed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec

from quorate.broker.asking import Asking, Chance, Flight, explain_failure
from quorate.broker.events import (
    BrokerGaveUp,
    BrokerRequestFailed,
    BrokerRequestsResumed,
    BrokerStateChanged,
    DirectoriesReported,
    EpochObtained,
    FencingNoticed,
    UnfencingNoticed,
)
from quorate.broker.lifecycle_effects import Effects, Input, LifecycleSettings, Send, Stop
from quorate.broker.lifecycle_states import ERRORS, TRANSITIONS, State, TransitionError, Trigger
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


def replay(lifecycle: Lifecycle, inputs: Iterable[Input]) -> list[Effects]:
    """Makes the same calls again. With the same chance, the same follows."""
    return [getattr(lifecycle, one.name)(*one.args, **one.kwargs) for one in inputs]


_P = ParamSpec("_P")


def _recorded(
    method: Callable[Concatenate[Lifecycle, _P], Effects],
) -> Callable[Concatenate[Lifecycle, _P], Effects]:
    @functools.wraps(method)
    def recorded(self: Lifecycle, /, *args: _P.args, **kwargs: _P.kwargs) -> Effects:
        if self.record is not None:
            self.record(Input(method.__name__, args, kwargs))
        return method(self, *args, **kwargs)

    return recorded


# The machine

_STARTING_INTERVAL_MS: Final = 10  # whoever starts is impatient
_LEAVING_INTERVAL_MS: Final = 50  # so is whoever leaves, once
_SILENCE_MS_MIN: Final = 10_000  # more than an election takes
_UNGOVERNED_MS: Final = 2000  # until whoever leaves believes that no controller will be elected
_TALKING: Final = (State.STARTING, State.RECOVERY, State.RUNNING, State.PENDING_CONTROLLED_SHUTDOWN)
_NO_ANSWER: Final = "NO_ANSWER"


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
        self.epoch = -1  # while it is not a member
        self.is_fenced = True
        self.is_ready = False
        self.last_error = "nobody was asked yet"
        self._registration = registration
        self._asking = Asking(self.settings.patience, chance)
        self._effects = Effects()
        self._error_said = ""  # so that the same is not said twice
        # What the controller said
        self._is_stale = False  # that this epoch is
        self._must_wait = False  # that we may not go yet
        # What the metadata log said
        self._offset = -1
        self._known: BrokerRegistration | None = None
        self._highest_epoch = -1  # that this process ever had
        self._seen_fenced: bool | None = None  # of this epoch; None if it was not seen
        # What there is to tell
        self._offline: dict[Uuid, None] = {}
        self._unreported_until_ms: dict[Uuid, float] = {}
        self._cordoned: tuple[Uuid, ...] | None = None
        self._cordoned_reported: tuple[Uuid, ...] | None = None
        self._wants_amendment = False
        self._beats_first = False  # an amendment failed: a heartbeat comes before the next
        # Until when
        self._admission_deadline_ms = math.inf
        self._leave_deadline_ms = math.inf
        # When an active controller was last heard, and since when there can be none.
        self._heard_ms = -math.inf
        self._ungoverned_since_ms = math.inf

    @property
    def broker_id(self) -> int:
        return self._registration.broker_id

    @property
    def deadline_ms(self) -> float:
        """When `tick` is due at the latest; infinity before the start and after the end."""
        if self.state not in _TALKING:
            return math.inf
        return min(
            self._asking.deadline_ms,
            self._admission_deadline_ms,
            self._leave_deadline_ms,
            self._silence_deadline_ms,
            *self._unreported_until_ms.values(),
        )

    @property
    def _silence_deadline_ms(self) -> float:
        """When a broker that is about to leave gives up hearing from an active controller."""
        if self.state is not State.PENDING_CONTROLLED_SHUTDOWN:
            return math.inf
        silence_ms = max(self.settings.broker_session_timeout_ms, _SILENCE_MS_MIN)
        return min(self._heard_ms + silence_ms, self._ungoverned_since_ms + _UNGOVERNED_MS)

    # Inputs

    @_recorded
    def start(self, now_ms: float) -> Effects:
        """Begins to register. The metadata log may have been read before."""
        self._move(Trigger.START)
        self._admission_deadline_ms = now_ms + self.settings.initial_broker_registration_timeout_ms
        self._asking.hurry(now_ms)
        return self._finish(now_ms)

    @_recorded
    def tick(self, now_ms: float) -> Effects:
        """Time has passed."""
        flight = self._asking.take_overdue(now_ms)
        if flight is not None:
            self._fail_silently(flight, f"none came within {self._asking.patience.answer_ms:.0f} ms", now_ms)
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
        *,
        is_ungoverned: bool = False,
    ) -> Effects:
        """The request of this number was answered, or never will be and `why`. `is_ungoverned`: so many
        controllers refuse to be connected to that none of them can be elected."""
        self._listen(response, now_ms, is_ungoverned=is_ungoverned)
        flight = self._asking.take(number)
        if flight is None:
            return self._finish(now_ms)
        assert response is None or response.__key__ == flight.request.__key__
        if response is None:
            self._fail_silently(flight, why, now_ms)
        elif response.error_code == ErrorCode.NOT_CONTROLLER:
            self._fail(flight, response.error_code, now_ms)
        elif flight.epoch != self.epoch:
            self._asking.succeed(0, now_ms)  # it tells of somebody who we are not any more
        elif response.error_code != ErrorCode.NONE:
            self._fail(flight, response.error_code, now_ms)
        elif isinstance(response, BrokerRegistrationResponse):
            self._hear_registration(flight, response.broker_epoch, now_ms)
        else:
            self._hear_heartbeat(flight, response, now_ms)
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
        self._hurry(now_ms, is_news=not self.is_ready)
        self.is_ready = True
        return self._finish(now_ms)

    @_recorded
    def directories_failed(self, directories: Iterable[Uuid], now_ms: float) -> Effects:
        """Log directories went offline. They do not come back in this run."""
        failed = [one for one in directories if one not in self._offline]
        self._offline.update(dict.fromkeys(failed))
        deadline_ms = now_ms + self.settings.log_dir_failure_timeout_ms
        self._unreported_until_ms.update(dict.fromkeys(failed, deadline_ms))
        self._hurry(now_ms, is_news=bool(failed))
        return self._finish(now_ms)

    @_recorded
    def directories_cordoned(self, directories: Iterable[Uuid], now_ms: float) -> Effects:
        """These, and no others, are to get no new replicas. Only for a cluster that knows what that means."""
        cordoned = tuple(sorted(directories))
        self._hurry(now_ms, is_news=cordoned != self._cordoned)
        self._cordoned = cordoned
        return self._finish(now_ms)

    @_recorded
    def amend_registration(self, now_ms: float) -> Effects:
        """Says once more what it is: the log has no directories of ours, from before it could have them."""
        self._hurry(now_ms, is_news=not self._wants_amendment)
        self._wants_amendment = True
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
            self._heard_ms, self._ungoverned_since_ms = now_ms, math.inf
            self._move(Trigger.LEAVES_IN_ORDER)
            self._hurry(now_ms, is_news=True)
        else:
            self._stop(Trigger.LEAVES_AT_ONCE, f"it was asked to, while it was {self.state.name}")
        return self._finish(now_ms)

    # Answers

    def _listen(
        self,
        response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None,
        now_ms: float,
        *,
        is_ungoverned: bool,
    ) -> None:
        """Notes whether an active controller is there."""
        if response is not None and response.error_code != ErrorCode.NOT_CONTROLLER:
            self._heard_ms = now_ms
        if not is_ungoverned:
            self._ungoverned_since_ms = math.inf
        elif self._ungoverned_since_ms == math.inf:
            self._ungoverned_since_ms = now_ms

    def _hear_registration(self, flight: Flight, epoch: int, now_ms: float) -> None:
        if epoch < max(self._highest_epoch, 0):
            reason = f"it was told epoch {epoch}, but once had epoch {self._highest_epoch}"
            self._note_failure(flight, "STALE_ANSWER", reason, now_ms, is_misdirected=False)
            return
        self._succeed(flight, 0, now_ms)
        self._wants_amendment = False
        if epoch != self.epoch:
            self._take_epoch(epoch, now_ms)

    def _hear_heartbeat(self, flight: Flight, response: BrokerHeartbeatResponse, now_ms: float) -> None:
        request = flight.request
        assert isinstance(request, BrokerHeartbeatRequest)
        pause_ms = self.settings.broker_heartbeat_interval_ms
        if self.state is State.STARTING:
            pause_ms = _STARTING_INTERVAL_MS
        elif request.want_shut_down and not self._must_wait:
            pause_ms = _LEAVING_INTERVAL_MS
            self._must_wait = True
        self._succeed(flight, pause_ms, now_ms)
        self._is_stale = False
        self._beats_first = False
        self._acknowledge(request)
        if self.state is State.STARTING and response.is_caught_up:
            self._move(Trigger.CAUGHT_UP)
        elif self.state is State.RECOVERY and not response.is_fenced and not request.want_fence:
            self._move(Trigger.UNFENCED)
            self._set_fenced(False)
        elif self.state is State.RUNNING:
            self._notice_fenced(response.is_fenced)
        elif request.want_shut_down and response.should_shut_down:
            self._stop(Trigger.LET_GO, "the controller has let it go")

    def _acknowledge(self, request: BrokerHeartbeatRequest) -> None:
        carried = request.offline_log_dirs
        reported = tuple(one for one in carried if self._unreported_until_ms.pop(one, None) is not None)
        if reported:
            event = DirectoriesReported(self.broker_id, self.epoch, tuple(map(str, reported)))
            self._add(event, acknowledged_offline=reported)
        cordoned = None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs)
        if cordoned != self._cordoned_reported:
            self._cordoned_reported = cordoned
            self._add(acknowledged_cordoned=cordoned)

    def _succeed(self, flight: Flight, pause_ms: float, now_ms: float) -> None:
        failures = self._asking.failures
        if failures:
            self._add(BrokerRequestsResumed(self.broker_id, self.epoch, flight.name, failures))
        self._error_said = ""
        self._asking.succeed(pause_ms, now_ms)

    # Failures

    def _fail_silently(self, flight: Flight, why: str, now_ms: float) -> None:
        self._note_failure(flight, _NO_ANSWER, why, now_ms, is_misdirected=False)
        self._add(looks_elsewhere=True)

    def _fail(self, flight: Flight, code: int, now_ms: float) -> None:
        is_misdirected = code == ErrorCode.NOT_CONTROLLER
        self._note_failure(flight, *explain_failure(code), now_ms, is_misdirected=is_misdirected)
        if is_misdirected:
            self._add(looks_elsewhere=True)
        elif code == ErrorCode.STALE_BROKER_EPOCH and self.epoch >= 0:
            self._is_stale = True
            self._judge(now_ms)

    def _note_failure(
        self, flight: Flight, error: str, reason: str, now_ms: float, *, is_misdirected: bool
    ) -> None:
        delay_ms = round(self._asking.fail(now_ms, is_misdirected=is_misdirected))
        self._beats_first = True
        self.last_error = f"{error}: {reason}"
        if error != self._error_said:
            self._error_said = error
            about = (flight.name, error, reason, self._asking.failures, delay_ms)
            self._add(BrokerRequestFailed(self.broker_id, flight.epoch, *about))

    def _check_deadlines(self, now_ms: float) -> None:
        settings = self.settings
        late = [one for one, until_ms in self._unreported_until_ms.items() if now_ms >= until_ms]
        if now_ms >= self._admission_deadline_ms:
            self._stop(
                Trigger.NOT_ADMITTED,
                f"it was not registered within {settings.initial_broker_registration_timeout_ms} ms"
                f" (initial.broker.registration.timeout.ms); last error: {self.last_error}",
            )
        elif now_ms >= self._leave_deadline_ms:
            why = self.last_error if self._asking.failures else "the controller let it wait"
            self._stop(Trigger.OVERDUE, f"its controlled shutdown took too long; {why}")
        elif now_ms >= self._silence_deadline_ms:
            self._stop(Trigger.UNHEARD, f"nobody is there to let it go; {self.last_error}")
        elif late:
            self._stop(
                Trigger.DISK_UNREPORTED,
                f"the controller could not be told within {settings.log_dir_failure_timeout_ms} ms"
                f" (log.dir.failure.timeout.ms) that log directories failed: {', '.join(map(str, late))}",
            )

    # Whether we are still who we think we are

    def _judge(self, now_ms: float) -> None:
        """Compares what we think with what the metadata say. The table is at the top."""
        known = self._known
        if self.state not in _TALKING or self._highest_epoch < 0:
            return  # whoever else is registered: we are about to take the id from them
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
            is_seen = self._seen_fenced is not None
            if self._offset >= self.epoch and (is_seen or self._is_stale):
                self._lose_epoch(now_ms)
        elif known.epoch > self.epoch:
            self._take_epoch(known.epoch, now_ms)
        elif known.epoch == self.epoch:
            self._see(known.is_fenced)

    def _see(self, is_fenced: bool) -> None:
        # That we were fenced at first is no news, even if it is read after we heard that we are not.
        if self.state is State.RUNNING and self._seen_fenced not in (None, is_fenced):
            self._notice_fenced(is_fenced)
        self._seen_fenced = is_fenced

    def _take_epoch(self, epoch: int, now_ms: float) -> None:
        assert epoch >= self._highest_epoch
        if self.epoch >= 0:
            self._lose_epoch(now_ms)
        if self.state is State.SHUTTING_DOWN:
            return
        incarnation_id = self._registration.incarnation_id
        self._add(EpochObtained(self.broker_id, epoch, incarnation_id, self._highest_epoch), epoch=epoch)
        self.epoch = self._highest_epoch = epoch
        self._admission_deadline_ms = math.inf
        self._judge(now_ms)  # the record may have been here before the answer

    def _lose_epoch(self, now_ms: float) -> None:
        """Our id was unregistered: everything begins again, but for what this process has done already."""
        if self.state is State.PENDING_CONTROLLED_SHUTDOWN:
            self._stop(Trigger.UNREGISTERED, "it was unregistered while it was about to leave")
            return
        self._move(Trigger.UNREGISTERED)
        self.epoch = -1
        self._seen_fenced = None
        self._is_stale = False
        self._cordoned_reported = None
        self._asking.hurry(now_ms)
        self._set_fenced(True)

    def _notice_fenced(self, is_fenced: bool) -> None:
        if is_fenced != self.is_fenced:
            kind = FencingNoticed if is_fenced else UnfencingNoticed
            self._add(kind(self.broker_id, self.epoch, self._offset))
        self._set_fenced(is_fenced)

    def _set_fenced(self, is_fenced: bool) -> None:
        if is_fenced != self.is_fenced:
            self.is_fenced = is_fenced
            self._add(is_fenced=is_fenced)

    # Steps

    def _move(self, trigger: Trigger) -> None:
        before, after = self.state, TRANSITIONS.get((self.state, trigger))
        if after is None:
            raise TransitionError(f"{trigger.name} cannot happen to a broker that is {before.name}")
        self.state = after
        self._add(BrokerStateChanged(self.broker_id, self.epoch, before.name, after.name, trigger.value))
        if after is not before:
            self._add(state=after)

    def _stop(self, trigger: Trigger, reason: str) -> None:
        self._move(trigger)
        self._asking.end()
        is_error = trigger in ERRORS
        self._add(stop=Stop(reason, is_error))
        if is_error:
            self._add(BrokerGaveUp(self.broker_id, self.epoch, trigger.value, reason))

    def _hurry(self, now_ms: float, *, is_news: bool) -> None:
        if is_news and self.epoch >= 0 and self.state in _TALKING:
            self._asking.hurry(now_ms)

    def _finish(self, now_ms: float) -> Effects:
        if self.state in _TALKING and self._asking.is_due(now_ms):
            is_amending = self._wants_amendment and not self._beats_first
            request = self._register() if self.epoch < 0 or is_amending else self._beat()
            flight = self._asking.send(request, self.epoch, now_ms)
            self._add(send=Send(flight.number, request))
        assert (self._asking.deadline_ms < math.inf) == (self.state in _TALKING)
        assert self.epoch in (-1, self._highest_epoch)
        effects, self._effects = self._effects, Effects()
        return effects

    def _register(self) -> BrokerRegistrationRequest:
        request = copy(self._registration)
        request.log_dirs = [one for one in request.log_dirs if one not in self._offline]
        return request

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
