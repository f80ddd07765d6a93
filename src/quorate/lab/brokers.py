"""Production brokers and controllers in a simulated world, under faults, with a producer and a consumer.

Three controllers, three brokers, a topic with a replica of each partition on every broker. One client writes
numbered records with acks from all in-sync replicas, and remembers which were acknowledged, and where;
another reads what is committed, from the beginning on. Faults are drawn from the seed; then everything heals,
and the cluster must recover.

The law: a record that was acknowledged is there, at the offset that was told, once, and in the order in which
it was sent. What a consumer has read stays as it was. After every step: no two brokers lead a partition in
the same epoch, and the high watermark of a leader does not go back.

What is not in the law: brokers do not sync what they append, as Kafka's do not; a record is safe because it
is in the memory of several machines. So nodes are killed or told to leave, and their disks are full or slow,
but their machines keep their power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from quorate.broker.partition import Partition
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.client.fetcher import Fetcher, FetcherSettings
from quorate.client.producer import Delivered, Producer, ProducerSettings
from quorate.lab.faults import ACTIONS, DRAWS, Draw, Fault, draw_faults, heal_everything, of_one, schedule
from quorate.lab.outcome import Outcome, Violation
from quorate.lab.quorum import CLUSTER_ID
from quorate.lab.world import SECOND, Exit, World
from quorate.net.connections import Backoff
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import Host
from quorate.node.node import Node, NodeFailed
from quorate.protocol import batch as batches
from quorate.protocol.errors import ApiError
from quorate.storage.errors import StorageError

__all__ = ["BrokersRun", "draw_broker_faults", "run_brokers"]

CONTROLLERS: Final = {"v1": 1, "v2": 2, "v3": 3}
BROKERS: Final = {"b101": 101, "b102": 102, "b103": 103}
TOPIC: Final = "t"
PARTITIONS: Final = 2
START_NS: Final = 60 * SECOND
NOT_TOLD: Final = -1
RECOVERY_NS: Final = 120 * SECOND

_SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": ",".join(f"{number}@{name}:9093" for name, number in CONTROLLERS.items()),
    "log.dirs": "/data",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": "7",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "quorate.admin.listener": "",
}
_CLIENT: Final = ClusterSettings(request_timeout_ms=3000, metadata_timeout_ms=1000, connect_timeout_ms=1000)
_BACKOFF: Final = Backoff(first_ms=50, max_ms=500)
_KINDS: Final = (
    "cut",
    "cut_one_way",
    "isolate",
    "lose_packets",
    "reset",
    "slow_link",
    "kill",
    "pause",
    "slow_disk",
    "full_disk",
    "clock_rate",
)


def draw_broker_faults(seed: int, duration_ns: int) -> list[Fault]:
    """The faults of a seed."""
    world = World(seed)
    kinds: dict[str, Draw] = {"leave": of_one("leave", "restart"), **{kind: DRAWS[kind] for kind in _KINDS}}
    return draw_faults(world.random("faults", "brokers"), [*CONTROLLERS, *BROKERS], duration_ns, kinds)


def run_brokers(
    seed: int, duration_ns: int, faults: Sequence[Fault] | None = None, *, lines_per_node_max: int = 0
) -> Outcome:
    """One seed: a start, faults for a while, healing, and recovery."""
    chosen = draw_broker_faults(seed, duration_ns) if faults is None else list(faults)
    with World(seed, lines_per_node_max=lines_per_node_max, tolerate=_is_excused) as world:
        run = BrokersRun(world)
        violation = None
        try:
            run.go(duration_ns, chosen)
        except AssertionError as error:
            violation = f"{type(error).__name__}: {error}"
            if world.problems:
                violation += f": {_innermost(world.problems[0].exception)!r}"
        return Outcome(
            seed,
            str(world.trace.digest()),
            world.trace.steps,
            sum(map(len, run.acknowledged)),
            len(run.leaders),
            violation,
            tuple(world.trace.all_lines()) if violation else (),
        )


def _is_excused(end: Exit) -> bool:
    """A node whose disk fails, or that nobody admits, ends, and is started again."""
    return isinstance(_innermost(end.exception), (StorageError, NodeFailed))


def _innermost(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class BrokersRun:
    """The nodes and clients of one world, and what was promised to whom."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]  # offsets by number
        self.seen: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]  # numbers by offset
        self.leaders: dict[tuple[int, int], int] = {}  # by partition and epoch
        self._high_watermarks: dict[tuple[int, int], int] = {}
        self._is_formatted: set[str] = set()
        self._is_over = False
        self._has_ended: set[str] = set()
        self._broken: str | None = None

    def go(self, duration_ns: int, faults: Sequence[Fault]) -> None:
        world = self.world
        names = [*CONTROLLERS, *BROKERS]
        for name in [*names, "writer", "reader"]:
            world.add_machine(name)
        for name in names:
            world.start(name, self._node)
        world.after_each_step(self._check_step)
        world.start("writer", self._write)
        world.start("reader", self._read)
        if not world.run_until_condition(self._has_begun, START_NS):
            raise Violation(f"nothing was written in a minute of peace: {self._states()}")
        begin_ns = world.now_ns
        later = [Fault(begin_ns + one.time_ns, one.kind, one.args) for one in faults]
        schedule(world, later, {**ACTIONS, "leave": self._leave})
        world.run_until(begin_ns + duration_ns)
        self._recover(world.now_ns + RECOVERY_NS)
        world.check()
        self._check_end()

    def _has_begun(self) -> bool:
        return all(self.acknowledged) and all(self.seen) and self._is_in_sync()

    def _recover(self, deadline_ns: int) -> None:
        """Heals everything, starts whatever has ended, and lets the clients finish."""
        world = self.world
        self._is_over = True
        while not (self._is_recovered() and self._has_ended == {"writer", "reader"}):
            if world.now_ns >= deadline_ns:
                raise Violation(f"not recovered two minutes after the faults: {self._states()}")
            heal_everything(world)
            world.run_until_condition(
                lambda: self._is_recovered() and self._has_ended == {"writer", "reader"},
                min(deadline_ns, world.now_ns + 5 * SECOND),
            )

    def _leave(self, world: World, name: str) -> None:
        """As SIGTERM does."""
        process, node = world.machines[name].process, self.nodes.get(name)
        if process is not None and node is not None and world.is_running(name):
            process.call_soon(node.stop)

    # What runs on the machines

    async def _node(self, host: Host) -> None:
        config = parse_config(f"{host.name}.properties", self._properties(host.name))
        if host.name not in self._is_formatted:
            await format_storage(host, config, CLUSTER_ID, ignore_formatted=True)
            self._is_formatted.add(host.name)
        node = self.nodes[host.name] = Node(host, config)
        await node.run()

    def _properties(self, name: str) -> dict[str, str]:
        if name in CONTROLLERS:
            own = {
                "process.roles": "controller",
                "node.id": str(CONTROLLERS[name]),
                "listeners": f"CONTROLLER://{name}:9093",
            }
        else:
            own = {
                "process.roles": "broker",
                "node.id": str(BROKERS[name]),
                "listeners": f"PLAINTEXT://{name}:9092",
            }
        return {**_SETTINGS, **own}

    def _cluster(self, host: Host) -> Cluster:
        return Cluster([(name, 9092) for name in BROKERS], random=host.random, settings=_CLIENT)

    async def _write(self, host: Host) -> None:
        settings = ProducerSettings(request_timeout_ms=3000, delivery_timeout_ms=600_000, backoff=_BACKOFF)
        async with self._cluster(host) as cluster:
            await self._create_topic(cluster)
            async with Producer(cluster, settings, wall_ms=host.wall_ms) as producer:
                number = 0
                while not self._is_over:
                    await asyncio.sleep(host.random.expovariate(20))
                    partition = number % PARTITIONS
                    receipt = await producer.send(TOPIC, str(number).encode(), partition=partition)
                    receipt.add_done_callback(partial(self._delivered, partition, number))
                    number += 1
        await self._end("writer")

    async def _create_topic(self, cluster: Cluster) -> None:
        configs = {"min.insync.replicas": "2"}
        while True:
            try:
                topic = NewTopic(TOPIC, partitions=PARTITIONS, replication_factor=3, configs=configs)
                await Admin(cluster).create_topics(topic)
                return
            except (ApiError, Unavailable):
                await asyncio.sleep(0.5)

    def _delivered(self, partition: int, number: int, receipt: asyncio.Future[Delivered]) -> None:
        if receipt.exception() is None:
            self.acknowledged[partition][number] = receipt.result().offset

    async def _read(self, host: Host) -> None:
        settings = FetcherSettings(backoff=_BACKOFF)
        async with self._cluster(host) as cluster, Fetcher(cluster, settings) as fetcher:
            fetcher.assign({(TOPIC, partition): 0 for partition in range(PARTITIONS)})
            while not (self._is_over and "writer" in self._has_ended and self._has_read_all()):
                try:
                    found = await fetcher.fetch(timeout_ms=1000)
                except (ApiError, Unavailable):
                    continue
                for some in found:
                    for record in some.records():
                        self._saw(some.partition, record.offset, int(record.value or b""))
        await self._end("reader")

    async def _end(self, name: str) -> None:
        self._has_ended.add(name)
        await asyncio.Event().wait()  # a machine on which nothing runs would be started again

    def _saw(self, partition: int, offset: int, number: int) -> None:
        seen = self.seen[partition]
        if offset != len(seen):
            self._broken = f"a consumer was given offset {offset} of partition {partition} after {len(seen)}"
        seen[offset] = number

    def _has_read_all(self) -> bool:
        return all(
            len(seen) > max(acknowledged.values(), default=-1)
            for seen, acknowledged in zip(self.seen, self.acknowledged, strict=True)
        )

    # Checkers

    def _replicas(self, partition: int) -> dict[str, Partition]:
        found = {}
        for name in BROKERS:
            node = self.nodes.get(name)
            if node is None or not self.world.is_running(name) or node.broker is None:
                continue
            replicas = node.broker.replicas
            replica = None if replicas is None else replicas.named(TOPIC, partition)
            if replica is not None:
                found[name] = replica
        return found

    def _check_step(self) -> None:
        if self._broken is not None:
            raise Violation(self._broken)
        for partition in range(PARTITIONS):
            for name, replica in self._replicas(partition).items():
                leading = replica.leading
                if leading is None:
                    continue
                at = partition, leading.leader_epoch
                leader = self.leaders.setdefault(at, BROKERS[name])
                if leader != BROKERS[name]:
                    raise Violation(f"two lead partition {at[0]} in epoch {at[1]}: {leader} and {name}")
                last = self._high_watermarks.get(at, 0)
                if leading.high_watermark < last:
                    raise Violation(f"the high watermark of {at} went back from {last} on {name}")
                self._high_watermarks[at] = leading.high_watermark

    def _is_in_sync(self) -> bool:
        """Every replica is, and every broker has read that it is."""
        if not all(map(self.world.is_running, [*CONTROLLERS, *BROKERS])):
            return False
        for name in BROKERS:
            node = self.nodes.get(name)
            topic = None if node is None else node.state.image.topics.by_name.get(TOPIC)
            if node is None or topic is None:
                return False
            states = [state for _, state in node.state.image.partitions_of(topic.id)]
            if any(len(state.isr) < len(BROKERS) or state.leader < 0 for state in states):
                return False
        return True

    def _is_recovered(self) -> bool:
        """Every replica is in sync, has everything, and knows that it is committed."""
        return self._is_in_sync() and all(
            len(ends := {one.log.end_offset for one in self._replicas(partition).values()}) == 1
            and {one.high_watermark for one in self._replicas(partition).values()} == ends
            for partition in range(PARTITIONS)
        )

    def _check_end(self) -> None:
        for partition in range(PARTITIONS):
            logs = {name: _stored(replica) for name, replica in self._replicas(partition).items()}
            if len(set(logs.values())) != 1:
                raise Violation(f"the replicas of partition {partition} differ")
            numbers = _numbers(next(iter(logs.values())))
            offsets = {number: offset for offset, number in numbers.items()}
            for number, offset in self.acknowledged[partition].items():
                # Of a repetition that a broker does not remember the offset is not told.
                if number not in offsets or offset not in (NOT_TOLD, offsets[number]):
                    raise Violation(
                        f"record {number} was acknowledged at offset {offset} of partition {partition},"
                        f" where {numbers.get(offset)} is"
                    )
            if any(numbers.get(offset) != number for offset, number in self.seen[partition].items()):
                raise Violation(f"what was read of partition {partition} is not what is there")
            if sorted(set(numbers.values())) != list(numbers.values()):
                raise Violation(f"records of partition {partition} are out of order, or there twice")

    def _states(self) -> str:
        parts = []
        for partition in range(PARTITIONS):
            for name, replica in self._replicas(partition).items():
                role = "leads" if replica.leading else f"follows {replica.leader_id}"
                at = f"{replica.high_watermark}/{replica.log.end_offset}"
                parts.append(f"{name} {role} {partition} in {replica.leader_epoch} at {at}")
        down = [name for name in [*CONTROLLERS, *BROKERS] if not self.world.is_running(name)]
        return f"{', '.join(parts)}; down: {down}; ended: {sorted(self._has_ended)}"


def _stored(replica: Partition) -> bytes:
    log, parts, offset = replica.log, [], replica.log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, 1 << 20)
        parts.append(bytes(view))
        offset = list(batches.batches(view))[-1].next_offset
    return b"".join(parts)


def _numbers(data: bytes) -> dict[int, int]:
    """The number of every record, by offset."""
    return {
        record.offset: int(record.value or b"")
        for header in batches.batches(data)
        for record in batches.records(data, header)
    }
