"""What the demo promises of its records, and how that is found out: from what was acknowledged and what is
there. Every record carries a number of its own, and numbers grow in the order of sending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["UNKNOWN_OFFSET", "Claim", "Found", "Place", "check_consumer", "check_records"]

UNKNOWN_OFFSET: Final = -1
_EXAMPLES: Final = 3


class Place(NamedTuple):
    """Where a record is, as its acknowledgement says. Some repetitions are acknowledged without an offset."""

    partition: int
    offset: int


class Found(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that should be so, and what was found: figures if it is so, examples if it is not."""

    text: str
    holds: bool
    detail: str = ""

    def line(self) -> str:
        """
        >>> Claim("no record was lost", False, "number 7").line()
        'no record was lost: NOT SO (number 7)'
        """
        verdict = self.text if self.holds else f"{self.text}: NOT SO"
        return f"{verdict} ({self.detail})" if self.detail else verdict


def check_records(
    acknowledged: Mapping[int, Place], sent: Collection[int], found: Sequence[Found]
) -> list[Claim]:
    """What holds of a topic that has been read from its beginning to its end, in the order of reading.

    Records that were sent and not acknowledged may be there or not.
    """
    there = {one.number: Place(one.partition, one.offset) for one in found}
    lost = [number for number in acknowledged if number not in there]
    moved = [
        f"number {number} is at {_where(there[number])}, not at {_where(place)}"
        for number, place in acknowledged.items()
        if number in there and not _is_at(there[number], place)
    ]
    counts = Counter(one.number for one in found)
    repeated = [f"number {number} {count} times" for number, count in counts.items() if count > 1]
    foreign = [f"number {one.number} at {_where(one)}" for one in found if one.number not in sent]
    return [
        _claim(
            "no acknowledged record was lost",
            [f"number {number} of partition {acknowledged[number].partition}" for number in lost],
            f"{len(acknowledged):,} acknowledged, {len(found):,} there",
        ),
        _claim("no record is there twice", repeated),
        _claim("each is where its acknowledgement says", moved),
        _claim("each partition has its records in the order of sending", _out_of_order(found)),
        _claim("nothing is there that was not sent", foreign),
    ]


def check_consumer(found: Sequence[Found], consumed: Collection[tuple[int, int]]) -> Claim:
    """Whether somebody who read all along, and knows partitions and offsets, has seen what is there."""
    missed = [_where(one) for one in found if (one.partition, one.offset) not in consumed]
    return _claim("the consumer saw every record", missed, f"{len(consumed):,}")


def _claim(text: str, problems: Sequence[str], figures: str = "") -> Claim:
    if not problems:
        return Claim(text, True, figures)
    more = f" and {len(problems) - _EXAMPLES:,} more" if len(problems) > _EXAMPLES else ""
    return Claim(text, False, "; ".join(problems[:_EXAMPLES]) + more)


def _is_at(there: Place, place: Place) -> bool:
    return there == place or (place.offset == UNKNOWN_OFFSET and there.partition == place.partition)


def _out_of_order(found: Sequence[Found]) -> list[str]:
    """Neighbours in a partition that stand, or were read, the wrong way round."""
    last: dict[int, Found] = {}
    wrong = []
    for one in found:
        before = last.get(one.partition)
        if before is not None and (one.offset <= before.offset or one.number <= before.number):
            wrong.append(f"number {one.number} at {_where(one)} after number {before.number}")
        last[one.partition] = one
    return wrong


def _where(one: Place | Found) -> str:
    return f"{one.partition}/{one.offset}"
