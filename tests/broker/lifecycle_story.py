"""Scenarios of one broker's life: small text files, read line by line.

The broker is number 3, its log directories are A and B, and no pause is changed by chance. The clock stands
still until it is told to move. Whatever a line leads to stands after `->`, with semicolons between; nothing
else may happen. `*` stands for anything, `...` for any number of things. A comment follows `#`.

What happens

    start; ready; stop; stop within 1000; fail A; cordon A B; amend
    tick                      the clock goes on to the deadline, and the broker looks at it
    wait 500                  the clock goes on by that; the broker looks at it whenever it is due
    answer epoch 10           to the registration on its way
    answer caught-up unfenced shut-down      to the heartbeat on its way, any of these words
    refuse NOT_CONTROLLER     either
    lose                      either: its answer never comes
    lose ungoverned           the same, and no controller can be elected
    late 1 epoch 10           an answer to a request of the past
    read 12: us 10 fenced     the metadata log was read up to 12: this is what stands there about our id
    read 12: other 11         another process has it
    read 12: nobody

What it leads to

    registration 1 A B        sent, with its number
    heartbeat 2 epoch 10 offset 12 fence leave offline A cordoned B
    elsewhere                 whoever was asked is not the one to ask
    RUNNING; epoch 10; fenced; unfenced; known offline A; known cordoned A
    stops: reason; fails: reason

What must be true now

    next -> 50                milliseconds to the deadline; never
    said -> lines             of the log since this was last asked, each by its kind
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from quorate.broker.lifecycle import Effects, Input, Lifecycle, LifecycleSettings, Send, State, replay
from quorate.metadata.brokers import BrokerRegistration
from quorate.protocol.api.brokers import (
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

BROKER = 3
US, OTHER = Uuid(b"us".ljust(16, b".")), Uuid(b"other".ljust(16, b"."))


class StoryError(Exception):
    """An expectation was not met: where, what was expected, and what happened."""


class Steady:
    """Chance without surprises."""

    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2


def directory(letter: str) -> Uuid:
    return Uuid(b"directory".ljust(15, b".") + letter.encode())


def letter_of(directory_id: Uuid) -> str:
    return directory_id[-1:].decode()


def registration_request(**changes: Any) -> BrokerRegistrationRequest:
    fields: dict[str, Any] = {
        "broker_id": BROKER,
        "cluster_id": "cluster",
        "incarnation_id": US,
        "listeners": [],
        "features": [],
        "rack": None,
        "log_dirs": [directory("A"), directory("B")],
        "previous_broker_epoch": 7,
    }
    return BrokerRegistrationRequest(**fields | changes)


def registered(epoch: int, *, by: Uuid = US, fenced: bool = True) -> BrokerRegistration:
    """What the metadata log says about the broker."""
    return BrokerRegistration(
        id=BROKER,
        epoch=epoch,
        incarnation_id=by,
        listeners=(),
        features={},
        rack=None,
        is_fenced=fenced,
        is_shutting_down=False,
        is_migrating=False,
        directories=(),
        cordoned=(),
        registration_offset=epoch,
    )


def admitted(epoch: int = -1, error: int = ErrorCode.NONE) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error, broker_epoch=epoch)


def heard(
    *, caught_up: bool = False, fenced: bool = True, shut_down: bool = False, error: int = ErrorCode.NONE
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=shut_down,
    )


class Story:
    """A broker, the clock, and the request that is on its way."""

    def __init__(self, settings: LifecycleSettings | None = None) -> None:
        self.inputs: list[Input] = []
        self.effects: list[Effects] = []
        self.broker = Lifecycle(registration_request(), settings, chance=Steady(), record=self.inputs.append)
        self.now_ms = 1000.0
        self.in_flight: Send | None = None
        self.said: list[str] = []

    def note(self, effects: Effects) -> Effects:
        self.effects.append(effects)
        self.said += [event.kind for event in effects.events]
        if effects.send is not None:
            self.in_flight = effects.send
        return effects

    def do(self, text: str) -> list[str]:
        """Does what a line says; what follows, in words."""
        verb, _, rest = text.partition(" ")
        words = rest.replace(":", " ").split()
        if verb == "wait":
            return self._wait(float(rest))
        return facts(self.note(self._input(verb, words)))

    def _wait(self, span_ms: float) -> list[str]:
        until_ms = self.now_ms + span_ms
        found = []
        while self.broker.deadline_ms <= until_ms:
            self.now_ms = self.broker.deadline_ms
            found += facts(self.note(self.broker.tick(self.now_ms)))
        self.now_ms = until_ms
        return found + facts(self.note(self.broker.tick(self.now_ms)))

    def _input(self, verb: str, words: list[str]) -> Effects:
        broker, now_ms = self.broker, self.now_ms
        match verb:
            case "start":
                return broker.start(now_ms)
            case "ready":
                return broker.ready(now_ms)
            case "stop":
                return broker.begin_shutdown(now_ms, *[float(word) for word in words[1:]])
            case "fail":
                return broker.directories_failed([directory(word) for word in words], now_ms)
            case "cordon":
                return broker.directories_cordoned([directory(word) for word in words], now_ms)
            case "amend":
                return broker.amend_registration(now_ms)
            case "tick":
                self.now_ms = broker.deadline_ms
                return broker.tick(self.now_ms)
            case "read":
                return broker.metadata_applied(int(words[0]), _known(words[1:]), now_ms)
            case "late":
                return broker.answered(int(words[0]), _answer(words[1:]), now_ms)
        assert self.in_flight is not None, "nothing is on its way"
        number, request = self.in_flight.number, self.in_flight.request
        match verb:
            case "answer":
                return broker.answered(number, _answer(words), now_ms)
            case "refuse":
                is_registration = isinstance(request, BrokerRegistrationRequest)
                error = ErrorCode[words[0]]
                response = admitted(error=error) if is_registration else heard(error=error)
                return broker.answered(number, response, now_ms)
            case "lose":
                return broker.answered(number, None, now_ms, is_ungoverned=words == ["ungoverned"])
        raise StoryError(f"nobody knows how to {verb}")


def _known(words: list[str]) -> BrokerRegistration | None:
    if words == ["nobody"]:
        return None
    return registered(int(words[1]), by=US if words[0] == "us" else OTHER, fenced="fenced" in words)


def _answer(words: list[str]) -> BrokerRegistrationResponse | BrokerHeartbeatResponse:
    if words[:1] == ["epoch"]:
        return admitted(int(words[1]))
    assert not set(words) - {"caught-up", "unfenced", "shut-down"}, words
    return heard(
        caught_up="caught-up" in words, fenced="unfenced" not in words, shut_down="shut-down" in words
    )


def facts(effects: Effects) -> list[str]:
    found = []
    if effects.looks_elsewhere:
        found.append("elsewhere")
    if effects.state is not None:
        found.append(effects.state.name)
    if effects.epoch is not None:
        found.append(f"epoch {effects.epoch}")
    if effects.is_fenced is not None:
        found.append("fenced" if effects.is_fenced else "unfenced")
    if effects.acknowledged_offline:
        found.append(f"known offline {_letters(effects.acknowledged_offline)}")
    if effects.acknowledged_cordoned is not None:
        found.append(f"known cordoned {_letters(effects.acknowledged_cordoned)}".strip())
    if effects.stop is not None:
        verb = "fails" if effects.stop.is_error else "stops"
        found.append(f"{verb}: {effects.stop.reason}".replace(";", ","))
    if effects.send is not None:
        found.append(_sent(effects.send))
    return found


def _sent(send: Send) -> str:
    request = send.request
    if isinstance(request, BrokerRegistrationRequest):
        return f"registration {send.number} {_letters(request.log_dirs)}".strip()
    words = f"heartbeat {send.number} epoch {request.broker_epoch} offset {request.current_metadata_offset}"
    if request.want_fence:
        words += " fence"
    if request.want_shut_down:
        words += " leave"
    if request.offline_log_dirs:
        words += f" offline {_letters(request.offline_log_dirs)}"
    if request.cordoned_log_dirs is not None:
        words += f" cordoned {_letters(request.cordoned_log_dirs)}".rstrip()
    return words


def _letters(directories: Any) -> str:
    return " ".join(map(letter_of, directories))


def run_story(path: Path) -> Story:
    """Plays a file; raises `StoryError` where it goes otherwise than told."""
    story = Story()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        command, _, after = (part.strip() for part in text.partition("->"))
        if command == "next":
            left_ms = story.broker.deadline_ms - story.now_ms
            found = ["never" if left_ms == math.inf else f"{left_ms:g}"]
        elif command == "said":
            found, story.said = story.said, []
        else:
            found = story.do(command)
        expected = [one.strip() for one in after.split(";")] if after else []
        is_met = len(found) == len(expected) and all(map(fnmatchcase, found, expected))
        if not is_met and after != "...":
            where = f"{path.name}, line {number}: {command}"
            raise StoryError(f"{where}\n  expected: {'; '.join(expected)}\n  happened: {'; '.join(found)}")
    again = Lifecycle(registration_request(), chance=Steady())
    if replay(again, story.inputs) != story.effects:
        raise StoryError(f"{path.name}: the same inputs led to something else")
    return story


def run_to(state: State, settings: LifecycleSettings | None = None) -> Story:
    """A broker that has come so far, with a heartbeat on its way where it can have one."""
    story = Story(settings)
    steps = {
        State.STARTING: ["start"],
        State.RECOVERY: ["answer epoch 10", "read 10: us 10 fenced", "answer caught-up", "wait 10"],
        State.RUNNING: ["ready", "answer", "answer unfenced", "wait 2000"],
        State.PENDING_CONTROLLED_SHUTDOWN: ["stop", "answer unfenced"],
    }
    if state is State.SHUTTING_DOWN:
        steps = {State.SHUTTING_DOWN: ["stop"]}
    for reached, commands in steps.items():
        if reached > state:
            break
        for command in commands:
            story.do(command)
        assert story.broker.state is reached
    story.said = []
    return story
