"""The broker's own state machine: stories, the table, the laws, and life with the real controller."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from lifecycle_story import (
    BROKER,
    OTHER,
    US,
    StoryError,
    admitted,
    directory,
    heard,
    registered,
    registration_request,
    run_story,
    run_to,
)

import broker_requests
from controller_cluster import CLUSTER_ID, Cluster
from quorate.broker.events import BrokerGaveUp, BrokerRequestFailed
from quorate.broker.lifecycle import (
    TRANSITIONS,
    Effects,
    Input,
    Lifecycle,
    LifecycleSettings,
    State,
    TransitionError,
    Trigger,
    replay,
)
from quorate.controller.heartbeats import decide_heartbeat
from quorate.controller.registration import decide_registration
from quorate.controller.unregistration import decide_unregistration
from quorate.protocol.api.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
PAGE = Path(__file__).parents[2] / "docs" / "broker-lifecycle.md"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    difference = ""
    try:
        run_story(path)
    except StoryError as error:
        difference = str(error)
    if difference:
        pytest.fail(difference, pytrace=False)


# The table

REPLACED = ("read 90: other 80",)
UNREGISTERED = ("read 90: nobody",)
DISK = ("fail A", "wait 40000")
# An active controller that answers, but grants nothing.
REFUSED = ("wait 4000", "refuse UNKNOWN_SERVER_ERROR")

# For each line of the table: what makes it happen to a broker that has come so far.
WAYS: dict[tuple[State, Trigger], tuple[str, ...]] = {
    (State.NOT_RUNNING, Trigger.START): ("start",),
    (State.NOT_RUNNING, Trigger.LEAVES_AT_ONCE): ("stop",),
    (State.STARTING, Trigger.CAUGHT_UP): ("answer epoch 10", "answer caught-up"),
    (State.STARTING, Trigger.UNREGISTERED): ("answer epoch 10", "read 10: us 10", *UNREGISTERED),
    (State.STARTING, Trigger.LEAVES_AT_ONCE): ("stop",),
    (State.STARTING, Trigger.NOT_ADMITTED): ("wait 60000",),
    (State.STARTING, Trigger.REPLACED): ("answer epoch 10", *REPLACED),
    (State.STARTING, Trigger.DISK_UNREPORTED): DISK,
    (State.RECOVERY, Trigger.UNFENCED): ("ready", "answer", "answer unfenced"),
    (State.RECOVERY, Trigger.UNREGISTERED): UNREGISTERED,
    (State.RECOVERY, Trigger.LEAVES_IN_ORDER): ("ready", "stop"),
    (State.RECOVERY, Trigger.LEAVES_AT_ONCE): ("stop",),
    (State.RECOVERY, Trigger.REPLACED): REPLACED,
    (State.RECOVERY, Trigger.DISK_UNREPORTED): DISK,
    (State.RUNNING, Trigger.UNREGISTERED): UNREGISTERED,
    (State.RUNNING, Trigger.LEAVES_IN_ORDER): ("stop",),
    (State.RUNNING, Trigger.LEAVES_AT_ONCE): ("stop",),  # where controlled.shutdown.enable=false
    (State.RUNNING, Trigger.REPLACED): REPLACED,
    (State.RUNNING, Trigger.DISK_UNREPORTED): DISK,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LET_GO): ("answer shut-down",),
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.OVERDUE): ("wait 2000", "answer unfenced") * 150,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.UNHEARD): ("wait 11000",),
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LEAVES_AT_ONCE): ("stop",),
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.UNREGISTERED): UNREGISTERED,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.REPLACED): REPLACED,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.DISK_UNREPORTED): ("wait 50", "fail A", *(REFUSED * 8)),
}
ERRORS = {Trigger.OVERDUE, Trigger.NOT_ADMITTED, Trigger.REPLACED, Trigger.DISK_UNREPORTED}


def test_there_is_a_way_to_every_line_of_the_table() -> None:
    assert set(WAYS) == set(TRANSITIONS)
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)


@pytest.mark.parametrize("line", TRANSITIONS, ids=lambda line: f"{line[0].name}-{line[1].name}")
def test_every_line_of_the_table(line: tuple[State, Trigger]) -> None:
    state, trigger = line
    is_hasty = line == (State.RUNNING, Trigger.LEAVES_AT_ONCE)
    story = run_to(state, LifecycleSettings(controlled_shutdown_enable=not is_hasty))
    before = len(story.effects)

    for command in WAYS[line]:
        story.do(command)

    after = TRANSITIONS[line]
    effects = story.effects[before:]
    told = [event for one in effects for event in one.events if event.kind == "BrokerStateChanged"]
    assert [(event.before, event.after, event.check) for event in told] == [  # type: ignore[attr-defined]
        (state.name, after.name, trigger.value)
    ]
    assert story.broker.state is after
    stops = [one.stop for one in effects if one.stop is not None]
    assert [one.is_error for one in stops] == ([trigger in ERRORS] if after is State.SHUTTING_DOWN else [])
    complaints = [event for one in effects for event in one.events if isinstance(event, BrokerGaveUp)]
    assert [one.reason for one in complaints] == [one.reason for one in stops if one.is_error]


@pytest.mark.parametrize(
    "state", [one for one in State if one is not State.NOT_RUNNING], ids=lambda one: one.name
)
def test_what_is_not_in_the_table_is_an_error_with_both_names(state: State) -> None:
    broker = run_to(state).broker
    with pytest.raises(TransitionError, match=f"START cannot happen to a broker that is {state.name}"):
        broker.start(5000)


def test_the_page_shows_the_table_as_it_is() -> None:
    lines = [
        "| state | what happens | next state |",
        "|---|---|---|",
        *(
            f"| {state.name} | {trigger.value} | {after.name} |"
            for (state, trigger), after in TRANSITIONS.items()
        ),
    ]
    table = "\n".join(lines)
    assert table in PAGE.read_text(), f"the table in {PAGE.name} should be:\n{table}"


# Errors


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        4711,
    ],
)
def test_a_refused_registration_is_tried_again_and_is_the_reason_in_the_end(error: int) -> None:
    broker = Lifecycle(registration_request(), chance=Random(1))
    now_ms, effects, reasons = 0.0, broker.start(0), []
    while effects.stop is None:
        if effects.send is not None:
            effects = broker.answered(effects.send.number, admitted(error=error), now_ms)
            reasons += [event for event in effects.events if isinstance(event, BrokerRequestFailed)]
        else:
            now_ms = broker.deadline_ms
            effects = broker.tick(now_ms)
    name = ErrorCode(error).name if error != 4711 else "error 4711"
    assert now_ms == 60_000
    assert effects.stop.is_error
    assert f"last error: {name}: " in effects.stop.reason
    assert [event.error for event in reasons] == [name]
    assert reasons[0].is_warning


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        None,
    ],
)
@pytest.mark.parametrize(
    "state",
    [State.STARTING, State.RECOVERY, State.RUNNING, State.PENDING_CONTROLLED_SHUTDOWN],
    ids=lambda one: one.name,
)
def test_a_failed_heartbeat_is_sent_again_with_the_same_epoch(state: State, error: int | None) -> None:
    story = run_to(state, LifecycleSettings(broker_session_timeout_ms=60_000))
    if state is State.STARTING:
        story.do("answer epoch 10")
    for _ in range(20):
        assert story.in_flight is not None
        request = story.in_flight.request
        assert isinstance(request, BrokerHeartbeatRequest)
        assert request.broker_epoch == 10
        answer = None if error is None else heard(error=error)
        effects = story.note(story.broker.answered(story.in_flight.number, answer, story.now_ms))
        assert effects.looks_elsewhere is (error in (None, ErrorCode.NOT_CONTROLLER))
        if effects.send is None:
            story.do("tick")
    assert story.broker.state is state
    assert story.broker.epoch == 10


def test_pauses_differ_by_chance() -> None:
    def pause_ms(seed: int) -> float:
        broker = Lifecycle(registration_request(), chance=Random(seed))
        broker.start(0)
        broker.answered(1, None, 0, why="nobody is there")
        return broker.deadline_ms

    pauses = {pause_ms(seed) for seed in range(20)}
    assert len(pauses) == 20
    assert all(40 <= one <= 60 for one in pauses)


def test_why_a_request_failed_is_said() -> None:
    broker = Lifecycle(registration_request(), chance=Random(1))
    broker.start(0)
    effects = broker.answered(1, None, 0, why="the connection was refused")
    (event,) = effects.events
    assert event.line().startswith(
        "Registration of broker 3 failed with NO_ANSWER: the connection was refused epoch=-1 failures=1"
    )


def test_an_answer_of_the_wrong_kind_is_a_mistake_of_the_shell() -> None:
    broker = Lifecycle(registration_request(), chance=Random(1))
    broker.start(0)
    with pytest.raises(AssertionError):
        broker.answered(1, heard(), 0)


def test_a_registration_says_what_it_was_given() -> None:
    given_request = registration_request()
    broker = Lifecycle(given_request, chance=Random(1))
    broker.directories_failed([directory("A")], 0)
    send = broker.start(0).send
    assert send is not None
    assert isinstance(send.request, BrokerRegistrationRequest)
    assert send.request == registration_request(log_dirs=[directory("B")])
    assert given_request == registration_request()
    assert send.request.previous_broker_epoch == 7


def test_every_event_can_be_told_and_kept() -> None:
    told = {}
    for path in SCENARIOS:
        for effects in run_story(path).effects:
            for event in effects.events:
                told[event.kind] = event
                assert str(BROKER) in event.line()
                assert json.loads(json.dumps(event.to_json()))["broker_id"] == BROKER
    import quorate.broker.events as all_events

    assert set(told) == set(all_events.__all__)


# Laws, whatever happens


class Judge:
    """Makes arbitrary inputs, and checks after each what must be true."""

    def __init__(self, seed: int) -> None:
        self.inputs: list[Input] = []
        self.broker = Lifecycle(registration_request(), chance=Random(seed), record=self.inputs.append)
        self.now_ms = 0.0
        self.offset = -1
        self.number = 0  # of the request on its way, 0 if there is none
        self.request: Any = None
        self.epochs: list[int] = []
        self.effects: list[Effects] = []
        self.has_caught_up = False  # the controller said so, in this epoch
        self.is_ready = False

    def watch(self, effects: Effects) -> None:
        broker = self.broker
        self.effects.append(effects)
        if effects.epoch is not None:
            self.epochs.append(effects.epoch)
            self.has_caught_up = False
        assert all(before <= after for before, after in pairwise(self.epochs)), "an epoch went back"
        assert broker.epoch in (-1, *self.epochs[-1:])
        if effects.send is not None:
            self._watch_send(effects)
        if broker.state is State.SHUTTING_DOWN:
            self.number = 0
        is_alive = broker.state not in (State.NOT_RUNNING, State.SHUTTING_DOWN)
        assert (broker.deadline_ms < math.inf) == is_alive
        if is_alive and not self.number:
            assert broker.deadline_ms > self.now_ms, "it should have been sent"
        assert (effects.stop is not None) == (effects.state is State.SHUTTING_DOWN)
        assert broker.is_fenced or broker.state >= State.RUNNING

    def _watch_send(self, effects: Effects) -> None:
        broker, send = self.broker, effects.send
        assert send is not None
        assert not self.number, "two on their way"
        assert broker.state not in (State.NOT_RUNNING, State.SHUTTING_DOWN)
        self.number, self.request = send.number, send.request
        if isinstance(send.request, BrokerHeartbeatRequest):
            assert send.request.broker_epoch == broker.epoch == self.epochs[-1], "the epoch of another"
            assert send.request.want_fence or (self.is_ready and self.has_caught_up), "unfenced too early"
            assert send.request.want_shut_down == (broker.state is State.PENDING_CONTROLLED_SHUTDOWN)

    # What can happen

    def start(self) -> None:
        if self.broker.state is State.NOT_RUNNING:
            self.watch(self.broker.start(self.now_ms))

    def pass_time(self, span_ms: float) -> None:
        until_ms = self.now_ms + span_ms
        while self.broker.deadline_ms <= until_ms and self.broker.state is not State.SHUTTING_DOWN:
            self.now_ms = self.broker.deadline_ms
            self._tick()
        self.now_ms = until_ms
        self._tick()

    def _tick(self) -> None:
        effects = self.broker.tick(self.now_ms)
        if effects.looks_elsewhere:
            self.number = 0  # given up
        self.watch(effects)

    def answer(self, error: int | None, epoch: int, flags: tuple[bool, bool, bool]) -> None:
        if not self.number:
            return
        number, self.number = self.number, 0
        caught_up, fenced, shut_down = flags
        response: Any = None
        if isinstance(self.request, BrokerRegistrationRequest):
            response = admitted(-1 if error else epoch, error or 0)
        elif error == ErrorCode.NONE:
            # Only what is about the epoch it has counts.
            self.has_caught_up |= caught_up and self.request.broker_epoch == self.broker.epoch
            response = heard(caught_up=caught_up, fenced=fenced, shut_down=shut_down)
        else:
            response = heard(error=error or 0)
        self.watch(self.broker.answered(number, None if error is None else response, self.now_ms))

    def answer_late(self, number: int) -> None:
        if number != self.number:
            self.watch(self.broker.answered(number, heard(caught_up=True, fenced=False), self.now_ms))

    def read(self, step: int, epoch: int | None, is_ours: bool, fenced: bool) -> None:
        self.offset += step
        known = None if epoch is None else registered(epoch, by=US if is_ours else OTHER, fenced=fenced)
        self.watch(self.broker.metadata_applied(self.offset, known, self.now_ms))

    def be_ready(self) -> None:
        self.is_ready = True
        self.watch(self.broker.ready(self.now_ms))

    def fail_disk(self, letter: str) -> None:
        self.watch(self.broker.directories_failed([directory(letter)], self.now_ms))

    def cordon(self, letters: str) -> None:
        self.watch(self.broker.directories_cordoned([directory(one) for one in letters], self.now_ms))

    def amend(self) -> None:
        self.watch(self.broker.amend_registration(self.now_ms))

    def stop(self) -> None:
        self.watch(self.broker.begin_shutdown(self.now_ms))


EPOCHS = st.integers(0, 30)
ANSWERS = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        None,
    ]
)
FLAGS = st.tuples(st.booleans(), st.booleans(), st.booleans())
HAPPENINGS: st.SearchStrategy[Callable[[Judge], None]] = st.one_of(
    st.builds(lambda span: lambda judge: judge.pass_time(span), st.sampled_from([0, 1, 10, 60, 2000, 9000])),
    *[
        st.builds(
            lambda error, epoch, flags: lambda judge: judge.answer(error, epoch, flags),
            ANSWERS,
            EPOCHS,
            FLAGS,
        )
    ]
    * 4,
    st.builds(
        lambda step, epoch, ours, fenced: lambda judge: judge.read(step, epoch, ours, fenced),
        st.integers(0, 8),
        st.none() | EPOCHS,
        st.sampled_from([True, True, True, False]),
        st.booleans(),
    ),
    st.builds(lambda number: lambda judge: judge.answer_late(number), st.integers(0, 20)),
    st.sampled_from(
        [
            Judge.be_ready,
            Judge.amend,
            lambda judge: judge.fail_disk("A"),
            lambda judge: judge.fail_disk("B"),
            lambda judge: judge.cordon("A"),
        ]
    ),
    st.sampled_from([Judge.amend, Judge.be_ready, Judge.stop]),
)


@given(st.lists(HAPPENINGS, max_size=60), st.integers(0, 3))
@hypothesis_settings(max_examples=400)
def test_the_laws_hold_whatever_happens(happenings: list[Callable[[Judge], None]], seed: int) -> None:
    judge = Judge(seed)
    judge.start()
    for happening in happenings:
        happening(judge)
    again = Lifecycle(registration_request(), chance=Random(seed))
    assert replay(again, judge.inputs) == judge.effects


# With the controller that there is


class Neighbourhood:
    """A broker and the decisions of the real controller, with whatever gets lost between them."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster = Cluster([1])
        self.cluster.sessions.restart([(1, self.cluster.image.brokers[1].epoch)], self.cluster.now_ms)
        self.broker = self.new_process(0, seed)
        self.pending: Any = None
        self.stop: Any = None
        self.states: list[State] = []
        self.epochs: list[int] = []

    def new_process(self, run: int, seed: int = 1) -> Lifecycle:
        request = broker_requests.registration_request(self.cluster, BROKER, run=run)
        assert request.cluster_id == CLUSTER_ID
        return Lifecycle(request, chance=Random(seed))

    @property
    def now_ms(self) -> float:
        return self.cluster.now_ms

    def perform(self, effects: Effects) -> None:
        if effects.state is not None:
            self.states.append(effects.state)
        if effects.epoch is not None:
            self.epochs.append(effects.epoch)
        self.stop = self.stop or effects.stop
        if effects.send is not None:
            self.pending = effects.send

    def ask(self) -> Any:
        """What the controller says to what is on its way."""
        request = self.pending.request
        is_registration = isinstance(request, BrokerRegistrationRequest)
        try:
            if is_registration:
                return self.cluster.decide(decide_registration, request, api_version=4).reply
            self.cluster.sessions.contact(request.broker_id, request.broker_epoch, self.now_ms)
            return self.cluster.decide(decide_heartbeat, request, api_version=2).reply
        except ApiError as error:
            return admitted(error=error.code) if is_registration else heard(error=error.code)

    def exchange(self, *, loses_request: bool = False, loses_reply: bool = False) -> None:
        if self.pending is None:
            return
        number = self.pending.number
        reply = None if loses_request else self.ask()
        self.pending = None
        self.perform(self.broker.answered(number, None if loses_reply else reply, self.now_ms))

    def read(self) -> None:
        known = self.cluster.image.brokers.get(BROKER)
        self.perform(self.broker.metadata_applied(self.cluster.next_offset - 1, known, self.now_ms))

    def pass_time(self, span_ms: float) -> None:
        self.cluster.now_ms += span_ms
        self.beat_for_others()
        broker_requests.expire(self.cluster)
        effects = self.broker.tick(self.now_ms)
        if effects.looks_elsewhere:
            self.pending = None  # given up
        self.perform(effects)

    def beat_for_others(self) -> None:
        broker_requests.beat(self.cluster, 1)

    def unregister(self) -> None:
        if BROKER in self.cluster.image.brokers:
            self.cluster.decide(decide_unregistration, UnregisterBrokerRequest(broker_id=BROKER))

    def settle(self, goal: Callable[[], bool]) -> None:
        """Nothing goes wrong any more."""
        for _ in range(200):
            if goal() or self.stop is not None:
                return
            if self.pending is not None:
                self.exchange()
            else:
                self.pass_time(max(0.0, self.broker.deadline_ms - self.now_ms))
            self.read()
        raise AssertionError(f"still {self.broker.state.name}")

    @property
    def is_serving(self) -> bool:
        known = self.cluster.image.brokers.get(BROKER)
        is_known = known is not None and known.epoch == self.broker.epoch and not known.is_fenced
        return self.broker.state is State.RUNNING and is_known and self.pending is None


