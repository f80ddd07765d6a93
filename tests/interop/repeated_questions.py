"""Questions that name something more than once, to ask of any broker: `QUESTIONS`.

They are for one node with the id 1, with a topic `t` of two partitions, three records in the first, and for
members of groups who do what they like. Whatever they change they change in the same way everywhere.
"""

from collections.abc import Mapping
from typing import Final

from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterReplicaLogDirsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    ListConfigResourcesRequest,
    UpdateFeaturesRequest,
)
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from quorate.protocol.api.produce_fetch import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from quorate.protocol.api.quorum import DescribeQuorumRequest
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from quorate.protocol.api.transactions import DescribeProducersRequest
from quorate.protocol.message import Request
from quorate.protocol.types import Uuid

TOPIC, BROKER = 2, 4
NO_TOPIC: Final = Uuid(b"no topic".ljust(16))


def _configs(*resources: tuple[int, str, list[str]]) -> Request:
    kind = DescribeConfigsRequest.Resource
    return DescribeConfigsRequest(
        resources=[
            kind(resource_type=of_kind, resource_name=name, configuration_keys=keys)
            for of_kind, name, keys in resources
        ]
    )


def _metadata(*topics: str | Uuid) -> Request:
    kind = MetadataRequest.Topic
    return MetadataRequest(
        topics=[kind(topic_id=one, name=None) if isinstance(one, Uuid) else kind(name=one) for one in topics],
        allow_auto_topic_creation=False,
    )


def _listed(*topics: tuple[str, list[int]]) -> Request:
    kind = ListOffsetsRequest.Topic
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            kind(name=name, partitions=[kind.Partition(partition_index=one, timestamp=-1) for one in ids])
            for name, ids in topics
        ],
    )


def _epochs(*topics: tuple[str, list[int]]) -> Request:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = kind.OffsetForLeaderPartition
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            kind(topic=name, partitions=[part(partition=one, leader_epoch=0) for one in ids])
            for name, ids in topics
        ],
    )


def _producers(*topics: tuple[str, list[int]]) -> Request:
    kind = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[kind(name=name, partition_indexes=ids) for name, ids in topics])


def _deleted(*topics: tuple[str, list[tuple[int, int]]]) -> Request:
    kind = DeleteRecordsRequest.Topic
    return DeleteRecordsRequest(
        topics=[
            kind(name=name, partitions=[kind.Partition(partition_index=one, offset=to) for one, to in some])
            for name, some in topics
        ],
        timeout_ms=10_000,
    )


def _fetched_offsets(*groups: tuple[str, list[tuple[str, list[int]]] | None]) -> Request:
    kind = OffsetFetchRequest.Group
    return OffsetFetchRequest(
        groups=[
            kind(
                group_id=group,
                topics=None
                if topics is None
                else [kind.Topics(name=name, partition_indexes=ids) for name, ids in topics],
            )
            for group, topics in groups
        ]
    )


def _old_fetched_offsets(*topics: tuple[str, list[int]]) -> Request:
    kind = OffsetFetchRequest.Topic
    return OffsetFetchRequest(
        group_id="g", topics=[kind(name=name, partition_indexes=ids) for name, ids in topics]
    )


def _committed(*topics: tuple[str, list[tuple[int, int]]]) -> Request:
    kind = OffsetCommitRequest.Topic
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            kind(
                name=name,
                partitions=[
                    kind.Partition(partition_index=one, committed_offset=offset, committed_metadata="")
                    for one, offset in some
                ],
            )
            for name, some in topics
        ],
    )


def _offsets_deleted(*topics: tuple[str, list[int]]) -> Request:
    kind = OffsetDeleteRequest.Topic
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            kind(name=name, partitions=[kind.Partition(partition_index=one) for one in ids])
            for name, ids in topics
        ],
    )


def _left(*members: tuple[str, str | None]) -> Request:
    kind = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id="g", members=[kind(member_id=one, group_instance_id=instance) for one, instance in members]
    )


