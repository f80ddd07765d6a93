"""What producers and consumers of one topic were told, and whether the topic keeps it.

What was acknowledged with acks=all is there once, at its offset, and the records of each writer are in their
order; a reader is given every offset once and in order, and what is there. Every record says who wrote it,
and a number that no other has: `writer number`.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorate.lab.outcome import Violation

__all__ = ["DeliveryChecks", "number_of"]

NOT_TOLD = -1  # of a repetition that a broker does not remember, the offset is not told


def number_of(value: bytes | None) -> int:
    return int((value or b"").rpartition(b" ")[2])


class DeliveryChecks:
    """One topic."""

    def __init__(self, partitions: int) -> None:
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]  # offsets by number
        self.seen: list[dict[int, int]] = [{} for _ in range(partitions)]  # numbers by offset
        self.lost: list[list[range]] = [[] for _ in range(partitions)]
        """Offsets that nobody can be blamed for: every broker that had them has crashed."""
        self.excused = 0
        self._next_number = 0

    def next_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def acknowledged_at(self, partition: int, number: int, offset: int) -> None:
        self.acknowledged[partition][number] = offset

    def saw(self, partition: int, offset: int, number: int) -> None:
        """A reader was given a record."""
        seen = self.seen[partition]
        expected = len(seen)
        seen[offset] = number
        if offset != expected and not self.lost[partition]:
            raise Violation(f"a consumer was given offset {offset} of partition {partition} after {expected}")

    def has_read_all(self) -> bool:
        """Whether the reader has seen everything that was acknowledged."""
        return all(
            lost or len(seen) > max(acknowledged.values(), default=-1)
            for seen, acknowledged, lost in zip(self.seen, self.acknowledged, self.lost, strict=True)
        )

    def check_log(self, partition: int, values: Mapping[int, bytes]) -> None:
        """Compares a partition, by offset, with what everybody was told."""
        numbers = {offset: number_of(value) for offset, value in values.items()}
        offsets = {number: offset for offset, number in numbers.items()}
        lost = self.lost[partition]
        for number, offset in self.acknowledged[partition].items():
            is_lost = any(offset in one for one in lost) or (bool(lost) and offset == NOT_TOLD)
            if number not in offsets and is_lost:
                self.excused += 1
            elif number not in offsets or offset not in (NOT_TOLD, offsets[number]):
                raise Violation(
                    f"record {number} was acknowledged at offset {offset} of partition {partition},"
                    f" where {numbers.get(offset)} is"
                )
        if len(offsets) != len(numbers):
            raise Violation(f"a record is twice in partition {partition}")
        if lost:
            return
        if any(numbers.get(offset) != number for offset, number in self.seen[partition].items()):
            raise Violation(f"what was read of partition {partition} is not what is there")
        last: dict[bytes, int] = {}
        for offset in sorted(values):
            writer, _, text = values[offset].rpartition(b" ")
            if int(text) < last.get(writer, -1):
                raise Violation(f"records of {writer.decode()} in partition {partition} are out of order")
            last[writer] = int(text)
