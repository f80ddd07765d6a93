"""Questions of administration, right and wrong ones, to ask of any broker: `QUESTIONS`.

They are for one node with the id 1, with a topic `t` of two partitions, three records in the first, and a
topic `compacted`. Whatever they change they change in the same way everywhere.
"""

from collections.abc import Mapping
from typing import Any, Final

from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    UpdateFeaturesRequest,
)
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.api.produce_fetch import DeleteRecordsRequest
from quorate.protocol.api.quorum import AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorate.protocol.api.transactions import DescribeProducersRequest
from quorate.protocol.message import Request
from quorate.protocol.types import Uuid

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, UNKNOWN = 2, 4, 8, 16, 32, 99
SET, DELETE, APPEND, SUBTRACT = range(4)


def _incremental(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], is_trial: bool = False
) -> Request:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            kind(
                resource_type=of_kind,
                resource_name=name,
                configs=[
                    kind.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for of_kind, name, changes in resources
        ],
        validate_only=is_trial,
    )


def _changed(kind: int, name: str, key: str, value: str | None, operation: int = SET) -> Request:
    return _incremental((kind, name, [(key, operation, value)]))


def _replaced(*resources: tuple[int, str, dict[str, str | None]]) -> Request:
    kind = AlterConfigsRequest.Resource
    return AlterConfigsRequest(
        resources=[
            kind(
                resource_type=of_kind,
                resource_name=name,
                configs=[kind.AlterableConfig(name=key, value=value) for key, value in changes.items()],
            )
            for of_kind, name, changes in resources
        ],
        validate_only=True,
    )


def _described(kind: int, name: str, *keys: str) -> Request:
    asked = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[asked], include_synonyms=True)


def _deleted(topic: str, partition: int, offset: int) -> Request:
    part = DeleteRecordsRequest.Topic
    wanted = part.Partition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[part(name=topic, partitions=[wanted])], timeout_ms=10_000)


def _elected(kind: int, topic: str | None, partition: int = 0) -> Request:
    asked = (
        None if topic is None else [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])]
    )
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10_000)


def _reassigned(
    topic: str, partition: int, replicas: list[int] | None, *, may_change: bool = True
) -> Request:
    part = AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = part.ReassignablePartition(partition_index=partition, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        allow_replication_factor_change=may_change,
        topics=[part(name=topic, partitions=[wanted])],
    )


def _feature(name: str, level: int, kind: int = 1) -> Request:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=True)


def _quota(entity: dict[str, str | None], key: str, value: float) -> Request:
    part = AlterClientQuotasRequest.EntryData
    entry = part(
        entity=[part.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[part.OpData(key=key, value=value, remove=False)],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=True)


def _quotas(kind: str, match_type: int, match: str | None, *, times: int = 1) -> Request:
    component = DescribeClientQuotasRequest.ComponentData(
        entity_type=kind, match_type=match_type, match=match
    )
    return DescribeClientQuotasRequest(components=[component] * times, strict=False)


def _secret(name: str, mechanism: int = 1, iterations: int = 4096, *, times: int = 1) -> Request:
    made = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[made] * times)


def _forgotten(name: str, mechanism: int = 1) -> Request:
    gone = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)
    return AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[])


def _users(*names: str) -> Request:
    kind = DescribeUserScramCredentialsRequest.UserName
    return DescribeUserScramCredentialsRequest(users=[kind(name=name) for name in names])


