"""Log directories of this broker: what is in them (DescribeLogDirs), and moving replicas between them
(AlterReplicaLogDirs).

Each broker answers for itself. A replica that is asked to be in a directory and is not here yet will begin
there when it comes: so a reassignment can say where to, before it is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Protocol

from quorate.broker.directory_moves import DirectoryMoves
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.partition import Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.metadata.versions import CORDONED
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.admin import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import PartitionName
from quorate.storage.directory_names import can_be_moved
from quorate.storage.errors import StorageError
from quorate.storage.files import Space
from quorate.storage.partition_log import PartitionLog

__all__ = ["DirectoriesView", "LogDirs"]

_Result = DescribeLogDirsResponse.Result
_Topic = DescribeLogDirsResponse.Result.Topic
_Replica = DescribeLogDirsResponse.Result.Topic.Partition
_Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


class DirectoriesView(Protocol):
    """The log directories of this broker, by their absolute paths."""

    @property
    def paths(self) -> list[str]: ...
    def is_known(self, path: str) -> bool: ...
    def is_online(self, path: str) -> bool: ...
    def path_of(self, log: PartitionLog) -> str: ...
    def id_of(self, path: str) -> Uuid: ...
    def space(self, path: str) -> Space: ...
    def is_cordoned(self, path: str) -> bool: ...
    def prefer(self, topic: str, partition_id: int, path: str) -> None: ...


class LogDirs:
    """Answers both requests."""

    def __init__(self, broker: Broker, moves: DirectoryMoves, directories: DirectoriesView) -> None:
        self._broker = broker
        self._moves = moves
        self._directories = directories

    def routes(self) -> list[Route]:
        return [
            Route(DescribeLogDirsRequest, self.describe),
            Route(AlterReplicaLogDirsRequest, self.alter),
        ]

    # Describing

    def describe(
        self, context: RequestContext, _header: RequestHeader, request: DescribeLogDirsRequest
    ) -> Answer | Awaitable[Answer]:
        if not self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeLogDirsResponse(throttle_time_ms=0, error_code=code, results=[])
        return in_slices(self._all_described(request))

    def _all_described(self, request: DescribeLogDirsRequest) -> Work[DescribeLogDirsResponse]:
        found = yield from self._replicas(request)
        return DescribeLogDirsResponse(
            throttle_time_ms=0,
            error_code=0,
            results=[self._described(path, found.get(path, {})) for path in self._directories.paths],
        )

    def _described(self, path: str, topics: dict[str, list[_Replica]]) -> _Result:
        try:
            if not self._directories.is_online(path):
                raise StorageError(path, "the log directory is offline")
            space = self._directories.space(path)
        except StorageError:
            return _Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])
        return _Result(
            error_code=0,
            log_dir=path,
            topics=[_Topic(name=name, partitions=replicas) for name, replicas in sorted(topics.items())],
            total_bytes=space.total_bytes,
            usable_bytes=space.usable_bytes,
            is_cordoned=self._broker.image.metadata_version >= CORDONED
            and self._directories.is_cordoned(path),
        )

    def _replicas(self, request: DescribeLogDirsRequest) -> Work[dict[str, dict[str, list[_Replica]]]]:
        """The replicas that are wanted, and those to be, by directory and topic."""
        found: dict[str, dict[str, list[_Replica]]] = {}
        chosen = yield from self._chosen(request)
        for partition in chosen:
            yield None
            if partition.failure is not None:
                continue  # its directory is offline
            log, topic = partition.log, partition.key.topic
            lag = max(0, partition.high_watermark - log.end_offset)
            here = found.setdefault(self._directories.path_of(log), {}).setdefault(topic, [])
            here.append(_replica(partition, log, lag, is_future=False))
            move = self._moves.of(partition)
            if move is not None and move.log is not None:
                there = found.setdefault(move.path, {}).setdefault(topic, [])
                there.append(_replica(partition, move.log, move.lag, is_future=True))
        return found

    def _chosen(self, request: DescribeLogDirsRequest) -> Work[Iterable[Partition]]:
        """Each replica that is wanted once, in the order of their names."""
        if request.topics is None:
            return list(self._broker.replicas)
        found: dict[tuple[str, int], Partition] = {}
        for topic in request.topics:
            for partition_id in topic.partitions:
                partition = self._broker.partition(topic.topic, partition_id)
                if partition is not None:
                    found[topic.topic, partition_id] = partition
                yield None
        return [found[name] for name in sorted(found)]

    # Moving

    def alter(
        self, context: RequestContext, _header: RequestHeader, request: AlterReplicaLogDirsRequest
    ) -> Answer | Awaitable[Answer]:
        """Each replica on its own: begins to move, or is refused. What a request says last counts."""
        return in_slices(self._altered(context, request))

    def _altered(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> Work[AlterReplicaLogDirsResponse]:
        wanted = {
            (topic.name, partition_id): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for partition_id in topic.partitions
        }
        is_allowed = self._broker.authorize(context, Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
        topics: dict[str, _Altered] = {}
        for (topic, partition_id), path in wanted.items():
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if is_allowed:
                found = self._movable(topic, partition_id, path)
                code = (yield self._move(found, path)) if isinstance(found, Partition) else found
            result = topics.setdefault(topic, _Altered(topic_name=topic, partitions=[]))
            result.partitions.append(
                _Altered.AlterReplicaLogDirPartitionResult(partition_index=partition_id, error_code=code)
            )
            yield None
        return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=list(topics.values()))

    def _movable(self, topic: str, partition_id: int, path: str) -> Partition | ErrorCode:
        """The replica that can be moved to a directory, or why there is none."""
        if not can_be_moved(PartitionName(topic, partition_id)):
            return ErrorCode.INVALID_TOPIC_EXCEPTION  # no room for the name of a copy
        if not self._directories.is_known(path):
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not self._directories.is_online(path):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._directories.is_cordoned(path):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        partition = self._broker.partition(topic, partition_id)
        if partition is None:
            return self._prefer(topic, partition_id, path)
        return partition if partition.failure is None else ErrorCode.KAFKA_STORAGE_ERROR

    async def _move(self, partition: Partition, path: str) -> ErrorCode:
        try:
            await self._moves.move(partition, path)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def _prefer(self, topic: str, partition_id: int, path: str) -> ErrorCode:
        """There is no replica here: it may be offline, or not here yet, or nowhere."""
        image, broker_id = self._broker.image, self._broker.settings.broker_id
        known = image.topics.by_name.get(topic)
        state = None if known is None else image.partitions.get(known.slot, partition_id)
        if (
            state is not None
            and broker_id in state.replicas
            and not self._is_coming(state.directory_of(broker_id))
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._directories.prefer(topic, partition_id, path)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if state is None else ErrorCode.REPLICA_NOT_AVAILABLE

    def _is_coming(self, directory_id: Uuid) -> bool:
        """Whether a replica that is ours and not here yet will be: not if its directory has failed."""
        paths = self._directories.paths
        online = {self._directories.id_of(path) for path in paths if self._directories.is_online(path)}
        return len(online) == len(paths) or directory_id in online


def _replica(partition: Partition, log: PartitionLog, lag: int, *, is_future: bool) -> _Replica:
    return _Replica(
        partition_index=partition.key.partition_id,
        partition_size=log.size_bytes,
        offset_lag=lag,
        is_future_key=is_future,
    )
