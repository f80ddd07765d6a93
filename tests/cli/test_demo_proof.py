"""The checker of the demo finds what it looks for: records that are lost, repeated, moved, or strange."""

import pytest

from quorate.cli.demo_proof import UNKNOWN_OFFSET, Found, Place, check_consumer, check_records

LOST = "no acknowledged record was lost"
TWICE = "no record is there twice"
MOVED = "each is where its acknowledgement says"
ORDER = "each partition has its records in the order of sending"
STRANGE = "nothing is there that was not sent"

SENT = range(6)  # number 5 was never acknowledged
ACKNOWLEDGED = {0: Place(0, 0), 1: Place(1, 0), 2: Place(0, 1), 3: Place(1, 1), 4: Place(0, 2)}
READ = [Found(0, 0, 0), Found(0, 1, 2), Found(1, 0, 1), Found(1, 1, 3), Found(0, 2, 4)]


def broken(found: list[Found], acknowledged: dict[int, Place] = ACKNOWLEDGED) -> dict[str, str]:
    """The claims that do not hold, and why."""
    claims = check_records(acknowledged, SENT, found)
    assert [one.text for one in claims] == [LOST, TWICE, MOVED, ORDER, STRANGE]
    return {one.text: one.detail for one in claims if not one.holds}


def test_all_is_well():
    assert broken(READ) == {}


def test_what_was_not_acknowledged_may_be_there_or_not():
    assert broken([*READ, Found(1, 2, 5)]) == {}


def test_an_acknowledgement_without_an_offset_names_the_partition_alone():
    without = {**ACKNOWLEDGED, 2: Place(0, UNKNOWN_OFFSET)}
    assert broken(READ, without) == {}
    assert broken(READ, {**ACKNOWLEDGED, 2: Place(1, UNKNOWN_OFFSET)}) == {
        MOVED: "number 2 is at 0/1, not at 1/-1"
    }


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        (READ[1:], {LOST: "number 0 of partition 0"}),
        ([], {LOST: "number 0 of partition 0; number 1 of partition 1; number 2 of partition 0 and 2 more"}),
        (
            [*READ, Found(0, 3, 4)],
            {
                TWICE: "number 4 2 times",
                MOVED: "number 4 is at 0/3, not at 0/2",
                ORDER: "number 4 at 0/3 after number 4",
            },
        ),
        (
            [Found(0, 0, 0), Found(0, 1, 4), Found(0, 2, 2), *READ[2:4]],
            {
                MOVED: "number 2 is at 0/2, not at 0/1; number 4 is at 0/1, not at 0/2",
                ORDER: "number 2 at 0/2 after number 4",
            },
        ),
        ([*READ, Found(1, 2, 77)], {STRANGE: "number 77 at 1/2"}),
        (
            [*READ[:4], Found(1, 2, 4)],
            {MOVED: "number 4 is at 1/2, not at 0/2"},
        ),
        (
            [READ[0], READ[0], *READ[1:]],  # the same offset was given out twice
            {TWICE: "number 0 2 times", ORDER: "number 0 at 0/0 after number 0"},
        ),
    ],
)
def test_what_is_wrong_is_named(found: list[Found], problems: dict[str, str]):
    assert broken(found) == problems


def test_the_consumer_must_have_seen_everything():
    seen = {(one.partition, one.offset) for one in READ}
    assert check_consumer(READ, seen).holds
    claim = check_consumer(READ, seen - {(0, 1)})
    assert claim.line() == "the consumer saw every record: NOT SO (0/1)"
