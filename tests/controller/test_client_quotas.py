"""Quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from controller_cluster import Cluster
from quorate.controller.client_quotas import decide_alter_client_quotas, describe_client_quotas
from quorate.controller.decision import Decision
from quorate.metadata.image import Entity
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

Entry = AlterClientQuotasRequest.EntryData
Parts = tuple[tuple[str, str | None], ...]

ANN: Parts = (("user", "ann"),)
ANYBODY: Parts = (("user", None),)
ANN_APP: Parts = (("client-id", "app"), ("user", "ann"))
ANN_ANY: Parts = (("client-id", None), ("user", "ann"))
APP: Parts = (("client-id", "app"),)
HOME: Parts = (("ip", "127.0.0.1"),)
ANYWHERE: Parts = (("ip", None),)


def entry(entity: Parts, ops: Mapping[str, float | None] | list[tuple[str, float | None]]) -> Entry:
    """What an entity's quotas shall be; None removes one."""
    pairs = list(ops.items()) if isinstance(ops, Mapping) else ops
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in pairs],
    )


def ask(cluster: Cluster, *entries: Entry, validate_only: bool = False) -> Decision:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return cluster.decide(decide_alter_client_quotas, request)


def alter(cluster: Cluster, *entries: Entry, **how: Any) -> list[ErrorCode]:
    reply = ask(cluster, *entries, **how).reply
    assert isinstance(reply, AlterClientQuotasResponse)
    encode(reply, 0)
    for one in reply.entries:
        assert (one.error_message is None) == (one.error_code == ErrorCode.NONE)
    return [ErrorCode(one.error_code) for one in reply.entries]


def refused(entity: Parts, ops: Mapping[str, float | None] | list[tuple[str, float | None]]) -> str:
    cluster = Cluster()
    decision = ask(cluster, entry(entity, ops))
    assert decision.records == []
    assert isinstance(decision.reply, AlterClientQuotasResponse)
    (result,) = decision.reply.entries
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message is not None
    return result.error_message


# Setting


@pytest.mark.parametrize("entity", [ANN, ANYBODY, ANN_APP, ANN_ANY, APP])
def test_quotas_of_users_and_client_ids(entity: Entity) -> None:
    cluster = Cluster()
    quotas = {
        "producer_byte_rate": 1e6,
        "consumer_byte_rate": 2e6,
        "request_percentage": 12.5,
        "controller_mutation_rate": 0.5,
    }
    assert alter(cluster, entry(entity, quotas)) == [ErrorCode.NONE]
    assert cluster.image.quotas == {entity: quotas}


@pytest.mark.parametrize("entity", [HOME, ANYWHERE, (("ip", "::1"),)])
def test_quotas_of_addresses(entity: Entity) -> None:
    cluster = Cluster()
    assert alter(cluster, entry(entity, {"connection_creation_rate": 10})) == [ErrorCode.NONE]
    assert cluster.image.quotas == {entity: {"connection_creation_rate": 10.0}}


def test_the_order_of_the_parts_does_not_matter() -> None:
    cluster = Cluster()
    alter(cluster, entry(ANN_APP, {"request_percentage": 1}))
    alter(cluster, entry(ANN_APP[::-1], {"request_percentage": 2}))
    assert cluster.image.quotas == {ANN_APP: {"request_percentage": 2.0}}


def test_a_quota_is_changed_and_removed() -> None:
    cluster = Cluster()
    alter(cluster, entry(ANN, {"request_percentage": 1, "producer_byte_rate": 5}))
    alter(cluster, entry(ANN, {"request_percentage": 2, "producer_byte_rate": None}))
    assert cluster.image.quotas == {ANN: {"request_percentage": 2.0}}
    alter(cluster, entry(ANN, {"request_percentage": None}))
    assert cluster.image.quotas == {}


def test_what_does_not_change_is_not_written() -> None:
    cluster = Cluster()
    alter(cluster, entry(ANN, {"request_percentage": 1}))
    same = {"request_percentage": 1.0, "producer_byte_rate": None, "no_such_thing": None}
    decision = ask(cluster, entry(ANN, same))
    assert decision.records == []
    assert alter(cluster, entry(ANN, same)) == [ErrorCode.NONE]


def test_validating_writes_nothing() -> None:
    cluster = Cluster()
    asked = entry(ANN, {"request_percentage": 1}), entry((("user", ""),), {"request_percentage": 1})
    assert alter(cluster, *asked, validate_only=True) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert cluster.image.quotas == {}


def test_everything_stands_in_one_batch() -> None:
    decision = ask(Cluster(), entry(ANN, {"request_percentage": 1}), entry(APP, {"request_percentage": 1}))
    assert decision.is_atomic
    assert len(decision.records) == 2


def test_the_reply_says_who_is_meant() -> None:
    reply = ask(Cluster(), entry(ANN_ANY, {"request_percentage": 1})).reply
    assert isinstance(reply, AlterClientQuotasResponse)
    assert [(one.entity_type, one.entity_name) for one in reply.entries[0].entity] == list(ANN_ANY)


def test_one_bad_quota_of_an_entity_spoils_the_others_but_no_other_entity() -> None:
    cluster = Cluster()
    assert alter(
        cluster,
        entry(ANN, {"request_percentage": 1, "producer_byte_rate": -1}),
        entry(APP, {"request_percentage": 1}),
    ) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert cluster.image.quotas == {APP: {"request_percentage": 1.0}}


