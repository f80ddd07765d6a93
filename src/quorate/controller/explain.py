"""Why is this broker fenced? The one check that keeps it so right now, with the numbers that it compared.

Only the active controller can tell: what is in the log says that a broker is fenced, not what it waits for.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from quorate.controller.heartbeats import Finding
from quorate.controller.sessions import Session, Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.image import ClusterImage
from quorate.values import dataclass

__all__ = ["Standing", "Why", "why_fenced"]


class Why(Enum):
    """What decides. The words are those of the events, where there is one."""

    NOT_REGISTERED = "not registered"
    NOT_FENCED = "not fenced"
    SHUTTING_DOWN = "shutting down"
    SHUT_DOWN = "shut down"
    NEVER_HEARD = "no heartbeat"
    SILENT = "missed heartbeats"
    NO_DIRECTORY = Finding.NO_DIRECTORY.value
    WANTS_FENCE = Finding.WANTS_FENCE.value
    BEHIND = Finding.BEHIND.value
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a broker stands. Numbers that do not exist are -1, times that do not are None."""

    broker_id: int
    is_fenced: bool
    check: str
    explanation: str
    epoch: int = -1
    registration_offset: int = -1
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1
    want_fence: bool = False
    ms_since_heartbeat: int | None = None
    session_timeout_ms: int = -1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def why_fenced(
    image: ClusterImage, sessions: Sessions, settings: ControllerSettings, broker_id: int, now_ms: float
) -> Standing:
    """What keeps a broker fenced, or that nothing does."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        reason = f"No broker {broker_id} is registered: it never was, or it was unregistered."
        return Standing(broker_id, False, Why.NOT_REGISTERED.value, reason)
    session = sessions.of(broker_id)
    if session is None or session.epoch != broker.epoch:
        session = Session(broker_id, broker.epoch)
    is_alive = sessions.is_alive(broker_id, broker.epoch, now_ms)
    why = _find_why(broker, session, is_alive=is_alive)
    silent_ms = session.ms_since_contact(now_ms)
    return Standing(
        broker_id=broker_id,
        is_fenced=broker.is_fenced,
        check=why.value,
        explanation=_explain(why, broker, session, silent_ms, settings),
        epoch=broker.epoch,
        registration_offset=broker.registration_offset,
        metadata_offset=session.metadata_offset,
        controlled_shutdown_offset=session.shutdown_offset,
        want_fence=session.want_fence,
        ms_since_heartbeat=silent_ms,
        session_timeout_ms=sessions.timeout_ms,
    )


def _find_why(broker: BrokerRegistration, session: Session, *, is_alive: bool) -> Why:
    if not broker.is_fenced:
        return Why.SHUTTING_DOWN if broker.is_shutting_down else Why.NOT_FENCED
    was_heard = session.ms_since_contact(0) is not None
    if session.has_left or (broker.is_shutting_down and not was_heard):
        return Why.SHUT_DOWN
    if not was_heard:
        return Why.NEVER_HEARD
    if not is_alive:
        return Why.SILENT
    if session.check == Why.NO_DIRECTORY.value:
        return Why.NO_DIRECTORY
    if session.want_fence:
        return Why.WANTS_FENCE
    return Why.BEHIND if session.metadata_offset < broker.registration_offset else Why.READY


def _explain(
    why: Why,
    broker: BrokerRegistration,
    session: Session,
    silent_ms: int | None,
    settings: ControllerSettings,
) -> str:
    match why:
        case Why.NOT_FENCED:
            return f"Broker {broker.id} is not fenced."
        case Why.SHUTTING_DOWN:
            return (
                f"Broker {broker.id} is not fenced. It is being shut down and leads nothing new; it may go"
                f" when all active brokers have read offset {session.shutdown_offset} of the metadata log."
            )
        case Why.SHUT_DOWN:
            return f"Broker {broker.id} was shut down in order. It comes back when it is started."
        case Why.NEVER_HEARD:
            return (
                f"Broker {broker.id} is registered at epoch {broker.epoch}, but no heartbeat of that epoch"
                f" has reached this controller. Is it running, and can it reach the controllers?"
            )
        case Why.SILENT:
            return (
                f"Broker {broker.id} has been silent for {silent_ms} ms, and"
                f" {settings.broker_session_timeout_ms} ms are allowed. Its next heartbeat brings it back."
            )
        case Why.NO_DIRECTORY:
            return f"Broker {broker.id} says that all of its log directories are offline. Look at its disks."
        case Why.WANTS_FENCE:
            return (
                f"Broker {broker.id} asks to stay fenced: it has not finished starting, or recovers its logs."
            )
        case Why.BEHIND:
            return (
                f"Broker {broker.id} has read the metadata log up to offset {session.metadata_offset}, and"
                f" must read its own registration at {broker.registration_offset} first."
            )
        case _:
            return (
                f"Nothing keeps broker {broker.id} fenced: its next heartbeat will unfence it. They come"
                f" every {settings.broker_heartbeat_interval_ms} ms."
            )
