"""One replica on a broker with several log directories, moved between them while it is written to.

`Life` is one process: it opens the directories, goes on with what the last one has left, and can be killed.
`Metadata` is what the cluster knows, and survives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quorate.broker.directory_moves import DirectoryMoves, Move
from quorate.broker.directory_moves_copying import Copying
from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.broker.topic_config import TopicConfig, topic_config
from quorate.metadata.image import TOPIC, ClusterImage
from quorate.metadata.partitions import UNASSIGNED
from quorate.node.config import NodeConfig, parse_config
from quorate.node.format import format_storage
from quorate.node.future_logs import FutureLogs
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol import batch as batches
from quorate.protocol.batch import Record, build, read_header, stamp
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.log_directories import LogDirectory
from quorate.storage.partition_log import PartitionLog

CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
BROKER_ID = 101
SETTINGS = BrokerSettings(broker_id=BROKER_ID, cluster_id=CLUSTER_ID)
KEY = TopicPartition("t", Uuid(b"t".ljust(16, b".")), 0)
SEGMENT_BYTES = 1500


def config_of(paths: list[str]) -> NodeConfig:
    properties = {
        "process.roles": "broker",
        "node.id": str(BROKER_ID),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": paths[0].rpartition("/")[0] + "/metadata",
        "log.dirs": ",".join(paths),
    }
    return parse_config("broker.properties", properties)


async def format_disks(host: Host, paths: list[str]) -> None:
    await format_storage(host, config_of(paths), CLUSTER_ID)


def small_segments(**configs: str) -> TopicConfig:
    image = ClusterImage()
    image.configs[TOPIC, "t"] = {
        "segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": "200",
        **{key.replace("_", "."): value for key, value in configs.items()},
    }
    return topic_config(image, "t", BROKER_ID, {})


class Metadata:
    """Where the cluster believes the replica to be; it believes what it is told, some time later."""

    def __init__(self) -> None:
        self.directory_id = UNASSIGNED
        self.told: list[Uuid] = []
        self.delay_s = 0.01
        self.is_kept = True  # clusters before 3.7-IV2 know nothing of directories


class Life:
    """A broker with one replica, in one process."""

    def __init__(self, host: Host, paths: list[str], metadata: Metadata) -> None:
        self.host = host
        self.paths = paths
        self.metadata = metadata
        self.throttle = ReplicationThrottle()
        self.config = small_segments()
        self.failed: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.shelf: DirectoryShelf
        self.futures: FutureLogs
        self.moves: DirectoryMoves
        self.partition: Partition
        self.is_ours = True

    async def begin(self) -> None:
        self.shelf = await DirectoryShelf.open(self.host, config_of(self.paths), SETTINGS)
        await self.shelf.set_aside_others([KEY])
        self.futures = FutureLogs(self.host, self.shelf, self.paths)
        self.moves = DirectoryMoves(
            BROKER_ID,
            self.futures,
            self._note,
            lambda: self.metadata.is_kept,
            lambda _: self.is_ours,
            Copying(self.now_ms, self.host.wall_ms, self.host.executor),
            self.throttle,
        )
        self.shelf.when_failed = self._directory_failed
        log = await self.shelf.open_log(KEY, self.config, self.metadata.directory_id)
        around = Surroundings(
            broker_id=BROKER_ID,
            lag_ms_max=1,
            now_ms=self.now_ms,
            wall_ms=self.host.wall_ms,
            is_eligible=lambda *_: True,
        )
        self.partition = Partition(KEY, around, log, self.config, self.shelf.high_watermark_of(KEY))
        for duty in (self.moves.run(), self.futures.delete_replaced()):
            self._tasks.add(asyncio.create_task(duty))
        self.moves.assigned(self.partition, self.metadata.directory_id)

    def now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _directory_failed(self, directory: LogDirectory, error: StorageError) -> None:
        self.failed.append(directory.path)
        if self.partition.log.directory.startswith(f"{directory.path}/"):
            self.partition.stop(reason=str(error))
        self.moves.directory_failed(directory.path)

    # The cluster

    def _note(self, _key: TopicPartition, *, actual: Uuid, known: Uuid) -> None:
        if actual not in (known, UNASSIGNED) and self.metadata.is_kept:
            self._tasks.add(asyncio.create_task(self._tell(actual)))

    async def _tell(self, actual: Uuid) -> None:
        await asyncio.sleep(self.metadata.delay_s)
        self.metadata.told.append(actual)
        self.metadata.directory_id = actual
        await asyncio.sleep(self.metadata.delay_s)
        if self.partition.failure is None:
            self.moves.assigned(self.partition, self.metadata.directory_id)

    # What is done

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    def append(self, epoch: int, value_bytes: int = 10) -> bytes:
        data = a_batch(self.log.end_offset, epoch, value_bytes)
        self.log.append_replicated(data, 0)
        return data

    @property
    def home(self) -> str:
        return self.futures.path_of(self.log)

    def target(self, number: int) -> str:
        return self.futures.paths[number]

    @property
    def move(self) -> Move | None:
        return self.moves.of(self.partition)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            for task in [one for one in self._tasks if one.done() and not one.cancelled()]:
                task.result()  # raises what has ended it
            await asyncio.sleep(0.001)

    async def until_moved(self, number: int) -> None:
        await self.until(lambda: self.home == self.target(number) and not len(self.moves))

    def names(self) -> list[str]:
        """The directories of the partition, by log directory, without what makes them unique."""
        return [
            f"{number}/{name.partition('.')[0]}{name[-7:] if '.' in name else ''}"
            for number, path in enumerate(self.paths)
            for name in self.host.files.names(path)
            if name.startswith("t-")
        ]

    def stop(self) -> None:
        """Nothing of it goes on, as if it were killed."""
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Ends in order."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.moves.close()
        await self.futures.close()
        await self.shelf.save([self.partition])
        await self.log.close()
        await self.shelf.mark_clean(5)
        await self.shelf.close_directories()


def a_batch(offset: int, epoch: int, value_bytes: int = 10) -> bytes:
    data = build([Record(0, 1000, None, offset.to_bytes(8, "big") + bytes(value_bytes))])
    stamp(data, 0, offset, epoch)
    return bytes(data)


def content(log: PartitionLog) -> dict[int, bytes]:
    """Every batch, by its base offset."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, 1 << 20)
        if not len(view):
            break
        for header in batches.batches(view):
            batches.validate(view, header.position)
            found[header.base_offset] = bytes(view[header.position : header.end])
            offset = header.next_offset
    return found


def first_header(batch: bytes) -> batches.BatchHeader:
    return read_header(batch)
