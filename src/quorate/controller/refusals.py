"""How each request is told that it failed as a whole.

Some responses have one error for the request; others have one for each thing that was asked for, and then
each of them gets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response

__all__ = ["refusal"]


def refusal(request: Request, error: ApiError, version: int) -> Response:
    """The response that says so, in a version of it."""
    if isinstance(request, ElectLeadersRequest):
        return _refused_election(request, error, version)
    return _REFUSALS[type(request)](request, error.code, error.message or None)


def _refused_election(request: ElectLeadersRequest, error: ApiError, version: int) -> ElectLeadersResponse:
    """Version 0 has no error for the whole, so every partition gets it."""
    result = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=error.code if version > 0 else 0,
        replica_election_results=[
            result(
                topic=one.topic,
                partition_result=[
                    result.PartitionResult(
                        partition_id=partition_id, error_code=error.code, error_message=error.message
                    )
                    for partition_id in one.partitions
                ],
            )
            for one in request.topic_partitions or ()
        ],
    )


# For every request a function of the request, the error and the message.
_REFUSALS: Final[Mapping[type[Request], Callable[[Any, ErrorCode, str | None], Response]]] = {
    BrokerRegistrationRequest: lambda _, code, __: BrokerRegistrationResponse(
        throttle_time_ms=0, error_code=code
    ),
    BrokerHeartbeatRequest: lambda _, code, __: BrokerHeartbeatResponse(
        throttle_time_ms=0, error_code=code, should_shut_down=False
    ),
    UnregisterBrokerRequest: lambda _, code, message: UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=code, error_message=message
    ),
    ControllerRegistrationRequest: lambda _, code, message: ControllerRegistrationResponse(
        throttle_time_ms=0, error_code=code, error_message=message
    ),
    AlterPartitionRequest: lambda _, code, __: AlterPartitionResponse(
        throttle_time_ms=0, error_code=code, topics=[]
    ),
    AssignReplicasToDirsRequest: lambda _, code, __: AssignReplicasToDirsResponse(
        throttle_time_ms=0, error_code=code, directories=[]
    ),
    AllocateProducerIdsRequest: lambda _, code, __: AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=-1, producer_id_len=0
    ),
    UpdateFeaturesRequest: lambda request, code, message: UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=one.feature, error_code=code, error_message=message
            )
            for one in request.feature_updates
        ],
    ),
    AlterPartitionReassignmentsRequest: lambda _, code, message: AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=code, error_message=message, responses=[]
    ),
    CreateTopicsRequest: lambda request, code, message: CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=one.name, error_code=code, error_message=message)
            for one in request.topics
        ]
    ),
    DeleteTopicsRequest: lambda request, code, message: DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(
                name=one.name, topic_id=one.topic_id, error_code=code, error_message=message
            )
            for one in request.topics
        ]
        + [
            DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=code, error_message=message)
            for name in request.topic_names
        ]
    ),
    CreatePartitionsRequest: lambda request, code, message: CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsResponse.TopicResult(name=one.name, error_code=code, error_message=message)
            for one in request.topics
        ],
    ),
    AlterConfigsRequest: lambda request, code, message: AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResponse.ResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ],
    ),
    IncrementalAlterConfigsRequest: lambda request, code, message: IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ],
    ),
    AlterClientQuotasRequest: lambda request, code, message: AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponse.EntryData.EntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in one.entity
                ],
            )
            for one in request.entries
        ],
    ),
    AlterUserScramCredentialsRequest: lambda request, code, message: AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResponse.Result(user=user, error_code=code, error_message=message)
            for user in dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
        ],
    ),
    CreateAclsRequest: lambda request, code, message: CreateAclsResponse(
        throttle_time_ms=0,
        results=[
            CreateAclsResponse.AclCreationResult(error_code=code, error_message=message)
            for _ in request.creations
        ],
    ),
    DeleteAclsRequest: lambda request, code, message: DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsResponse.FilterResult(error_code=code, error_message=message, matching_acls=[])
            for _ in request.filters
        ],
    ),
    CreateDelegationTokenRequest: lambda _, code, __: CreateDelegationTokenResponse(
        error_code=code,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    ),
    RenewDelegationTokenRequest: lambda _, code, __: RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=-1, throttle_time_ms=0
    ),
    ExpireDelegationTokenRequest: lambda _, code, __: ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=-1, throttle_time_ms=0
    ),
}
