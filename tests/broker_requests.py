"""What brokers ask of a controller, and the clock that judges them, on a `Cluster` of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controller_cluster import CLUSTER_ID, Cluster, directory, incarnation
from quorate.controller.decision import Decision
from quorate.controller.heartbeats import decide_expiry, decide_heartbeat
from quorate.controller.refusal import Refusal
from quorate.controller.registration import decide_registration
from quorate.protocol.api.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from quorate.protocol.types import Uuid

__all__ = [
    "beat",
    "expire",
    "feature",
    "heartbeat_request",
    "listener",
    "refusal_of",
    "register",
    "registration_request",
    "reply_of",
    "start",
]


def listener(name: str = "PLAINTEXT", host: str = "broker", port: int = 9092, protocol: int = 0) -> Any:
    return BrokerRegistrationRequest.Listener(name=name, host=host, port=port, security_protocol=protocol)


def feature(name: str, low: int, high: int) -> Any:
    return BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)


def registration_request(
    cluster: Cluster, broker_id: int, *, run: int = 0, **changes: Any
) -> BrokerRegistrationRequest:
    """A registration with which all is well, but for the changes."""
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": incarnation(max(broker_id, 0), run),
        "listeners": [listener(host=f"broker-{broker_id}")],
        "features": [feature(name, low, high) for name, (low, high) in cluster.settings.features.items()],
        "rack": None,
        "log_dirs": [directory(max(broker_id, 0))],
    }
    return BrokerRegistrationRequest(**fields | changes)


def register(
    cluster: Cluster, broker_id: int, *, run: int = 0, api_version: int = 4, **changes: Any
) -> Decision:
    request = registration_request(cluster, broker_id, run=run, **changes)
    return cluster.decide(decide_registration, request, api_version=api_version)


def refusal_of(cluster: Cluster, broker_id: int, *, run: int = 0, **changes: Any) -> Refusal:
    """What a registration is refused with; it must not have changed anything."""
    count = len(cluster.records)
    with pytest.raises(Refusal) as caught:
        register(cluster, broker_id, run=run, **changes)
    assert len(cluster.records) == count
    return caught.value


def heartbeat_request(
    cluster: Cluster,
    broker_id: int,
    *,
    epoch: int | None = None,
    offset: int | None = None,
    want_fence: bool = False,
    want_shut_down: bool = False,
    offline: Sequence[Uuid] = (),
    cordoned: Sequence[Uuid] | None = None,
) -> BrokerHeartbeatRequest:
    """A heartbeat at the registered epoch, of a broker that has read the whole log."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch if epoch is None else epoch,
        current_metadata_offset=cluster.next_offset - 1 if offset is None else offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=list(offline),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def beat(cluster: Cluster, broker_id: int, **what: Any) -> Decision:
    """A heartbeat arrives, and is looked at."""
    request = heartbeat_request(cluster, broker_id, **what)
    cluster.sessions.contact(request.broker_id, request.broker_epoch, cluster.now_ms)
    return cluster.decide(decide_heartbeat, request, api_version=2)


def reply_of(decision: Decision) -> Any:
    assert isinstance(decision.reply, BrokerHeartbeatResponse | BrokerRegistrationResponse)
    return decision.reply


def start(cluster: Cluster, broker_id: int, *, run: int = 0, **changes: Any) -> int:
    """A broker registers, and is unfenced by its first heartbeat; returns its epoch."""
    epoch: int = reply_of(register(cluster, broker_id, run=run, **changes)).broker_epoch
    assert not reply_of(beat(cluster, broker_id)).is_fenced
    return epoch


def expire(cluster: Cluster) -> Decision | None:
    """The clock is looked at once."""
    decision = decide_expiry(cluster.situation())
    return None if decision is None else cluster.decide(lambda _: decision)
