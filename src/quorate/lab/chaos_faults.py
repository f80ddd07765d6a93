"""Faults of real clusters: drawn from a seed, and carried out on the processes of a cluster that is up.

They are data like those of simulated clusters (`faults`), and every subset of a list is a valid list here
too: starting what runs, and healing what is whole, do nothing. Killing a process keeps what it wrote: to lose
that, a machine must lose its power, which only a simulated one does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from quorate.lab.faults import Draw, Fault, draw_faults, of_one
from quorate.lab.world import SECOND
from quorate.testing.control import ClusterError, Control, ask_admin

__all__ = ["KINDS", "OF_THE_LAB", "Injector", "draw_chaos_faults"]

OF_THE_LAB: Final = ("partition", "full_disk", "slow_disk")
"""Kinds for which nodes must have `quorate.lab.enabled=true`."""
_HTTP_S: Final = 10.0


def _pairs(kind: str, end: str) -> Draw:
    def draw(source: random.Random, nodes: Sequence[str], time_ns: int, gap_ns: int) -> list[Fault]:
        if len(nodes) < 2:
            return []
        pair = tuple(source.sample(list(nodes), 2))
        later_ns = time_ns + 1 + int(source.expovariate(2 / gap_ns))
        return [Fault(time_ns, kind, pair), Fault(later_ns, end, pair)]

    return draw


KINDS: Final[dict[str, Draw]] = {
    "kill": of_one("kill", "start"),
    "stop": of_one("stop", "start"),
    "pause": of_one("pause", "resume"),
    "partition": _pairs("partition", "heal"),
    "full_disk": of_one("full_disk", "repair_disk"),
    "slow_disk": of_one("slow_disk", "repair_disk", lambda source: (source.choice((50, 500, 2000)),)),
}


_FEW: Final = 3
_GAP_NS: Final = 6 * SECOND


def draw_chaos_faults(
    seed: int, node_ids: Sequence[int], seconds: int, kinds: Sequence[str] = tuple(KINDS)
) -> list[Fault]:
    """A mixture of its own for each seed, of these kinds; all of them if they are few."""
    source = random.Random(f"{seed}/chaos")
    names = [str(one) for one in node_ids]
    end_ns = seconds * SECOND
    if len(kinds) > _FEW:
        return draw_faults(source, names, end_ns, {kind: KINDS[kind] for kind in kinds})
    faults: list[Fault] = []
    for kind in kinds:
        time_ns = 0
        while (time_ns := time_ns + int(source.uniform(0.1, 1.0) * _GAP_NS)) < end_ns:
            faults += KINDS[kind](source, names, time_ns, _GAP_NS)
    return sorted(one for one in faults if one.time_ns < end_ns)


class Injector:
    """Does to a cluster what faults say. Everything blocks: it runs in a thread."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._cut: set[frozenset[int]] = set()
        self._in_the_lab: set[int] = set()

    def apply(self, fault: Fault) -> str | None:
        """Carries a fault out. Why not, if it cannot be: the node may be dead already, or alive."""
        try:
            getattr(self, f"_{fault.kind}")(*fault.args)
        except (ClusterError, OSError) as error:
            return str(error).splitlines()[0]
        return None

    def heal_everything(self) -> None:
        """Ends all faults, and starts whatever does not run."""
        self._cut.clear()
        for node in self._control.state()["nodes"]:
            if node["state"] == "paused":
                self._control.order("resume", node["id"])
            elif node["pid"] is None:
                self._control.start(node["id"])
        for node in self._control.state()["nodes"]:
            if node["admin"] is not None and node["id"] in self._in_the_lab:
                self._ask(node, "/v1/lab/cut?addresses=")
                self._ask(node, "/v1/lab/disk")

    def has_a_lab(self) -> bool:
        """Whether networks and disks of all nodes can be broken."""
        for node in self._control.state()["nodes"]:
            with suppress(ClusterError):
                self._ask(node, "/v1/lab/cut?addresses=")
                self._in_the_lab.add(node["id"])
        return all(one["id"] in self._in_the_lab for one in self._control.state()["nodes"])

    def _kill(self, node: str) -> None:
        self._control.order("kill", int(node))

    def _stop(self, node: str) -> None:
        self._control.order("stop", int(node))

    def _start(self, node: str) -> None:
        state = self._control.node(int(node))
        if state["pid"] is None:
            self._control.start(int(node))

    def _pause(self, node: str) -> None:
        self._control.order("pause", int(node))

    def _resume(self, node: str) -> None:
        self._control.order("resume", int(node))

    def _partition(self, one: str, other: str) -> None:
        self._cut.add(frozenset((int(one), int(other))))
        self._tell_cuts()

    def _heal(self, one: str, other: str) -> None:
        self._cut.discard(frozenset((int(one), int(other))))
        self._tell_cuts()

    def _full_disk(self, node: str) -> None:
        self._ask(self._control.node(int(node)), "/v1/lab/disk?full=true")

    def _slow_disk(self, node: str, delay_ms: int) -> None:
        self._ask(self._control.node(int(node)), f"/v1/lab/disk?sync_delay_ms={delay_ms}")

    def _repair_disk(self, node: str) -> None:
        self._ask(self._control.node(int(node)), "/v1/lab/disk")

    def _tell_cuts(self) -> None:
        """Each node is told whom it cannot reach; one that does not answer is cut off by the others."""
        nodes = {one["id"]: one for one in self._control.state()["nodes"]}
        for node in nodes.values():
            others = [next(iter(pair - {node["id"]})) for pair in self._cut if node["id"] in pair]
            listed = sorted(address for other in others for address in nodes[other]["listeners"].values())
            if node["admin"] is not None and node["state"] == "running":
                self._ask(node, f"/v1/lab/cut?addresses={','.join(listed)}")

    def _ask(self, node: dict[str, Any], path: str) -> None:
        if node["admin"] is None:
            raise ClusterError(f"node {node['id']} is not running")
        if node["state"] == "paused":
            raise ClusterError(f"node {node['id']} is paused")
        ask_admin(node["admin"], path, method="POST", timeout_s=_HTTP_S)