def running() -> Neighbourhood:
    place = Neighbourhood()
    place.perform(place.broker.start(place.now_ms))
    place.perform(place.broker.ready(place.now_ms))
    place.settle(lambda: place.is_serving)
    assert place.states == [State.STARTING, State.RECOVERY, State.RUNNING]
    return place


def test_the_controller_lets_it_in_and_lets_it_go() -> None:
    place = running()
    place.cluster.create(1, [(BROKER, 1), (1, BROKER)])
    place.perform(place.broker.begin_shutdown(place.now_ms))
    place.settle(lambda: False)
    assert place.stop is not None
    assert not place.stop.is_error
    assert not place.cluster.image.partitions.is_leading(BROKER)

    place.broker, place.stop = place.new_process(1), None  # its successor need not wait
    place.perform(place.broker.start(place.now_ms))
    place.perform(place.broker.ready(place.now_ms))
    place.exchange()
    assert place.broker.epoch > place.epochs[0]


def test_a_broker_that_was_unregistered_is_a_member_again() -> None:
    place = running()
    place.unregister()
    place.read()
    place.settle(lambda: place.is_serving)
    assert place.states[3:] == [State.STARTING, State.RECOVERY, State.RUNNING]
    assert place.epochs[1] > place.epochs[0]


def test_a_broker_that_was_cut_off_is_unfenced_by_its_next_heartbeat() -> None:
    place = running()
    for _ in range(20):
        place.pass_time(1000)
        place.exchange(loses_request=True)
    assert place.cluster.image.brokers[BROKER].is_fenced
    place.read()
    assert place.broker.is_fenced
    place.settle(lambda: place.is_serving)
    assert not place.broker.is_fenced
    assert len(place.epochs) == 1


