"""What a replica says about the quorum when it is asked: DescribeQuorum."""

from __future__ import annotations

from typing import Final

from quorate.protocol.api.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID
from quorate.raft.quorum import Now, Quorum
from quorate.raft.replication import OBSERVER_SESSION_MS, progress_of
from quorate.raft.state import Leader
from quorate.raft.voters import ReplicaKey
from quorate.raft.wire import METADATA_TOPIC

__all__ = ["describe_quorum"]

_WHEREABOUTS_SINCE: Final = 2
_Topic = DescribeQuorumResponse.TopicData
_Partition = _Topic.PartitionData
_Replica = _Partition.ReplicaState


def describe_quorum(
    quorum: Quorum, request: DescribeQuorumRequest, version: int, now: Now
) -> DescribeQuorumResponse:
    """Only the leader knows how far the others are. Before version 2 nobody is told where they are. A voter
    of a static quorum is known by its id alone, so its directory is zero, as with Apache.

    There is one partition to ask for. Whoever asks for others as well, or for it twice, is refused, as with
    Apache.
    """
    is_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
    topics = [
        _Topic(
            topic_name=topic.topic_name,
            partitions=[
                _describe(quorum, topic.topic_name, number, now) if is_one else _unknown(number)
                for number in (one.partition_index for one in topic.partitions)
            ],
        )
        for topic in request.topics
    ]
    nodes = [
        DescribeQuorumResponse.Node(
            node_id=voter.key.id,
            listeners=[
                DescribeQuorumResponse.Node.Listener(name=one.name, host=one.host, port=one.port)
                for one in voter.endpoints
            ],
        )
        for voter in quorum.voters.latest
    ]
    if version < _WHEREABOUTS_SINCE:
        nodes = []
        for topic in topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO_UUID
    return DescribeQuorumResponse(error_code=0, topics=topics, nodes=nodes)


def _describe(quorum: Quorum, topic_name: str, index: int, now: Now) -> _Partition:
    role = quorum.role
    if topic_name != METADATA_TOPIC or index != 0:
        return _unknown(index)
    if not isinstance(role, Leader):
        return _error(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is {quorum.leader_id}")
    voters = quorum.voters.latest
    observers = [
        key
        for key, progress in role.replicas.items()
        if not voters.contains(key) and now.ms - progress.last_fetch_ms <= OBSERVER_SESSION_MS
    ]
    if not voters.contains(quorum.me):
        observers.append(quorum.me)  # a leader that has removed itself, and leads until that is committed
    return _Partition(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=quorum.me.id,
        leader_epoch=role.epoch,
        high_watermark=-1 if quorum.high_watermark is None else quorum.high_watermark,
        current_voters=[_replica(quorum, role, voter.key, now) for voter in voters],
        observers=[_replica(quorum, role, key, now) for key in sorted(observers)],
    )


def _replica(quorum: Quorum, role: Leader, key: ReplicaKey, now: Now) -> _Replica:
    if key.id == quorum.me.id:
        return _Replica(
            replica_id=key.id,
            replica_directory_id=key.directory,
            log_end_offset=quorum.log.end_offset,
            last_fetch_timestamp=now.wall_ms,
            last_caught_up_timestamp=now.wall_ms,
        )
    progress = progress_of(role.replicas, quorum.voters.latest, key)
    return _Replica(
        replica_id=key.id,
        replica_directory_id=key.directory,
        log_end_offset=progress.offset,
        last_fetch_timestamp=progress.last_fetch_wall_ms,
        last_caught_up_timestamp=progress.caught_up_wall_ms,
    )


def _unknown(index: int) -> _Partition:
    """With zeros where others have nothing, as Apache answers."""
    reason = f"only {METADATA_TOPIC}-0 has a quorum"
    return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason, number=0)


def _error(index: int, code: ErrorCode, message: str, number: int = -1) -> _Partition:
    return _Partition(
        partition_index=index,
        error_code=code,
        error_message=message,
        leader_id=number,
        leader_epoch=number,
        high_watermark=number,
        current_voters=[],
        observers=[],
    )
