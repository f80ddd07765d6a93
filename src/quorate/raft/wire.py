"""Asks and answers as messages of the protocol, and back.

Every message of the quorum speaks of one cluster, one topic and one partition. Checking that, and wrapping it
around what is really said, happens here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.api.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer, Uuid
from quorate.raft import messages
from quorate.raft.messages import Answer, Ask, FetchAnswer, ProbeAnswer, SnapshotAnswer, VoteAnswer
from quorate.raft.positions import Position
from quorate.raft.voters import Endpoint, ReplicaKey, Voter

__all__ = [
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "from_request",
    "from_response",
    "refusal",
    "request_class_of",
    "to_request",
    "to_response",
]

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = Uuid(bytes(15) + b"\1")
_KRAFT_VERSION: Final = "kraft.version"
_FETCH_WITH_REPLICA_STATE: Final = 15
# The first version of a response that says where the leader is.
_WHEREABOUTS_SINCE: Final[dict[type[Response], int]] = {
    VoteResponse: 1,
    BeginQuorumEpochResponse: 1,
    EndQuorumEpochResponse: 1,
    FetchResponse: 16,
    FetchSnapshotResponse: 1,
}


# What we ask


def to_request(ask: Ask, cluster_id: str, version: int) -> Request:
    """The request that asks it. Only a fetch looks different from version to version."""
    if isinstance(ask, messages.Vote):
        return _vote_request(ask, cluster_id)
    if isinstance(ask, messages.BeginEpoch):
        return _begin_request(ask, cluster_id)
    if isinstance(ask, messages.EndEpoch):
        return _end_request(ask, cluster_id)
    if isinstance(ask, messages.Fetch):
        return _fetch_request(ask, cluster_id, version)
    if isinstance(ask, messages.FetchSnapshot):
        return _snapshot_request(ask, cluster_id)
    if isinstance(ask, messages.UpdateVoter):
        return _update_request(ask, cluster_id)
    if isinstance(ask, messages.Probe):
        return ApiVersionsRequest(client_software_name="quorate", client_software_version="0")
    raise AssertionError(f"a replica does not ask this: {ask}")


def request_class_of(ask: Ask) -> type[Request]:
    """The kind of request that asks it, to agree on a version."""
    return _REQUEST_CLASSES[type(ask)]


_REQUEST_CLASSES: Final[dict[type, type[Request]]] = {
    messages.Vote: VoteRequest,
    messages.BeginEpoch: BeginQuorumEpochRequest,
    messages.EndEpoch: EndQuorumEpochRequest,
    messages.Fetch: FetchRequest,
    messages.FetchSnapshot: FetchSnapshotRequest,
    messages.UpdateVoter: UpdateRaftVoterRequest,
    messages.Probe: ApiVersionsRequest,
}


def _vote_request(ask: messages.Vote, cluster_id: str) -> VoteRequest:
    voter = ask.voter or ReplicaKey(-1)
    partition = VoteRequest.TopicData.PartitionData(
        partition_index=0,
        replica_epoch=ask.epoch,
        replica_id=ask.candidate.id,
        replica_directory_id=ask.candidate.directory,
        voter_directory_id=voter.directory,
        last_offset_epoch=ask.last.epoch,
        last_offset=ask.last.offset,
        pre_vote=ask.pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def _begin_request(ask: messages.BeginEpoch, cluster_id: str) -> BeginQuorumEpochRequest:
    voter = ask.voter or ReplicaKey(-1)
    partition = BeginQuorumEpochRequest.TopicData.PartitionData(
        partition_index=0,
        voter_directory_id=voter.directory,
        leader_id=ask.leader_id,
        leader_epoch=ask.epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
            for one in ask.endpoints
        ],
    )


def _end_request(ask: messages.EndEpoch, cluster_id: str) -> EndQuorumEpochRequest:
    data = EndQuorumEpochRequest.TopicData.PartitionData
    partition = data(
        partition_index=0,
        leader_id=ask.leader_id,
        leader_epoch=ask.epoch,
        preferred_successors=[one.id for one in ask.successors],
        preferred_candidates=[
            data.ReplicaInfo(candidate_id=one.id, candidate_directory_id=one.directory)
            for one in ask.successors
        ],
    )
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic])


def _fetch_request(ask: messages.Fetch, cluster_id: str, version: int) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=ask.epoch,
        fetch_offset=ask.offset,
        last_fetched_epoch=ask.last_epoch,
        partition_max_bytes=0,
        replica_directory_id=ask.replica.directory,
        high_watermark=ask.high_watermark,
    )
    topic = FetchRequest.Topic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    request = FetchRequest(
        cluster_id=cluster_id,
        max_wait_ms=ask.max_wait_ms,
        min_bytes=0,
        max_bytes=ask.max_bytes,
        topics=[topic],
    )
    if version >= _FETCH_WITH_REPLICA_STATE:
        request.replica_state = FetchRequest.ReplicaState(replica_id=ask.replica.id)
    else:
        request.replica_id = ask.replica.id
    return request


def _snapshot_request(ask: messages.FetchSnapshot, cluster_id: str) -> FetchSnapshotRequest:
    data = FetchSnapshotRequest.TopicSnapshot.PartitionSnapshot
    partition = data(
        partition=0,
        current_leader_epoch=ask.epoch,
        snapshot_id=data.SnapshotId(end_offset=ask.snapshot.offset, epoch=ask.snapshot.epoch),
        position=ask.byte_position,
        replica_directory_id=ask.replica.directory,
    )
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=ask.replica.id, max_bytes=ask.max_bytes, topics=[topic]
    )


def _update_request(ask: messages.UpdateVoter, cluster_id: str) -> UpdateRaftVoterRequest:
    lowest, highest = ask.voter.kraft_versions
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=ask.epoch,
        voter_id=ask.voter.key.id,
        voter_directory_id=ask.voter.key.directory,
        listeners=[
            UpdateRaftVoterRequest.Listener(name=one.name, host=one.host, port=one.port)
            for one in ask.voter.endpoints
        ],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


# What we are asked


def from_request(request: Request, cluster_id: str) -> Ask:
    """What a request asks; an ApiError for another cluster, or for anything but the one partition."""
    theirs = getattr(request, "cluster_id", None)
    if theirs is not None and theirs != cluster_id:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}, not {theirs}")
    if isinstance(request, AddRaftVoterRequest):
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        return messages.AddVoter(Voter(key, _endpoints(request.listeners)), request.ack_when_committed)
    if isinstance(request, RemoveRaftVoterRequest):
        return messages.RemoveVoter(ReplicaKey(request.voter_id, request.voter_directory_id))
    if isinstance(request, UpdateRaftVoterRequest):
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        versions = request.kraft_version_feature
        supported = versions.min_supported_version, versions.max_supported_version
        voter = Voter(key, _endpoints(request.listeners), supported)
        return messages.UpdateVoter(request.current_leader_epoch, voter)
    return _from_partition_request(request)


def _from_partition_request(request: Request) -> Ask:
    partition: Any = _only_partition(request)
    if isinstance(request, VoteRequest):
        candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        voter = ReplicaKey(request.voter_id, partition.voter_directory_id)
        last = Position(partition.last_offset, partition.last_offset_epoch)
        return messages.Vote(partition.replica_epoch, candidate, last, partition.pre_vote, voter)
    if isinstance(request, BeginQuorumEpochRequest):
        voter = ReplicaKey(request.voter_id, partition.voter_directory_id)
        endpoints = _endpoints(request.leader_endpoints)
        return messages.BeginEpoch(partition.leader_epoch, partition.leader_id, endpoints, voter)
    if isinstance(request, EndQuorumEpochRequest):
        keys = [
            ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in partition.preferred_candidates
        ]
        successors = tuple(keys or [ReplicaKey(one) for one in partition.preferred_successors])
        return messages.EndEpoch(partition.leader_epoch, partition.leader_id, successors)
    if isinstance(request, FetchRequest):
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        return messages.Fetch(
            partition.current_leader_epoch,
            ReplicaKey(replica_id, partition.replica_directory_id),
            partition.fetch_offset,
            partition.last_fetched_epoch,
            request.max_wait_ms,
            request.max_bytes,
            partition.high_watermark,
        )
    assert isinstance(request, FetchSnapshotRequest), f"not a request of the quorum: {type(request).__name__}"
    return messages.FetchSnapshot(
        partition.current_leader_epoch,
        ReplicaKey(request.replica_id, partition.replica_directory_id),
        Position(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        request.max_bytes,
    )


def _only_partition(message: Any) -> Any:
    """The one partition of the one topic; an ApiError if it is another, or not one."""
    topics = message.responses if isinstance(message, FetchResponse) else message.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1 and _is_metadata(topics[0]):
        partition = topics[0].partitions[0]
        indexes = [getattr(partition, name, None) for name in ("partition_index", "partition", "index")]
        if 0 in indexes:
            return partition
    raise ApiError(ErrorCode.INVALID_REQUEST, f"not about {METADATA_TOPIC}-0 alone")


def _is_metadata(topic: Any) -> bool:
    """By its name or its id. A fetch before version 13 has no id, and is refused, as by Apache."""
    if isinstance(topic, FetchRequest.Topic):
        return topic.topic_id == METADATA_TOPIC_ID
    names = [getattr(topic, name, None) for name in ("topic_name", "topic", "name")]
    return METADATA_TOPIC in names or getattr(topic, "topic_id", None) == METADATA_TOPIC_ID


def _endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listeners)


# What we answer


def to_response(request: Request, answer: Answer, version: int) -> Response:
    """The response that says it, as far as a version can."""
    response = _to_newest_response(request, answer)
    if version < _WHEREABOUTS_SINCE.get(type(response), 0):
        response.node_endpoints = []  # type: ignore[attr-defined]
    return response


def _to_newest_response(request: Request, answer: Answer) -> Response:
    if isinstance(answer, VoteAnswer):
        return _vote_response(answer)
    if isinstance(answer, FetchAnswer):
        return _fetch_response(answer)
    if isinstance(answer, SnapshotAnswer):
        return _snapshot_response(answer)
    if isinstance(request, BeginQuorumEpochRequest):
        return _epoch_response(BeginQuorumEpochResponse, answer)
    if isinstance(request, EndQuorumEpochRequest):
        return _epoch_response(EndQuorumEpochResponse, answer)
    if isinstance(request, AddRaftVoterRequest):
        return AddRaftVoterResponse(
            throttle_time_ms=0, error_code=answer.error, error_message=answer.message or None
        )
    if isinstance(request, RemoveRaftVoterRequest):
        return RemoveRaftVoterResponse(
            throttle_time_ms=0, error_code=answer.error, error_message=answer.message or None
        )
    assert isinstance(request, UpdateRaftVoterRequest), (
        f"not a request of the quorum: {type(request).__name__}"
    )
    endpoint = answer.leader_endpoint or Endpoint("", "", -1)
    leader = UpdateRaftVoterResponse.CurrentLeader(
        leader_id=answer.leader_id, leader_epoch=answer.epoch, host=endpoint.host, port=endpoint.port
    )
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=answer.error, current_leader=leader)


def refusal(request: Request, error: ApiError) -> Response:
    """A response that is nothing but an error: the request was not about us."""
    code = error.code
    if isinstance(request, VoteRequest):
        return VoteResponse(error_code=code, topics=[])
    if isinstance(request, BeginQuorumEpochRequest):
        return BeginQuorumEpochResponse(error_code=code, topics=[])
    if isinstance(request, EndQuorumEpochRequest):
        return EndQuorumEpochResponse(error_code=code, topics=[])
    if isinstance(request, FetchRequest):
        return FetchResponse(error_code=code, responses=[])
    if isinstance(request, FetchSnapshotRequest):
        return FetchSnapshotResponse(throttle_time_ms=0, error_code=code, topics=[])
    return _to_newest_response(request, Answer(code, message=error.message))


def _vote_response(answer: VoteAnswer) -> VoteResponse:
    partition = VoteResponse.TopicData.PartitionData(
        partition_index=0,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    topic = VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteResponse(
        error_code=0, topics=[topic], node_endpoints=_nodes(VoteResponse.NodeEndpoint, answer)
    )


def _epoch_response(cls: Any, answer: Answer) -> Response:
    partition = cls.TopicData.PartitionData(
        partition_index=0, error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
    )
    topic = cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    response: Response = cls(error_code=0, topics=[topic], node_endpoints=_nodes(cls.NodeEndpoint, answer))
    return response


def _fetch_response(answer: FetchAnswer) -> FetchResponse:
    data = FetchResponse.FetchableTopicResponse.PartitionData
    partition = data(
        partition_index=0,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        current_leader=data.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        aborted_transactions=[],
        records=answer.records,
    )
    if answer.diverging is not None:
        end = answer.diverging
        partition.diverging_epoch = data.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
    if answer.snapshot is not None:
        snapshot = answer.snapshot
        partition.snapshot_id = data.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    topic = FetchResponse.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchResponse(responses=[topic], node_endpoints=_nodes(FetchResponse.NodeEndpoint, answer))


def _snapshot_response(answer: SnapshotAnswer) -> FetchSnapshotResponse:
    data = FetchSnapshotResponse.TopicSnapshot.PartitionSnapshot
    partition = data(
        index=0,
        error_code=answer.error,
        snapshot_id=data.SnapshotId(end_offset=answer.snapshot.offset, epoch=answer.snapshot.epoch),
        current_leader=data.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        size=answer.size_bytes,
        position=answer.byte_position,
        unaligned_records=answer.data,
    )
    topic = FetchSnapshotResponse.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    nodes = _nodes(FetchSnapshotResponse.NodeEndpoint, answer)
    return FetchSnapshotResponse(throttle_time_ms=0, error_code=0, topics=[topic], node_endpoints=nodes)


def _nodes(cls: Any, answer: Answer) -> list[Any]:
    endpoint = answer.leader_endpoint
    if endpoint is None or answer.leader_id < 0:
        return []
    return [cls(node_id=answer.leader_id, host=endpoint.host, port=endpoint.port)]


# What we are answered


def from_response(ask: Ask, response: Response) -> Answer:
    """What a response to an ask of ours says. One that is not about our partition is an error of theirs."""
    if isinstance(response, ApiVersionsResponse):
        return _probe_answer(response)
    if isinstance(response, UpdateRaftVoterResponse):
        leader = response.current_leader or UpdateRaftVoterResponse.CurrentLeader(host="", port=-1)
        endpoint = Endpoint("", leader.host, leader.port) if leader.host and leader.port >= 0 else None
        return Answer(_code(response.error_code), leader.leader_epoch, leader.leader_id, endpoint)
    top_level = _code(getattr(response, "error_code", 0))
    if top_level is not ErrorCode.NONE:
        return _answer_of(ask, top_level)
    try:
        partition: Any = _only_partition(response)
    except ApiError:
        return _answer_of(ask, ErrorCode.INVALID_REQUEST)
    return _from_partition_response(response, partition)


def _from_partition_response(response: Any, partition: Any) -> Answer:
    error = _code(partition.error_code)
    leader = partition
    if isinstance(response, (FetchResponse, FetchSnapshotResponse)):
        leader = (
            partition.current_leader or FetchResponse.FetchableTopicResponse.PartitionData.LeaderIdAndEpoch()
        )
    nodes = {node.node_id: Endpoint("", node.host, node.port) for node in response.node_endpoints}
    about = error, leader.leader_epoch, leader.leader_id, nodes.get(leader.leader_id), ""
    if isinstance(response, VoteResponse):
        return VoteAnswer(*about, partition.vote_granted)
    if isinstance(response, FetchSnapshotResponse):
        snapshot = Position(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        data = partition.unaligned_records
        return SnapshotAnswer(*about, snapshot, partition.size, partition.position, data)
    if not isinstance(response, FetchResponse):
        return Answer(*about)
    end, snapshot_id = partition.diverging_epoch, partition.snapshot_id
    records: Buffer = partition.records or b""
    return FetchAnswer(
        *about,
        partition.high_watermark,
        partition.log_start_offset,
        None if end is None else Position(end.end_offset, end.epoch),
        None if snapshot_id is None else Position(snapshot_id.end_offset, snapshot_id.epoch),
        records,
    )


def _answer_of(ask: Ask, error: ErrorCode) -> Answer:
    if isinstance(ask, messages.Vote):
        return VoteAnswer(error)
    if isinstance(ask, messages.Fetch):
        return FetchAnswer(error)
    return SnapshotAnswer(error) if isinstance(ask, messages.FetchSnapshot) else Answer(error)


def _probe_answer(response: ApiVersionsResponse) -> ProbeAnswer:
    for feature in response.supported_features:
        if feature.name == _KRAFT_VERSION:
            return ProbeAnswer(
                _code(response.error_code), kraft_versions=(feature.min_version, feature.max_version)
            )
    return ProbeAnswer(_code(response.error_code))


def _code(number: int) -> ErrorCode:
    """A code that is newer than we are is an error all the same."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
