"""What was acknowledged must be there: the checker notices what is not, and excuses only what it must."""

import pytest

from quorate.lab.delivery_checks import NOT_TOLD, DeliveryChecks
from quorate.lab.outcome import Violation


def told(*offsets: int) -> DeliveryChecks:
    """One partition, whose records 0, 1, 2, ... were acknowledged at these offsets."""
    checks = DeliveryChecks(1)
    for offset in offsets:
        checks.acknowledged_at(0, checks.next_number(), offset)
    return checks


def log(*numbers: int) -> dict[int, bytes]:
    return {offset: f"writer {number}".encode() for offset, number in enumerate(numbers)}


def test_what_is_where_it_should_be_is_right():
    checks = told(0, NOT_TOLD, 2)
    checks.check_log(0, log(0, 1, 2))
    assert checks.excused == 0


@pytest.mark.parametrize(
    ("offsets", "numbers", "complaint"),
    [
        ((0, 1), (0,), "record 1 was acknowledged at offset 1"),
        ((0, NOT_TOLD), (0,), "record 1 was acknowledged at offset -1"),
        ((1, 0), (0, 1), "record 0 was acknowledged at offset 1 of partition 0, where 1 is"),
        ((NOT_TOLD,), (0, 0), "twice"),
        ((0, 1, NOT_TOLD), (0, 2, 1), "record 1 was acknowledged at offset 1"),
        ((NOT_TOLD, NOT_TOLD), (1, 0), "out of order"),
    ],
)
def test_what_is_not_is_noticed(offsets, numbers, complaint):
    with pytest.raises(Violation, match=complaint):
        told(*offsets).check_log(0, log(*numbers))


def test_what_is_gone_with_every_broker_that_had_it_is_excused_and_nothing_else():
    checks = told(0, 1, NOT_TOLD)
    checks.lost[0].append(range(1, 3))
    checks.check_log(0, log(0))
    assert checks.excused == 2
    checks.acknowledged_at(0, 3, 3)
    with pytest.raises(Violation, match="record 3"):
        checks.check_log(0, log(0))


def test_a_reader_gets_every_offset_once_and_in_order():
    checks = told(0, 1, 2)
    checks.saw(0, 0, 0)
    assert not checks.has_read_all()
    with pytest.raises(Violation, match="given offset 2 of partition 0 after 1"):
        checks.saw(0, 2, 2)
