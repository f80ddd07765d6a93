"""What a broker has to say about its own life: the other side of what the controller says about it.

The shape is that of `controller.events`: `line` is for the log, `to_json` for the journal.
"""

from __future__ import annotations

from typing import ClassVar

from quorate.controller.events import Event
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = [
    "BrokerGaveUp",
    "BrokerRequestFailed",
    "BrokerRequestsResumed",
    "BrokerStateChanged",
    "DirectoriesReported",
    "EpochObtained",
    "FencingNoticed",
    "UnfencingNoticed",
]


@dataclass(frozen=True, slots=True)
class BrokerStateChanged(Event):
    broker_id: int
    epoch: int  # -1 if it has none
    before: str
    after: str
    check: str  # what brought it about

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} transitioned from {self.before} to {self.after}: {self.check}"
            f" epoch={self.epoch}"
        )


@dataclass(frozen=True, slots=True)
class EpochObtained(Event):
    broker_id: int
    epoch: int
    incarnation_id: Uuid
    previous_epoch: int  # that this process had before, -1 if none

    def line(self) -> str:
        return (
            f"Successfully registered broker {self.broker_id} with broker epoch {self.epoch}"
            f" incarnation={self.incarnation_id} previous_epoch={self.previous_epoch}"
        )


@dataclass(frozen=True, slots=True)
class BrokerRequestFailed(Event):
    """A request to the controller failed, and the one before it did not, or for another reason."""

    is_warning: ClassVar[bool] = True
    broker_id: int
    epoch: int
    request: str
    error: str
    reason: str
    failures: int  # in a row
    retry_ms: int

    def line(self) -> str:
        return (
            f"{self.request} of broker {self.broker_id} failed with {self.error}: {self.reason}"
            f" epoch={self.epoch} failures={self.failures} retry_ms={self.retry_ms}"
        )


@dataclass(frozen=True, slots=True)
class BrokerRequestsResumed(Event):
    broker_id: int
    epoch: int
    request: str
    failures: int  # that there were in a row

    def line(self) -> str:
        return (
            f"{self.request} of broker {self.broker_id} succeeded after {self.failures} failures"
            f" epoch={self.epoch}"
        )


@dataclass(frozen=True, slots=True)
class FencingNoticed(Event):
    """The controller fenced a running broker, which goes on sending heartbeats and will be unfenced."""

    is_warning: ClassVar[bool] = True
    broker_id: int
    epoch: int
    metadata_offset: int

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} at epoch {self.epoch} was fenced while it was running"
            f" metadata_offset={self.metadata_offset}"
        )


@dataclass(frozen=True, slots=True)
class UnfencingNoticed(Event):
    broker_id: int
    epoch: int
    metadata_offset: int

    def line(self) -> str:
        return (
            f"Broker {self.broker_id} at epoch {self.epoch} was unfenced again"
            f" metadata_offset={self.metadata_offset}"
        )


@dataclass(frozen=True, slots=True)
class DirectoriesReported(Event):
    broker_id: int
    epoch: int
    directories: tuple[str, ...]

    def line(self) -> str:
        return (
            f"The controller knows that log directories of broker {self.broker_id} are offline:"
            f" {', '.join(self.directories)} epoch={self.epoch}"
        )


@dataclass(frozen=True, slots=True)
class BrokerGaveUp(Event):
    """The broker stops, and nobody asked it to."""

    is_warning: ClassVar[bool] = True
    broker_id: int
    epoch: int
    check: str
    reason: str

    def line(self) -> str:
        return f"Broker {self.broker_id} stops: {self.reason} check={self.check} epoch={self.epoch}"
