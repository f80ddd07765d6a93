"""The faults of a whole cluster, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from quorate.lab.faults import DRAWS, Draw, Fault, draw_faults, of_one
from quorate.lab.world import MS, SECOND, World

__all__ = ["BROKERS", "CLIENTS", "controllers_of", "draw_cluster_faults"]

BROKERS: Final = {"b101": 101, "b102": 102, "b103": 103}
CLIENTS: Final = (
    *("writer1", "writer2", "reader", "auditor", "admin", "voters"),
    *("member1", "member2", "member3", "member4"),
)
_RARE_GAP_NS: Final = 2 * SECOND
_CRASH_GAP_NS: Final = 12 * SECOND  # a broker that crashed should be in sync again before the next
_CRASHES: Final = frozenset({"power_loss", "crash_in_disk", "failing_sync", "replace"})


def controllers_of(seed: int) -> dict[str, int]:
    """Three voters, and in every other seed a fourth controller that may become one."""
    return {f"v{number}": number for number in range(1, 4 + seed % 2)}


def draw_cluster_faults(seed: int, duration_ns: int) -> list[Fault]:
    """A mixture of kinds of its own for each seed."""
    source = World(seed).random("faults", "cluster")
    nodes = [*controllers_of(seed), *BROKERS]
    kinds: dict[str, Draw] = {
        **DRAWS,
        "leave": of_one("leave", "restart"),
        "replace": _replacement,
        "storm": _storm,
        "roll": _roll,
        "kill_client": _client_dies,
    }
    # Many kinds at once leave nothing alive to be looked at.
    chosen = {kind: draw for kind, draw in kinds.items() if source.random() < 0.5}
    faults = draw_faults(source, nodes, duration_ns, chosen or kinds)
    # Where every holder of a record crashes, its loss is excused, and there is little left to look for.
    return list(_one_crash_at_a_time(faults)) if source.random() < 0.8 else faults


def _one_crash_at_a_time(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Without those by which a broker may lose something soon after another one has."""
    free_at_ns = 0
    for fault in faults:
        if fault.kind in _CRASHES and fault.args[0] in BROKERS:
            if fault.time_ns < free_at_ns:
                continue
            free_at_ns = fault.time_ns + _CRASH_GAP_NS
        yield fault


def _replacement(source: random.Random, nodes: Sequence[str], time_ns: int, _gap_ns: int) -> list[Fault]:
    """A broker dies with its disk, and another takes its id."""
    name = source.choice([one for one in nodes if one in BROKERS])
    later_ns = time_ns + 1 + int(source.expovariate(1 / _RARE_GAP_NS))
    return [Fault(time_ns, "replace", (name,)), Fault(later_ns, "restart", (name,))]


def _storm(source: random.Random, nodes: Sequence[str], time_ns: int, _gap_ns: int) -> list[Fault]:
    """Every broker is killed within a second or less, and all come back together."""
    back_ns = time_ns + 1 + int(source.expovariate(1 / _RARE_GAP_NS))
    spread_ns = source.choice((0, 100 * MS, SECOND))
    faults = [
        Fault(time_ns + source.randint(0, spread_ns), "kill", (one,)) for one in nodes if one in BROKERS
    ]
    return [*faults, *(Fault(back_ns + spread_ns, "restart", (one,)) for one in nodes if one in BROKERS)]


def _roll(source: random.Random, nodes: Sequence[str], time_ns: int, _gap_ns: int) -> list[Fault]:
    """Every broker is told to leave and started again, one after the other."""
    faults, at_ns = [], time_ns
    for name in [one for one in nodes if one in BROKERS]:
        faults.append(Fault(at_ns, "leave", (name,)))
        at_ns += 1 + int(source.expovariate(1 / _RARE_GAP_NS))
        faults.append(Fault(at_ns, "restart", (name,)))
        at_ns += 1 + int(source.expovariate(1 / _RARE_GAP_NS))
    return faults


def _client_dies(source: random.Random, _nodes: Sequence[str], time_ns: int, _gap_ns: int) -> list[Fault]:
    name = source.choice(CLIENTS)
    if name == "reader":  # it remembers what it has read, and must not begin anew
        return [Fault(time_ns, "pause", (name, int(source.expovariate(1 / _RARE_GAP_NS))))]
    later_ns = time_ns + 1 + int(source.expovariate(1 / _RARE_GAP_NS))
    return [Fault(time_ns, "kill", (name,)), Fault(later_ns, "restart", (name,))]
