"""A controller in this process: what is hard to arrange from outside."""

import asyncio
import socket

from node.processes import CLUSTER_ID, HOST
from quorate.node.config import parse_config
from quorate.node.controller import ControllerNode
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.storage import files

DEADLINE_S = 30


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_node_that_stops_waits_for_a_sync_that_is_under_way(tmp_path, monkeypatch):
    asyncio.run(_stop_during_a_sync(tmp_path, monkeypatch))


async def _stop_during_a_sync(tmp_path, monkeypatch):
    may_sync = asyncio.Event()
    may_sync.set()
    held = []
    real_fsync = files._RealFile.fsync

    async def fsync(file):
        if not may_sync.is_set():
            held.append(file)
        await may_sync.wait()
        await real_fsync(file)

    monkeypatch.setattr(files._RealFile, "fsync", fsync)
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{port}",
        "metadata.log.dir": str(tmp_path / "data"),
        "metadata.max.idle.interval.ms": "10",
    }
    config = parse_config("node.properties", properties)
    await format_storage(real_host("1"), config, CLUSTER_ID)
    node = ControllerNode(real_host("1"), config)
    running = asyncio.create_task(node.run())
    await until(lambda: node.journal.position.offset > 3)
    may_sync.clear()
    await until(lambda: held)

    node.stop()
    await until(lambda: running.done() or not _is_listening(port))
    await asyncio.sleep(0)
    may_sync.set()

    await running  # and nothing was abandoned
    again = ControllerNode(real_host("1"), config)
    reopened = asyncio.create_task(again.run())
    await until(lambda: again.journal.position.offset > node.journal.position.offset)
    again.stop()
    await reopened


def _is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