def test_a_second_process_with_the_id_of_a_live_broker_is_refused_and_says_why() -> None:
    place = running()
    first, second = place.broker, place.new_process(1)
    effects = second.start(place.now_ms)
    while effects.stop is None:
        if effects.send is not None:
            place.pending = effects.send
            effects = second.answered(effects.send.number, place.ask(), place.now_ms)
        else:
            place.cluster.now_ms = second.deadline_ms
            broker_requests.beat(place.cluster, BROKER)
            effects = second.tick(place.now_ms)
    assert effects.stop.is_error
    assert "DUPLICATE_BROKER_REGISTRATION: another process lives under this id" in effects.stop.reason
    assert place.cluster.image.brokers[BROKER].epoch == first.epoch


def test_a_second_process_takes_over_from_one_that_is_silent_which_then_stops() -> None:
    place = running()
    first = place.broker
    for _ in range(10):
        place.cluster.now_ms += 1000
        place.beat_for_others()
    place.broker = place.new_process(1)
    place.perform(place.broker.start(place.now_ms))
    place.perform(place.broker.ready(place.now_ms))
    place.settle(lambda: place.is_serving)
    assert place.stop is None

    known = place.cluster.image.brokers[BROKER]
    effects = first.metadata_applied(place.cluster.next_offset - 1, known, place.now_ms)
    assert effects.stop is not None
    assert effects.stop.is_error
    assert "registered by another process" in effects.stop.reason


