"""What operators do: topics, partitions, configurations, leaders, replicas, brokers.

    async with Cluster("127.0.0.1:9092") as cluster:
        admin = Admin(cluster)
        await admin.create_topics(NewTopic("orders", partitions=3, configs={"retention.ms": "86400000"}))
        print(await admin.describe_topics("orders"))

A method returns when everything was done, and raises `ApiError` if anything was not: its code is that of the
first failure, its text names all of them. A request whose answer was lost is sent again; a topic that was
created by the first attempt is then reported as existing already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final, NamedTuple, cast

from quorate.client.cluster import ANY, CONTROLLER, Cluster, Destination, top_level_error
from quorate.client.errors import all_failures, code_of
from quorate.client.metadata import Broker, Topic, TopicPartition, topic_of
from quorate.client.offsets import ListedOffset, list_offsets
from quorate.protocol.api.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.api.quorum import DescribeQuorumRequest, DescribeQuorumResponse
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
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.values import dataclass

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "NewTopic",
    "Quorum",
    "QuorumReplica",
    "Reassignment",
    "Resource",
    "ResourceKind",
]

_METADATA_TOPIC: Final = "__cluster_metadata"
_AS_THE_BROKER_SAYS: Final = -1  # the number of partitions and replicas that the broker is configured with


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be. Without numbers the brokers' defaults count; `assignments` are replicas by partition."""

    name: str
    partitions: int = _AS_THE_BROKER_SAYS
    replication_factor: int = _AS_THE_BROKER_SAYS
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class ResourceKind(IntEnum):
    """What can be configured."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """Something with configurations. The broker without a name is the default of all brokers."""

    kind: ResourceKind
    name: str


class ConfigEntry(NamedTuple):
    """A configuration. A sensitive one shows no value. Sources: 1 topic, 2 dynamic, 4 static, 5 default."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    fenced: Sequence[int]  # those of the brokers that do not serve clients


class QuorumReplica(NamedTuple):
    id: int
    directory_id: Uuid
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The metadata quorum, as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[QuorumReplica]
    observers: Sequence[QuorumReplica]


class Reassignment(NamedTuple):
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


