"""Which decision answers which request, how long a request may wait for it, and which ask for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.controller.acls import decide_create_acls, decide_delete_acls
from quorate.controller.alter_partition import decide_alter_partition
from quorate.controller.client_quotas import decide_alter_client_quotas
from quorate.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from quorate.controller.controllers import decide_controller_registration
from quorate.controller.decision import Decision, Situation
from quorate.controller.directories import decide_assign_replicas_to_dirs
from quorate.controller.elections import decide_elect_leaders
from quorate.controller.features import decide_update_features
from quorate.controller.heartbeats import decide_heartbeat
from quorate.controller.partitions_of_topics import decide_create_partitions
from quorate.controller.producer_ids import decide_allocate_producer_ids
from quorate.controller.reassignment import decide_alter_partition_reassignments
from quorate.controller.registration import decide_registration
from quorate.controller.scram import decide_alter_user_scram_credentials
from quorate.controller.settings import ControllerSettings
from quorate.controller.tokens import decide_create_token, decide_expire_token, decide_renew_token
from quorate.controller.topics import decide_create_topics, decide_delete_topics
from quorate.controller.unregistration import decide_unregistration
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    UnregisterBrokerRequest,
)
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from quorate.protocol.message import Request

__all__ = ["DECISIONS", "is_empty", "timeout_ms"]

DECISIONS: Final[Mapping[type[Request], Callable[[Situation, Any], Decision]]] = {
    BrokerRegistrationRequest: decide_registration,
    BrokerHeartbeatRequest: decide_heartbeat,
    UnregisterBrokerRequest: decide_unregistration,
    ControllerRegistrationRequest: decide_controller_registration,
    AlterPartitionRequest: decide_alter_partition,
    AssignReplicasToDirsRequest: decide_assign_replicas_to_dirs,
    AllocateProducerIdsRequest: decide_allocate_producer_ids,
    CreateTopicsRequest: decide_create_topics,
    DeleteTopicsRequest: decide_delete_topics,
    CreatePartitionsRequest: decide_create_partitions,
    AlterPartitionReassignmentsRequest: decide_alter_partition_reassignments,
    ElectLeadersRequest: decide_elect_leaders,
    AlterConfigsRequest: decide_alter_configs,
    IncrementalAlterConfigsRequest: decide_incremental_alter_configs,
    UpdateFeaturesRequest: decide_update_features,
    AlterClientQuotasRequest: decide_alter_client_quotas,
    AlterUserScramCredentialsRequest: decide_alter_user_scram_credentials,
    CreateAclsRequest: decide_create_acls,
    DeleteAclsRequest: decide_delete_acls,
    CreateDelegationTokenRequest: decide_create_token,
    RenewDelegationTokenRequest: decide_renew_token,
    ExpireDelegationTokenRequest: decide_expire_token,
}

_WITH_TIMEOUT: Final = (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    CreatePartitionsRequest,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)

_ASKED_FOR: Final[Mapping[type[Request], Callable[[Any], object]]] = {
    CreateTopicsRequest: lambda request: request.topics,
    DeleteTopicsRequest: lambda request: request.topics or request.topic_names,
    CreatePartitionsRequest: lambda request: request.topics,
    AlterPartitionReassignmentsRequest: lambda request: request.topics,
    ElectLeadersRequest: lambda request: request.topic_partitions is None or request.topic_partitions,
    AlterConfigsRequest: lambda request: request.resources,
    IncrementalAlterConfigsRequest: lambda request: request.resources,
    AlterClientQuotasRequest: lambda request: request.entries,
    AlterUserScramCredentialsRequest: lambda request: request.deletions or request.upsertions,
    CreateAclsRequest: lambda request: request.creations,
    DeleteAclsRequest: lambda request: request.filters,
}


def timeout_ms(request: Request, settings: ControllerSettings) -> float:
    """How long a request may wait before it is looked at; what is looked at later is not begun.

    A heartbeat that has waited for half an interval is about to be overtaken by the next.
    """
    if isinstance(request, BrokerHeartbeatRequest):
        return settings.broker_heartbeat_interval_ms / 2
    return request.timeout_ms if isinstance(request, _WITH_TIMEOUT) else float("inf")


def is_empty(request: Request) -> bool:
    """Whether a request asks for nothing, and can be answered without being looked at."""
    asked_for = _ASKED_FOR.get(type(request))
    return asked_for is not None and not asked_for(request)
