"""What requests cost a node by themselves: in one process, without sockets, from bytes to bytes.

A whole node runs on this loop, over real files. Its connections are its own but for their transport: they are
given what a read would have brought, and what they write is kept. So this is what we do, without what the
system does and without a client on the same cores, and two versions can be compared by it.

`QUORATE_BENCH_SERVED_PARTS=commits,produce` chooses parts; with `QUORATE_BENCH_SERVED_PROFILE=1` the calls of
each are listed.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import os
import pstats
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.broker_nodes import CLUSTER_ID, free_ports
from bench.broker_wire import HOST, produce_frame
from bench.group_wire import (
    CONSUMER_VERSION,
    JOIN_VERSION,
    SYNC_VERSION,
    TOPIC,
    Classic,
    Consumer,
    assignment,
    ever_further,
    framed,
    parts_of,
)
from quorate.net.conversation import Conversation
from quorate.net.server import Server
from quorate.node.config_file import load_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.node.process import loop_factory
from quorate.protocol import frame
from quorate.protocol.api import groups as api
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request

PARTS_VARIABLE: Final = "QUORATE_BENCH_SERVED_PARTS"
PROFILE_VARIABLE: Final = "QUORATE_BENCH_SERVED_PROFILE"
SCALE_VARIABLE: Final = "QUORATE_BENCH_SERVED_SCALE"
PARTS: Final = ("heartbeats", "commits", "produce", "rebalances")
SCALE: Final = float(os.environ.get(SCALE_VARIABLE, "1"))
ROUNDS: Final = 5
PEERS: Final = 50
PARTITIONS: Final = 1000
MEMBERS: Final = (100, 500)
REBALANCES: Final = 8
LOOKED_THROUGH_AFTER: Final = (5_000, 20, 20)  # for garbage, as in a process of a node
PROFILED_LINES: Final = 45
CREATE_VERSION: Final = 7
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "2000",
    "group.consumer.max.size": "2000",
    "group.consumer.assignment.interval.ms": "0",
    "max.connections.per.ip": "5000",
    "quorate.events.publish": "false",
}
# Records, bytes of each, requests that come together, and rounds of those.
FLOWS: Final = (
    ("one record of 1 KB", 1, 1000, 1, 2000),
    ("16 records of 1 KB", 16, 1000, 1, 1000),
    ("16 records of 1 KB, each of 8 that come together", 16, 1000, 8, 150),
    ("16 records of 1 KB, each of 15", 16, 1000, 15, 80),
    ("160 records of 100 B, each of 15", 160, 100, 15, 80),
    ("1,000 records of 1 KB", 1000, 1000, 1, 30),
    ("9,000 records of 100 B", 9000, 100, 1, 30),
)


def section() -> Iterator[str]:
    runner = asyncio.Runner(loop_factory=loop_factory())
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as root, runner:
        yield from runner.run(_measured(Path(root)))


async def _measured(root: Path) -> list[str]:
    parts = os.environ.get(PARTS_VARIABLE, ",".join(PARTS)).split(",")
    rows: list[str] = []
    async with _node(root) as server:
        gc.freeze()
        gc.set_threshold(*LOOKED_THROUGH_AFTER)
        for part in parts:
            rows += await _MEASURES[part](server)
    return rows


@asynccontextmanager
async def _node(root: Path) -> AsyncIterator[Server]:
    """The listener for clients of a node that is ready."""
    port, controller_port = free_ports(2)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(root / "data"),
        "offsets.topic.replication.factor": "1",
        **SETTINGS,
    }
    path = root / "node.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with ThreadPoolExecutor(4) as executor:
        host, config = real_host("1", executor), load_config(str(path))
        await format_storage(host, config, CLUSTER_ID)
        node = Node(host, config)
        running = asyncio.create_task(node.run())
        while node.why_not_ready() is not None and not running.done():
            await asyncio.sleep(0.01)
        assert node.broker is not None
        server = node.broker.parts.servers[0]
        peer = Peer(server)
        topic = CreateTopicsRequest.CreatableTopic
        topics = [
            topic(name=name, num_partitions=number, replication_factor=1, assignments=[], configs=[])
            for name, number in ((TOPIC, PARTITIONS), ("produced", PEERS))
        ]
        await peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CREATE_VERSION)
        await asyncio.sleep(1)  # it has been told of them
        try:
            yield server
        finally:
            node.stop()
            await running


class Peer:
    """A client's end of a connection that has no network, and its transport."""

    def __init__(self, server: Server) -> None:
        self._conversation = Conversation(server, asyncio.get_running_loop())
        self.answers = 0
        self.answer: Any = b""
        self._conversation.connection_made(self)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        while data:
            buffer = self._conversation.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self._conversation.buffer_updated(size)
            data = data[size:]

    async def ask(self, request: Request, version: int) -> Any:
        self.answer = b""
        self.send(framed(request, version))
        while not self.answer:
            await asyncio.sleep(0)
        return self.decoded(request, version)

    def decoded(self, request: Request, version: int) -> Any:
        """The last answer."""
        return frame.decode_response(request.__key__, version, bytes(self.answer)[4:])[1]

    # As the conversation sees it

    def write(self, data: Any) -> None:
        self.answer = data
        self.answers += 1

    def writelines(self, parts: Sequence[Any]) -> None:
        self.write(b"".join(parts))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (HOST, 4711) if name == "peername" else default

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._conversation.connection_lost, None)

    abort = close


