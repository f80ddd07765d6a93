"""Controllers say where they are."""

from typing import Any

import pytest

from controller_cluster import Cluster, incarnation
from quorate.controller.controllers import decide_controller_registration
from quorate.controller.events import ControllerRegistered
from quorate.metadata.brokers import Listener
from quorate.protocol.api.brokers import ControllerRegistrationRequest, ControllerRegistrationResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID


def listener(name: str = "CONTROLLER", host: str = "here", port: int = 9093, protocol: int = 0) -> Any:
    return ControllerRegistrationRequest.Listener(name=name, host=host, port=port, security_protocol=protocol)


def feature(name: str, low: int, high: int) -> Any:
    return ControllerRegistrationRequest.Feature(
        name=name, min_supported_version=low, max_supported_version=high
    )


def request(**changes: Any) -> ControllerRegistrationRequest:
    fields: dict[str, Any] = {
        "controller_id": 3000,
        "incarnation_id": incarnation(3000),
        "zk_migration_ready": False,
        "listeners": [listener()],
        "features": [feature("metadata.version", 7, 30)],
    }
    return ControllerRegistrationRequest(**fields | changes)


def test_a_controller_is_registered():
    cluster = Cluster()

    decision = cluster.decide(decide_controller_registration, request(zk_migration_ready=True))

    controller = cluster.image.controllers[3000]
    assert controller.incarnation_id == incarnation(3000)
    assert controller.listeners == (Listener("CONTROLLER", "here", 9093),)
    assert controller.features == {"metadata.version": (7, 30)}
    assert not controller.is_ready_to_migrate
    assert decision.reply == ControllerRegistrationResponse(
        throttle_time_ms=0, error_code=0, error_message=None
    )
    assert list(decision.events) == [ControllerRegistered(3000, incarnation(3000))]


def test_who_registers_last_counts():
    cluster = Cluster()
    cluster.decide(decide_controller_registration, request())

    cluster.decide(decide_controller_registration, request(incarnation_id=incarnation(3000, 1)))

    assert cluster.image.controllers[3000].incarnation_id == incarnation(3000, 1)


def test_what_a_controller_knows_need_not_fit_what_is_finalized():
    cluster = Cluster()

    cluster.decide(decide_controller_registration, request(features=[feature("metadata.version", 7, 8)]))

    assert cluster.image.controllers[3000].features == {"metadata.version": (7, 8)}


@pytest.mark.parametrize(("level", "is_possible"), [(7, False), (14, False), (15, True), (30, True)])
def test_controllers_are_registered_from_a_level_on(level, is_possible):
    cluster = Cluster(metadata_version=level)
    if is_possible:
        cluster.decide(decide_controller_registration, request())
        return

    with pytest.raises(ApiError) as caught:
        cluster.decide(decide_controller_registration, request())

    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"uses {level}" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"controller_id": -1}, ErrorCode.INVALID_REQUEST, "negative"),
        ({"incarnation_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST, "incarnation"),
        ({"listeners": []}, ErrorCode.INVALID_REGISTRATION, "no listeners"),
        ({"listeners": [listener(name="")]}, ErrorCode.INVALID_REGISTRATION, "no name"),
        ({"listeners": [listener(host=" ")]}, ErrorCode.INVALID_REGISTRATION, "no host"),
        ({"listeners": [listener(port=0)]}, ErrorCode.INVALID_REGISTRATION, "port 0"),
        ({"listeners": [listener(protocol=7)]}, ErrorCode.INVALID_REGISTRATION, "security protocol 7"),
        ({"listeners": [listener(), listener()]}, ErrorCode.INVALID_REGISTRATION, "two listeners"),
        ({"features": [feature("", 0, 1)]}, ErrorCode.INVALID_REGISTRATION, "empty name"),
        ({"features": [feature("a", 0, 1), feature("a", 0, 1)]}, ErrorCode.INVALID_REGISTRATION, "twice"),
        ({"features": [feature("a", 2, 1)]}, ErrorCode.INVALID_REGISTRATION, "from 2 to 1"),
    ],
)
def test_a_bad_registration_is_refused(changes, error, word):
    cluster = Cluster()

    with pytest.raises(ApiError) as caught:
        cluster.decide(decide_controller_registration, request(**changes))

    assert caught.value.code is error
    assert word in caught.value.message
    assert not cluster.image.controllers
