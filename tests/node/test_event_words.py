"""What is left of an event as JSON has its words again, or none."""

import itertools
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from quorate.cli.event_lines import event_line
from quorate.metadata.event import Event
from quorate.node.event_words import KNOWN, words_of
from quorate.spark.event_columns import JOURNAL, Line, event_batch

LATE = {"kind": "HeartbeatTimedOut", "broker_id": 1, "epoch": 5, "waited_ms": 9}
ANY_JSON: list[Any] = [None, True, -1, 1.5, "x\x1b", [], ["x"], [1], {}, {"x": 1}]


def test_all_events_of_nodes_are_known() -> None:
    import_module("quorate.node.node")
    import_module("quorate.node.zookeeper_node")

    def kinds(base: type[Event]) -> set[str]:
        return {base.__name__}.union(*(kinds(one) for one in base.__subclasses__()))

    assert kinds(Event) - {"Event"} - KNOWN.keys() == set()


def test_words_are_those_of_the_log_with_how_many_were_not_told() -> None:
    words = "Heartbeat of broker 1 at epoch 5 timed out in the queue waited_ms=9"
    assert words_of(LATE) == words
    assert words_of({**LATE, "node": 7, "time_ms": 1}) == words
    assert words_of({**LATE, "untold": 41}) == f"{words} untold=41"


@pytest.mark.parametrize("untold", ["\x1b[2J\nforged", "41", 4.5, True, [1], {"a": 1}, None, 0])
def test_only_a_number_says_how_many_were_not_told(untold: Any) -> None:
    words = words_of({**LATE, "untold": untold})
    assert words is not None
    assert words.endswith(" waited_ms=9")


def test_who_shows_events_says_how_many_were_not_told() -> None:
    late = {**LATE, "untold": 41}
    assert event_line(late) == "Heartbeat of broker 1 at epoch 5 timed out in the queue untold=41"
    content = b'{"kind":"HeartbeatTimedOut","broker_id":1,"epoch":5,"waited_ms":9,"untold":41}'
    (row,) = event_batch("c1", [Line(JOURNAL, None, content)]).to_pylist()
    assert row["text"] == words_of(late)


def test_only_what_the_controller_did_is_a_line_of_what_happens() -> None:
    assert event_line({"kind": "OffsetsExpired", "group_id": "g", "offsets": 3, "retention_ms": 5}) is None
    assert event_line({"kind": "BrokerFenced"}) == "BrokerFenced"
    assert event_line({"kind": ["BrokerFenced"]}) is None


@pytest.mark.parametrize("kind", [None, 7, ["BrokerFenced"], {}, "SomethingNew", "Event", "OffsetsExpired"])
def test_what_is_no_event_that_we_know_has_no_words(kind: Any) -> None:
    assert words_of({"kind": kind}) is None


@pytest.mark.parametrize("kind", KNOWN)
def test_whatever_somebody_wrote_into_the_topic_is_words_of_one_line_or_none(kind: str) -> None:
    names = [one.name for one in fields(KNOWN[kind])]
    for name, odd in itertools.product(names, ANY_JSON):
        for usual in (1, "x", ["x"]):
            words = words_of({"kind": kind, **dict.fromkeys(names, usual), name: odd})
            assert words is None or "\x1b" not in words


def test_they_are_loaded_without_anything_heavy() -> None:
    code = "import sys; import quorate.node.event_words; print({'numpy', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
