"""Consumer groups and their offsets: the classic protocol and the one in which the server assigns."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Bool, Bytes, Int8, Int16, Int32, Int64, String, Uuid


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+", listeners="broker"):
    """Which broker coordinates this group, transactional id or share partition?"""

    key: String = field(default="", until=3)
    key_type: Int8 = field(default=0, since=1)
    coordinator_keys: Array[String] = field(default=(), since=4)


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    class Coordinator(Struct):
        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, until=3)
    error_message: String | None = field(default="", since=1, until=3, ignorable=True)
    node_id: Int32 = field(default=0, until=3)
    host: String = field(default="", until=3)
    port: Int32 = field(default=0, until=3)
    coordinators: Array[Coordinator] = field(default=(), since=4)


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+", listeners="broker"):
    """A consumer joins a classic group and waits until the group is complete."""

    class Protocol(Struct):
        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(default=-1, since=1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field(default=None, since=5)
    protocol_type: String
    protocols: Array[Protocol]
    reason: String | None = field(default=None, since=8, ignorable=True)


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    class Member(Struct):
        member_id: String
        group_instance_id: String | None = field(default=None, since=5, ignorable=True)
        metadata: Bytes

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: String | None = field(default=None, since=7, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field(default=False, since=9)
    member_id: String
    members: Array[Member]


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+", listeners="broker"):
    """The leader of a classic group hands out the assignment; every member receives its own."""

    class Assignment(Struct):
        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)
    protocol_type: String | None = field(default=None, since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, ignorable=True)
    assignments: Array[Assignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field(default=None, since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, ignorable=True)
    assignment: Bytes


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+", listeners="broker"):
    """A member of a classic group says that it lives."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+", listeners="broker"):
    """Members leave a classic group."""

    class MemberIdentity(Struct):
        member_id: String
        group_instance_id: String | None = None
        reason: String | None = field(default=None, since=5, ignorable=True)

    group_id: String
    member_id: String = field(default="", until=2)
    members: Array[MemberIdentity] = field(default=(), since=3)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    class MemberResponse(Struct):
        member_id: String
        group_instance_id: String | None
        error_code: Int16

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    members: Array[MemberResponse] = field(default=(), since=3)


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+", listeners="broker"):
    """A consumer joins, lives in, and leaves a group whose assignment the server computes."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Array[String] | None = None
    subscribed_topic_regex: String | None = field(default=None, since=1)
    server_assignor: String | None = None
    topic_partitions: Array[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: Uuid
            partitions: Array[Int32]

        topic_partitions: Array[TopicPartitions]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+", listeners="broker"):
    """The state of such groups, member by member."""

    group_ids: Array[String]
    include_authorized_operations: Bool


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: Uuid
                    topic_name: String
                    partitions: Array[Int32]

                topic_partitions: Array[TopicPartitions]

            member_id: String
            instance_id: String | None = None
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: Array[String]
            subscribed_topic_regex: String | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: Int8 = field(default=-1, since=1, ignorable=True)

        error_code: Int16
        error_message: String | None = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: Array[Member]
        authorized_operations: Int32 = -0x80000000

    throttle_time_ms: Int32
    groups: Array[DescribedGroup]


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+", listeners="broker"):
    """The state of classic groups, member by member."""

    groups: Array[String]
    include_authorized_operations: Bool = field(default=False, since=3)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    class DescribedGroup(Struct):
        class DescribedGroupMember(Struct):
            member_id: String
            group_instance_id: String | None = field(default=None, since=4, ignorable=True)
            client_id: String
            client_host: String
            member_metadata: Bytes
            member_assignment: Bytes

        error_code: Int16
        error_message: String | None = field(default=None, since=6)
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: Array[DescribedGroupMember]
        authorized_operations: Int32 = field(default=-0x80000000, since=3)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    groups: Array[DescribedGroup]


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+", listeners="broker"):
    """Which groups does this coordinator have?"""

    states_filter: Array[String] = field(default=(), since=4)
    types_filter: Array[String] = field(default=(), since=5)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    class ListedGroup(Struct):
        group_id: String
        protocol_type: String
        group_state: String = field(default="", since=4, ignorable=True)
        group_type: String = field(default="", since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16
    groups: Array[ListedGroup]


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+", listeners="broker"):
    """Deletes empty groups and their offsets."""

    groups_names: Array[String]


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    class DeletableGroupResult(Struct):
        group_id: String
        error_code: Int16

    throttle_time_ms: Int32
    results: Array[DeletableGroupResult]


class OffsetCommitRequest(Request, key=8, versions="0-10", flexible="8+", served="2-10", listeners="broker"):
    """Stores how far a group has consumed."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field(default=-1, since=6, ignorable=True)
            commit_timestamp: Int64 = field(default=-1, since=1, until=1)
            committed_metadata: String | None

        name: String = field(default="", until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partitions: Array[Partition]

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1, since=1, ignorable=True)
    member_id: String = field(default="", since=1, ignorable=True)
    group_instance_id: String | None = field(default=None, since=7)
    retention_time_ms: Int64 = field(default=-1, since=2, until=4, ignorable=True)
    topics: Array[Topic]


class OffsetCommitResponse(Response, key=8, versions="0-10", flexible="8+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String = field(default="", until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partitions: Array[Partition]

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: Array[Topic]


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+", served="1-10", listeners="broker"):
    """How far has a group consumed?"""

    class Topic(Struct):
        name: String
        partition_indexes: Array[Int32]

    class Group(Struct):
        class Topics(Struct):
            name: String = field(default="", until=9, ignorable=True)
            topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
            partition_indexes: Array[Int32]

        group_id: String
        member_id: String | None = field(default=None, since=9, ignorable=True)
        member_epoch: Int32 = field(default=-1, since=9, ignorable=True)
        topics: Array[Topics] | None

    group_id: String = field(default="", until=7)
    topics: Array[Topic] | None = field(default=(), nullable="2-7", until=7)
    groups: Array[Group] = field(default=(), since=8)
    require_stable: Bool = field(default=False, since=7)


class OffsetFetchResponse(Response, key=9, versions="0-10", flexible="6+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field(default=-1, since=5, ignorable=True)
            metadata: String | None
            error_code: Int16

        name: String
        partitions: Array[Partition]

    class Group(Struct):
        class Topics(Struct):
            class Partitions(Struct):
                partition_index: Int32
                committed_offset: Int64
                committed_leader_epoch: Int32 = -1
                metadata: String | None
                error_code: Int16

            name: String = field(default="", until=9, ignorable=True)
            topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
            partitions: Array[Partitions]

        group_id: String
        topics: Array[Topics]
        error_code: Int16 = 0

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: Array[Topic] = field(default=(), until=7)
    error_code: Int16 = field(default=0, since=2, until=7, ignorable=True)
    groups: Array[Group] = field(default=(), since=8)


class OffsetDeleteRequest(Request, key=47, versions="0", flexible="none", listeners="broker"):
    """Forgets the offsets of topics that a group no longer consumes."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32

        name: String
        partitions: Array[Partition]

    group_id: String
    topics: Array[Topic]


class OffsetDeleteResponse(Response, key=47, versions="0", flexible="none"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String
        partitions: Array[Partition]

    error_code: Int16
    throttle_time_ms: Int32
    topics: Array[Topic]