TROUBLES: st.SearchStrategy[Callable[[Neighbourhood], None]] = st.sampled_from(
    [
        Neighbourhood.exchange,
        Neighbourhood.exchange,
        lambda place: place.exchange(loses_request=True),
        lambda place: place.exchange(loses_reply=True),
        lambda place: place.pass_time(10),
        lambda place: place.pass_time(2000),
        lambda place: place.pass_time(10_000),
        Neighbourhood.read,
        Neighbourhood.unregister,
        lambda place: place.perform(place.broker.amend_registration(place.now_ms)),
        lambda place: place.perform(place.broker.ready(place.now_ms)),
    ]
)


@given(st.lists(TROUBLES, max_size=60), st.integers(0, 3))
@hypothesis_settings(max_examples=150)
def test_whatever_was_lost_it_serves_in_the_end(
    troubles: list[Callable[[Neighbourhood], None]], seed: int
) -> None:
    place = Neighbourhood(seed)
    place.perform(place.broker.start(place.now_ms))
    for trouble in troubles:
        trouble(place)
    if place.stop is None:
        place.perform(place.broker.ready(place.now_ms))
        place.settle(lambda: place.is_serving)
    if place.stop is not None:  # only who was never let in gives up
        assert place.epochs == []
        assert "it was not registered within" in place.stop.reason
    assert all(before <= after for before, after in pairwise(place.epochs))