def _created(*topics: tuple[str, list[tuple[int, list[int]]], list[tuple[str, str]]]) -> Request:
    kind = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            kind(
                name=name,
                num_partitions=-1 if replicas else 1,
                replication_factor=-1 if replicas else 1,
                assignments=[
                    kind.CreatableReplicaAssignment(partition_index=one, broker_ids=ids)
                    for one, ids in replicas
                ],
                configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs],
            )
            for name, replicas, configs in topics
        ],
        timeout_ms=10_000,
        validate_only=True,
    )


def _topics_deleted(*topics: str | Uuid) -> Request:
    kind = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(
        topics=[
            kind(name=None, topic_id=one)
            if isinstance(one, Uuid)
            else kind(name=one, topic_id=Uuid(bytes(16)))
            for one in topics
        ],
        timeout_ms=10_000,
    )


def _grown(*topics: tuple[str, int]) -> Request:
    kind = CreatePartitionsRequest.Topic
    return CreatePartitionsRequest(
        topics=[kind(name=name, count=count, assignments=None) for name, count in topics],
        timeout_ms=10_000,
        validate_only=True,
    )


def _elected(*topics: tuple[str, list[int]]) -> Request:
    kind = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(
        election_type=0,
        topic_partitions=[kind(topic=name, partitions=ids) for name, ids in topics],
        timeout_ms=10_000,
    )


def _reassigned(*topics: tuple[str, list[int]]) -> Request:
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    return AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        topics=[
            kind(
                name=name,
                partitions=[kind.ReassignablePartition(partition_index=one, replicas=[1]) for one in ids],
            )
            for name, ids in topics
        ],
    )


def _moves(*topics: tuple[str, list[int]]) -> Request:
    kind = ListPartitionReassignmentsRequest.Topics
    return ListPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[kind(name=name, partition_indexes=ids) for name, ids in topics]
    )


def _page(*topics: str) -> Request:
    kind = DescribeTopicPartitionsRequest
    return kind(topics=[kind.TopicRequest(name=name) for name in topics], response_partition_limit=2000)


def _directories(*topics: tuple[str, list[int]]) -> Request:
    kind = DescribeLogDirsRequest
    return kind(topics=[kind.DescribableLogDirTopic(topic=name, partitions=ids) for name, ids in topics])


def _moved(*directories: tuple[str, list[tuple[str, list[int]]]]) -> Request:
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    return AlterReplicaLogDirsRequest(
        dirs=[
            kind(
                path=path,
                topics=[kind.AlterReplicaLogDirTopic(name=name, partitions=ids) for name, ids in topics],
            )
            for path, topics in directories
        ]
    )


def _quotas(*entities: list[tuple[str, str]], keys: int = 1) -> Request:
    kind = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            kind(
                entity=[kind.EntityData(entity_type=of, entity_name=name) for of, name in entity],
                ops=[kind.OpData(key="producer_byte_rate", value=1000.0, remove=False)] * keys,
            )
            for entity in entities
        ],
        validate_only=True,
    )


def _features(*names: str) -> Request:
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(
        timeout_ms=10_000,
        feature_updates=[kind(feature=one, max_version_level=1, upgrade_type=1) for one in names],
        validate_only=True,
    )


def _users(*names: str) -> Request:
    kind = DescribeUserScramCredentialsRequest.UserName
    return DescribeUserScramCredentialsRequest(users=[kind(name=one) for one in names])


def _forgotten(*names: str) -> Request:
    kind = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    return AlterUserScramCredentialsRequest(
        deletions=[kind(name=one, mechanism=1) for one in names], upsertions=[]
    )


def _quorum(*topics: tuple[str, list[int]]) -> Request:
    kind = DescribeQuorumRequest.TopicData
    return DescribeQuorumRequest(
        topics=[
            kind(topic_name=name, partitions=[kind.PartitionData(partition_index=one) for one in ids])
            for name, ids in topics
        ]
    )