async def _round(peers: Sequence[Peer], frames: Sequence[bytes], wanted: int = 1) -> None:
    """Each sends something, and is answered."""
    before = [peer.answers for peer in peers]
    for peer, data in zip(peers, frames, strict=True):
        peer.send(data)
    for peer, had in zip(peers, before, strict=True):
        while peer.answers < had + wanted:
            await asyncio.sleep(0)


async def _best(
    what: str, each: int, times: int, peers: Sequence[Peer], frames: Callable[[int], Sequence[bytes]]
) -> str:
    """The best of some rounds: CPU for each of so many requests of a round."""
    times = max(2, int(times * SCALE))
    profile = cProfile.Profile() if PROFILE_VARIABLE in os.environ else None
    best = float("inf")
    for _ in range(ROUNDS):
        made = [frames(number) for number in range(times)]
        began = time.process_time()
        if profile is not None:
            profile.enable()
        for some in made:
            await _round(peers, some)
        if profile is not None:
            profile.disable()
        best = min(best, (time.process_time() - began) / times / each)
    if profile is not None:
        print(f"{what}: {ROUNDS * times * each} requests")
        pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILED_LINES)
    return f"{what:<70} {best * 1e6:9.1f} us"


async def _members(peers: Sequence[Peer], groups: int, name: str) -> list[Classic]:
    """A member of a group for each peer; of one group all have the same."""
    found: list[Classic] = []
    for number, peer in enumerate(peers[:groups]):
        one = Classic(f"{name}-{number}")
        while (answer := await peer.ask(one.join(), JOIN_VERSION)).error_code != ErrorCode.MEMBER_ID_REQUIRED:
            find = api.FindCoordinatorRequest(key_type=0, coordinator_keys=[one.group])
            await peer.ask(find, 4)
            await asyncio.sleep(0.05)
        one.id = answer.member_id
        one.joined(await peer.ask(one.join(), JOIN_VERSION))
        await peer.ask(one.sync({one.id: assignment([0])}), SYNC_VERSION)
        found.append(one)
    return [found[at % groups] for at in range(len(peers))]


async def _heartbeats(server: Server) -> list[str]:
    peers = [Peer(server) for _ in range(PEERS)]
    frames = [one.heartbeat() for one in await _members(peers, PEERS, "beats")]
    return [await _best("a heartbeat", PEERS, 300, peers, lambda _: frames)]


async def _commits(server: Server) -> list[str]:
    peers = [Peer(server) for _ in range(PEERS)]
    rows = []
    for count in (1, PEERS):
        members = await _members(peers, count, f"commits-{count}")
        made = [ever_further(one.commit(at)) for at, one in enumerate(members)]

        def frames(number: int, made: Sequence[Callable[[int], bytes]] = made) -> list[bytes]:
            return [one(number) for one in made]

        what = f"a commit, {PEERS} connections, groups: {count}"
        rows.append(await _best(what, PEERS, 100, peers, frames))
    return rows


