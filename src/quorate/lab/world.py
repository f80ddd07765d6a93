"""A world: machines with clocks and disks, a network between them, processes on them, and one seed for all.

    async def main(host: Host) -> None: ...      # a production node

    with World(seed=7) as world:
        world.add_machine("n1")
        world.start("n1", main)                  # runs main(host) as the root task of a process
        world.run_for(5 * SECOND)
        world.kill("n1")                         # kill -9: the disk keeps everything
        world.power_loss("n1")                   # what was not flushed is lost or torn; the machine is down
        world.restart("n1")                      # boots if need be, and starts the last main again
        world.run_until_condition(lambda: ..., deadline_ns=60 * SECOND)
        world.check()                            # raises if any node's code failed

The same seed gives the same run, step by step: compare `world.trace.digest()`. Leaving the `with` block ends
all processes and closes what is left of their coroutines, without effects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from quorate.lab.clock import MachineClock
from quorate.lab.clockwork import Clockwork, Problem
from quorate.lab.disk import Disk, SimulatedFiles
from quorate.lab.network import Network
from quorate.lab.node_loop import NodeLoop
from quorate.lab.trace import Trace
from quorate.node.host import Host
from quorate.values import dataclass

__all__ = ["MS", "SECOND", "Exit", "Machine", "Main", "SeedFailed", "World"]

MS = 1_000_000
SECOND = 1_000_000_000

Main = Callable[[Host], Coroutine[Any, Any, object]]


@dataclass(frozen=True, slots=True)
class Exit:
    """A process ended by itself: its root task returned or raised."""

    time_ns: int
    node: str
    exception: BaseException | None


class SeedFailed(AssertionError):  # noqa: N818  # it is an event, not an error of its raiser
    """A run met problems that are nobody's fault but the code's."""


class Machine:
    """What outlives a process: clock, disk, address, and what to start."""

    def __init__(self, name: str, index: int, clock: MachineClock, disk: Disk, address: str) -> None:
        self.name = name
        self.index = index
        self.clock = clock
        self.disk = disk
        self.address = address
        self.has_power = True
        self.incarnations = 0
        self.process: NodeLoop | None = None
        self.main: Main | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.dead


class World:
    """Everything that one seed decides."""

    def __init__(
        self,
        seed: int,
        *,
        like_uvloop: bool | None = None,
        lines_per_node_max: int = 0,
        tolerate: Callable[[Exit], bool] = lambda _: False,
    ) -> None:
        """`like_uvloop` is left to the seed unless given. `tolerate` says which exits with an exception are
        what a node should do, such as stopping because its disk failed."""
        self.seed = seed
        self.trace = Trace(lines_per_node_max)
        self.clockwork = Clockwork(self.trace)
        self.network = Network(self.clockwork, self.random)
        self.machines: dict[str, Machine] = {}
        self.problems: list[Problem] = []
        self.exits: list[Exit] = []
        self._tolerate = tolerate
        self._processes: list[NodeLoop] = []
        manners = self.random("world", "manners")
        self.like_uvloop = manners.random() < 0.5 if like_uvloop is None else like_uvloop

    def random(self, purpose: str, name: str) -> random.Random:
        """A stream of its own for each purpose, so that one more draw in one place does not change the
        others."""
        return random.Random(f"{self.seed}/{purpose}/{name}")

    # Machines and processes

    def add_machine(self, name: str) -> Machine:
        """Adds a machine that is on and runs nothing."""
        assert name not in self.machines, f"{name} is there already"
        clock = MachineClock(self.random("clock", name), self.clockwork.now_ns)
        disk = Disk(self.clockwork, name, self.random("disk", name))
        address = self.network.add_machine(name)
        machine = self.machines[name] = Machine(name, len(self.machines) + 1, clock, disk, address)
        return machine

    def start(self, name: str, main: Main) -> NodeLoop:
        """Starts a process on a machine, on which none may be running."""
        machine = self.machines[name]
        assert not machine.is_running, f"{name} is running already"
        if not machine.has_power:
            self._boot(machine)
        machine.main = main
        machine.incarnations += 1
        incarnation = f"{name}/{machine.incarnations}"
        loop = NodeLoop(
            self.clockwork,
            name,
            machine.incarnations,
            machine.index,
            machine.clock,
            self.random("loop", incarnation),
            self.network,
            like_uvloop=self.like_uvloop,
            on_problem=self.problems.append,
            on_exit=self._exited,
        )
        host = Host(
            name=name,
            files=SimulatedFiles(machine.disk, loop),
            random=self.random("node", incarnation),
            wall_ms=lambda: machine.clock.wall_ms(self.clockwork.now_ns),
            executor=None,
        )
        machine.process = loop
        self._processes.append(loop)
        loop.begin(lambda: main(host))
        return loop

    def restart(self, name: str) -> None:
        """Starts what was started last, if it is not running; the machine gets power if it has none."""
        machine = self.machines[name]
        if not machine.is_running and machine.main is not None:
            self.start(name, machine.main)

    def kill(self, name: str) -> None:
        """kill -9: nothing of the process runs again; its kernel closes its sockets, its files stay as
        written."""
        machine = self.machines[name]
        if machine.is_running:
            assert machine.process is not None
            self._end(machine, machine.process, "killed")

    def power_loss(self, name: str) -> None:
        """The machine stops in the middle of everything, says nothing to anybody, and is down until
        `restart`."""
        machine = self.machines[name]
        if not machine.has_power:
            return
        self._note(machine, "lost power")
        machine.has_power = False
        if machine.process is not None:
            machine.process.die()
        self.network.machine_down(name)
        machine.disk.power_fails()

    def pause(self, name: str, duration_ns: int) -> None:
        """The process does nothing for a while: a stopped process, a frozen virtual machine."""
        process = self.machines[name].process
        if process is not None:
            until_ns = self.clockwork.now_ns + duration_ns
            process.paused_until_ns = max(process.paused_until_ns, until_ns)

    def set_clock_rate(self, name: str, rate: float) -> None:
        """The clock of a machine runs faster or slower from now on."""
        machine = self.machines[name]
        if machine.process is not None and machine.is_running:
            machine.process.set_clock_rate(rate)
        else:
            machine.clock.set_rate(self.clockwork.now_ns, rate)

    def crash_at_operation(self, name: str, count: int, *, with_power: bool = True) -> None:
        """Ends the process at the disk operation after the next `count`: killed, or with the power gone."""
        crash = self.kill if with_power else self.power_loss
        self.machines[name].disk.crash_at_operation(count, lambda: crash(name))

    def is_running(self, name: str) -> bool:
        return self.machines[name].is_running

    # Time

    @property
    def now_ns(self) -> int:
        return self.clockwork.now_ns

    def call_at(self, time_ns: int, callback: Callable[..., object], *args: Any) -> None:
        """Calls something that belongs to no node: a fault, a check."""
        self.clockwork.at(time_ns, self.clockwork.kernel, callback, args)

    def after_each_step(self, hook: Callable[[], None]) -> None:
        """Adds a checker; it raises when an invariant is broken, and the run ends there."""
        self.clockwork.hooks.append(hook)

    def run_until(self, time_ns: int) -> None:
        self.clockwork.run(time_ns)

    def run_for(self, duration_ns: int) -> None:
        self.clockwork.run(self.now_ns + duration_ns)

    def run_until_condition(self, condition: Callable[[], bool], deadline_ns: int) -> bool:
        """Runs until a condition holds after a step; False if it does not by the deadline."""
        return condition() or self.clockwork.run(deadline_ns, condition)

    # The end

    def check(self) -> None:
        """Raises if code of a node failed in a way that no fault excuses."""
        if self.problems:
            listed = "\n".join(f"  {problem}" for problem in self.problems[:20])
            error = SeedFailed(f"seed {self.seed}: {len(self.problems)} problems\n{listed}")
            raise error from self.problems[0].exception

    def close(self) -> None:
        """Ends the world. Nothing that runs because of it has an effect."""
        for process in self._processes:
            process.die()
        for process in self._processes:
            process.close_graves()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _boot(self, machine: Machine) -> None:
        machine.has_power = True
        uptime_s = self.random("boot", f"{machine.name}/{machine.incarnations}").uniform(1.0, 60.0)
        machine.clock.reboot(self.now_ns, uptime_s)
        self.network.machine_up(machine.name)
        self._note(machine, "booted")

    def _exited(self, loop: NodeLoop, exception: BaseException | None) -> None:
        """The root task of a process ended. Without this record a dead node would look like a quiet one."""
        if loop.dead:
            return
        if isinstance(exception, SystemExit) and not exception.code:
            exception = None
        record = Exit(self.now_ns, loop.name, exception)
        self.exits.append(record)
        if exception is not None and not self._tolerate(record):
            self.problems.append(Problem(self.now_ns, loop.name, "the node ended", exception))
        self._end(self.machines[loop.machine], loop, "exited")

    def _end(self, machine: Machine, loop: NodeLoop, how: str) -> None:
        self._note(machine, how)
        loop.die()
        self.network.process_died(loop)
        machine.disk.process_ended()

    def _note(self, machine: Machine, what: str) -> None:
        self.trace.note(machine.index, self.trace.code(what))
        self.trace.line(self.now_ns, machine.name, what)
