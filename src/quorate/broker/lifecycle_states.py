"""The states of a broker's life, and which follows which: see `lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

__all__ = ["ERRORS", "TRANSITIONS", "State", "TransitionError", "Trigger"]


class State(IntEnum):
    """The numbers are those of Kafka's metric `BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class Trigger(StrEnum):
    """What changes a state. The words are those of the events that tell of it."""

    START = "started"
    CAUGHT_UP = "has read its own registration"
    UNFENCED = "was unfenced"
    UNREGISTERED = "is not registered any more"
    LEAVES_IN_ORDER = "was asked to stop, and may be in use"
    LEAVES_AT_ONCE = "was asked to stop, and has nothing to wait for"
    LET_GO = "may go"
    OVERDUE = "was not let go in time"
    UNHEARD = "hears from no active controller"
    NOT_ADMITTED = "was not registered in time"
    REPLACED = "was replaced"
    DISK_UNREPORTED = "could not report a failed log directory in time"


TRANSITIONS: Final[Mapping[tuple[State, Trigger], State]] = {
    (State.NOT_RUNNING, Trigger.START): State.STARTING,
    (State.NOT_RUNNING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.CAUGHT_UP): State.RECOVERY,
    (State.STARTING, Trigger.UNREGISTERED): State.STARTING,
    (State.STARTING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.NOT_ADMITTED): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.STARTING, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.UNFENCED): State.RUNNING,
    (State.RECOVERY, Trigger.UNREGISTERED): State.STARTING,
    # It has asked to be unfenced, and may be without knowing it.
    (State.RECOVERY, Trigger.LEAVES_IN_ORDER): State.PENDING_CONTROLLED_SHUTDOWN,
    (State.RECOVERY, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.RECOVERY, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.UNREGISTERED): State.STARTING,
    (State.RUNNING, Trigger.LEAVES_IN_ORDER): State.PENDING_CONTROLLED_SHUTDOWN,
    (State.RUNNING, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.RUNNING, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LET_GO): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.OVERDUE): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.UNHEARD): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.LEAVES_AT_ONCE): State.SHUTTING_DOWN,
    # Whoever is not registered leads nothing, so nobody needs to wait for anything.
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.UNREGISTERED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.REPLACED): State.SHUTTING_DOWN,
    (State.PENDING_CONTROLLED_SHUTDOWN, Trigger.DISK_UNREPORTED): State.SHUTTING_DOWN,
}

ERRORS: Final = frozenset({Trigger.OVERDUE, Trigger.NOT_ADMITTED, Trigger.REPLACED, Trigger.DISK_UNREPORTED})
"""Reasons to stop that nobody wished for."""


class TransitionError(Exception):
    """Something happened in a state in which it cannot."""
