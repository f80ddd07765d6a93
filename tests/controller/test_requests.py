"""Requests before they are decided: which ask for nothing, how long each may wait, who answers it."""

from math import inf

import pytest

from quorate.controller.refusals import refusal
from quorate.controller.requests import DECISIONS, is_empty, timeout_ms
from quorate.controller.settings import ControllerSettings
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    UnregisterBrokerRequest,
)
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

TIMEOUT_MS = 1234

EMPTY = [
    CreateTopicsRequest(topics=[], timeout_ms=TIMEOUT_MS),
    DeleteTopicsRequest(topics=[], topic_names=[], timeout_ms=TIMEOUT_MS),
    CreatePartitionsRequest(topics=[], timeout_ms=TIMEOUT_MS, validate_only=False),
    AlterPartitionReassignmentsRequest(topics=[], timeout_ms=TIMEOUT_MS),
    ElectLeadersRequest(topic_partitions=[], timeout_ms=TIMEOUT_MS),
    AlterConfigsRequest(resources=[], validate_only=False),
    IncrementalAlterConfigsRequest(resources=[], validate_only=False),
    AlterClientQuotasRequest(entries=[], validate_only=False),
    AlterUserScramCredentialsRequest(deletions=[], upsertions=[]),
    CreateAclsRequest(creations=[]),
    DeleteAclsRequest(filters=[]),
]


def name_of(request):
    return type(request).__name__


@pytest.mark.parametrize("request_", EMPTY, ids=name_of)
def test_who_asks_for_nothing_is_answered_without_a_decision(request_):
    assert is_empty(request_)
    for version in type(request_).__served__:
        answer = refusal(request_, ApiError(ErrorCode.NONE), version)
        assert getattr(answer, "error_code", 0) == ErrorCode.NONE
        assert getattr(answer, "error_message", None) is None
        encode(answer, version)


@pytest.mark.parametrize(
    "request_",
    [
        ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS),  # all of them
        DeleteTopicsRequest(topics=[], topic_names=["a"], timeout_ms=TIMEOUT_MS),
        UnregisterBrokerRequest(broker_id=1),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    ],
    ids=name_of,
)
def test_who_asks_for_something_is_not(request_):
    assert not is_empty(request_)


@pytest.mark.parametrize(
    ("request_", "expected_ms"),
    [
        *((one, TIMEOUT_MS if hasattr(one, "timeout_ms") else inf) for one in EMPTY),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), inf),
        (
            BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=1, current_metadata_offset=1, want_fence=False, want_shut_down=False
            ),
            1000,
        ),
    ],
    ids=lambda one: "" if isinstance(one, int | float) else name_of(one),
)
def test_how_long_a_request_may_wait_to_be_looked_at(request_, expected_ms):
    assert timeout_ms(request_, ControllerSettings(broker_heartbeat_interval_ms=2000)) == expected_ms


def test_update_features_has_a_timeout_that_nobody_looks_at():
    [kind] = [one for one in DECISIONS if one.__name__ == "UpdateFeaturesRequest"]
    assert timeout_ms(kind(feature_updates=[]), ControllerSettings()) == inf
