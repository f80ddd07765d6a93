"""A controller tells the active one where it is found and which features it knows.

Each does so once it runs, the active one included. There is no epoch and nothing to hold: whoever wrote last
counts, and what a controller waits for is to see itself in the log. What it knows is asked for when a feature
is to be raised, so ranges that do not fit what is finalized are no reason to refuse it.
"""

from __future__ import annotations

from quorate.controller.decision import Decision, Situation
from quorate.controller.events import ControllerRegistered
from quorate.controller.registration import objection_to_feature_names, objection_to_listeners
from quorate.metadata.records import RegisterControllerRecord
from quorate.metadata.versions import CONTROLLER_REGISTRATION, METADATA_VERSION
from quorate.protocol.api.brokers import ControllerRegistrationRequest, ControllerRegistrationResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID

__all__ = ["decide_controller_registration"]


def decide_controller_registration(situation: Situation, request: ControllerRegistrationRequest) -> Decision:
    """Records what the controller says of itself."""
    level = situation.image.metadata_version
    if level < CONTROLLER_REGISTRATION:
        reason = (
            f"controllers can be registered from {METADATA_VERSION} {CONTROLLER_REGISTRATION} on,"
            f" and the cluster uses {level}"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
    _check(request)
    event = ControllerRegistered(request.controller_id, request.incarnation_id)
    reply = ControllerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None)
    return Decision(reply=reply, records=[_record(request)], events=[event])


def _check(request: ControllerRegistrationRequest) -> None:
    whose = f"controller {request.controller_id} cannot be registered"
    if request.controller_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{whose}: an id must not be negative")
    if request.incarnation_id == ZERO_UUID:
        reason = f"{whose}: the incarnation id is all zeros; every start of a controller needs a random one"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    objection = objection_to_listeners(request.listeners) or objection_to_feature_names(request.features)
    if objection is not None:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"{whose}: {objection}")
    for one in request.features:
        low, high = one.min_supported_version, one.max_supported_version
        if low > high:
            reason = f"{whose}: it supports {one.name} from {low} to {high}, which is nothing"
            raise ApiError(ErrorCode.INVALID_REGISTRATION, reason)


def _record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,  # there is no migration from ZooKeeper to be ready for
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
    )