class Admin:
    """Asks a cluster, and changes it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.settings.request_timeout_ms * 3 / 4)  # brokers give up before we do

    # Topics

    async def create_topics(self, *topics: NewTopic, validate_only: bool = False) -> dict[str, Uuid]:
        """Creates topics, or only says whether that would be possible. Their ids, where the broker tells."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic.name,
                    num_partitions=_AS_THE_BROKER_SAYS if topic.assignments else topic.partitions,
                    replication_factor=(
                        _AS_THE_BROKER_SAYS if topic.assignments else topic.replication_factor
                    ),
                    assignments=[
                        CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
                            partition_index=index, broker_ids=list(replicas)
                        )
                        for index, replicas in sorted(topic.assignments.items())
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        said = cast(
            "CreateTopicsResponse",
            await self._ask(
                CONTROLLER,
                request,
                lambda response: [one.error_code for one in cast("CreateTopicsResponse", response).topics],
            ),
        )
        _raise_failures((f"topic {one.name!r}", one.error_code, one.error_message) for one in said.topics)
        return {one.name: one.topic_id for one in said.topics}

    async def delete_topics(self, *names: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        said = cast(
            "DeleteTopicsResponse",
            await self._ask(
                CONTROLLER,
                request,
                lambda response: [one.error_code for one in cast("DeleteTopicsResponse", response).responses],
            ),
        )
        _raise_failures((f"topic {one.name!r}", one.error_code, one.error_message) for one in said.responses)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Gives topics more partitions, up to these counts; `assignments` are replicas of the new ones."""
        assignments = assignments or {}
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.Topic(
                    name=name,
                    count=count,
                    assignments=(
                        [
                            CreatePartitionsRequest.Topic.Assignment(broker_ids=list(replicas))
                            for replicas in assignments[name]
                        ]
                        if name in assignments
                        else None
                    ),
                )
                for name, count in counts.items()
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        said = cast(
            "CreatePartitionsResponse",
            await self._ask(
                CONTROLLER,
                request,
                lambda response: [
                    one.error_code for one in cast("CreatePartitionsResponse", response).results
                ],
            ),
        )
        _raise_failures((f"topic {one.name!r}", one.error_code, one.error_message) for one in said.results)

    async def describe_topics(self, *names: str) -> dict[str, Topic]:
        """These topics, as any broker knows them."""
        return await self._topics(
            MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in names])
        )

    async def list_topics(self) -> dict[str, Topic]:
        """All topics."""
        return await self._topics(MetadataRequest(topics=None))

    async def _topics(self, request: MetadataRequest) -> dict[str, Topic]:
        request.allow_auto_topic_creation = False
        said = cast("MetadataResponse", await self._ask(ANY, request, lambda _: []))
        _raise_failures((f"topic {one.name!r}", one.error_code, None) for one in said.topics)
        return {topic.name: topic for topic in map(topic_of, said.topics)}

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by timestamp, or by `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` of `client.offsets`."""
        return await list_offsets(self._cluster, wanted, isolation_level=isolation_level)

    # The cluster

    async def describe_cluster(self) -> ClusterDescription:
        """All brokers, the fenced ones too if the broker is new enough to tell."""
        try:
            return await self._describe_cluster(include_fenced=True)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
            return await self._describe_cluster(
                include_fenced=False
            )  # an old broker: the field is unknown to it

    async def _describe_cluster(self, *, include_fenced: bool) -> ClusterDescription:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced
        )
        said = cast("DescribeClusterResponse", await self._cluster.request(ANY, request))
        return ClusterDescription(
            said.cluster_id,
            said.controller_id,
            {one.broker_id: Broker(one.broker_id, one.host, one.port, one.rack) for one in said.brokers},
            [one.broker_id for one in said.brokers if one.is_fenced],
        )

    async def describe_quorum(self) -> Quorum:
        partition = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        said = cast("DescribeQuorumResponse", await self._cluster.request(ANY, request))
        described = said.topics[0].partitions[0]
        _raise_failures([("the metadata quorum", described.error_code, described.error_message)])

        def replicas(
            states: Iterable[DescribeQuorumResponse.TopicData.PartitionData.ReplicaState],
        ) -> list[QuorumReplica]:
            return [
                QuorumReplica(
                    one.replica_id,
                    one.replica_directory_id,
                    one.log_end_offset,
                    one.last_fetch_timestamp,
                    one.last_caught_up_timestamp,
                )
                for one in states
            ]

        return Quorum(
            described.leader_id,
            described.leader_epoch,
            described.high_watermark,
            replicas(described.current_voters),
            replicas(described.observers),
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Makes the cluster forget a broker that will not come back."""
        await self._cluster.request(CONTROLLER, UnregisterBrokerRequest(broker_id=broker_id))

    # Configurations

    async def describe_configs(
        self, resource: Resource, names: Sequence[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The configurations of a resource, all or those with these names."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
            ]
        )
        said = cast(
            "DescribeConfigsResponse",
            await self._ask(
                _home(resource),
                request,
                lambda response: [
                    one.error_code for one in cast("DescribeConfigsResponse", response).results
                ],
            ),
        )
        _raise_failures((_named(resource), one.error_code, one.error_message) for one in said.results)
        return {
            one.name: ConfigEntry(one.value, one.config_source, one.read_only, one.is_sensitive)
            for result in said.results
            for one in result.configs
        }

    async def alter_configs(
        self,
        resource: Resource,
        *,
        put: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes these configurations of a resource and no others; lists can be added to and taken from."""
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        operations: list[tuple[int, Mapping[str, str | None]]] = [
            (0, dict(put or {})),
            (1, dict.fromkeys(delete)),
            (2, dict(append or {})),
            (3, dict(subtract or {})),
        ]
        changes = [
            kind.AlterableConfig(name=name, config_operation=operation, value=value)
            for operation, values in operations
            for name, value in values.items()
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[kind(resource_type=resource.kind, resource_name=resource.name, configs=changes)],
            validate_only=validate_only,
        )
        said = cast(
            "IncrementalAlterConfigsResponse",
            await self._ask(
                _home(resource),
                request,
                lambda response: [
                    one.error_code for one in cast("IncrementalAlterConfigsResponse", response).responses
                ],
            ),
        )
        _raise_failures((_named(resource), one.error_code, one.error_message) for one in said.responses)

    # Leaders and replicas

    async def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, unclean: bool = False
    ) -> None:
        """Makes the preferred replicas leaders; or, where no in-sync replica is left, whoever is alive.

        Partitions that have such a leader already are no failure.
        """
        by_topic = None
        if partitions is not None:
            by_topic = [
                ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in _by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=int(unclean), topic_partitions=by_topic, timeout_ms=self._timeout_ms
        )
        said = cast("ElectLeadersResponse", await self._ask(CONTROLLER, request, lambda _: []))
        _raise_failures(
            (str(TopicPartition(topic.topic, one.partition_id)), one.error_code, one.error_message)
            for topic in said.replica_election_results
            for one in topic.partition_result
            if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
        )

    async def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """Starts to move partitions to these replicas; None cancels a move. See `list_reassignments`."""
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        topics = [
            kind(
                name=topic,
                partitions=[
                    kind.ReassignablePartition(
                        partition_index=index,
                        replicas=None
                        if replicas[topic, index] is None
                        else list(replicas[topic, index] or ()),
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)
        said = cast("AlterPartitionReassignmentsResponse", await self._ask(CONTROLLER, request, lambda _: []))
        _raise_failures(
            (str(TopicPartition(topic.name, one.partition_index)), one.error_code, one.error_message)
            for topic in said.responses
            for one in topic.partitions
        )

    async def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The partitions that are being moved."""
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms)
        said = cast("ListPartitionReassignmentsResponse", await self._cluster.request(CONTROLLER, request))
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                one.replicas, one.adding_replicas, one.removing_replicas
            )
            for topic in said.topics
            for one in topic.partitions
        }

    async def _ask(
        self, to: Destination, request: Request, codes: Callable[[Response], Iterable[int]]
    ) -> Response:
        """A response in which nothing failed because the wrong node was asked: that is tried again."""

        def error_of(response: Response) -> ErrorCode:
            top = top_level_error(response)
            wrong_node = (code_of(code) for code in codes(response) if code in _ASK_AGAIN)
            return top if top is not ErrorCode.NONE else next(wrong_node, ErrorCode.NONE)

        return await self._cluster.request(to, request, error_of=error_of)


# Errors of a single result that mean the same for all: who was asked is not who decides, or not yet.
_ASK_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


def _home(resource: Resource) -> Destination:
    """A broker answers for its own configurations; anybody does for the others."""
    is_broker = resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)
    return int(resource.name) if is_broker and resource.name else ANY


def _named(resource: Resource) -> str:
    return f"{resource.kind.name.lower()} {resource.name!r}"


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _raise_failures(results: Iterable[tuple[str, int, str | None]]) -> None:
    failures = [
        ApiError(code_of(code), f"{what}: {said}" if said else what) for what, code, said in results if code
    ]
    if failures:
        raise all_failures(failures)
