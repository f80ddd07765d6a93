"""A controller in this process: what is hard to arrange from outside."""

import asyncio
import errno
import socket

from node.processes import CLUSTER_ID, HOST
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import FeatureLevelRecord
from quorate.node import snapshots
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.metadata_log import MetadataLog
from quorate.node.node import Node
from quorate.protocol import batch as batches
from quorate.protocol.errors import ErrorCode
from quorate.raft.effects import ReadLog, Reply
from quorate.raft.messages import FetchAnswer
from quorate.storage import files
from quorate.storage.errors import StorageError

DEADLINE_S = 30


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


class HeldSyncs:
    """A disk that syncs only as long as it may."""

    def __init__(self, monkeypatch):
        self._may_sync = asyncio.Event()
        self._may_sync.set()
        self.count_held = 0
        real_fsync = files.RealFile.fsync

        async def fsync(file):
            self.count_held += not self._may_sync.is_set()
            await self._may_sync.wait()
            await real_fsync(file)

        monkeypatch.setattr(files.RealFile, "fsync", fsync)

    def hold(self):
        self._may_sync.clear()

    def release(self):
        self._may_sync.set()


async def formatted(directory, idle_ms):
    """The configuration of a node that is its own quorum."""
    (config,) = await formatted_voters(directory, 1, **{"metadata.max.idle.interval.ms": str(idle_ms)})
    return config


async def formatted_voters(directory, count, **settings):
    """The configurations of nodes that are a quorum together."""
    free = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in free]
    for one in free:
        one.close()
    configs = []
    for node_id, port in enumerate(ports, start=1):
        properties = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "controller.quorum.voters": ",".join(f"{i}@{HOST}:{at}" for i, at in enumerate(ports, start=1)),
            "metadata.log.dir": str(directory / f"data-{node_id}"),
            **settings,
        }
        configs.append(parse_config("node.properties", properties))
        await format_storage(real_host(str(node_id)), configs[-1], CLUSTER_ID)
    return configs


def test_a_node_that_stops_waits_for_a_sync_that_is_under_way(tmp_path, monkeypatch):
    async def scenario():
        syncs = HeldSyncs(monkeypatch)
        config = await formatted(tmp_path, idle_ms=10)
        node = Node(real_host("1"), config)
        running = asyncio.create_task(node.run())
        await until(lambda: node.state.position.offset > 3)
        syncs.hold()
        await until(lambda: syncs.count_held)
        node.stop()
        await until(lambda: running.done() or not _is_listening(config.controller_listener.port))
        syncs.release()
        await running  # and nothing was abandoned

        again = Node(real_host("1"), config)
        running = asyncio.create_task(again.run())
        await until(lambda: again.state.position.offset > node.state.position.offset)
        again.stop()
        await running

    asyncio.run(scenario())


def test_the_first_records_are_written_once_however_long_they_take(tmp_path, monkeypatch):
    async def scenario():
        syncs = HeldSyncs(monkeypatch)
        node = Node(real_host("1"), await formatted(tmp_path, idle_ms=50))
        running = asyncio.create_task(node.run())
        await until(lambda: node.state.leadership.leader_id == 1)
        syncs.hold()
        first = 1 + len(node.replica.log.bootstrap_records)
        await until(lambda: node.replica.quorum.log.end_offset >= first + 4)
        syncs.release()
        await until(lambda: node.state.position.offset >= first + 4)
        levels = [
            record.name
            for batch, _ in node.replica.log.batches(0, node.state.position.offset)
            for record in records_of(batch)
            if isinstance(record, FeatureLevelRecord)
        ]
        assert levels == sorted(set(levels), key=levels.index)
        assert "metadata.version" in levels
        node.stop()
        await running

    asyncio.run(scenario())


def records_of(batch):
    header = batches.read_header(batch)
    if header.is_control:
        return []
    return [decode_record(record.value)[0] for record in batches.records(batch, header)]


def _is_listening(port):
    """Whether somebody has the port; found out without a connection, which nobody would be left to close."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def test_nobody_is_sent_to_what_is_being_deleted(tmp_path, monkeypatch):
    """The quorum knows the new start before anything goes; a read that was decided on earlier is refused."""

    async def scenario():
        config = await formatted(tmp_path, idle_ms=10)
        config.values["metadata.max.retention.bytes"] = 1
        node = Node(real_host("1"), config)
        running = asyncio.create_task(node.run())
        await until(lambda: node.state.position.offset > 3)
        known_when_deleting = []
        delete_before = MetadataLog.delete_before

        async def watched(log, start, now_ms):
            known_when_deleting.append((start.offset, node.replica.quorum.log.start_offset))
            await delete_before(log, start, now_ms)

        monkeypatch.setattr(MetadataLog, "delete_before", watched)
        await node.snapshots.write()
        first = node.state.position.offset
        await until(lambda: node.state.position.offset > first)
        await node.snapshots.write()
        assert known_when_deleting
        assert all(start == known for start, known in known_when_deleting)
        late = Reply(None, FetchAnswer(ErrorCode.NONE, 1, 1), ReadLog(0, 1000))
        assert node.replica._filled(late).error is ErrorCode.OFFSET_OUT_OF_RANGE
        node.stop()
        await running

    asyncio.run(scenario())


def test_the_fetches_that_commit_a_registration_do_not_wait_for_its_answer(tmp_path):
    """Of two voters both are needed to commit anything. A connection answers in the order it was asked: on
    the one of the registration, the fetch that commits it would be answered after it."""

    async def scenario():
        patient = {f"controller.quorum.{what}.timeout.ms": "600000" for what in ("request", "fetch")}
        configs = await formatted_voters(tmp_path, 2, **patient)
        nodes = [Node(real_host(str(one.node_id)), one) for one in configs]
        running = [asyncio.create_task(node.run()) for node in nodes]
        await until(lambda: all({1, 2} <= node.state.image.controllers.keys() for node in nodes))
        for task in running:
            task.cancel()  # nobody is left to hand over to
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(scenario())


def test_a_snapshot_that_finds_no_room_is_written_later(tmp_path, monkeypatch):
    async def scenario():
        config = await formatted(tmp_path, idle_ms=10)
        config.values["metadata.log.max.record.bytes.between.snapshots"] = 1
        monkeypatch.setattr(snapshots, "_RETRY_S", 0.01)
        failures = iter([OSError(errno.ENOSPC, "no space left")] * 2)
        write = MetadataLog.write_snapshot

        async def fail_at_first(log, *args):
            error = next(failures, None)
            if error is not None:
                raise StorageError.of("a disk", error) from error
            await write(log, *args)

        monkeypatch.setattr(MetadataLog, "write_snapshot", fail_at_first)
        node = Node(real_host("1"), config)
        running = asyncio.create_task(node.run())
        await until(lambda: node.replica is not None and len(node.replica.quorum.log.snapshots) > 0)
        assert next(failures, None) is None
        node.stop()
        await running

    asyncio.run(scenario())
