"""A whole cluster in a simulated world: controllers, brokers and clients of production, under the faults of
one seed, watched by checkers.

Three voters and perhaps an observer that may become one; three brokers; two writers and a reader of one
topic; two groups that read it, one for each protocol; an auditor of what groups have committed; an
administrator of topics, and one of voters. After a start in peace come the faults; then everything heals, and
the cluster must recover: every broker unfenced, every replica in sync and equal, every group done.

What is promised is in `quorum_checks`, `replication_checks`, `delivery_checks`, `group_checks` and
`ownership_checks`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from quorate.broker.partition import Partition
from quorate.client.group_consumer import GroupProtocol
from quorate.lab.cluster_clients import (
    administrate,
    audit,
    be_a_member,
    read,
    write,
)
from quorate.lab.cluster_faults import BROKERS, CLIENTS, controllers_of, draw_cluster_faults
from quorate.lab.delivery_checks import DeliveryChecks
from quorate.lab.faults import ACTIONS, Fault, heal_everything, schedule
from quorate.lab.group_checks import GroupChecks, Place
from quorate.lab.node_loop import NodeLoop
from quorate.lab.outcome import Outcome, Violation, innermost
from quorate.lab.ownership_checks import OwnershipChecks
from quorate.lab.quorum_checks import QuorumChecks, WatchedState
from quorate.lab.replication_checks import Loss, ReplicationChecks
from quorate.lab.story import Story
from quorate.lab.voter_changes import change_voters
from quorate.lab.world import SECOND, Exit, World
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import Host
from quorate.node.node import Node, NodeFailed
from quorate.protocol import batch as batches
from quorate.protocol.types import Uuid
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.storage.errors import StorageError

__all__ = ["ClusterRun", "run_cluster"]

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC: Final = "t"
PARTITIONS: Final = 2
OFFSETS: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 2
GROUPS: Final = {"classic": GroupProtocol.CLASSIC, "consumer": GroupProtocol.CONSUMER}
IN_SYNC_MIN: Final = 2
START_NS: Final = 60 * SECOND
RECOVERY_NS: Final = 180 * SECOND
_WATCHED: Final = (
    *((TOPIC, partition) for partition in range(PARTITIONS)),
    *((OFFSETS, partition) for partition in range(OFFSETS_PARTITIONS)),
)

_SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "metadata.max.retention.bytes": "50000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": "7",
    "min.insync.replicas": str(IN_SYNC_MIN),
    "quorate.events.publish": "false",
    "quorate.admin.listener": "",
}
_BROKER_SETTINGS: Final = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}


def run_cluster(
    seed: int,
    duration_ns: int,
    faults: Sequence[Fault] | None = None,
    *,
    story: Story | None = None,
    lines_per_node_max: int = 0,
) -> Outcome:
    """One seed: a start, faults for a while, healing, and recovery."""
    chosen = draw_cluster_faults(seed, duration_ns) if faults is None else list(faults)
    with World(seed, lines_per_node_max=lines_per_node_max, tolerate=_is_excused) as world:
        run = ClusterRun(world, story or Story(keep=0))
        violation = None
        try:
            run.go(duration_ns, chosen)
        except AssertionError as error:
            violation = f"{type(error).__name__}: {error}"
            if world.problems:
                violation += f": {innermost(world.problems[0].exception)!r}"
        run.story.tell(world.now_ns, violation or "every promise was kept")
        return Outcome(
            seed,
            world.trace.digest(),
            world.trace.steps,
            sum(map(len, run.deliveries.acknowledged)),
            len(run.quorum.leaders) + len(run.replication.leaders),
            violation,
            tuple(world.trace.all_lines()) if violation else (),
            simulated_ns=world.now_ns,
            checks=run.checks,
            faults=Counter(one.kind for one in chosen),
            excused=run.deliveries.excused,
        )


def _is_excused(end: Exit) -> bool:
    """A node whose disk fails, or that nobody admits, ends, and is started again."""
    return isinstance(innermost(end.exception), (StorageError, NodeFailed))


class ClusterRun:
    """The nodes and clients of one world, and what was promised to whom."""

    def __init__(self, world: World, story: Story, clients: Sequence[str] = CLIENTS) -> None:
        self.world = world
        self.story = story
        self._clients = clients
        self.controllers = controllers_of(world.seed)
        self.ids = {**self.controllers, **BROKERS}
        self.nodes: dict[str, Node] = {}
        self.topic, self.partitions = TOPIC, PARTITIONS
        self.bootstrap: Sequence[tuple[str, int]] = [(name, 9092) for name in BROKERS]
        self.quorum = QuorumChecks(self.ids, self._committed)
        self.replication = ReplicationChecks(self._lost, IN_SYNC_MIN)
        self.ownership = OwnershipChecks()
        self.groups = GroupChecks(world.is_running, self.ownership.member_since)
        self.deliveries = DeliveryChecks(PARTITIONS)
        self.is_over = False
        self._is_formatted: set[str] = set()
        self._has_ended: set[str] = set()
        self._broken: Violation | None = None
        self._has_power = dict.fromkeys(BROKERS, True)
        self._was_running = dict.fromkeys(BROKERS, True)
        self._failing: dict[str, None] = {}  # brokers whose next flush will fail
        directories = world.random("directories", "cluster")
        voters = list(self.controllers)[:3]
        self._initial = VoterSet.of(
            Voter(ReplicaKey(self.ids[one], Uuid(directories.randbytes(16))), (_endpoint(one),), (0, 1))
            for one in voters
        )

    @property
    def checks(self) -> int:
        checks = self.quorum.checks + self.replication.checks + self.ownership.checks
        return checks + self.groups.checks + self.groups.offsets.reads

    def go(self, duration_ns: int, faults: Sequence[Fault]) -> None:
        world = self.world
        self.start()
        if not world.run_until_condition(self._has_begun, world.now_ns + START_NS):
            raise Violation(f"nothing was written and read in a minute of peace: {self.states()}")
        self.story.tell(world.now_ns, "the cluster is up, and its clients are at work; faults begin")
        begin_ns = world.now_ns
        later = [Fault(begin_ns + one.time_ns, one.kind, one.args) for one in faults]
        for fault in later:
            world.call_at(fault.time_ns, self.story.fault, fault)
        schedule(world, later, {**ACTIONS, "leave": self._leave, "replace": self._replace})
        world.run_until(begin_ns + duration_ns)
        self.story.tell(world.now_ns, "the faults are over: everything is healed and started")
        self._recover(world.now_ns + RECOVERY_NS)
        world.check()
        self._check_end()

    def start(self) -> None:
        """Formats and starts all nodes, then the clients."""
        world = self.world
        for name in [*self.ids, *self._clients]:
            world.add_machine(name)
        for name in self.ids:
            world.start(name, self._node)
        world.after_each_step(self._check_step)
        # Formatting is an operator's job and not under test: it happens in peace.
        if not world.run_until_condition(lambda: len(self._is_formatted) == len(self.ids), START_NS):
            raise Violation("the nodes were not formatted in a minute")
        for name in self._clients:
            world.start(name, self._client)

    def _has_begun(self) -> bool:
        told = self.deliveries
        return all(told.acknowledged) and all(told.seen) and self._is_in_sync() and self._have_committed(0)

    def _recover(self, deadline_ns: int) -> None:
        """Heals everything, starts whatever has ended, and lets the clients finish."""
        world = self.world
        while not self._is_recovered():
            if world.now_ns >= deadline_ns:
                raise Violation(f"not recovered three minutes after the faults: {self.states()}")
            heal_everything(world)
            self.is_over = True
            next_ns = min(deadline_ns, world.now_ns + 5 * SECOND)
            while world.now_ns < next_ns and not self._is_recovered():
                world.run_until(min(next_ns, world.now_ns + SECOND // 4))

    def _leave(self, world: World, name: str) -> None:
        """As SIGTERM does."""
        process, node = world.machines[name].process, self.nodes.get(name)
        if process is not None and node is not None and world.is_running(name):
            process.call_soon(node.stop)

    def _replace(self, world: World, name: str) -> None:
        """A broker dies with its disk; another begins with its id and nothing else."""
        world.kill(name)
        world.machines[name].disk.replace()
        self._is_formatted.discard(name)
        self.nodes.pop(name, None)
        self.quorum.forget(name)
        self.replication.crashed(self.ids[name])

    # What runs on the machines

    async def _node(self, host: Host) -> None:
        is_controller = host.name in self.controllers
        config = parse_config(f"{host.name}.properties", self._properties(host.name))
        if host.name not in self._is_formatted:
            is_voter = self._initial.get(self.ids[host.name]) is not None
            initial = self._initial if is_voter else None
            await format_storage(host, config, CLUSTER_ID, initial=initial, ignore_formatted=True)
            self._is_formatted.add(host.name)
        node = Node(host, config)
        node.state = WatchedState(self.quorum, is_strict=is_controller)
        self.nodes[host.name] = node
        await node.run()

    def _properties(self, name: str) -> dict[str, str]:
        servers = ",".join(f"{one}:9093" for one in self.controllers)
        common = {
            **_SETTINGS,
            "node.id": str(self.ids[name]),
            "controller.quorum.bootstrap.servers": servers,
        }
        if name in self.controllers:
            return {**common, "process.roles": "controller", "listeners": f"CONTROLLER://{name}:9093"}
        listeners = {"process.roles": "broker", "listeners": f"PLAINTEXT://{name}:9092"}
        return {**common, **_BROKER_SETTINGS, **listeners}

    async def _client(self, host: Host) -> None:
        name = host.name
        if name.startswith("writer"):
            await write(host, self)
        elif name == "reader":
            await read(host, self)
        elif name.startswith("member"):
            group = list(GROUPS)[int(name[len("member") :]) % len(GROUPS)]
            await be_a_member(host, self, group, GROUPS[group])
        elif name == "auditor":
            await audit(host, self, list(GROUPS))
        elif name == "admin":
            await administrate(host, self)
        else:
            endpoints = {one: _endpoint(one) for one in self.controllers}
            await change_voters(host, CLUSTER_ID, endpoints, self.nodes, every_s=6)

    # What the clients tell

    @property
    def now_s(self) -> float:
        return self.world.now_ns / 1e9

    @property
    def has_written_all(self) -> bool:
        return self.is_over and {"writer1", "writer2"} <= self._has_ended

    def expect(self, check: Callable[[], None]) -> None:
        """Checks something in the middle of a step; what is broken is raised after it."""
        try:
            check()
        except Violation as violation:
            self._broken = self._broken or violation

    async def end(self, name: str) -> None:
        self._has_ended.add(name)
        await asyncio.Event().wait()  # a machine on which nothing runs would be started again

    # Checkers

    def _committed(self, batch: bytes) -> None:
        self.replication.committed(batch)
        self.story.committed(self.world.now_ns, batch, self.quorum.fold)

    def _lost(self, loss: Loss) -> None:
        self.story.tell(
            self.world.now_ns,
            f"offsets {loss.begin} to {loss.end - 1} of {loss.topic}-{loss.partition_id} are gone:"
            " every broker that had them has crashed",
        )
        if loss.topic == TOPIC:
            self.deliveries.lost[loss.partition_id].append(range(loss.begin, loss.end))
        elif loss.topic == OFFSETS:
            self.groups.is_tainted = True
            self.ownership.lost(loss.partition_id)

    def _check_step(self) -> None:
        if self._broken is not None:
            raise self._broken
        owner = self.world.clockwork.last_owner
        if not isinstance(owner, NodeLoop):
            self._look_for_crashes()
            return
        name = owner.machine
        node = self.nodes.get(name)
        if owner.dead or name in self._failing:
            self._look_for_crashes()
        if node is None or owner.dead:
            return
        self.quorum.look(name, node)
        broker = node.broker
        if broker is None or broker.replicas is None:
            return
        for topic, partition in _WATCHED:
            replica = broker.replicas.named(topic, partition)
            if replica is None or replica.leading is None:
                continue
            if self.replication.look(replica, replica.leading) and topic == OFFSETS:
                self._read_groups(name, replica)

    def _read_groups(self, name: str, replica: Partition) -> None:
        """What coordinators have written. A disk whose next read fails fails its broker, and not us."""
        disk = self.world.machines[name].disk
        failing_reads, disk.failing_reads = disk.failing_reads, 0
        try:
            self.ownership.look(replica)
        finally:
            disk.failing_reads = failing_reads

    def _look_for_crashes(self) -> None:
        """Whose power is gone, whose process has ended without leave, and whose disk has lost something in a
        flush that failed. Of a process that was killed the system keeps what it wrote, but the controller
        cannot know that: it counts on such a broker no more than on one whose power failed."""
        for name, broker_id in BROKERS.items():
            machine = self.world.machines[name]
            if machine.is_running != self._was_running[name]:
                self._was_running[name] = machine.is_running
                last = self.world.exits[-1] if self.world.exits else None
                has_left = last is not None and last.exception is None and last.time_ns == self.world.now_ns
                if not machine.is_running and not has_left:
                    self.replication.crashed(broker_id)
            if machine.has_power != self._has_power[name]:
                self._has_power[name] = machine.has_power
                if not machine.has_power:
                    self.replication.crashed(broker_id)
            if machine.disk.failing_syncs:
                self._failing[name] = None
            elif name in self._failing:
                del self._failing[name]
                self.replication.crashed(broker_id)

    def _replicas(self, topic: str, partition: int) -> dict[str, Partition]:
        found = {}
        for name in BROKERS:
            node = self.nodes.get(name)
            if node is None or not self.world.is_running(name) or node.broker is None:
                continue
            replicas = node.broker.replicas
            replica = None if replicas is None else replicas.named(topic, partition)
            if replica is not None:
                found[name] = replica
        return found

    def _is_in_sync(self) -> bool:
        """Every broker is a member, every partition led, every replica that matters in sync."""
        fold = self.quorum.fold
        if not all(map(self.world.is_running, self.ids)):
            return False
        if not all(one in fold.brokers and fold.brokers[one].is_active for one in BROKERS.values()):
            return False
        for topic in fold.topics:
            for _, state in fold.partitions_of(topic.id):
                if state.leader < 0 and not self._may_be_leaderless(topic.name):
                    return False
                if topic.name in (TOPIC, OFFSETS) and len(state.isr) < len(state.replicas):
                    return False
        return TOPIC in fold.topics.by_name

    def _may_be_leaderless(self, topic: str) -> bool:
        """Of a topic with few replicas, all may have lost their disks; that is for its owner to mend."""
        return topic not in (TOPIC, OFFSETS)

    def _have_committed(self, at_least: int | None = None) -> bool:
        """Every group has committed everything, or anything."""
        for group in GROUPS:
            for partition in range(PARTITIONS):
                replicas = self._replicas(TOPIC, partition)
                wanted = at_least
                if wanted is None:
                    wanted = max((one.high_watermark for one in replicas.values()), default=0)
                found = self.groups.offsets.last_acknowledged(Place(group, TOPIC, partition))
                if not self.groups.is_tainted and (found is None or found < wanted):
                    return False
        return True

    def _is_recovered(self) -> bool:
        """Every replica is in sync, has everything, and knows that it is committed; the clients are done."""
        if not self.is_over or not {"writer1", "writer2", "reader"} <= self._has_ended:
            return False
        return (
            self._is_in_sync()
            and all(
                len(ends := {one.log.end_offset for one in self._replicas(TOPIC, partition).values()}) == 1
                and {one.high_watermark for one in self._replicas(TOPIC, partition).values()} == ends
                for partition in range(PARTITIONS)
            )
            and (any(self.deliveries.lost) or self._have_committed())
        )

    def _check_end(self) -> None:
        self.quorum.check_images(self.nodes)
        for partition in range(PARTITIONS):
            logs = {name: _stored(replica) for name, replica in self._replicas(TOPIC, partition).items()}
            if len(set(logs.values())) != 1:
                raise Violation(f"the replicas of partition {partition} differ")
            self.deliveries.check_log(partition, _values(next(iter(logs.values()))))

    def states(self) -> str:
        parts = []
        for partition in range(PARTITIONS):
            for name, replica in self._replicas(TOPIC, partition).items():
                role = "leads" if replica.leading else f"follows {replica.leader_id}"
                at = f"{replica.high_watermark}/{replica.log.end_offset}"
                parts.append(f"{name} {role} {partition} in {replica.leader_epoch} at {at}")
        for group in GROUPS:
            places = [Place(group, TOPIC, partition) for partition in range(PARTITIONS)]
            parts.append(f"{group} at {[self.groups.offsets.last_acknowledged(one) for one in places]}")
        fold = self.quorum.fold
        parts += [f"broker {one.id} is not active" for one in fold.brokers.values() if not one.is_active]
        parts += [
            f"{topic.name}-{number} has leader {state.leader} isr {state.isr} of {state.replicas}"
            for topic in fold.topics
            for number, state in fold.partitions_of(topic.id)
            if state.leader < 0 or len(state.isr) < len(state.replicas)
        ]
        down = [name for name in self.ids if not self.world.is_running(name)]
        return f"{', '.join(parts)}; down: {down}; ended: {sorted(self._has_ended)}"


def _endpoint(name: str) -> Endpoint:
    return Endpoint("CONTROLLER", name, 9093)


def _stored(replica: Partition) -> bytes:
    log, parts, offset = replica.log, [], replica.log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, 1 << 20)
        parts.append(bytes(view))
        offset = list(batches.batches(view))[-1].next_offset
    return b"".join(parts)


def _values(data: bytes) -> dict[int, bytes]:
    """What every record says, by offset."""
    return {
        record.offset: bytes(record.value or b"")
        for header in batches.batches(data)
        for record in batches.records(data, header)
    }
