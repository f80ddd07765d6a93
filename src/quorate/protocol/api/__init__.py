"""The declarations of every request and response, a module per family.

A family is imported when one of its keys is first asked for: a node that never sees a share group never
pays for its declarations.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final, cast

from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.message import Request, Response

__all__ = ["APIS", "request_class", "response_class"]

# By key: the name of the API, and the module that declares its request and its response.
APIS: Final = {
    0: ("Produce", "produce_fetch"),
    1: ("Fetch", "produce_fetch"),
    2: ("ListOffsets", "produce_fetch"),
    3: ("Metadata", "topics"),
    4: ("LeaderAndIsr", "zookeeper_era"),
    5: ("StopReplica", "zookeeper_era"),
    6: ("UpdateMetadata", "zookeeper_era"),
    7: ("ControlledShutdown", "zookeeper_era"),
    8: ("OffsetCommit", "groups"),
    9: ("OffsetFetch", "groups"),
    10: ("FindCoordinator", "groups"),
    11: ("JoinGroup", "groups"),
    12: ("Heartbeat", "groups"),
    13: ("LeaveGroup", "groups"),
    14: ("SyncGroup", "groups"),
    15: ("DescribeGroups", "groups"),
    16: ("ListGroups", "groups"),
    17: ("SaslHandshake", "security"),
    18: ("ApiVersions", "connection"),
    19: ("CreateTopics", "topics"),
    20: ("DeleteTopics", "topics"),
    21: ("DeleteRecords", "produce_fetch"),
    22: ("InitProducerId", "transactions"),
    23: ("OffsetForLeaderEpoch", "produce_fetch"),
    24: ("AddPartitionsToTxn", "transactions"),
    25: ("AddOffsetsToTxn", "transactions"),
    26: ("EndTxn", "transactions"),
    27: ("WriteTxnMarkers", "transactions"),
    28: ("TxnOffsetCommit", "transactions"),
    29: ("DescribeAcls", "security"),
    30: ("CreateAcls", "security"),
    31: ("DeleteAcls", "security"),
    32: ("DescribeConfigs", "admin"),
    33: ("AlterConfigs", "admin"),
    34: ("AlterReplicaLogDirs", "admin"),
    35: ("DescribeLogDirs", "admin"),
    36: ("SaslAuthenticate", "security"),
    37: ("CreatePartitions", "topics"),
    38: ("CreateDelegationToken", "security"),
    39: ("RenewDelegationToken", "security"),
    40: ("ExpireDelegationToken", "security"),
    41: ("DescribeDelegationToken", "security"),
    42: ("DeleteGroups", "groups"),
    43: ("ElectLeaders", "topics"),
    44: ("IncrementalAlterConfigs", "admin"),
    45: ("AlterPartitionReassignments", "topics"),
    46: ("ListPartitionReassignments", "topics"),
    47: ("OffsetDelete", "groups"),
    48: ("DescribeClientQuotas", "admin"),
    49: ("AlterClientQuotas", "admin"),
    50: ("DescribeUserScramCredentials", "security"),
    51: ("AlterUserScramCredentials", "security"),
    52: ("Vote", "quorum"),
    53: ("BeginQuorumEpoch", "quorum"),
    54: ("EndQuorumEpoch", "quorum"),
    55: ("DescribeQuorum", "quorum"),
    56: ("AlterPartition", "brokers"),
    57: ("UpdateFeatures", "admin"),
    58: ("Envelope", "brokers"),
    59: ("FetchSnapshot", "quorum"),
    60: ("DescribeCluster", "admin"),
    61: ("DescribeProducers", "transactions"),
    62: ("BrokerRegistration", "brokers"),
    63: ("BrokerHeartbeat", "brokers"),
    64: ("UnregisterBroker", "brokers"),
    65: ("DescribeTransactions", "transactions"),
    66: ("ListTransactions", "transactions"),
    67: ("AllocateProducerIds", "brokers"),
    68: ("ConsumerGroupHeartbeat", "groups"),
    69: ("ConsumerGroupDescribe", "groups"),
    70: ("ControllerRegistration", "brokers"),
    71: ("GetTelemetrySubscriptions", "admin"),
    72: ("PushTelemetry", "admin"),
    73: ("AssignReplicasToDirs", "brokers"),
    74: ("ListConfigResources", "admin"),
    75: ("DescribeTopicPartitions", "topics"),
    76: ("ShareGroupHeartbeat", "share_groups"),
    77: ("ShareGroupDescribe", "share_groups"),
    78: ("ShareFetch", "share_groups"),
    79: ("ShareAcknowledge", "share_groups"),
    80: ("AddRaftVoter", "quorum"),
    81: ("RemoveRaftVoter", "quorum"),
    82: ("UpdateRaftVoter", "quorum"),
    83: ("InitializeShareGroupState", "share_groups"),
    84: ("ReadShareGroupState", "share_groups"),
    85: ("WriteShareGroupState", "share_groups"),
    86: ("DeleteShareGroupState", "share_groups"),
    87: ("ReadShareGroupStateSummary", "share_groups"),
    88: ("StreamsGroupHeartbeat", "streams_groups"),
    89: ("StreamsGroupDescribe", "streams_groups"),
    90: ("DescribeShareGroupOffsets", "share_groups"),
    91: ("AlterShareGroupOffsets", "share_groups"),
    92: ("DeleteShareGroupOffsets", "share_groups"),
}


@cache
def request_class(key: int) -> type[Request]:
    """The request with this key.

    >>> request_class(63).__name__
    'BrokerHeartbeatRequest'
    """
    return cast("type[Request]", _declared(key, "Request"))


@cache
def response_class(key: int) -> type[Response]:
    """The response to the request with this key."""
    return cast("type[Response]", _declared(key, "Response"))


def _declared(key: int, suffix: str) -> object:
    if key not in APIS:
        reason = f"there is no request with key {key}"
        raise ProtocolError(
            "RequestHeader", None, "request_api_key", None, reason, ErrorCode.UNSUPPORTED_VERSION
        )
    name, family = APIS[key]
    return getattr(import_module(f"quorate.protocol.api.{family}"), name + suffix)