async def _produce(server: Server) -> list[str]:
    rows = []
    for what, records, record_bytes, together, times in FLOWS:
        peer = Peer(server)
        data = produce_frame("produced", records, record_bytes) * together
        row = await _best(f"produce: {what}", together, times, [peer], lambda _, data=data: [data])
        rows.append(row)
    return rows


# Rebalances


class Meter:
    """The CPU of the node alone, while members that were asked something wait for their answers."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._profile = cProfile.Profile() if PROFILE_VARIABLE in os.environ else None

    async def ask(self, peers: Sequence[Peer], requests: Sequence[Request], version: int) -> list[Any]:
        frames = [framed(request, version) for request in requests]
        began = time.process_time()
        if self._profile is not None:
            self._profile.enable()
        await _round(peers, frames)
        if self._profile is not None:
            self._profile.disable()
        self.seconds += time.process_time() - began
        return [peer.decoded(one, version) for peer, one in zip(peers, requests, strict=True)]

    def show(self, what: str) -> None:
        if self._profile is not None:
            print(what)
            pstats.Stats(self._profile).sort_stats("tottime").print_stats(PROFILED_LINES)


async def _rebalances(server: Server) -> list[str]:
    rows = []
    for name, rebalances in (("classic", _classic_rebalances), ("consumer", _consumer_rebalances)):
        for number in MEMBERS:
            peers = [Peer(server) for _ in range(number)]
            await _members(peers, 1, f"{name}-{number}-first")  # so that there is a coordinator
            meter, best = Meter(), float("inf")
            async for _ in rebalances(peers, f"{name}-{number}", meter):
                best = min(best, meter.seconds)
                meter.seconds = 0.0
            what = f"a rebalance of {number} members, {name} protocol"
            meter.show(what)
            rows.append(f"{what:<70} {best * 1e3:9.1f} ms")
    return rows


async def _classic_rebalances(peers: Sequence[Peer], group: str, meter: Meter) -> AsyncIterator[None]:
    """All join, each with something new to say, and are given their parts."""
    members = [Classic(group) for _ in peers]
    joins = [one.join() for one in members]
    while not all(one.id for one in members):
        await asyncio.sleep(0.05)  # its coordinator may be loaded only now
        for one, answer in zip(members, await Meter().ask(peers, joins, JOIN_VERSION), strict=True):
            one.id = answer.member_id
    parts = [assignment(part) for part in parts_of(PARTITIONS, len(peers))]
    for number in range(REBALANCES):
        joins = [one.join(str(number).encode()) for one in members]
        for one, answer in zip(members, await meter.ask(peers, joins, JOIN_VERSION), strict=True):
            assert answer.error_code == ErrorCode.NONE, answer
            one.joined(answer)
        assert number == 0 or len({one.generation for one in members}) == 1, "not all are in one generation"
        by_member = {one.id: part for one, part in zip(members, parts, strict=True)}
        syncs = [one.sync(by_member if one.leads else {}) for one in members]
        answers = await meter.ask(peers, syncs, SYNC_VERSION)
        assert number == 0 or all(answer.error_code == ErrorCode.NONE for answer in answers)
        yield


async def _consumer_rebalances(peers: Sequence[Peer], group: str, meter: Meter) -> AsyncIterator[None]:
    """All come to an empty group, are given their parts, and leave, which is not counted."""
    members = [Consumer(group, f"member-{number:05}") for number in range(len(peers))]
    uncounted = Meter()
    for _ in range(REBALANCES):
        for one in members:
            one.begin()
        while sum(one.partitions for one in members) < PARTITIONS or len({one.epoch for one in members}) > 1:
            beats = [one.heartbeat() for one in members]
            for one, answer in zip(members, await meter.ask(peers, beats, CONSUMER_VERSION), strict=True):
                one.heard(answer)
        yield
        for one in members:
            one.epoch = -1
        await uncounted.ask(peers, [one.heartbeat() for one in members], CONSUMER_VERSION)


_MEASURES: Final = {
    "heartbeats": _heartbeats,
    "commits": _commits,
    "produce": _produce,
    "rebalances": _rebalances,
}
