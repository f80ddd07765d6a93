"""What the controller has to say: one value for everything that an operator may ask about later.

Each knows which check decided, and the numbers that it compared. `line` is what the log says, with the words
of Apache Kafka's messages where operators know them; `to_json` is what the journal and the pipeline keep.
"""

from __future__ import annotations

from typing import ClassVar, Final

from quorate.metadata.event import Event
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = [
    "SHUT_DOWN",
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerUnfenced",
    "BrokerUnregistered",
    "ControllerActivated",
    "ControllerRegistered",
    "ControllerResigned",
    "DecisionFailed",
    "DirectoriesFailed",
    "Event",
    "HeartbeatRefused",
    "HeartbeatTimedOut",
    "LeadershipMoved",
    "QueueFilled",
    "RegistrationRefused",
    "RequestTimedOut",
    "ShutdownGranted",
    "ShutdownStarted",
    "ShutdownWaiting",
    "UnfenceWithheld",
]

SHUT_DOWN: Final = "shut down"  # a broker was fenced because it asked to go, and may


@dataclass(frozen=True, slots=True)
class BrokerRegistered(Event):
    broker_id: int
    epoch: int
    incarnation_id: Uuid
    previous_epoch: int  # of the incarnation before, -1 if there was none
    is_clean: bool  # whether that one had been shut down in order
    rack: str | None
    partitions: int = 0  # that the one before was taken out of

    def line(self) -> str:
        if self.previous_epoch == self.epoch:
            return (
                f"Amended the registration of broker {self.broker_id}, its epoch remains {self.epoch}"
                f" incarnation={self.incarnation_id} rack={self.rack}"
            )
        return (
            f"Registered broker {self.broker_id} with epoch {self.epoch}"
            f" incarnation={self.incarnation_id} previous_epoch={self.previous_epoch}"
            f" clean={self.is_clean} rack={self.rack} partitions={self.partitions}"
        )


@dataclass(frozen=True, slots=True)
class RegistrationRefused(Event):
    warns: ClassVar[bool] = True
    broker_id: int
    incarnation_id: Uuid
    check: str
    error: str
    reason: str
    registered_epoch: int  # of whoever holds the id, -1 if nobody does
    ms_since_heartbeat: int | None

    def line(self) -> str:
        return (
            f"Refused to register broker {self.broker_id}: {self.reason}"
            f" check={self.check} error={self.error} incarnation={self.incarnation_id}"
            f" registered_epoch={self.registered_epoch} ms_since_heartbeat={self.ms_since_heartbeat}"
        )


@dataclass(frozen=True, slots=True)
class BrokerFenced(Event):
    warns: ClassVar[bool] = True
    broker_id: int
    epoch: int
    check: str  # missed heartbeats, asked to be fenced, registered anew, ...; `SHUT_DOWN` if all is well
    ms_since_heartbeat: int | None
    session_timeout_ms: int
    partitions: int  # that it was in sync for
    leaderships: int  # that it lost
    leaderless: int  # that nobody could take over
    unclean: int = 0  # that were taken over by those who may lack records

    @property
    def is_warning(self) -> bool:
        return self.check != SHUT_DOWN

    def line(self) -> str:
        why = " due to missed heartbeats" if self.check == "missed heartbeats" else f": {self.check}"
        return (
            f"Fencing broker {self.broker_id} at epoch {self.epoch}{why}"
            f" ms_since_heartbeat={self.ms_since_heartbeat} session_timeout_ms={self.session_timeout_ms}"
            f" partitions={self.partitions} leaderships={self.leaderships} leaderless={self.leaderless}"
            f" unclean={self.unclean}"
        )


@dataclass(frozen=True, slots=True)
class BrokerUnfenced(Event):
    broker_id: int
    epoch: int
    metadata_offset: int
    registration_offset: int
    leaderships: int  # of partitions that had nobody to lead them
    unclean: int = 0  # of these, where it may lack records

    def line(self) -> str:
        return (
            f"The request from broker {self.broker_id} to unfence has been granted because it has caught up"
            f" with the offset of its register broker record {self.registration_offset}"
            f" epoch={self.epoch} metadata_offset={self.metadata_offset} leaderships={self.leaderships}"
            f" unclean={self.unclean}"
        )


@dataclass(frozen=True, slots=True)
class UnfenceWithheld(Event):
    broker_id: int
    epoch: int
    check: str  # metadata offset, or: wants to be fenced
    metadata_offset: int
    registration_offset: int

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} stays fenced: {self.check} epoch={self.epoch}"
            f" metadata_offset={self.metadata_offset} registration_offset={self.registration_offset}"
        )


@dataclass(frozen=True, slots=True)
class HeartbeatRefused(Event):
    warns: ClassVar[bool] = True
    broker_id: int
    epoch: int
    registered_epoch: int  # -1 if it is not registered
    check: str

    def line(self) -> str:
        if self.registered_epoch < 0:
            return (
                f"Stale broker epoch: broker {self.broker_id} is not registered, it sent epoch {self.epoch}"
            )
        return (
            f"Stale broker epoch: broker {self.broker_id} sent epoch {self.epoch},"
            f" but it is registered at epoch {self.registered_epoch}"
        )


