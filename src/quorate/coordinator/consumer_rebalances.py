"""When a rebalance of a consumer group began, and whether it has ended.

Nobody waits for anybody here, so a rebalance is what lies between two moments: the group's epoch goes up, and
every member has come to the target of the group's epoch, or nobody is left. If the epoch goes up again
meanwhile it is the same rebalance: members have not had their rest in between.

Members are counted as their records are applied (`ConsumerGroupState.stable_counts`); here it is asked, once
for each step that writes something, whether it is the last one that was missing. Steps are decided before
their records are applied, and the log may refuse them. So what a step leads to is never noted as if it had
happened: only what the state was before it.

When it began is known to nobody but the coordinator that saw it. Another one that takes over in between says
that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quorate.coordinator.consumer_events import ConsumerRebalanceEnded
from quorate.coordinator.consumer_members import Member
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.step import Step

__all__ = ["REMOVED_MAX", "Rebalances"]

REMOVED_MAX: Final = 100
"""How many members are named that were put out: a group that never comes to rest may lose any number."""


class Rebalances:
    """Those of one group: the one that is under way, or the last."""

    __slots__ = ("_began_ms", "_removed", "_settled_epoch", "_trigger")

    def __init__(self) -> None:
        self._settled_epoch = 0  # the last at which everybody had come round, as far as was seen
        self._began_ms: float | None = None
        self._trigger = ""
        self._removed: dict[str, int] = {}  # who was put out, and the epoch that this led to

    def look(self, state: ConsumerGroupState) -> None:
        """A step is about to change something: this is what the group was before."""
        if state.is_settled:
            self._settled_epoch = state.epoch

    def goes_on(self, state: ConsumerGroupState, trigger: str, removed: Iterable[str], step: Step) -> None:
        """The group is about to be at its next epoch."""
        self.look(state)
        if self._settled_epoch == state.epoch:
            self._began_ms, self._trigger = step.now_ms, trigger
            self._removed.clear()
        else:
            self._removed = self._removed_by(state.epoch)
        for member_id in removed:
            if len(self._removed) < REMOVED_MAX:
                self._removed[member_id] = state.epoch + 1

    def stepped(
        self,
        state: ConsumerGroupState,
        before: Member | None,
        after: Member,
        step: Step,
        *,
        epoch: int,
        target_epoch: int,
    ) -> None:
        """A member is about to be another, and the group and its target at these epochs. If all others are
        there already, the rebalance ends with it."""
        self.look(state)
        if epoch <= self._settled_epoch or epoch != target_epoch or not after.is_reconciled_to(epoch):
            return
        is_new = before is None
        was_there = before is not None and before.is_reconciled_to(epoch)
        members = len(state.members) + is_new
        if state.stable_counts[epoch] - was_there + 1 == members:
            self._tell_end(state, epoch, members, step)

    def emptied(self, state: ConsumerGroupState, step: Step) -> None:
        """The last members are about to go, which takes the group to its next epoch."""
        self._tell_end(state, state.epoch + 1, 0, step)

    def _tell_end(self, state: ConsumerGroupState, epoch: int, members: int, step: Step) -> None:
        began_ms = self._began_ms
        step.tell(
            ConsumerRebalanceEnded(
                group_id=state.group_id,
                epoch=epoch,
                members=members,
                duration_ms=None if began_ms is None else round(step.now_ms - began_ms),
                trigger=self._trigger,
                removed=tuple(self._removed_by(epoch)),
            )
        )

    def _removed_by(self, epoch: int) -> dict[str, int]:
        """Who was put out on the way to an epoch. Who is noted for a later one was not: the log refused."""
        return {member_id: at for member_id, at in self._removed.items() if at <= epoch}
