"""What there is to say about life in ZooKeeper mode: sessions, memberships, and terms of controllers.

The shape is that of `controller.events`: `line` is for the log, `to_json` for the journal.
"""

from __future__ import annotations

from typing import ClassVar

from quorate.metadata.event import Event
from quorate.values import dataclass

__all__ = [
    "BrokersChanged",
    "ControlledShutdownServed",
    "ControllerElected",
    "ControllerLoaded",
    "ReplicasFailed",
    "SessionLost",
    "TermEnded",
    "ZooKeeperRegistered",
]


@dataclass(frozen=True, slots=True)
class SessionLost(Event):
    warns: ClassVar[bool] = True
    broker_id: int
    epoch: int  # that the broker had
    session_id: str

    def line(self) -> str:
        return (
            f"The session of broker {self.broker_id} with ZooKeeper has expired"
            f" session={self.session_id} epoch={self.epoch}"
        )


@dataclass(frozen=True, slots=True)
class ZooKeeperRegistered(Event):
    broker_id: int
    epoch: int
    previous_epoch: int  # that this process had before, -1 if none
    session_id: str

    def line(self) -> str:
        return (
            f"Registered broker {self.broker_id} at path /brokers/ids/{self.broker_id} with epoch"
            f" {self.epoch} previous_epoch={self.previous_epoch} session={self.session_id}"
        )


@dataclass(frozen=True, slots=True)
class ControllerElected(Event):
    broker_id: int
    epoch: int

    def line(self) -> str:
        return f"{self.broker_id} successfully elected as the controller. Epoch incremented to {self.epoch}"


@dataclass(frozen=True, slots=True)
class ControllerLoaded(Event):
    """A controller knows everything, and everybody has been sent what follows from it."""

    broker_id: int
    epoch: int
    brokers: int
    topics: int
    partitions: int
    leaderless: int
    loaded_ms: int
    elected_ms: int
    told_ms: int

    def line(self) -> str:
        return (
            f"Controller {self.broker_id} of epoch {self.epoch} begins brokers={self.brokers}"
            f" topics={self.topics} partitions={self.partitions} leaderless={self.leaderless}"
            f" loaded_ms={self.loaded_ms} elected_ms={self.elected_ms} told_ms={self.told_ms}"
        )


@dataclass(frozen=True, slots=True)
class TermEnded(Event):
    broker_id: int
    epoch: int
    reason: str

    def line(self) -> str:
        return f"Controller {self.broker_id} of epoch {self.epoch} resigned: {self.reason}"


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """Who is registered is different from before, by broker id."""

    controller_epoch: int
    new: list[int]
    gone: list[int]
    back: list[int]  # left and came back between two looks
    moved: list[int]  # with other endpoints or another rack
    now: list[int]

    def line(self) -> str:
        return (
            f"Newly added brokers: {self.new}, deleted brokers: {self.gone}, bounced brokers: {self.back},"
            f" moved brokers: {self.moved}, all live brokers: {self.now}"
        )


@dataclass(frozen=True, slots=True)
class ReplicasFailed(Event):
    """Brokers or disks are gone, and what they led is led by others, if there are any."""

    controller_epoch: int
    brokers: list[int]
    partitions: int  # that had a replica there
    changed: int
    leaderless: int
    ms: int

    def line(self) -> str:
        return (
            f"Replicas of brokers {self.brokers} are offline partitions={self.partitions}"
            f" changed={self.changed} leaderless={self.leaderless} ms={self.ms}"
        )


@dataclass(frozen=True, slots=True)
class ControlledShutdownServed(Event):
    controller_epoch: int
    broker_id: int
    partitions: int
    moved: int
    remaining: int
    ms: int

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} asked to shut down partitions={self.partitions} moved={self.moved}"
            f" remaining={self.remaining} ms={self.ms}"
        )