@dataclass(frozen=True, slots=True)
class HeartbeatTimedOut(Event):
    """A heartbeat waited too long to be looked at; it counts as a sign of life and no more."""

    warns: ClassVar[bool] = True
    broker_id: int
    epoch: int
    waited_ms: int

    def line(self) -> str:
        return (
            f"Heartbeat of broker {self.broker_id} at epoch {self.epoch} timed out in the queue"
            f" waited_ms={self.waited_ms}"
        )


@dataclass(frozen=True, slots=True)
class RequestTimedOut(Event):
    """A request waited longer to be looked at than its sender wants to wait; it was not begun."""

    warns: ClassVar[bool] = True
    request: str
    waited_ms: int
    timeout_ms: int

    def line(self) -> str:
        return (
            f"{self.request} timed out in the queue waited_ms={self.waited_ms} timeout_ms={self.timeout_ms}"
        )


@dataclass(frozen=True, slots=True)
class QueueFilled(Event):
    """As many requests wait as may: until there is room others are refused. Said once for each time."""

    warns: ClassVar[bool] = True
    waiting: int

    def line(self) -> str:
        return f"The queue of the controller is full, requests are refused waiting={self.waiting}"


@dataclass(frozen=True, slots=True)
class ShutdownStarted(Event):
    broker_id: int
    epoch: int
    partitions: int
    leaderships: int
    leaderless: int
    controlled_shutdown_offset: int
    unclean: int = 0

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} at epoch {self.epoch} has asked to shut down:"
            f" partitions={self.partitions} leaderships={self.leaderships} leaderless={self.leaderless}"
            f" unclean={self.unclean} controlled_shutdown_offset={self.controlled_shutdown_offset}"
        )


@dataclass(frozen=True, slots=True)
class ShutdownWaiting(Event):
    broker_id: int
    epoch: int
    check: str  # it still leads, or: others have not seen it leave
    controlled_shutdown_offset: int
    slowest_broker: int  # -1 if nobody holds it back
    slowest_offset: int

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} is in controlled shutdown: {self.check} epoch={self.epoch}"
            f" controlled_shutdown_offset={self.controlled_shutdown_offset}"
            f" slowest_broker={self.slowest_broker} slowest_offset={self.slowest_offset}"
        )


@dataclass(frozen=True, slots=True)
class ShutdownGranted(Event):
    broker_id: int
    epoch: int
    controlled_shutdown_offset: int  # -1 if it led nothing and could go at once

    def line(self) -> str:
        return (
            f"The request from broker {self.broker_id} to shut down has been granted: removed from shutting"
            f" down epoch={self.epoch} controlled_shutdown_offset={self.controlled_shutdown_offset}"
        )


@dataclass(frozen=True, slots=True)
class BrokerUnregistered(Event):
    broker_id: int
    epoch: int
    partitions: int
    leaderless: int
    unclean: int = 0

    def line(self) -> str:
        return (
            f"Unregistered broker {self.broker_id} at epoch {self.epoch}"
            f" partitions={self.partitions} leaderless={self.leaderless} unclean={self.unclean}"
        )


@dataclass(frozen=True, slots=True)
class ControllerRegistered(Event):
    controller_id: int
    incarnation_id: Uuid

    def line(self) -> str:
        return f"Registered controller {self.controller_id} incarnation={self.incarnation_id}"


@dataclass(frozen=True, slots=True)
class DirectoriesFailed(Event):
    warns: ClassVar[bool] = True
    broker_id: int
    epoch: int
    directories: tuple[str, ...]
    partitions: int
    leaderless: int
    unclean: int = 0

    def line(self) -> str:
        return (
            f"Log directories of broker {self.broker_id} went offline: {', '.join(self.directories)}"
            f" epoch={self.epoch} partitions={self.partitions} leaderless={self.leaderless}"
            f" unclean={self.unclean}"
        )


@dataclass(frozen=True, slots=True)
class LeadershipMoved(Event):
    """Leaders changed for another reason than that their brokers left."""

    check: str  # preferred leader, unclean election, asked for, reassignment, a replica came back
    partitions: int
    leaderless: int
    unclean: int

    def line(self) -> str:
        return (
            f"Leadership moved: {self.check} partitions={self.partitions}"
            f" leaderless={self.leaderless} unclean={self.unclean}"
        )


@dataclass(frozen=True, slots=True)
class ControllerActivated(Event):
    node_id: int
    epoch: int
    next_offset: int
    brokers: int
    partitions: int

    def line(self) -> str:
        return (
            f"Becoming the active controller at epoch {self.epoch}, next write offset {self.next_offset}"
            f" node={self.node_id} brokers={self.brokers} partitions={self.partitions}"
        )


@dataclass(frozen=True, slots=True)
class ControllerResigned(Event):
    node_id: int
    epoch: int
    discarded: int  # records that were appended and not committed

    def line(self) -> str:
        return (
            f"Renouncing the leadership due to a metadata log event: no longer the active controller of"
            f" epoch {self.epoch} node={self.node_id} discarded={self.discarded}"
        )


@dataclass(frozen=True, slots=True)
class DecisionFailed(Event):
    """A decision ended with an exception that nobody foresaw. Its request failed, nothing else."""

    warns: ClassVar[bool] = True
    request: str
    error: str
    content: str
    where: str = ""  # the function that raised it, and the line there

    def line(self) -> str:
        return f"{self.request} failed unexpectedly: {self.error} where={self.where} request={self.content}"
