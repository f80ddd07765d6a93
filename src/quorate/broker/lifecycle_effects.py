"""What goes into a broker's life and what comes out: inputs that can be repeated, effects for a shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.broker.asking import Patience
from quorate.broker.lifecycle_states import State
from quorate.controller.events import Event
from quorate.protocol.api.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Effects", "Input", "LifecycleSettings", "Send", "Stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """Names and defaults are those of Kafka's configuration."""

    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    initial_broker_registration_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    log_dir_failure_timeout_ms: int = 30_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_timeout_ms: int = 300_000

    @property
    def patience(self) -> Patience:
        """Another controller must be asked before the session is over, however long requests may take."""
        return Patience(
            min(self.request_timeout_ms, self.broker_session_timeout_ms / 2),
            self.reconnect_backoff_ms,
            self.reconnect_backoff_max_ms,
        )


@dataclass(frozen=True, slots=True)
class Send:
    """A request to the active controller; its answer, or its failure, is reported under its number."""

    number: int
    request: BrokerRegistrationRequest | BrokerHeartbeatRequest


@dataclass(frozen=True, slots=True)
class Stop:
    """The broker must stop, and why."""

    reason: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """What a step asks of the shell: first all that has changed, then `send`."""

    looks_elsewhere: bool = False  # whoever was asked last is not the one to ask: find another
    state: State | None = None
    epoch: int | None = None  # obtained
    is_fenced: bool | None = None
    acknowledged_offline: tuple[Uuid, ...] = ()  # directories whose failure the controller now knows
    acknowledged_cordoned: tuple[Uuid, ...] | None = None
    events: tuple[Event, ...] = ()
    stop: Stop | None = None
    send: Send | None = None


class Input(NamedTuple):
    """One call of an input of `Lifecycle`, as it was made."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
