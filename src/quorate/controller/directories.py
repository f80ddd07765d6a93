"""A broker says in which of its log directories its replicas are (AssignReplicasToDirs).

What a broker says about its own directories is a fact, and is written down even if the directory is not
online: the broker may have lost it between placing the replica and telling us. The records that say where
replicas are come first, and say nothing else. Then follows what they mean: a replica in a directory that is
not online cannot lead and is not in sync.
"""

from __future__ import annotations

from quorate.controller.alter_partition import check_broker_epoch
from quorate.controller.decision import Decision, Situation
from quorate.controller.elections import Changes
from quorate.controller.partition_change import Candidates, Wanted, is_directory_online
from quorate.metadata.partitions import Partition
from quorate.metadata.records import PartitionChangeRecord
from quorate.metadata.topics import Topic
from quorate.metadata.versions import DIRECTORIES
from quorate.protocol.api.brokers import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["decide_assign_replicas_to_dirs"]

_DirectoryResult = AssignReplicasToDirsResponse.DirectoryData
_TopicResult = AssignReplicasToDirsResponse.DirectoryData.TopicData
_Result = AssignReplicasToDirsResponse.DirectoryData.TopicData.PartitionData


def decide_assign_replicas_to_dirs(situation: Situation, request: AssignReplicasToDirsRequest) -> Decision:
    """Each replica is assigned or refused on its own."""
    image, broker_id = situation.image, request.broker_id
    if image.metadata_version < DIRECTORIES:
        reason = (
            f"metadata.version is {image.metadata_version}; replicas are assigned to log directories"
            f" from {DIRECTORIES} on"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
    check_broker_epoch(image, broker_id, request.broker_epoch)
    changes = Changes(situation)
    assigned: dict[tuple[Topic, int], Uuid] = {}  # what a request says last of a replica counts
    results = []
    for given in request.directories:
        topics = []
        for asked in given.topics:
            codes = []
            for one in asked.partitions:
                code = _assign(changes, assigned, broker_id, asked.topic_id, one.partition_index, given.id)
                codes.append(_Result(partition_index=one.partition_index, error_code=code))
            topics.append(_TopicResult(topic_id=asked.topic_id, partitions=codes))
        results.append(_DirectoryResult(id=given.id, topics=topics))
    online = image.brokers[broker_id].directories
    for (topic, partition_id), directory in assigned.items():
        if not is_directory_online(directory, online):
            _take_out(changes, topic, partition_id, broker_id)
    reply = AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=0, directories=results)
    events = changes.events("assigned to a log directory that is not online")
    return Decision(reply=reply, records=changes.records, events=events)


def _assign(
    changes: Changes,
    assigned: dict[tuple[Topic, int], Uuid],
    broker_id: int,
    topic_id: Uuid,
    partition_id: int,
    directory: Uuid,
) -> ErrorCode:
    topic = changes.image.topics.by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = changes.partition(topic, partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.directory_of(broker_id) != directory:
        directories = _with_directory(partition, broker_id, directory)
        record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, directories=directories)
        changes.add(topic, record)
    assigned[topic, partition_id] = directory
    return ErrorCode.NONE


def _with_directory(partition: Partition, broker_id: int, directory: Uuid) -> list[Uuid]:
    directories = list(partition.directories)
    directories[partition.replicas.index(broker_id)] = directory
    return directories


def _take_out(changes: Changes, topic: Topic, partition_id: int, broker_id: int) -> None:
    """A broker leaves the ISR and the leadership of a partition."""
    partition = changes.partition(topic, partition_id)
    assert partition is not None
    isr = [one for one in partition.isr if one != broker_id]
    wanted = Wanted(election=changes.election(topic), isr=isr)
    record = changes.build(topic, partition_id, wanted, Candidates(changes.image, without=broker_id))
    if record is not None:
        changes.add(topic, record)
