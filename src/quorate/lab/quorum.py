"""A quorum of production controllers in a simulated world, under faults, watched by checkers.

Voters and observers are `Node`s, unchanged, with a client beside each that writes numbered
configurations whenever its node leads, and remembers which were acknowledged. Brokers register and vanish,
topics come and go (`lab.members`), and an administrator adds and removes voters. Faults are drawn from the
seed; then everything heals, and the cluster must recover.

`quorum_checks` looks after every step and every batch. Besides: no reply comes before its commit; at the end
everyone has the same image, with everything that was acknowledged in it, and the brokers are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from quorate.controller.decision import Asker
from quorate.lab.faults import Fault, draw_faults, heal_everything, schedule
from quorate.lab.members import administrate_topics, be_a_broker
from quorate.lab.outcome import Outcome, Violation, innermost
from quorate.lab.quorum_checks import QuorumChecks, WatchedState
from quorate.lab.voter_changes import change_voters
from quorate.lab.world import SECOND, Exit, World
from quorate.metadata.image import GROUP
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import Host
from quorate.node.node import Node
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.storage.errors import StorageError

__all__ = ["QuorumRun", "draw_quorum_faults", "run_quorum"]

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
PORT: Final = 9093
RECOVERY_NS: Final = 60 * SECOND
_SETTINGS: Final = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "metadata.log.max.record.bytes.between.snapshots": "10000",
    "metadata.max.retention.bytes": "25000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": "7",
    "min.insync.replicas": "2",
    "quorate.events.publish": "false",
}
BROKERS: Final = {"b101": 101, "b102": 102, "b103": 103}


def draw_quorum_faults(seed: int, duration_ns: int) -> list[Fault]:
    """The faults of a seed."""
    world = World(seed)
    return draw_faults(world.random("faults", "quorum"), [*_names(seed), *BROKERS], duration_ns)


def run_quorum(
    seed: int,
    duration_ns: int,
    faults: Sequence[Fault] | None = None,
    *,
    lines_per_node_max: int = 0,
    steps_max: int | None = None,
) -> Outcome:
    """One seed: a start, faults for a while, healing, and recovery; or only its first `steps_max` steps."""
    chosen = draw_quorum_faults(seed, duration_ns) if faults is None else list(faults)
    with World(seed, lines_per_node_max=lines_per_node_max, tolerate=_is_excused) as world:
        run = QuorumRun(world, seed)
        violation = None
        if steps_max is not None:
            world.after_each_step(lambda: _stop_after(world, steps_max))
        try:
            run.go(duration_ns, chosen)
        except _EnoughSteps:
            pass
        except AssertionError as error:
            violation = f"{type(error).__name__}: {error}"
            if world.problems:
                violation += f": {innermost(world.problems[0].exception)!r}"
        return Outcome(
            seed,
            str(world.trace.digest()),
            world.trace.steps,
            len(run.acknowledged),
            len(run.checks.leaders),
            violation,
            tuple(world.trace.all_lines()) if violation else (),
        )


class _EnoughSteps(Exception):  # noqa: N818  # it is an event, not an error
    pass


def _stop_after(world: World, steps_max: int) -> None:
    if world.trace.steps >= steps_max:
        raise _EnoughSteps


def _names(seed: int) -> list[str]:
    voters = 3 if seed % 3 else 5
    return [f"v{number}" for number in range(1, voters + 1)] + ["o6", "o7"][: 1 + seed % 2]


def _is_excused(end: Exit) -> bool:
    """A node that stops because its disk fails does what it should."""
    return isinstance(innermost(end.exception), StorageError)


class QuorumRun:
    """The nodes of one world, and what was promised to whom."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.names = _names(seed)
        self.ids = {name: int(name[1:]) for name in self.names}
        self.nodes: dict[str, Node] = {}
        self.cluster_id = CLUSTER_ID
        self.checks = QuorumChecks(self.ids)
        self.fold = self.checks.fold
        self.acknowledged: list[str] = []
        self._broken: str | None = None
        self._is_formatted: set[str] = set()
        self._next_value = 0
        directories = world.random("directories", "quorum")
        voters = [name for name in self.names if name.startswith("v")]
        self.initial = VoterSet.of(
            Voter(
                ReplicaKey(self.ids[name], Uuid(directories.randbytes(16))), (self._endpoint(name),), (0, 1)
            )
            for name in voters
        )

    def go(self, duration_ns: int, faults: Sequence[Fault]) -> None:
        world = self.world
        for name in [*self.names, *BROKERS, "admin", "topics"]:
            world.add_machine(name)
        for name in self.names:
            world.start(name, self._node)
        world.after_each_step(self.check_step)
        # Formatting is an operator's job and not under test: it happens in peace.
        if not world.run_until_condition(lambda: len(self._is_formatted) == len(self.names), 60 * SECOND):
            raise Violation("the nodes were not formatted in a minute")
        world.start("admin", self._administrate)
        world.start("topics", lambda host: administrate_topics(host, self))
        for name, broker_id in BROKERS.items():
            world.start(name, lambda host, me=broker_id: be_a_broker(host, self, me))  # type: ignore[misc]
        if not world.run_until_condition(self._has_begun, world.now_ns + 60 * SECOND):
            raise Violation(f"no brokers and topics in a minute of peace: {self._states()}")
        begin_ns = world.now_ns
        schedule(world, [Fault(begin_ns + one.time_ns, one.kind, one.args) for one in faults])
        world.run_until(begin_ns + duration_ns)
        self._recover(world.now_ns + RECOVERY_NS)
        world.check()
        self._check_acknowledged()

    def _has_begun(self) -> bool:
        return len(self.fold.topics) > 1 and self._are_brokers_active()

    def _are_brokers_active(self) -> bool:
        brokers = self.fold.brokers
        return all(one in brokers and brokers[one].is_active for one in BROKERS.values())

    def _recover(self, deadline_ns: int) -> None:
        """Heals everything. A node may still end because its disk failed a moment before; it is started
        again, as a supervisor would do."""
        world = self.world
        while not self._is_recovered():
            if world.now_ns >= deadline_ns:
                raise Violation(f"not recovered a minute after the faults: {self._states()}")
            heal_everything(world)
            world.kill("admin")
            world.kill("topics")
            world.run_until_condition(lambda: self._is_recovered() or not self._is_running(), deadline_ns)

    def _is_running(self) -> bool:
        return all(map(self.world.is_running, self.names))

    # What runs on the machines

    async def _node(self, host: Host) -> None:
        config = parse_config(f"{host.name}.properties", self._properties(host.name))
        if host.name not in self._is_formatted:
            voter = self.initial if host.name.startswith("v") else None
            await format_storage(host, config, CLUSTER_ID, initial=voter, ignore_formatted=True)
            self._is_formatted.add(host.name)
        node = Node(host, config)
        node.state = WatchedState(self.checks)
        self.nodes[host.name] = node
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.run())
            tasks.create_task(self._write(host, node))

    async def _write(self, host: Host, node: Node) -> None:
        """A client: writes while its node leads, one configuration after the other."""
        await node.is_listening.wait()
        desk = node.desk
        assert desk is not None
        while True:
            await asyncio.sleep(host.random.uniform(0.05, 0.4))
            if desk.active is None:
                continue
            self._next_value += 1
            name = f"group-{self._next_value}"
            response = await desk.ask(_configuration(name), Asker(api_version=1))
            assert isinstance(response, IncrementalAlterConfigsResponse)
            if response.responses[0].error_code == ErrorCode.NONE:
                self.acknowledged.append(name)
                self.expect((GROUP, name) in self.fold.configs, f"{name} was acknowledged too early")

    async def _administrate(self, host: Host) -> None:
        endpoints = {name: self._endpoint(name) for name in self.names}
        await change_voters(host, CLUSTER_ID, endpoints, self.nodes, every_s=3)

    def _properties(self, name: str) -> dict[str, str]:
        servers = ",".join(f"{one}:{PORT}" for one in self.names if one.startswith("v"))
        return {
            **_SETTINGS,
            "node.id": str(self.ids[name]),
            "listeners": f"CONTROLLER://{name}:{PORT}",
            "controller.quorum.bootstrap.servers": servers,
        }

    def _endpoint(self, name: str) -> Endpoint:
        return Endpoint("CONTROLLER", name, PORT)

    @property
    def controllers(self) -> list[tuple[str, int]]:
        return [(name, PORT) for name in self.names]

    @property
    def committed_end(self) -> int:
        return self.checks.folded_end

    # Checkers

    def expect(self, is_so: bool, what: str) -> None:
        """What a client found; it is raised by the next check."""
        if not is_so and self._broken is None:
            self._broken = what

    def check_step(self) -> None:
        if self._broken is not None:
            raise Violation(self._broken)
        for name, node in self.nodes.items():
            if self.world.is_running(name):
                self.checks.look(name, node)

    def _check_acknowledged(self) -> None:
        for name in self.acknowledged:
            if (GROUP, name) not in self.fold.configs:
                raise Violation(f"{name} was acknowledged and is gone")
        self.checks.check_images(self.nodes)

    def _is_recovered(self) -> bool:
        """One leader that has committed, followed by everyone, who have all applied all of it."""
        replicas = [node.replica for node in self.nodes.values()]
        if any(replica is None for replica in replicas) or not self._is_running():
            return False
        epochs = {replica.quorum.epoch for replica in replicas if replica is not None}
        leader_ids = {replica.quorum.leader_id for replica in replicas if replica is not None}
        if len(epochs) != 1 or len(leader_ids) != 1 or -1 in leader_ids:
            return False
        is_caught_up = all(
            replica is not None and replica.applied_offset == self.checks.folded_end for replica in replicas
        )
        return is_caught_up and self._are_brokers_active()

    def _states(self) -> str:
        parts = []
        for name in self.names:
            node = self.nodes.get(name)
            if node is None or node.replica is None or not self.world.is_running(name):
                parts.append(f"{name} down")
            else:
                quorum = node.replica.quorum
                role = f"{type(quorum.role).__name__}@{quorum.epoch}"
                parts.append(f"{name} {role} applied {node.replica.applied_offset}")
        return ", ".join(parts)


def _configuration(group: str) -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value="45000"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP, resource_name=group, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
