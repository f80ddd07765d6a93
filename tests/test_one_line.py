"""What others have chosen is shown on one line, and gives no orders to the terminal."""

import pytest

from quorate.cli.asking import pretty_json
from quorate.cli.tables import table
from quorate.coordinator.consumer_events import GroupEpochBumped
from quorate.coordinator.events import MemberRefused
from quorate.one_line import is_one_line, one_line

FORGED = "g\n2026-01-01 00:00:00 ERROR all is lost\x1b[31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bills-7 of Zoë", "bills-7 of Zoë"),
        ("a\\b", "a\\b"),
        ("\x00\t\n\r\x1b", r"\x00\t\n\r\x1b"),
        ("\x7f\x80\x85\x9f", r"\x7f\x80\x85\x9f"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u061c\u200e\u200f\u202a\u202e\u2066\u2069", r"\u061c\u200e\u200f\u202a\u202e\u2066\u2069"),
        ("\ud83d", r"\ud83d"),
        ("😀 é", "😀 é"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert one_line(shown) == shown
    assert is_one_line(shown)
    assert is_one_line(text) == (text == shown)
    assert len(shown.splitlines()) == 1


def test_an_event_is_one_line_whatever_clients_call_themselves() -> None:
    refused = MemberRefused(
        group_id=FORGED, member_id="m\r", client_id="c\u2028", client_host="/h", error="E", reason="no\x9b1m"
    )
    bumped = GroupEpochBumped(group_id=FORGED, epoch=1, trigger="t", members=0, topics=("o\u202e",))
    for event in (refused, bumped):
        assert r"roup g\n2026-01-01 00:00:00 ERROR all is lost\x1b[31m" in event.told()
        assert one_line(event.told()) == event.told()
        assert event.told(untold=3) == f"{event.told()} untold=3"
        assert event.to_json()["group_id"] == FORGED


def test_tables_have_a_line_for_each_row_and_columns_under_each_other() -> None:
    assert list(table([("GROUP", "STATE"), ("a\nb\x1b[2J", "Empty")])) == [
        "GROUP        STATE",
        r"a\nb\x1b[2J  Empty",
    ]


def test_json_says_exactly_what_they_are_called() -> None:
    names = ["[ a   b ]", "a   b", "c"]
    shown = pretty_json({"group": FORGED, "name": "[  a  ]", "names": names, "numbers": [1, 2]})
    assert r'"group": "g\n2026' in shown
    assert '"name": "[  a  ]"' in shown
    assert '"numbers": [1, 2]' in shown
    assert '"c"' in shown
    assert pretty_json({"names": ["a   b", "c"]}) == '{\n  "names": ["a   b", "c"]\n}'
