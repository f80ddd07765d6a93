"""Until there are coordinators, whoever looks for one is told to ask again."""

import pytest

from broker.test_metadata import ANN, Asked
from controller_cluster import Cluster
from quorate.broker.handlers.find_coordinator import FindCoordinatorHandler
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE


def answer(version, kind, *keys):
    request = FindCoordinatorRequest(key_type=kind)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        (request.key,) = keys
    header = RequestHeader(
        request_api_key=request.__key__, request_api_version=version, correlation_id=1, client_id="tests"
    )
    found = FindCoordinatorHandler(Asked(Cluster([1])).broker)(ANN, header, request)
    encode(found, version)
    return found


def codes(response: FindCoordinatorResponse, version: int) -> list[int]:
    return [one.error_code for one in response.coordinators] if version >= 4 else [response.error_code]


@pytest.mark.parametrize("version", FindCoordinatorRequest.__served__)
def test_nobody_coordinates(version):
    keys = ("orders", "payments") if version >= 4 else ("orders",)
    found = answer(version, GROUP, *keys)
    assert codes(found, version) == [LATER] * len(keys)
    if version >= 1:
        assert codes(answer(version, TRANSACTION, *keys), version) == [LATER] * len(keys)
    if version >= 4:
        assert [(one.key, one.node_id) for one in found.coordinators] == [(key, -1) for key in keys]
    else:
        assert found.node_id == -1


def test_what_does_not_exist_has_no_coordinator():
    assert codes(answer(5, SHARE, "group:id:0"), 5) == [ErrorCode.INVALID_REQUEST]
    assert codes(answer(6, SHARE, "group:id:0"), 6) == [LATER]
    assert codes(answer(6, 7, "orders"), 6) == [ErrorCode.INVALID_REQUEST]


def test_only_those_who_may_describe_something_look_for_its_coordinator(monkeypatch):
    monkeypatch.setattr(type(Asked(Cluster([1])).broker), "authorize", lambda *_: False)
    assert codes(answer(4, GROUP, "orders"), 4) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert codes(answer(4, TRANSACTION, "t"), 4) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
