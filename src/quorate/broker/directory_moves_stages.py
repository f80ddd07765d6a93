"""The stages of a replica on its way to another log directory, and where two logs of one partition part.

Pure. A copy is made of the log as it is now, and follows it, cuts included. Once it has caught up the
controller is told that the replica is there; it must know before it is so, because from then on it is the new
directory whose failure takes the replica out. When it has agreed, the copy takes the place of the log, in one
step and without a pause for producers.

    COPYING ---- caught up ----> ASSIGNING ---- accepted ----> ASSIGNED ---- replaced ----> DONE
       |                            |                            |
       `------- given up -----------+----------------------------+----------------------> GIVEN_UP

Giving up in the middle leaves the log where it is. If the controller may have been told otherwise, it must be
told so: see `is_promised`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from quorate.storage.epochs import LeaderEpochs

__all__ = ["Event", "Stage", "after", "common_end", "is_promised"]


class Stage(Enum):
    COPYING = "copying"
    ASSIGNING = "assigning"  # the controller is being told
    ASSIGNED = "assigned"  # it has agreed
    DONE = "done"
    GIVEN_UP = "given up"


class Event(Enum):
    CAUGHT_UP = "caught up"
    ACCEPTED = "accepted"
    REPLACED = "replaced"
    GIVEN_UP = "given up"


TRANSITIONS: Final[Mapping[tuple[Stage, Event], Stage]] = {
    (Stage.COPYING, Event.CAUGHT_UP): Stage.ASSIGNING,
    (Stage.ASSIGNING, Event.ACCEPTED): Stage.ASSIGNED,
    (Stage.ASSIGNED, Event.REPLACED): Stage.DONE,
    (Stage.COPYING, Event.GIVEN_UP): Stage.GIVEN_UP,
    (Stage.ASSIGNING, Event.GIVEN_UP): Stage.GIVEN_UP,
    (Stage.ASSIGNED, Event.GIVEN_UP): Stage.GIVEN_UP,
}


def after(stage: Stage, event: Event) -> Stage:
    """
    >>> after(Stage.COPYING, Event.CAUGHT_UP)
    <Stage.ASSIGNING: 'assigning'>
    """
    assert (stage, event) in TRANSITIONS, f"a move that is {stage.value} cannot be {event.value}"
    return TRANSITIONS[stage, event]


def is_promised(stage: Stage) -> bool:
    """Whether the controller is told, or may know, that the replica is where the copy is."""
    return stage in (Stage.ASSIGNING, Stage.ASSIGNED)


def common_end(epochs: LeaderEpochs, end_offset: int, copy: LeaderEpochs, copy_end_offset: int) -> int:
    """Up to where a copy has what its original has: the end of the latest epoch that both know. What one has
    of an epoch beyond the end of the other's, the other has not yet, or not any more.

    >>> original = LeaderEpochs([(1, 0), (3, 60)])  # cut at 60 when epoch 3 began
    >>> common_end(original, 90, LeaderEpochs([(1, 0), (2, 70)]), 80)
    60
    """
    if not len(copy) or not len(epochs):
        return min(end_offset, copy_end_offset)
    for one in reversed(list(copy)):
        theirs = epochs.end_offset_for(one.epoch, end_offset)
        if theirs.epoch == one.epoch:
            ours = copy.end_offset_for(one.epoch, copy_end_offset)
            return min(theirs.end_offset, ours.end_offset)
    return 0