def test_an_entity_that_stands_there_twice_is_not_changed() -> None:
    cluster = Cluster()
    asked = entry(ANN, {"request_percentage": 1}), entry(ANN, {"producer_byte_rate": 1})
    assert alter(cluster, *asked) == [ErrorCode.INVALID_REQUEST]
    assert cluster.image.quotas == {}


def test_a_key_that_stands_there_twice() -> None:
    assert "more than once" in refused(ANN, [("request_percentage", 1), ("request_percentage", None)])


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ((), "Invalid empty client quota entity"),
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""),), "Empty client-id not supported"),
        ((("ip", ""),), "Empty ip not supported"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("", "g"),), "Unhandled client quota entity type: "),
        ((("user", "ann"), ("user", "bob")), "more than one part of a type"),
        ((("user", "ann"), ("user", None)), "more than one part of a type"),
        ((("ip", "127.0.0.1"), ("user", "ann")), "Invalid quota entity combination"),
        ((("ip", None), ("client-id", "app")), "Invalid quota entity combination"),
        ((("ip", "not.an.address.example"),), "not.an.address.example is not a valid IP"),
        ((("ip", "300.1.1.1"),), "300.1.1.1 is not a valid IP"),
        ((("user", "x" * 30_000), ("x" * 30_000, None)), "Unhandled client quota entity type: xxx"),
    ],
)
def test_entities_that_cannot_be(entity: Parts, reason: str) -> None:
    key = "connection_creation_rate" if "ip" in dict(entity) else "request_percentage"
    assert reason in refused(entity, {key: 1})


@pytest.mark.parametrize(
    ("entity", "key", "value", "reason"),
    [
        (ANN, "request_percentage", 0, "Quota request_percentage must be greater than 0"),
        (ANN, "request_percentage", -1, "greater than 0"),
        (ANN, "request_percentage", math.nan, "greater than 0"),
        (ANN, "request_percentage", math.inf, "finite"),
        (ANN, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        (ANN, "producer_byte_rate", 1e19, "Proposed value for producer_byte_rate is too large for a LONG."),
        (ANN, "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        (ANN, "", 1, "Invalid configuration key "),
        (ANN, "SCRAM-SHA-256", 1, "Invalid configuration key SCRAM-SHA-256"),
        (HOME, "request_percentage", 1, "Invalid configuration key request_percentage"),
        (HOME, "connection_creation_rate", 0.5, "cannot be a fractional value."),
        (HOME, "connection_creation_rate", 1 << 31, "too large for an INT."),
    ],
)
def test_quotas_that_cannot_be(entity: Parts, key: str, value: float, reason: str) -> None:
    assert reason in refused(entity, [(key, value)])


def test_too_many_at_once() -> None:
    with pytest.raises(ApiError) as caught:
        ask(Cluster(), *(entry((("user", f"u{n}"),), {"request_percentage": 1}) for n in range(10_001)))
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


# Looking up

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def describe(
    cluster: Cluster, *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasResponse:
    data = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[data(entity_type=kind, match_type=how, match=match) for kind, how, match in components],
        strict=strict,
    )
    reply = describe_client_quotas(cluster.image, request)
    encode(reply, 1)
    return reply


def found(cluster: Cluster, *components: tuple[str, int, str | None], strict: bool = False) -> list[Parts]:
    reply = describe(cluster, *components, strict=strict)
    assert (reply.error_code, reply.error_message) == (ErrorCode.NONE, None)
    assert reply.entries is not None
    return [tuple((part.entity_type, part.entity_name) for part in one.entity) for one in reply.entries]


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    quota = {"request_percentage": 1.0}
    alter(cluster, *(entry(entity, quota) for entity in (ANN, ANYBODY, ANN_APP, ANN_ANY, APP)))
    alter(cluster, *(entry(entity, {"connection_creation_rate": 5}) for entity in (HOME, ANYWHERE)))
    return cluster


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [ANN, ANYBODY, ANN_APP, ANN_ANY, APP, HOME, ANYWHERE]),
        ([], True, []),
        ([("user", EXACT, "ann")], False, [ANN, ANN_APP, ANN_ANY]),
        ([("user", EXACT, "ann")], True, [ANN]),
        ([("user", EXACT, "bob")], False, []),
        ([("user", DEFAULT, None)], False, [ANYBODY]),
        ([("user", SPECIFIED, None)], False, [ANN, ANYBODY, ANN_APP, ANN_ANY]),
        ([("user", SPECIFIED, None)], True, [ANN, ANYBODY]),
        ([("user", EXACT, "ann"), ("client-id", DEFAULT, None)], True, [ANN_ANY]),
        ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], True, [ANN_APP, ANN_ANY]),
        ([("client-id", EXACT, "app")], False, [ANN_APP, APP]),
        ([("ip", EXACT, "127.0.0.1")], True, [HOME]),
        ([("ip", DEFAULT, None)], True, [ANYWHERE]),
        ([("ip", SPECIFIED, None)], True, [HOME, ANYWHERE]),
    ],
)
def test_filters(
    cluster: Cluster, components: list[tuple[str, int, str | None]], strict: bool, expected: list[Parts]
) -> None:
    assert found(cluster, *components, strict=strict) == expected


def test_values_are_told(cluster: Cluster) -> None:
    reply = describe(cluster, ("ip", DEFAULT, None))
    assert reply.entries is not None
    assert [(one.key, one.value) for one in reply.entries[0].values] == [("connection_creation_rate", 5.0)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", DEFAULT, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_filters(
    cluster: Cluster, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    reply = describe(cluster, *components)
    assert (reply.error_code, reply.entries) == (code, None)
    assert reply.error_message