def _heard(names: list[str], *owned: tuple[Uuid, list[int]]) -> Request:
    kind = ConsumerGroupHeartbeatRequest
    return kind(
        group_id="k",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        topic_partitions=[kind.TopicPartitions(topic_id=one, partitions=ids) for one, ids in owned],
    )


QUESTIONS: Final[Mapping[str, Request]] = {
    # What is there
    "metadata of a topic": _metadata("t", "t"),
    "metadata of no topic": _metadata("nowhere", "t", "nowhere"),
    "metadata of an id that there is not": _metadata(NO_TOPIC, NO_TOPIC),
    "a page": _page("t", "nowhere", "t", "nowhere"),
    "configurations of a topic": _configs((TOPIC, "t", ["retention.ms"]), (TOPIC, "t", ["retention.ms"])),
    "configurations of a topic, others each time": _configs(
        (TOPIC, "t", ["retention.ms"]), (TOPIC, "t", ["cleanup.policy"])
    ),
    "a configuration of a topic": _configs((TOPIC, "t", ["retention.ms", "retention.ms"])),
    "configurations of no topic": _configs((TOPIC, "nowhere", []), (TOPIC, "nowhere", [])),
    "configurations of a broker": _configs(
        (BROKER, "1", ["num.partitions"]), (BROKER, "1", ["num.partitions"])
    ),
    "kinds of resources": ListConfigResourcesRequest(resource_types=[TOPIC, TOPIC]),
    "log directories": _directories(("t", [0, 0]), ("t", [0])),
    "the quorum": _quorum(("__cluster_metadata", [0, 0])),
    "the quorum, its topic": _quorum(("__cluster_metadata", [0]), ("__cluster_metadata", [0])),
    "a quorum that there is not": _quorum(("t", [0, 0]), ("t", [0])),
    "users": _users("nobody", "nobody", "somebody"),
    "moves": _moves(("t", [0, 0]), ("t", [0])),
    # Offsets and producers
    "offsets": _listed(("t", [0, 0, 1])),
    "offsets, their topic": _listed(("t", [0]), ("t", [0])),
    "offsets, their topic for another partition": _listed(("t", [0]), ("t", [1])),
    "offsets of no partition": _listed(("t", []), ("t", [])),
    "offsets of no topic": _listed(("nowhere", [0, 0]), ("nowhere", [0])),
    "ends of epochs": _epochs(("t", [0, 0]), ("t", [0])),
    "ends of epochs of no topic": _epochs(("nowhere", [0, 0])),
    "producers": _producers(("t", [1, 1]), ("t", [1])),
    "producers of no partition": _producers(("t", []), ("t", [])),
    "producers of no topic": _producers(("nowhere", [0, 0])),
    "records deleted": _deleted(("t", [(0, 1), (0, 1)])),
    "records deleted, more each time": _deleted(("t", [(0, 1), (0, 2)])),
    "records deleted, less each time": _deleted(("t", [(0, 2), (0, 1)])),
    "records deleted, their topic": _deleted(("t", [(0, 1)]), ("t", [(0, 2)])),
    "records deleted of no partition": _deleted(("t", []), ("t", [])),
    "records deleted of no topic": _deleted(("nowhere", [(0, 1), (0, 1)])),
    # Groups
    "coordinators": FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "g", "h"]),
    "coordinators of nothing": FindCoordinatorRequest(key_type=9, coordinator_keys=["g", "g"]),
    "commits, their partition": _committed(("t", [(0, 1), (0, 2)])),
    "what the last commit was": _fetched_offsets(("g", [("t", [0])])),
    "commits, their topic": _committed(("t", [(0, 2)]), ("t", [(0, 1)])),
    "what the last commit was then": _fetched_offsets(("g", [("t", [0])])),
    "commits of no topic": _committed(("nowhere", [(0, 1), (0, 1)]), ("nowhere", [(0, 1)])),
    "commits of a topic and of none": _committed(
        ("t", [(0, 1)]), ("nowhere", [(0, 1)]), ("t", [(0, 1), (9, 1)])
    ),
    "committed": _fetched_offsets(("g", [("t", [0, 0, 1, 1])])),
    "committed, of a topic": _fetched_offsets(("g", [("t", [0]), ("t", [0])])),
    "committed, of no topic": _fetched_offsets(("g", [("nowhere", [0, 0]), ("nowhere", [0])])),
    "committed, of a group": _fetched_offsets(("g", [("t", [0])]), ("g", [("t", [1])])),
    "committed, all of a group": _fetched_offsets(("g", None), ("g", None)),
    "committed, of no group": _fetched_offsets(("none", None), ("none", [("t", [0])])),
    "groups": DescribeGroupsRequest(groups=["g", "g", "none", "none"]),
    "groups of the new protocol": ConsumerGroupDescribeRequest(
        group_ids=["g", "g", "none", "none"], include_authorized_operations=False
    ),
    "groups in a state": ListGroupsRequest(
        states_filter=["Empty", "Empty"], types_filter=["classic", "classic"]
    ),
    "offsets deleted": _offsets_deleted(("t", [0, 0])),
    "offsets deleted, their topic": _offsets_deleted(("t", [0]), ("t", [0])),
    "offsets deleted, of no topic": _offsets_deleted(("nowhere", [0, 0]), ("nowhere", [0])),
    "members that leave": _left(("m", None), ("m", None)),
    "static members that leave": _left(("", "i"), ("", "i")),
    "topics that are wanted": _heard(["t", "t"]),
    "groups deleted": DeleteGroupsRequest(groups_names=["g", "g", "none", "none"]),
    # Changes
    "topics created": _created(("a", [], []), ("a", [], []), ("b", [], [])),
    "topics created, a partition": _created(("a", [(0, [1]), (0, [1])], [])),
    "topics created, a replica": _created(("a", [(0, [1, 1])], [])),
    "topics created, a configuration": _created(
        ("a", [], [("retention.ms", "1000"), ("retention.ms", "2000")])
    ),
    "topics created, a bad configuration": _created(
        ("a", [], [("retention.ms", "-7"), ("retention.ms", "1")])
    ),
    "topics deleted": _topics_deleted("nowhere", "nowhere"),
    "topics deleted that there are": _topics_deleted("t", "t"),
    "topics deleted by ids": _topics_deleted(NO_TOPIC, NO_TOPIC),
    "topics grown": _grown(("t", 3), ("t", 4), ("nowhere", 3)),
    "no topics grown": _grown(("nowhere", 3), ("nowhere", 3)),
    "leaders elected": _elected(("t", [0, 0])),
    "leaders elected of a topic": _elected(("t", [0]), ("t", [0])),
    "leaders elected of no topic": _elected(("nowhere", [0, 0])),
    "partitions moved": _reassigned(("t", [0, 0])),
    "partitions moved of a topic": _reassigned(("t", [0]), ("t", [0])),
    "partitions moved of no topic": _reassigned(("nowhere", [0, 0]), ("nowhere", [0])),
    "replicas moved": _moved(("/nowhere", [("t", [0, 0])])),
    "replicas moved of a topic": _moved(("/nowhere", [("t", [0]), ("t", [0])])),
    "replicas moved from both": _moved(("/nowhere", [("t", [0])]), ("/elsewhere", [("t", [0])])),
    "quotas": _quotas([("user", "ann")], [("user", "ann")]),
    "quotas of a user twice": _quotas([("user", "ann"), ("user", "ann")]),
    "quotas, a rate": _quotas([("user", "ann")], keys=2),
    "features": _features("group.version", "group.version"),
    "credentials": _forgotten("nobody", "nobody"),
}
