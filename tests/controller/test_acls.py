"""Access control entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster
from quorate.controller.acls import (
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
    decide_create_acls,
    decide_delete_acls,
    describe_acls,
)
from quorate.controller.decision import Decision
from quorate.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from quorate.protocol.api.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

Creation = CreateAclsRequest.AclCreation


def acl(name: str = "orders", **changed: Any) -> Creation:
    """Ann may read the topic `orders`, as far as nothing else is said."""
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": PermissionType.ALLOW,
    }
    return Creation(**(fields | changed))


def ask(cluster: Cluster, *creations: Creation) -> Decision:
    return cluster.decide(decide_create_acls, CreateAclsRequest(creations=list(creations)), api_version=3)


def create(cluster: Cluster, *creations: Creation) -> list[ErrorCode]:
    reply = ask(cluster, *creations).reply
    assert isinstance(reply, CreateAclsResponse)
    encode(reply, 1)
    for one in reply.results:
        assert (one.error_message is None) == (one.error_code == ErrorCode.NONE)
    return [ErrorCode(one.error_code) for one in reply.results]


def any_filter(**changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": PermissionType.ANY,
    }
    return fields | changed


def delete(cluster: Cluster, *filters: dict[str, Any]) -> list[list[str]]:
    """The names of the resources whose entries each filter removed."""
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**one) for one in filters])
    reply = cluster.decide(decide_delete_acls, request, api_version=3).reply
    assert isinstance(reply, DeleteAclsResponse)
    encode(reply, 3)
    assert all(one.error_code == ErrorCode.NONE for one in reply.filter_results)
    return [[acl.resource_name for acl in one.matching_acls] for one in reply.filter_results]


def names(cluster: Cluster) -> list[str]:
    return [one.resource_name for one in cluster.image.acls.values()]


# Adding


def test_an_entry_is_added() -> None:
    cluster = Cluster()
    assert create(cluster, acl()) == [ErrorCode.NONE]
    (entry,) = cluster.image.acls.values()
    assert entry == AccessControlEntryRecord(
        id=entry.id,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    )
    assert Uuid(entry.id) in cluster.image.acls


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_name": "payments"},
        {"resource_type": ResourceType.GROUP},
        {"resource_pattern_type": PatternType.PREFIXED},
        {"principal": "User:bob"},
        {"host": "10.0.0.1"},
        {"operation": Operation.WRITE},
        {"permission_type": PermissionType.DENY},
    ],
)
def test_entries_that_differ_in_anything_are_different(changed: dict[str, Any]) -> None:
    cluster = Cluster()
    name = changed.pop("resource_name", "orders")
    assert create(cluster, acl(), acl(name, **changed)) == [ErrorCode.NONE] * 2
    assert len(cluster.image.acls) == 2


def test_what_exists_is_not_written_again() -> None:
    cluster = Cluster()
    assert create(cluster, acl(), acl()) == [ErrorCode.NONE] * 2
    decision = ask(cluster, acl())
    assert decision.records == []
    assert len(cluster.image.acls) == 1


def test_one_that_fails_does_not_keep_the_others_from_being_added() -> None:
    cluster = Cluster()
    assert create(cluster, acl("a"), acl(""), acl("b")) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert names(cluster) == ["a", "b"]


@pytest.mark.parametrize(
    ("creation", "reason"),
    [
        (acl(resource_type=0), "ResourceType"),
        (acl(resource_type=ResourceType.ANY), "one type"),
        (acl(resource_type=8), "ResourceType"),
        (acl(resource_type=-1), "ResourceType"),
        (acl(resource_pattern_type=0), "PatternType"),
        (acl(resource_pattern_type=PatternType.ANY), "literal"),
        (acl(resource_pattern_type=PatternType.MATCH), "literal"),
        (acl(resource_pattern_type=5), "PatternType"),
        (acl(operation=0), "Operation"),
        (acl(operation=Operation.ANY), "one operation"),
        (acl(operation=16), "Operation"),
        (acl(permission_type=0), "PermissionType"),
        (acl(permission_type=PermissionType.ANY), "denies"),
        (acl(permission_type=4), "PermissionType"),
        (acl(""), "empty"),
        (acl("mine", resource_type=ResourceType.CLUSTER), "kafka-cluster"),
        (acl(principal=""), "principal"),
        (acl(principal="ann"), "principal"),
        (acl(principal="x" * 32_767), "principal"),
    ],
)
def test_entries_that_cannot_be(creation: Creation, reason: str) -> None:
    decision = ask(Cluster(), creation)
    assert decision.records == []
    assert isinstance(decision.reply, CreateAclsResponse)
    (result,) = decision.reply.results
    encode(decision.reply, 1)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert reason in (result.error_message or "")


@pytest.mark.parametrize(
    "creation",
    [
        acl("kafka-cluster", resource_type=ResourceType.CLUSTER),
        acl("*"),
        acl("User:bob", resource_type=ResourceType.USER, operation=Operation.CREATE_TOKENS),
        acl(principal="User:*", permission_type=PermissionType.DENY, operation=Operation.ALL),
        acl(resource_type=ResourceType.TRANSACTIONAL_ID, operation=Operation.TWO_PHASE_COMMIT),
    ],
)
def test_entries_that_can_be(creation: Creation) -> None:
    assert create(Cluster(), creation) == [ErrorCode.NONE]


def test_nothing_to_add() -> None:
    assert create(Cluster()) == []


def test_too_many_at_once() -> None:
    with pytest.raises(ApiError) as caught:
        ask(Cluster(), *(acl(f"topic-{number}") for number in range(10_001)))
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


# Finding and removing


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    create(
        cluster,
        acl("orders"),
        acl("orders-eu", principal="User:bob", operation=Operation.WRITE),
        acl("ord", resource_pattern_type=PatternType.PREFIXED),
        acl("*", permission_type=PermissionType.DENY, host="10.0.0.1"),
        acl("workers", resource_type=ResourceType.GROUP),
    )
    return cluster


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["orders", "orders-eu", "ord", "*", "workers"]),
    ({"resource_type_filter": ResourceType.TOPIC}, ["orders", "orders-eu", "ord", "*"]),
    ({"resource_type_filter": ResourceType.CLUSTER}, []),
    ({"pattern_type_filter": PatternType.PREFIXED}, ["ord"]),
    ({"pattern_type_filter": PatternType.LITERAL}, ["orders", "orders-eu", "*", "workers"]),
    ({"pattern_type_filter": PatternType.MATCH}, ["orders", "orders-eu", "ord", "*", "workers"]),
    ({"resource_name_filter": "orders"}, ["orders"]),
    ({"resource_name_filter": "ord", "pattern_type_filter": PatternType.LITERAL}, []),
    ({"resource_name_filter": "ord", "pattern_type_filter": PatternType.PREFIXED}, ["ord"]),
    ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.PREFIXED}, []),
    ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH}, ["orders", "ord", "*"]),
    ({"resource_name_filter": "*", "pattern_type_filter": PatternType.LITERAL}, ["*"]),
    ({"resource_name_filter": "other", "pattern_type_filter": PatternType.MATCH}, ["*"]),
    ({"principal_filter": "User:bob"}, ["orders-eu"]),
    ({"principal_filter": "User:*"}, []),
    ({"host_filter": "10.0.0.1"}, ["*"]),
    ({"operation": Operation.WRITE}, ["orders-eu"]),
    ({"operation": Operation.ALL}, []),
    ({"permission_type": PermissionType.DENY}, ["*"]),
    ({"permission_type": PermissionType.ALLOW, "resource_type_filter": ResourceType.GROUP}, ["workers"]),
]


@pytest.mark.parametrize(("changed", "expected"), FILTERS)
def test_what_a_filter_removes(cluster: Cluster, changed: dict[str, Any], expected: list[str]) -> None:
    before = names(cluster)
    assert delete(cluster, any_filter(**changed)) == [expected]
    assert names(cluster) == [name for name in before if name not in expected]


@pytest.mark.parametrize(("changed", "expected"), FILTERS)
def test_what_a_filter_describes(cluster: Cluster, changed: dict[str, Any], expected: list[str]) -> None:
    reply = describe_acls(cluster.image, DescribeAclsRequest(**any_filter(**changed)))
    encode(reply, 3)
    assert (reply.error_code, reply.error_message) == (ErrorCode.NONE, None)
    assert [one.resource_name for one in reply.resources] == expected


def test_what_several_filters_match_is_told_for_each_and_removed_once(cluster: Cluster) -> None:
    orders = any_filter(resource_name_filter="orders")
    request = DeleteAclsRequest(
        filters=[DeleteAclsRequest.Filter(**orders), DeleteAclsRequest.Filter(**any_filter())]
    )
    decision = decide_delete_acls(cluster.situation(3), request)
    assert decision.is_atomic
    assert len(decision.records) == 5
    assert all(isinstance(one, RemoveAccessControlEntryRecord) for one in decision.records)
    assert delete(cluster, orders, any_filter()) == [
        ["orders"],
        ["orders", "orders-eu", "ord", "*", "workers"],
    ]
    assert names(cluster) == []


def test_no_filters(cluster: Cluster) -> None:
    assert delete(cluster) == []
    assert len(names(cluster)) == 5


BAD_FILTERS = [
    {"resource_type_filter": 0},
    {"resource_type_filter": 99},
    {"pattern_type_filter": 0},
    {"pattern_type_filter": 5},
    {"operation": 0},
    {"operation": -1},
    {"permission_type": 0},
    {"permission_type": 7},
]


@pytest.mark.parametrize("changed", BAD_FILTERS)
def test_a_filter_that_nobody_understands_fails_alone(cluster: Cluster, changed: dict[str, Any]) -> None:
    filters = any_filter(**changed), any_filter(resource_name_filter="orders")
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**one) for one in filters])
    reply = cluster.decide(decide_delete_acls, request, api_version=3).reply
    assert isinstance(reply, DeleteAclsResponse)
    bad, good = reply.filter_results
    assert (bad.error_code, bad.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
    assert bad.error_message
    assert (good.error_code, len(good.matching_acls)) == (ErrorCode.NONE, 1)
    assert "orders" not in names(cluster)


@pytest.mark.parametrize("changed", BAD_FILTERS)
def test_a_filter_that_nobody_understands_describes_nothing(
    cluster: Cluster, changed: dict[str, Any]
) -> None:
    reply = describe_acls(cluster.image, DescribeAclsRequest(**any_filter(**changed)))
    encode(reply, 3)
    assert (reply.error_code, reply.resources) == (ErrorCode.INVALID_REQUEST, [])
    assert reply.error_message


def test_entries_for_the_same_resource_are_described_together() -> None:
    cluster = Cluster()
    create(cluster, acl(), acl("payments"), acl(principal="User:bob"))
    reply = describe_acls(cluster.image, DescribeAclsRequest(**any_filter()))
    told = {one.resource_name: [each.principal for each in one.acls] for one in reply.resources}
    assert told == {"orders": ["User:ann", "User:bob"], "payments": ["User:ann"]}


def test_no_more_than_a_batch_is_removed_at_once() -> None:
    cluster = Cluster()
    create(cluster, *(acl(f"topic-{number}") for number in range(10_000)))
    create(cluster, acl("one-more", principal="User:bob"))
    with pytest.raises(ApiError) as caught:
        delete(cluster, any_filter())
    assert caught.value.code == ErrorCode.POLICY_VIOLATION
    assert len(cluster.image.acls) == 10_001
    (removed,) = delete(cluster, any_filter(principal_filter="User:ann"))
    assert len(removed) == 10_000


creations = st.builds(
    acl,
    st.sampled_from(["a", "ab", "*"]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    resource_pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:ann", "User:bob"]),
    permission_type=st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)


@given(st.lists(creations, max_size=20))
def test_an_entry_is_kept_once_and_removed_by_its_own_filter(asked: list[Creation]) -> None:
    cluster = Cluster()
    create(cluster, *asked)
    distinct = {
        (one.resource_type, one.resource_name, one.resource_pattern_type, one.principal, one.permission_type)
        for one in asked
    }
    assert len(cluster.image.acls) == len(distinct)
    for one in asked:
        delete(
            cluster,
            any_filter(
                resource_type_filter=one.resource_type,
                resource_name_filter=one.resource_name,
                pattern_type_filter=one.resource_pattern_type,
                principal_filter=one.principal,
                permission_type=one.permission_type,
            ),
        )
    assert cluster.image.acls == {}
