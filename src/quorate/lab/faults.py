"""What goes wrong in a run, as data: a sorted list of faults, drawn before the run starts.

Every subset of a list is a valid list: healing what is whole, killing what is dead and starting what runs do
nothing. That is what makes shrinking possible (`lab.shrink`).

Which kinds of faults happen, and how often, is drawn for each seed. A mixture that is the same for all seeds
finds less: some bugs need many of one kind and none of another.

Other kinds, such as adding a voter, come with their own actions:
`schedule(world, faults, {**ACTIONS, "add_voter": ...})`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from quorate.lab.world import MS, SECOND, World
from quorate.values import dataclass

__all__ = [
    "ACTIONS",
    "DRAWS",
    "Draw",
    "Fault",
    "draw_faults",
    "from_text",
    "heal_everything",
    "of_one",
    "schedule",
    "to_text",
]

Argument = str | int | float
Action = Callable[..., None]
Draw = Callable[[random.Random, Sequence[str], int, int], "list[Fault]"]

_GAP_NS_CHOICES = (500 * MS, 2 * SECOND, 8 * SECOND)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something that is done to the world at an instant."""

    time_ns: int
    kind: str
    args: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        return f"{self.time_ns / 1e9:.9f} s {self.kind} {' '.join(map(str, self.args))}".rstrip()


def draw_faults(
    source: random.Random,
    nodes: Sequence[str],
    duration_ns: int,
    draws: Mapping[str, Draw] | None = None,
) -> list[Fault]:
    """Draws a mixture of kinds, then faults of each kind until the end, each kind at its own pace."""
    draws = DRAWS if draws is None else draws
    faults: list[Fault] = []
    chosen = [kind for kind in draws if source.random() < 0.4] or [source.choice(list(draws))]
    for kind in chosen:
        gap_ns = source.choice(_GAP_NS_CHOICES)
        time_ns = 0
        while (time_ns := time_ns + 1 + int(source.expovariate(1 / gap_ns))) < duration_ns:
            faults += draws[kind](source, nodes, time_ns, gap_ns)
    return sorted(fault for fault in faults if fault.time_ns < duration_ns)


def schedule(world: World, faults: Iterable[Fault], actions: Mapping[str, Action] | None = None) -> None:
    """Puts faults into the world's future."""
    actions = ACTIONS if actions is None else actions
    for fault in faults:
        world.call_at(fault.time_ns, _apply, world, fault, actions[fault.kind])


def heal_everything(world: World) -> None:
    """Ends all faults and starts all nodes: after this a correct cluster must recover."""
    world.network.heal_all()
    for name, machine in world.machines.items():
        machine.disk.repair()
        machine.disk.no_crash()
        for other in world.machines:
            world.network.set_latency(name, other, None)
        world.restart(name)


def to_text(faults: Iterable[Fault]) -> str:
    """One line of JSON per fault, to keep beside a seed."""
    return "".join(json.dumps([fault.time_ns, fault.kind, *fault.args]) + "\n" for fault in faults)


def from_text(text: str) -> list[Fault]:
    rows = (json.loads(line) for line in text.splitlines() if line.strip())
    return [Fault(time_ns, kind, tuple(args)) for time_ns, kind, *args in rows]


def _apply(world: World, fault: Fault, action: Action) -> None:
    world.trace.line(world.now_ns, "world", str(fault))
    action(world, *fault.args)


# What the kinds do


def _cut(world: World, one: str, other: str) -> None:
    world.network.cut(one, other)
    world.network.cut(other, one)


def _heal(world: World, one: str, other: str) -> None:
    world.network.heal(one, other)
    world.network.heal(other, one)


def _isolate(world: World, name: str) -> None:
    for other in world.machines:
        if other != name:
            _cut(world, name, other)


def _rejoin(world: World, name: str) -> None:
    for other in world.machines:
        _heal(world, name, other)


def _slow_link(world: World, one: str, to: str, factor: float) -> None:
    world.network.set_latency(one, to, world.network.wires.default.slowed(factor))


def _slow_disk(world: World, name: str, factor: float) -> None:
    world.machines[name].disk.slowness = factor


def _full_disk(world: World, name: str, room_bytes: int) -> None:
    world.machines[name].disk.room_bytes = room_bytes


def _failing_sync(world: World, name: str) -> None:
    world.machines[name].disk.failing_syncs = 1


def _failing_read(world: World, name: str) -> None:
    world.machines[name].disk.failing_reads = 1


def _repair_disk(world: World, name: str) -> None:
    world.machines[name].disk.repair()


def _crash_in_disk(world: World, name: str, count: int, power: str) -> None:
    world.crash_at_operation(name, count, with_power=power == "on")


def _jump_wall(world: World, name: str, delta_ms: int) -> None:
    world.machines[name].clock.jump_wall(delta_ms)


