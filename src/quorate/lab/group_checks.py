"""What must hold of consumer groups in every run.

- In one generation a partition has one owner.
- In a consumer group, where members move on to the next epoch one by one, no two members read a partition at
  once, as long as the log of the coordinator says that both are members (`ownership_checks`).
- The generation of a member never goes back while it is the same member.
- Committed offsets are never lost: whoever asks is told the last that was acknowledged, or one whose fate was
  not known then, or a later one (`registers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorate.client.metadata import TopicPartition
from quorate.lab.outcome import Violation
from quorate.lab.registers import Registers
from quorate.values import dataclass

__all__ = ["GroupChecks", "Place"]


class Place(NamedTuple):
    """Where a group has a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(slots=True)
class _Claim:
    """What a member believes to be its own."""

    member_id: str
    generation: int
    partitions: frozenset[TopicPartition]
    member_since: int | None  # an offset of the coordinator's log, in a consumer group


class GroupChecks:
    """Watches members, and what they commit."""

    def __init__(
        self,
        is_running: Callable[[str], bool],
        member_since: Callable[[str, str], int | None] = lambda _group, _member: None,
    ) -> None:
        """`member_since` tells, by group and member, at which offset of the coordinator's log a membership in
        a consumer group began that lasts; None of members of other groups, or where nobody reads that log."""
        self.offsets = Registers()
        self.checks = 0
        self.rebalances = 0
        self.is_tainted = False  # groups may have been lost without anybody's fault
        self._is_running = is_running  # by the name of a machine
        self._member_since = member_since
        self._claims: dict[tuple[str, str], _Claim] = {}  # by group and machine
        self._generations: dict[tuple[str, str], int] = {}  # by group and member, the highest so far

    def assigned(
        self, group: str, machine: str, member_id: str, generation: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """A member begins to read partitions, or ceases to."""
        if self.is_tainted:
            return  # groups that began anew count their generations anew
        self.checks += 1
        mine = frozenset(partitions)
        before = self._claims.get((group, machine))
        highest = self._generations.get((group, member_id), 0)
        if 0 < generation < highest:  # without one it is about to join again
            raise Violation(f"{machine} of {group} went back from {highest} to {generation}")
        self._generations[group, member_id] = max(generation, highest)
        since = self._member_since(group, member_id)
        self._claims[group, machine] = _Claim(member_id, generation, mine, since)
        gained = mine if before is None or before.member_id != member_id else mine - before.partitions
        self.rebalances += bool(gained)
        for (other_group, other), claim in self._claims.items():
            if other_group != group or other == machine or claim.member_id == member_id:
                continue
            if claim.generation == generation:
                both = mine & claim.partitions
            elif self._is_still_member(group, claim):
                both = gained & claim.partitions
            else:
                continue
            if both and self._is_running(other):
                at = min(both)
                raise Violation(
                    f"{at.topic}-{at.partition} belongs to {machine} and to {other} in generation"
                    f" {generation} of {group}"
                )

    def _is_still_member(self, group: str, claim: _Claim) -> bool:
        """Whether the coordinator has counted on it all the time since. One that was put out may not know it
        yet, and one that joined again has given up what it had."""
        return claim.member_since is not None and claim.member_since == self._member_since(
            group, claim.member_id
        )

    def ended(self, group: str, machine: str) -> None:
        """A member is not there any more."""
        self._claims.pop((group, machine), None)

    def found(self, place: Place, offset: int | None, begun: float) -> None:
        """Somebody asked for a committed offset, beginning at a time, and was told this."""
        if self.is_tainted:
            return
        problem = self.offsets.problem(place, offset, begun)
        if problem is not None:
            raise Violation(f"a committed offset was lost: {problem}")
