"""Which requests are served, and what ApiVersions says about it."""

import pytest

from quorate.net.routes import Features, RequestContext, Route, RouteTable, route_id
from quorate.protocol import codec
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse, RequestHeader
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.errors import ErrorCode

CONTEXT = RequestContext("TEST", "127.0.0.1", 1234, "me")


def handler(*_):
    raise AssertionError


def ask(table: RouteTable, version: int, name: str = "quorate", software: str = "1.0") -> ApiVersionsResponse:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    handle = table.handler(request.__key__, version)
    header = RequestHeader(request_api_key=request.__key__, request_api_version=version, correlation_id=0)
    answer = handle(CONTEXT, header, request)
    return codec.decode(ApiVersionsResponse, version, codec.encode(answer, version))


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


def test_a_route_is_found_in_the_versions_it_serves():
    table = RouteTable([Route(HeartbeatRequest, handler, versions=range(2, 4))])
    found = [version for version in range(-1, 10) if table.handler(HeartbeatRequest.__key__, version)]
    assert found == [2, 3]
    assert table.handler(11, 3) is None
    assert table.by_route_id[route_id(12, 2)] == (handler, HeartbeatResponse)


def test_without_versions_those_of_apache_are_served_and_others_may_be_advertised():
    table = RouteTable([Route(ProduceRequest, handler, advertised=range(14))])
    assert table.handler(0, 2) is None
    assert table.handler(0, 3)
    for version in range(5):
        assert ranges(ask(table, version)) == {0: (0, 13), 18: (0, 4)}


def test_features_in_the_versions_that_can_carry_them():
    features = Features(
        supported={"metadata.version": range(7, 28), "group.version": range(2)},
        finalized={"metadata.version": 20, "group.version": 0},
        finalized_epoch=41,
    )
    table = RouteTable([], features)
    assert ask(table, 2).supported_features == []
    for version, supported in ((3, ["metadata.version"]), (4, ["metadata.version", "group.version"])):
        response = ask(table, version)
        assert [one.name for one in response.supported_features] == supported
        assert response.finalized_features_epoch == 41
        assert response.finalized_features == [
            ApiVersionsResponse.FinalizedFeatureKey(
                name="metadata.version", max_version_level=20, min_version_level=20
            )
        ]


@pytest.mark.parametrize(
    ("name", "software", "code"),
    [
        ("apache-kafka-java", "4.3.0", ErrorCode.NONE),
        ("a", "1", ErrorCode.NONE),
        ("", "1.0", ErrorCode.INVALID_REQUEST),
        ("a", "", ErrorCode.INVALID_REQUEST),
        ("-a", "1.0", ErrorCode.INVALID_REQUEST),
        ("a", "1.0.", ErrorCode.INVALID_REQUEST),
        ("a b", "1.0", ErrorCode.INVALID_REQUEST),
        ("a\n", "1.0", ErrorCode.INVALID_REQUEST),
        ("ä", "1.0", ErrorCode.INVALID_REQUEST),
        ("a" * 30_000 + "-", "1.0", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_says_what_it_is(name, software, code):
    response = ask(RouteTable([]), 3, name, software)
    assert response.error_code == code
    assert bool(response.api_keys) == (code == ErrorCode.NONE)


def test_two_routes_for_one_request_are_a_mistake():
    with pytest.raises(AssertionError, match="two routes"):
        RouteTable([Route(HeartbeatRequest, handler), Route(HeartbeatRequest, handler)])
    with pytest.raises(AssertionError, match="no versions"):
        RouteTable([Route(HeartbeatRequest, handler, versions=range(90))])