ACTIONS: Mapping[str, Action] = {
    "cut": _cut,
    "cut_one_way": lambda world, one, to: world.network.cut(one, to),
    "heal": _heal,
    "isolate": _isolate,
    "rejoin": _rejoin,
    "lose_packets": lambda world, one, to: world.network.lose_packets(one, to),
    "reset": lambda world, one, other: world.network.reset_connections(one, other),
    "slow_link": _slow_link,
    "kill": lambda world, name: world.kill(name),
    "power_loss": lambda world, name: world.power_loss(name),
    "restart": lambda world, name: world.restart(name),
    "pause": lambda world, name, duration_ns: world.pause(name, duration_ns),
    "crash_in_disk": _crash_in_disk,
    "slow_disk": _slow_disk,
    "full_disk": _full_disk,
    "failing_sync": _failing_sync,
    "failing_read": _failing_read,
    "repair_disk": _repair_disk,
    "clock_rate": lambda world, name, rate: world.set_clock_rate(name, rate),
    "wall_jump": _jump_wall,
}


# How the kinds are drawn: a fault at an instant, and what ends it after about as long as the gap between two


def _later(source: random.Random, time_ns: int, gap_ns: int) -> int:
    return time_ns + 1 + int(source.expovariate(2 / gap_ns))


def _pair(source: random.Random, nodes: Sequence[str]) -> tuple[str, str]:
    if len(nodes) < 2:
        return nodes[0], nodes[0]
    one, other = source.sample(list(nodes), 2)
    return one, other


def _pairwise(kind: str, end: str | None, *args: Argument) -> Draw:
    def draw(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
        pair = _pair(source, nodes)
        faults = [Fault(time_ns, kind, (*pair, *args))]
        if end is not None:
            faults.append(Fault(_later(source, time_ns, gap_ns), end, pair))
        return faults

    return draw


def of_one(
    kind: str, end: str | None, argument: Callable[[random.Random], tuple[Argument, ...]] = lambda _: ()
) -> Draw:
    """Happens to one machine, and is ended by another kind of fault."""

    def draw(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
        name = source.choice(nodes)
        faults = [Fault(time_ns, kind, (name, *argument(source)))]
        if end is not None:
            faults.append(Fault(_later(source, time_ns, gap_ns), end, (name,)))
        return faults

    return draw


def _blackout(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
    """Several machines lose power at nearly the same time: what only memory and unflushed disks held is
    gone."""
    names = source.sample(list(nodes), source.randint(1, len(nodes)))
    faults = []
    for name in names:
        at_ns = time_ns + source.choice((0, source.randrange(20 * MS)))
        faults.append(Fault(at_ns, "power_loss", (name,)))
        faults.append(Fault(_later(source, at_ns, gap_ns), "restart", (name,)))
    return faults


def _slow_pair(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
    one, to = _pair(source, nodes)
    ends = Fault(_later(source, time_ns, gap_ns), "slow_link", (one, to, 1.0))
    return [Fault(time_ns, "slow_link", (one, to, source.choice((3.0, 30.0, 300.0)))), ends]


def _drift(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
    name = source.choice(nodes)
    rate = source.choice((0.9, 0.99, 1.01, 1.1))
    return [
        Fault(time_ns, "clock_rate", (name, rate)),
        Fault(_later(source, time_ns, gap_ns), "clock_rate", (name, 1.0)),
    ]


def _crash_point(source: random.Random) -> tuple[Argument, ...]:
    return int(source.expovariate(1 / 10)), source.choice(("on", "off"))


DRAWS: Mapping[str, Draw] = {
    "cut": _pairwise("cut", "heal"),
    "cut_one_way": _pairwise("cut_one_way", "heal"),
    "isolate": of_one("isolate", "rejoin"),
    "lose_packets": _pairwise("lose_packets", None),
    "reset": _pairwise("reset", None),
    "slow_link": _slow_pair,
    "kill": of_one("kill", "restart"),
    "power_loss": of_one("power_loss", "restart"),
    "blackout": _blackout,
    "pause": of_one("pause", None, lambda source: (int(source.expovariate(1 / (2 * SECOND))),)),
    "crash_in_disk": of_one("crash_in_disk", "restart", _crash_point),
    "slow_disk": of_one("slow_disk", "repair_disk", lambda source: (source.choice((10.0, 300.0)),)),
    "full_disk": of_one("full_disk", "repair_disk", lambda source: (source.randrange(4096),)),
    "failing_sync": of_one("failing_sync", "restart"),
    "failing_read": of_one("failing_read", "restart"),
    "clock_rate": _drift,
    "wall_jump": of_one("wall_jump", None, lambda source: (source.choice((-3_600_000, -500, 500, 60_000)),)),
}
"""Drawing a power loss gives a restart too; a world in which everything stays down shows nothing."""
