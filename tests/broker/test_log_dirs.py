"""What a broker says of its log directories, and who may move replicas between them, in every version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import BROKER_ID, Serving, a_batch, in_loop, produce, topic_id

from quorate.broker.directory_moves import DirectoryMoves
from quorate.broker.directory_moves_copying import Copying
from quorate.broker.handlers.log_dirs import LogDirs
from quorate.broker.partition import TopicPartition
from quorate.broker.serving import Operation
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.broker.topic_config import TopicConfig
from quorate.metadata.records import FeatureLevelRecord
from quorate.metadata.versions import METADATA_VERSION
from quorate.protocol.api.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles, Space
from quorate.storage.partition_log import PartitionLog

DESCRIBE = range(1, 6)
ALTER = range(1, 3)


class Directories:
    """Three of them: what is here, where copies are made, and one more."""

    def __init__(self, root: Path) -> None:
        self.paths = [str(root / name) for name in ("here", "there", "elsewhere")]
        self.offline: set[str] = set()
        self.unreadable: set[str] = set()
        self.cordoned: set[str] = set()
        self.preferred: list[tuple[str, int, str]] = []
        self.copies: dict[str, PartitionLog] = {}

    def is_known(self, path: str) -> bool:
        return path in self.paths

    def is_online(self, path: str) -> bool:
        return path not in self.offline

    def is_cordoned(self, path: str) -> bool:
        return path in self.cordoned

    def is_any_offline(self) -> bool:
        return bool(self.offline)

    def path_of(self, log: PartitionLog) -> str:
        return log.directory.rpartition("/")[0]

    def id_of(self, path: str) -> Uuid:
        return topic_id(Path(path).name)

    def space(self, path: str) -> Space:
        if path in self.unreadable:
            raise StorageError(path, "nobody knows")
        return Space(1000, 300)

    def prefer(self, topic: str, partition_id: int, path: str) -> None:
        self.preferred.append((topic, partition_id, path))

    def found(self, _key: TopicPartition) -> str | None:
        return None

    async def open(self, key: TopicPartition, config: TopicConfig, path: str) -> PartitionLog:
        if path in self.unreadable:
            raise StorageError(path, "it is broken")
        log = await PartitionLog.open(
            RealFiles(), f"{path}/copy", config.log, topic_id=key.topic_id, now_ms=0, recovery_point=0
        )
        self.copies[path] = log
        return log

    async def drop(self, _key: TopicPartition, path: str, log: PartitionLog | None) -> None:
        assert log is self.copies.pop(path)
        await log.retire()

    async def replace(self, *_: Any) -> bool:
        raise NotImplementedError

    def fail(self, _log: PartitionLog, _error: StorageError) -> None:
        raise NotImplementedError


class Broker(Serving):
    def __init__(self, root: Path) -> None:
        (root / "here").mkdir()
        super().__init__(root / "here")
        self.directories = Directories(root)
        self.moves = DirectoryMoves(
            BROKER_ID,
            self.directories,
            lambda *_, **__: None,
            lambda: True,
            lambda _: True,
            Copying(lambda: 0.0, lambda: 0),
            ReplicationThrottle(),
        )
        handler = LogDirs(self.broker, self.moves, self.directories)
        self.handlers[DescribeLogDirsRequest] = handler.describe
        self.handlers[AlterReplicaLogDirsRequest] = handler.alter

    async def describe(self, version: int, topics: dict[str, list[int]] | None = None) -> Any:
        asked = None
        if topics is not None:
            make = DescribeLogDirsRequest.DescribableLogDirTopic
            asked = [make(topic=name, partitions=some) for name, some in topics.items()]
        return await self.ask(DescribeLogDirsRequest(topics=asked), version)

    async def alter(self, version: int, *wanted: tuple[str, str, int]) -> list[ErrorCode]:
        """(directory, topic, partition) each; what is said to each."""
        data = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        dirs = [
            data(
                path=path if path.startswith("/") else str(Path(self.directories.paths[0]).parent / path),
                topics=[data.AlterReplicaLogDirTopic(name=topic, partitions=[partition])],
            )
            for path, topic, partition in wanted
        ]
        answer = await self.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
        return [ErrorCode(one.error_code) for topic in answer.results for one in topic.partitions]

    async def write(self, topic: str, count: int) -> None:
        for _ in range(count):
            answer = await self.ask(produce((topic, 0, a_batch())), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0


def replicas(result: Any) -> list[tuple[str, int, int, bool]]:
    """(topic, partition, lag, whether it is a copy)."""
    return [
        (topic.name, one.partition_index, one.offset_lag, one.is_future_key)
        for topic in result.topics
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", DESCRIBE)
@in_loop
async def test_everything_is_described(tmp_path: Path, version: int):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", partitions=2)
    await broker.topic("u")
    assert partition is not None
    await broker.write("t", 3)
    assert await broker.alter(2, ("there", "t", 0)) == [ErrorCode.NONE]
    answer = await broker.describe(version)
    assert answer.error_code == ErrorCode.NONE
    here, there, elsewhere = answer.results
    assert [one.log_dir for one in answer.results] == broker.directories.paths
    assert replicas(here) == [("t", 0, 0, False), ("t", 1, 0, False), ("u", 0, 0, False)]
    assert here.topics[0].partitions[0].partition_size == partition.log.size_bytes > 0
    assert replicas(there) == [("t", 0, 3, True)]
    assert replicas(elsewhere) == []
    space = (1000, 300) if version >= 4 else (-1, -1)
    assert all((one.total_bytes, one.usable_bytes) == space for one in answer.results)
    assert not any(one.is_cordoned for one in answer.results)
    await broker.moves.forget(partition)
    await broker.close()


@pytest.mark.parametrize(("level", "is_told"), [(29, False), (30, True)])
@in_loop
async def test_cordoned_directories_are_said_to_be_where_the_cluster_knows_that(
    tmp_path: Path, level: int, is_told: bool
):
    broker = Broker(tmp_path)
    broker.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    broker.directories.cordoned.add(broker.directories.paths[1])
    for version in DESCRIBE:
        answer = await broker.describe(version)
        assert [one.is_cordoned for one in answer.results] == [False, is_told and version >= 5, False]
    await broker.close()


@in_loop
async def test_only_what_is_asked_for_is_described(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.topic("t", partitions=3)
    await broker.topic("u")
    answer = await broker.describe(4, {"t": [2, 0, 9], "unknown": [0], "u": []})
    assert replicas(answer.results[0]) == [("t", 0, 0, False), ("t", 2, 0, False)]
    answer = await broker.describe(4, {})
    assert [replicas(one) for one in answer.results] == [[], [], []]
    await broker.close()


@in_loop
async def test_a_follower_is_behind_what_is_committed(tmp_path: Path):
    broker = Broker(tmp_path)
    partition = await broker.topic("t", replicas=(1, 2), leader=2)
    assert partition is not None
    partition._high_watermark = 5
    answer = await broker.describe(4)
    assert replicas(answer.results[0]) == [("t", 0, 5, False)]
    await broker.close()


@pytest.mark.parametrize("version", DESCRIBE)
@in_loop
async def test_what_is_offline_is_said_to_be(tmp_path: Path, version: int):
    broker = Broker(tmp_path)
    partition = await broker.topic("t")
    assert partition is not None
    here, there, _ = broker.directories.paths
    broker.directories.offline.add(here)
    broker.directories.unreadable.add(there)
    partition.stop(ErrorCode.KAFKA_STORAGE_ERROR, "it is gone")
    answer = await broker.describe(version)
    codes = [ErrorCode(one.error_code) for one in answer.results]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2 + [ErrorCode.NONE]
    assert [replicas(one) for one in answer.results] == [[], [], []]
    await broker.close()


@in_loop
async def test_who_may_not_describe_is_told_nothing(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.topic("t")
    broker.denied.add((Operation.DESCRIBE, "kafka-cluster"))
    for version in DESCRIBE:
        answer = await broker.describe(version)
        expected = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else ErrorCode.NONE
        assert (answer.error_code, answer.results) == (expected, [])
    await broker.close()


def fails(broker: Broker) -> None:
    broker.partition("t").stop(ErrorCode.KAFKA_STORAGE_ERROR, "it is gone")


def goes_offline(*names: str) -> Callable[[Broker], None]:
    def happen(broker: Broker) -> None:
        root = Path(broker.directories.paths[0]).parent
        broker.directories.offline.update(str(root / name) for name in names)

    return happen


def cordons(broker: Broker) -> None:
    broker.directories.cordoned.add(broker.directories.paths[1])


def breaks(broker: Broker) -> None:
    broker.directories.unreadable.add(broker.directories.paths[1])


@pytest.mark.parametrize("version", ALTER)
@pytest.mark.parametrize(
    ("path", "topic", "partition", "before", "expected"),
    [
        ("there", "t", 0, None, ErrorCode.NONE),
        ("here", "t", 0, None, ErrorCode.NONE),
        ("/nowhere", "t", 0, None, ErrorCode.LOG_DIR_NOT_FOUND),
        ("there", "t", 0, goes_offline("there"), ErrorCode.KAFKA_STORAGE_ERROR),
        ("there", "t", 0, goes_offline("elsewhere"), ErrorCode.KAFKA_STORAGE_ERROR),
        ("here", "t", 0, goes_offline("elsewhere"), ErrorCode.NONE),
        ("there", "t", 0, fails, ErrorCode.KAFKA_STORAGE_ERROR),
        ("there", "t", 0, breaks, ErrorCode.KAFKA_STORAGE_ERROR),
        ("there", "t", 0, cordons, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("here", "t", 0, cordons, ErrorCode.NONE),
        ("there", "foreign", 0, None, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("there", "t", 7, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("there", "unknown", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("there", "x" * 249, 0, None, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@in_loop
async def test_what_may_be_moved(
    tmp_path: Path,
    version: int,
    path: str,
    topic: str,
    partition: int,
    before: Callable[[Broker], None] | None,
    expected: ErrorCode,
):
    broker = Broker(tmp_path)
    await broker.topic("t")
    await broker.topic("foreign", replicas=(2, 3), leader=2)
    if before is not None:
        before(broker)
    assert await broker.alter(version, (path, topic, partition)) == [expected]
    is_moving = expected is ErrorCode.NONE and path == "there"
    assert len(broker.moves) == is_moving
    is_preferred = topic in ("foreign", "unknown") or partition == 7
    target = broker.directories.paths[1]
    assert broker.directories.preferred == ([(topic, partition, target)] if is_preferred else [])
    if is_moving:
        await broker.moves.forget(broker.partition("t"))
    await broker.close()


@in_loop
async def test_what_a_request_says_last_counts(tmp_path: Path):
    broker = Broker(tmp_path)
    partition = await broker.topic("t")
    assert partition is not None
    codes = await broker.alter(2, ("there", "t", 0), ("/nowhere", "unknown", 0), ("elsewhere", "t", 0))
    assert codes == [ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND]
    assert [move.path for move in broker.moves] == [broker.directories.paths[2]]
    await broker.moves.forget(partition)
    assert not broker.directories.copies
    await broker.close()


@in_loop
async def test_who_may_not_alter_moves_nothing(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.topic("t")
    broker.denied.add((Operation.ALTER, "kafka-cluster"))
    codes = await broker.alter(2, ("there", "t", 0), ("/nowhere", "t", 1))
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert not len(broker.moves)
    await broker.close()