def _page(*topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
    kind = DescribeTopicPartitionsRequest
    return kind(
        topics=[kind.TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else kind.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def _producers(topic: str, partition: int) -> Request:
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    return DescribeProducersRequest(topics=[asked])


def _moves(topic: str | None, partition: int = 0) -> Request:
    kind = ListPartitionReassignmentsRequest
    asked = None if topic is None else [kind.Topics(name=topic, partition_indexes=[partition])]
    return kind(timeout_ms=10_000, topics=asked)


def _grown(topic: str, count: int, *replicas: list[int]) -> Request:
    kind = CreatePartitionsRequest.Topic
    assignments: Any = [kind.Assignment(broker_ids=ids) for ids in replicas] or None
    return CreatePartitionsRequest(
        topics=[kind(name=topic, count=count, assignments=assignments)], timeout_ms=10_000, validate_only=True
    )


_FILTER: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ENTRY: Final = CreateAclsRequest.AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:ann",
    host="*",
    operation=3,
    permission_type=3,
)

QUESTIONS: Final[Mapping[str, Request]] = {
    # Configurations of topics
    "a topic's config": _changed(TOPIC, "t", "retention.ms", "1000000"),
    "a bad value": _changed(TOPIC, "t", "retention.ms", "-7"),
    "a value that is no number": _changed(TOPIC, "t", "retention.ms", "long"),
    "an unknown key": _changed(TOPIC, "t", "no.such.key", "1"),
    "an unknown topic": _changed(TOPIC, "nowhere", "retention.ms", "1"),
    "a bad name": _changed(TOPIC, "bad name", "retention.ms", "1"),
    "no name": _changed(TOPIC, "", "retention.ms", "1"),
    "no value": _changed(TOPIC, "t", "retention.ms", None),
    "a deletion": _changed(TOPIC, "t", "retention.ms", None, DELETE),
    "a list that grows": _changed(TOPIC, "t", "cleanup.policy", "compact", APPEND),
    "a list that shrinks": _changed(TOPIC, "t", "cleanup.policy", "compact", SUBTRACT),
    "no list": _changed(TOPIC, "t", "retention.ms", "1", APPEND),
    "an unknown operation": _changed(TOPIC, "t", "retention.ms", "1", 9),
    "a key twice": _incremental((TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])),
    "a resource twice": _incremental((TOPIC, "t", []), (TOPIC, "t", [])),
    "one of two": _incremental((TOPIC, "t", []), (TOPIC, "nowhere", [("retention.ms", SET, "1")])),
    "no resource": _incremental(),
    "an unknown type": _changed(UNKNOWN, "t", "retention.ms", "1"),
    # Of brokers
    "this broker's config": _changed(BROKER, "1", "log.cleaner.threads", "2"),
    "all brokers' config": _changed(BROKER, "", "log.cleaner.threads", "2"),
    "taken back": _incremental(
        (BROKER, "1", [("log.cleaner.threads", DELETE, None)]),
        (BROKER, "", [("log.cleaner.threads", DELETE, None)]),
    ),
    "another broker's config": _changed(BROKER, "7", "log.cleaner.threads", "2"),
    "nobody's config": _changed(BROKER, "x", "log.cleaner.threads", "2"),
    "a config that takes a restart": _changed(BROKER, "1", "num.partitions", "2"),
    "a default that takes a restart": _changed(BROKER, "", "num.partitions", "2"),
    "a static key deleted": _changed(BROKER, "1", "num.partitions", None, DELETE),
    "a broker's bad value": _changed(BROKER, "1", "log.cleaner.threads", "many"),
    "a broker's forbidden value": _changed(BROKER, "1", "compression.type", "rar"),
    "one broker's key for all": _changed(BROKER, "", "listeners", "PLAINTEXT://:9092"),
    "a static key that has no effect here": _changed(BROKER, "1", "queued.max.requests", "7"),
    "the same for all": _changed(BROKER, "", "security.inter.broker.protocol", "SSL"),
    "a key of SASL": _changed(BROKER, "1", "sasl.kerberos.min.time.before.relogin", "7"),
    "a key of SASL for all": _changed(BROKER, "", "sasl.kerberos.min.time.before.relogin", "7"),
    "a key of another listener": _changed(BROKER, "1", "listener.name.x.ssl.truststore.type", "PEM"),
    "a key of TLS without a listener": _changed(BROKER, "1", "ssl.truststore.type", "PEM"),
    "too little memory for the cleaner": _changed(BROKER, "1", "log.cleaner.dedupe.buffer.size", "1048576"),
    "a plugin's key": _changed(BROKER, "1", "my.plugin.key", "1"),
    "a plugin's key deleted": _changed(BROKER, "1", "my.plugin.key", None, DELETE),
    "no list of a broker": _changed(BROKER, "1", "log.cleaner.threads", "1", APPEND),
    # Of loggers
    "a level": _changed(LOGGER, "1", "root", "WARN"),
    "a bad level": _changed(LOGGER, "1", "root", "LOUD"),
    "a level in small letters": _changed(LOGGER, "1", "root", "warn"),
    "an unknown logger": _changed(LOGGER, "1", "no.such.logger", "INFO"),
    "the root's level deleted": _changed(LOGGER, "1", "root", None, DELETE),
    "a level that grows": _changed(LOGGER, "1", "root", "INFO", APPEND),
    "another's logger": _changed(LOGGER, "7", "root", "INFO"),
    "nobody's logger": _changed(LOGGER, "", "root", "INFO"),
    # Of groups and client metrics
    "a group's config": _changed(GROUP, "g", "consumer.session.timeout.ms", "50000"),
    "a group's bad value": _changed(GROUP, "g", "consumer.session.timeout.ms", "1"),
    "a group's other bad value": _changed(GROUP, "g", "streams.num.standby.replicas", "3"),
    "a group's unknown key": _changed(GROUP, "g", "no.such.key", "1"),
    "a group without a name": _changed(GROUP, "", "consumer.session.timeout.ms", "50000"),
    "client metrics": _changed(CLIENT_METRICS, "m", "interval.ms", "1000"),
    "client metrics, no number": _changed(CLIENT_METRICS, "m", "interval.ms", "bbb"),
    "client metrics, too often": _changed(CLIENT_METRICS, "m", "interval.ms", "1"),
    "client metrics, unknown key": _changed(CLIENT_METRICS, "m", "no.such.key", "1"),
    "client metrics, bad pattern": _changed(CLIENT_METRICS, "m", "match", "nobody=x"),
    "client metrics without a name": _changed(CLIENT_METRICS, "", "interval.ms", "1000"),
    # The old way
    "all of a topic": _replaced((TOPIC, "t", {"retention.ms": "5000"})),
    "all of a topic, badly": _replaced((TOPIC, "t", {"retention.ms": "-7"})),
    "all of an unknown topic": _replaced((TOPIC, "nowhere", {"retention.ms": "1"})),
    "all of a topic, without a value": _replaced((TOPIC, "t", {"retention.ms": None})),
    "all of this broker": _replaced((BROKER, "1", {"log.cleaner.threads": "2"})),
    "all of another broker": _replaced((BROKER, "7", {"log.cleaner.threads": "2"})),
    "all of this broker, with a restart": _replaced((BROKER, "1", {"num.partitions": "2"})),
    "all of loggers": _replaced((LOGGER, "1", {"root": "INFO"})),
    "all of nothing": _replaced((UNKNOWN, "t", {})),
    "all of a topic twice": _replaced((TOPIC, "t", {}), (TOPIC, "t", {})),
    # Descriptions
    "describe a topic": _described(TOPIC, "t", "retention.ms", "no.such.key"),
    "describe an unknown topic": _described(TOPIC, "nowhere"),
    "describe a bad name": _described(TOPIC, "bad name"),
    "describe this broker": _described(BROKER, "1", "num.partitions"),
    "describe all brokers": _described(BROKER, "", "log.cleaner.threads"),
    "describe another broker": _described(BROKER, "7"),
    "describe nobody": _described(BROKER, "x"),
    "describe loggers": _described(LOGGER, "1", "root"),
    "describe another's loggers": _described(LOGGER, "7"),
    "describe nobody's loggers": _described(LOGGER, ""),
    "describe a group": _described(GROUP, "g", "consumer.session.timeout.ms"),
    "describe no group": _described(GROUP, ""),
    "describe client metrics": _described(CLIENT_METRICS, "m", "interval.ms"),
    "describe client metrics as they are": _described(CLIENT_METRICS, "m", "metrics"),
    "describe nobody's client metrics": _described(CLIENT_METRICS, "n"),
    "describe a group as it is": _described(GROUP, "g"),
    "describe no client metrics": _described(CLIENT_METRICS, ""),
    "describe nothing": _described(UNKNOWN, "t"),
    "list groups and metrics": ListConfigResourcesRequest(resource_types=[CLIENT_METRICS, GROUP]),
    "list topics": ListConfigResourcesRequest(resource_types=[TOPIC]),
    "list brokers": ListConfigResourcesRequest(resource_types=[BROKER, LOGGER]),
    "list nothing": ListConfigResourcesRequest(resource_types=[UNKNOWN]),
    # Records and producers
    "delete some": _deleted("t", 0, 2),
    "delete fewer": _deleted("t", 0, 1),
    "delete too many": _deleted("t", 0, 4),
    "delete a negative number": _deleted("t", 0, -2),
    "delete everything": _deleted("t", 0, -1),
    "delete of no partition": _deleted("t", 9, 0),
    "delete of no topic": _deleted("nowhere", 0, 0),
    "delete of a compacted topic": _deleted("compacted", 0, 0),
    "producers": _producers("t", 0),
    "producers of no partition": _producers("t", 9),
    "producers of no topic": _producers("nowhere", 0),
    # Partitions
    "elect where none is needed": _elected(0, "t"),
    "elect uncleanly where none is needed": _elected(1, "t"),
    "elect of no topic": _elected(0, "nowhere"),
    "elect of no partition": _elected(0, "t", 9),
    "elect in no way": _elected(9, "t"),
    "elect everywhere": _elected(0, None),
    "move to where it is": _reassigned("t", 0, [1]),
    "move to nobody": _reassigned("t", 0, []),
    "move to one twice": _reassigned("t", 0, [1, 1]),
    "move to an unknown broker": _reassigned("t", 0, [7]),
    "move to more, which may not be": _reassigned("t", 0, [1, 7], may_change=False),
    "move no topic": _reassigned("nowhere", 0, [1]),
    "move no partition": _reassigned("t", 9, [1]),
    "take no move back": _reassigned("t", 0, None),
    "list moves": _moves(None),
    "list moves of a topic": _moves("t"),
    "list moves of no topic": _moves("nowhere"),
    "grow": _grown("t", 3),
    "grow to fewer": _grown("t", 1),
    "grow to as many": _grown("t", 2),
    "grow no topic": _grown("nowhere", 3),
    "grow to an unknown broker": _grown("t", 3, [7]),
    "grow by too many": _grown("t", 3, [1], [1]),
    "a page": _page("t"),
    "a page of all": _page(),
    "a page of one": _page("t", limit=1),
    "a page from the middle": _page("t", cursor=("t", 1)),
    "a page from nowhere": _page("t", cursor=("u", 0)),
    "a page of a negative place": _page("t", cursor=("t", -1)),
    "a page of no topic": _page("nowhere", "bad name"),
    # The cluster
    "the brokers": DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1),
    "the controllers": DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2),
    "no such endpoints": DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=7),
    "forget nobody": UnregisterBrokerRequest(broker_id=7),
    "the quorum": DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
            )
        ]
    ),
    "another voter": AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=1000,
        voter_id=7,
        voter_directory_id=Uuid(b"directory".ljust(16)),
        listeners=[AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=9)],
    ),
    "one voter less": RemoveRaftVoterRequest(
        cluster_id=None, voter_id=7, voter_directory_id=Uuid(b"directory".ljust(16))
    ),
    "a feature up": _feature("metadata.version", 1000),
    "a feature that there is not": _feature("no.such.feature", 1),
    "a feature below zero": _feature("group.version", -1),
    "a feature as it is": _feature("group.version", 1),
    "a feature down": _feature("group.version", 0),
    "a feature down, safely": _feature("group.version", 0, 2),
    "a feature in no way": _feature("group.version", 0, 9),
    # Quotas and credentials
    "a quota": _quota({"user": "ann"}, "producer_byte_rate", 1000),
    "a quota of nothing": _quota({}, "producer_byte_rate", 1000),
    "a quota of an unknown kind": _quota({"planet": "mars"}, "producer_byte_rate", 1000),
    "a quota without a name": _quota({"user": ""}, "producer_byte_rate", 1000),
    "an unknown quota": _quota({"user": "ann"}, "no_such_rate", 1000),
    "a quota of less than nothing": _quota({"user": "ann"}, "producer_byte_rate", -1),
    "a broken quota": _quota({"user": "ann"}, "producer_byte_rate", 1.5),
    "a quota of an address": _quota({"ip": "10.0.0.1"}, "connection_creation_rate", 5),
    "a quota of no address": _quota({"ip": "not an address!"}, "connection_creation_rate", 5),
    "a quota of two kinds": _quota({"ip": "10.0.0.1", "user": "ann"}, "connection_creation_rate", 5),
    "quotas": _quotas("user", 2, None),
    "quotas of an unknown kind": _quotas("planet", 2, None),
    "quotas of an unknown match": _quotas("user", 9, None),
    "quotas of nobody": _quotas("user", 0, None),
    "quotas twice": _quotas("user", 2, None, times=2),
    "a credential": _secret("ann"),
    "a credential of nobody": _secret(""),
    "a credential of no kind": _secret("ann", 9),
    "a weak credential": _secret("ann", iterations=1),
    "a slow credential": _secret("ann", iterations=100_000),
    "a credential twice": _secret("bob", times=2),
    "no credential any more": _forgotten("ann"),
    "no credential to forget": _forgotten("carl"),
    "who has credentials": _users("ann", "carl"),
    "who has credentials, twice": _users("ann", "ann"),
    # Security that there is not
    "rights": DescribeAclsRequest(**_FILTER),
    "a right": CreateAclsRequest(creations=[_ENTRY]),
    "no right": DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**_FILTER)]),
    "a token": CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1000),
    "a token for longer": RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
    "a token no more": ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
    "tokens": DescribeDelegationTokenRequest(owners=None),
}
