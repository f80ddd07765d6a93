"""The metadata quorum: votes, epochs, voters, snapshots. Replication itself is Fetch."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Bool, Int16, Int32, Int64, Records, String, Uint16, Uuid


class VoteRequest(Request, key=52, versions="0-2", flexible="0+", listeners="controller"):
    """A candidate asks a voter for its vote, or, with `pre_vote`, whether it would get it."""

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            replica_epoch: Int32
            replica_id: Int32
            replica_directory_id: Uuid = field(default=ZERO_UUID, since=1, ignorable=True)
            voter_directory_id: Uuid = field(default=ZERO_UUID, since=1, ignorable=True)
            last_offset_epoch: Int32
            last_offset: Int64
            pre_vote: Bool = field(default=False, since=2)

        topic_name: String
        partitions: Array[PartitionData]

    cluster_id: String | None = None
    voter_id: Int32 = field(default=-1, since=1, ignorable=True)
    topics: Array[TopicData]


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32
            vote_granted: Bool

        topic_name: String
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Uint16

    error_code: Int16
    topics: Array[TopicData]
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+", listeners="controller"):
    """A new leader tells the other voters that it leads this epoch."""

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            voter_directory_id: Uuid = field(default=ZERO_UUID, since=1, ignorable=True)
            leader_id: Int32
            leader_epoch: Int32

        topic_name: String
        partitions: Array[PartitionData]

    class LeaderEndpoint(Struct):
        name: String
        host: String
        port: Uint16

    cluster_id: String | None = None
    voter_id: Int32 = field(default=-1, since=1, ignorable=True)
    topics: Array[TopicData]
    leader_endpoints: Array[LeaderEndpoint] = field(default=(), since=1, ignorable=True)


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32

        topic_name: String
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Uint16

    error_code: Int16
    topics: Array[TopicData]
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+", listeners="controller"):
    """A leader that resigns tells the voters, and in which order they should try to succeed it."""

    class TopicData(Struct):
        class PartitionData(Struct):
            class ReplicaInfo(Struct):
                candidate_id: Int32
                candidate_directory_id: Uuid

            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32
            preferred_successors: Array[Int32] = field(default=(), until=0, ignorable=True)
            preferred_candidates: Array[ReplicaInfo] = field(default=(), since=1, ignorable=True)

        topic_name: String
        partitions: Array[PartitionData]

    class LeaderEndpoint(Struct):
        name: String
        host: String
        port: Uint16

    cluster_id: String | None = None
    topics: Array[TopicData]
    leader_endpoints: Array[LeaderEndpoint] = field(default=(), since=1, ignorable=True)


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32

        topic_name: String
        partitions: Array[PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Uint16

    error_code: Int16
    topics: Array[TopicData]
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+", listeners="broker controller"):
    """Who leads the quorum, and how far has every voter and observer got?"""

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: Int32

        topic_name: String
        partitions: Array[PartitionData]

    topics: Array[TopicData]


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            class ReplicaState(Struct):
                replica_id: Int32
                replica_directory_id: Uuid = field(default=ZERO_UUID, since=2)
                log_end_offset: Int64
                last_fetch_timestamp: Int64 = field(default=-1, since=1, ignorable=True)
                last_caught_up_timestamp: Int64 = field(default=-1, since=1, ignorable=True)

            partition_index: Int32
            error_code: Int16
            error_message: String | None = field(default="", since=2, ignorable=True)
            leader_id: Int32
            leader_epoch: Int32
            high_watermark: Int64
            current_voters: Array[ReplicaState]
            observers: Array[ReplicaState]

        topic_name: String
        partitions: Array[PartitionData]

    class Node(Struct):
        class Listener(Struct):
            name: String
            host: String
            port: Uint16

        node_id: Int32
        listeners: Array[Listener]

    error_code: Int16
    error_message: String | None = field(default="", since=2, ignorable=True)
    topics: Array[TopicData]
    nodes: Array[Node] = field(default=(), since=2)


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+", listeners="controller"):
    """Asks the leader for a piece of a snapshot, by position."""

    class TopicSnapshot(Struct):
        class PartitionSnapshot(Struct):
            class SnapshotId(Struct):
                end_offset: Int64
                epoch: Int32

            partition: Int32
            current_leader_epoch: Int32
            snapshot_id: SnapshotId
            position: Int64
            replica_directory_id: Uuid = field(default=ZERO_UUID, since=1, tag=0, ignorable=True)

        name: String
        partitions: Array[PartitionSnapshot]

    cluster_id: String | None = field(default=None, tag=0)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: Array[TopicSnapshot]


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    class TopicSnapshot(Struct):
        class PartitionSnapshot(Struct):
            class SnapshotId(Struct):
                end_offset: Int64
                epoch: Int32

            class LeaderIdAndEpoch(Struct):
                leader_id: Int32
                leader_epoch: Int32

            index: Int32
            error_code: Int16
            snapshot_id: SnapshotId
            current_leader: LeaderIdAndEpoch | None = field(default=None, tag=0)
            size: Int64
            position: Int64
            unaligned_records: Records

        name: String
        partitions: Array[PartitionSnapshot]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Uint16

    throttle_time_ms: Int32
    error_code: Int16
    topics: Array[TopicSnapshot]
    node_endpoints: Array[NodeEndpoint] = field(default=(), since=1, tag=0)


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+", listeners="broker controller"):
    """Makes an observer a voter."""

    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Array[Listener]
    ack_when_committed: Bool = field(default=True, since=1)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+", listeners="broker controller"):
    """Makes a voter an observer."""

    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+", listeners="controller"):
    """A voter tells the leader its endpoints and the versions of `kraft.version` that it supports."""

    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    class KRaftVersionFeature(Struct):
        min_supported_version: Int16
        max_supported_version: Int16

    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Array[Listener]
    kraft_version_feature: KRaftVersionFeature


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    class CurrentLeader(Struct):
        leader_id: Int32 = -1
        leader_epoch: Int32 = -1
        host: String
        port: Int32

    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader | None = field(default=None, tag=0)
