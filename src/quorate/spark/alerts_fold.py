"""One cluster's log, record by record: what changed, what was over by that, and what somebody must be told.

This is what `alerts` runs inside a stream, in plain Python and without Spark. It keeps the newest state of
each broker and of each topic's partitions, as JSON by subject (`broker 2`, `topic <id>`), so that a batch
of the log reads and writes the state of what it touches and no more.

It follows the same rules as `intervals`: what stands in a metadata transaction counts at its end or never, of
several changes at one offset the last is seen, and what a snapshot does not name is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["CLOSED", "FENCED_ALERT", "FLAPPING_ALERT", "LEADERLESS_ALERT", "Fold", "Limits", "Signal"]

CLOSED: Final = "closed"  # an interval is over; the other kinds are alerts
FENCED_ALERT: Final = "fenced"
LEADERLESS_ALERT: Final = "leaderless"
FLAPPING_ALERT: Final = "flapping"

_BEGIN: Final = "BeginTransactionRecord"
_END: Final = "EndTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"
_SNAPSHOT: Final = "snapshot"
_NO_LEADER: Final = -1

Thing = dict[str, Any]


class Signal(NamedTuple):
    """What a record says that matters here; None where it says nothing."""

    cluster_id: str
    origin: str
    offset: int
    position: int
    ts_ms: int | None
    type: str
    broker_id: int | None = None
    broker_epoch: int | None = None
    is_fenced: bool | None = None
    is_shutting_down: bool | None = None
    topic_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """A broker flaps that was fenced so often within that time."""

    flapping_count: int = 3
    flapping_ms: int = 3_600_000


class _Moment(NamedTuple):
    offset: int
    ts_ms: int | None
    origin: str


@dataclass(slots=True)
class Fold:
    """`load` gives the stored text of a subject, `names` all subjects; `progress` is what `save` gave
    last."""

    cluster_id: str
    load: Callable[[str], str | None]
    names: Callable[[], Iterable[str]]
    progress: str | None = None
    limits: Limits = field(default_factory=Limits)
    _subjects: dict[str, dict[str, Thing]] = field(default_factory=dict)
    _touched: dict[tuple[str, str], Thing | None] = field(default_factory=dict)
    _inside: list[Signal] | None = None  # of a transaction
    _snapshot: _Moment | None = None  # that is being read

    def __post_init__(self) -> None:
        if self.progress is not None:
            kept = json.loads(self.progress)
            inside, snapshot = kept["inside"], kept["snapshot"]
            self._inside = None if inside is None else [Signal(*one) for one in inside]
            self._snapshot = None if snapshot is None else _Moment(*snapshot)

    def take(self, signal: Signal) -> Iterator[Mapping[str, Any]]:
        """One more record of the log: the rows that follow from it."""
        if signal.origin == _SNAPSHOT:
            self._inside = None
            moment = _Moment(signal.offset, signal.ts_ms, _SNAPSHOT)
            if self._snapshot is not None and self._snapshot.offset != moment.offset:
                yield from self._lose_unnamed(self._snapshot)
            self._snapshot = moment
            self._apply(signal)
            yield from self._settle(moment)
            return
        if self._snapshot is not None:
            yield from self._lose_unnamed(self._snapshot)
            self._snapshot = None
        if signal.type == _BEGIN:
            self._inside = []
        elif signal.type == _ABORT:
            self._inside = None
        elif signal.type == _END:
            for one in self._inside or ():
                self._apply(one)
            self._inside = None
            yield from self._settle(_Moment(signal.offset, signal.ts_ms, signal.origin))
        elif self._inside is not None:
            self._inside.append(signal)
        else:
            self._apply(signal)
            yield from self._settle(_Moment(signal.offset, signal.ts_ms, signal.origin))

    def save(self) -> tuple[dict[str, str | None], str]:
        """The subjects that were looked at, as text (None for one that is gone), and the progress."""
        subjects = {
            name: json.dumps(things, separators=(",", ":")) if things else None
            for name, things in self._subjects.items()
        }
        return subjects, json.dumps({"inside": self._inside, "snapshot": self._snapshot})

    # What records say

    def _apply(self, signal: Signal) -> None:
        match signal.type:
            case "UnregisterBrokerRecord":
                self._put(_broker(signal), "", None)
            case "TopicRecord":
                self._put(_topic(signal), "", {"topic": signal.topic, "seen": self._seen(signal)})
            case "RemoveTopicRecord":
                for name in list(self._things(_topic(signal))):
                    self._put(_topic(signal), name, None)
            case "PartitionRecord" | "PartitionChangeRecord":
                if signal.leader is not None:
                    self._lead(signal)
            case _:
                self._change_broker(signal)

    def _change_broker(self, signal: Signal) -> None:
        before = self._things(_broker(signal)).get("")
        is_new = before is None or signal.type == "RegisterBrokerRecord"
        known: Thing = {"fences": [], "epoch": signal.broker_epoch} if before is None else before
        fenced = known.get("fenced") if signal.is_fenced is None else signal.is_fenced
        leaving = known.get("leaving") if signal.is_shutting_down is None else signal.is_shutting_down
        state = None if fenced is None else "unfenced"
        if fenced or leaving:
            state = "fenced" if fenced else "shutting_down"
        now = {
            "epoch": signal.broker_epoch if is_new else known["epoch"],
            "state": state,
            "fenced": fenced,
            "leaving": leaving,
            "fences": known["fences"],
            "seen": self._seen(signal),
        }
        self._put(_broker(signal), "", now)

    def _lead(self, signal: Signal) -> None:
        name = str(signal.partition)
        if signal.type == "PartitionRecord":
            epoch = signal.leader_epoch
        else:
            before = self._things(_topic(signal)).get(name)
            epoch = None if before is None or before["epoch"] is None else before["epoch"] + 1
        self._put(_topic(signal), name, {"leader": signal.leader, "epoch": epoch, "seen": self._seen(signal)})

    def _seen(self, signal: Signal) -> int | None:
        """The snapshot that named it last."""
        return signal.offset if signal.origin == _SNAPSHOT else None

    # What follows

    def _put(self, subject: str, name: str, thing: Thing | None) -> None:
        things = self._things(subject)
        before = things.get(name)
        self._touched.setdefault((subject, name), before)
        if thing is None:
            things.pop(name, None)
        else:
            things[name] = thing if before is None else {"start": before.get("start"), **thing}

    def _settle(self, moment: _Moment) -> Iterator[Mapping[str, Any]]:
        """What a moment came to, for each thing that it was about."""
        touched, self._touched = self._touched, {}
        for (subject, name), before in touched.items():
            now = self._things(subject).get(name)
            if subject.startswith("topic") and not name:
                continue
            if before is not None and now is not None and _state(before) == _state(now):
                now["start"] = before["start"]
                continue
            # Of a topic that was deleted just now the name is among what it was before.
            of_topic = self._things(subject).get("") or touched.get((subject, "")) or {}
            topic = of_topic.get("topic")
            if before is not None:
                yield from self._closed(
                    subject, name, before, moment, topic, is_known=moment.origin != _SNAPSHOT
                )
            if now is not None:
                now["start"] = list(moment)
                yield from self._alerts(subject, name, before, now, moment, topic)

    def _lose_unnamed(self, snapshot: _Moment) -> Iterator[Mapping[str, Any]]:
        """A snapshot has ended: what it did not name is gone."""
        for subject in sorted({*self.names(), *self._subjects}):
            things = self._things(subject)
            topic = things.get("", {}).get("topic")
            for name, thing in list(things.items()):
                if thing.get("seen") == snapshot.offset:
                    continue
                del things[name]
                if name or subject.startswith("broker"):
                    yield from self._closed(subject, name, thing, snapshot, topic, is_known=False)

    def _closed(
        self, subject: str, name: str, thing: Thing, end: _Moment, topic: str | None, *, is_known: bool
    ) -> Iterator[Mapping[str, Any]]:
        start_offset, start_ts_ms, origin = thing["start"]
        if start_offset >= end.offset:
            return
        yield {
            **_about(subject, name, thing, topic),
            "cluster_id": self.cluster_id,
            "kind": CLOSED,
            "origin": origin,
            "start_offset": start_offset,
            "end_offset": end.offset,
            "start_ts_ms": start_ts_ms,
            "end_ts_ms": end.ts_ms,
            "is_end_known": is_known,
        }

    def _alerts(
        self, subject: str, name: str, before: Thing | None, now: Thing, moment: _Moment, topic: str | None
    ) -> Iterator[Mapping[str, Any]]:
        """Only what was otherwise before is news."""
        if before is None:
            return
        about = {
            **_about(subject, name, now, topic),
            "cluster_id": self.cluster_id,
            "origin": moment.origin,
            "start_offset": moment.offset,
            "start_ts_ms": moment.ts_ms,
        }
        if subject.startswith("topic"):
            if now["leader"] == _NO_LEADER != before["leader"]:
                text = f"{topic or subject}-{name} has no leader; it was {before['leader']}"
                yield {**about, "kind": LEADERLESS_ALERT, "text": text}
            return
        if now["state"] != "fenced" or before["state"] != "unfenced" or now["epoch"] != before["epoch"]:
            return
        yield {**about, "kind": FENCED_ALERT, "text": f"{subject} was fenced"}
        if moment.ts_ms is None:
            return
        fences = [*now["fences"], moment.ts_ms][-self.limits.flapping_count :]
        now["fences"] = fences
        lasted_ms = fences[-1] - fences[0]
        if len(fences) == self.limits.flapping_count and lasted_ms <= self.limits.flapping_ms:
            text = f"{subject} was fenced {len(fences)} times in {lasted_ms / 1000:.0f} s"
            yield {**about, "kind": FLAPPING_ALERT, "text": text}

    def _things(self, subject: str) -> dict[str, Thing]:
        if subject not in self._subjects:
            text = self.load(subject)
            self._subjects[subject] = {} if text is None else json.loads(text)
        return self._subjects[subject]


def _broker(signal: Signal) -> str:
    return f"broker {signal.broker_id}"


def _topic(signal: Signal) -> str:
    return f"topic {signal.topic_id}"


def _state(thing: Thing) -> tuple[Any, ...]:
    return thing.get("state"), thing.get("leader"), thing["epoch"]


def _about(subject: str, name: str, thing: Thing, topic: str | None) -> dict[str, Any]:
    kind, _, which = subject.partition(" ")
    if kind == "broker":
        return {"broker_id": int(which), "broker_epoch": thing["epoch"], "state": thing["state"]}
    return {
        "topic_id": which,
        "topic": topic,
        "partition": int(name),
        "leader": thing["leader"],
        "leader_epoch": thing["epoch"],
    }
