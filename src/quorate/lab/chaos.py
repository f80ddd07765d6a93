"""Faults on the processes of a cluster that is up, and the same promises as in a simulation.

The clients are those of simulated clusters (`cluster_clients`), on the real loop; besides, some keep
registers (`chaos_registers`). When the faults are over everything is healed, and within minutes every node
must be ready, every client done, and everything that anybody was told must be so. What can only be seen
inside of nodes (`replication_checks`) is left to the simulation. Every fault is data, in the form of the
journals in which the nodes say what followed: `Found.rows`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quorate.client.admin import Admin
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.controllers import Controllers
from quorate.client.errors import Unavailable
from quorate.client.fetcher import Fetcher
from quorate.client.group_consumer import GroupProtocol
from quorate.lab.chaos_faults import Injector
from quorate.lab.chaos_registers import SETTING, Histories, change_settings, use_registers
from quorate.lab.cluster_clients import audit, be_a_member, read, write
from quorate.lab.delivery_checks import DeliveryChecks
from quorate.lab.faults import Fault
from quorate.lab.group_checks import GroupChecks, Place
from quorate.lab.linearizability import UndecidedError, explain, order_problem
from quorate.lab.outcome import Violation
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import ConfigRecord
from quorate.net.connections import Address
from quorate.node.host import Host, real_host
from quorate.protocol.batch import read_header, records
from quorate.protocol.errors import ApiError
from quorate.testing.control import ClusterError, Control

__all__ = ["Chaos", "Found"]

PARTITIONS: Final = 4
WRITERS: Final = ("writer1", "writer2")
REGISTER_CLIENTS: Final = 3
RECOVERY_S: Final = 180.0
_SETTINGS: Final = ClusterSettings(request_timeout_ms=5000, metadata_timeout_ms=2000, connect_timeout_ms=2000)


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to. `violation` is None if every promise was kept."""

    violation: str | None
    acknowledged: int
    register_operations: int
    settings: int
    rebalances: int
    checks: int
    faults: int
    rows: list[dict[str, Any]] = field(default_factory=list)


class Chaos:
    """One run on one cluster. It is the `Run` of its clients."""

    def __init__(
        self,
        control: Control,
        seed: int,
        *,
        tell: Callable[[str], None] = lambda _: None,
        partitions: int = PARTITIONS,
    ) -> None:
        state = control.state()
        self._control = control
        self._injector = Injector(control)
        self.has_a_lab = self._injector.has_a_lab()
        self._seed = seed
        self._tell = tell
        self.bootstrap: Sequence[Address] = _addresses(state["bootstrap_servers"])
        self._controllers = _addresses(state.get("bootstrap_controllers") or "")
        mark = f"{seed}-{time.time_ns() // 1_000_000}"  # each run has topics and groups of its own
        self.topic, self._registers, self._setting = (f"chaos-{mark}", f"registers-{mark}", f"setting-{mark}")
        self._groups = {
            f"classic-{mark}": GroupProtocol.CLASSIC,
            f"consumer-{mark}": GroupProtocol.CONSUMER,
        }
        self.partitions = partitions
        self.deliveries = DeliveryChecks(partitions)
        self.groups = GroupChecks(lambda _: True)
        self.histories = Histories()
        self.is_over = False
        self.rows: list[dict[str, Any]] = []
        self._has_ended: set[str] = set()
        self._broken: Violation | None = None

    async def run(self, faults: Sequence[Fault], seconds: float) -> Found:
        """Lets the clients work, does what the faults say, heals, and checks."""
        violation = None
        async with AsyncExitStack() as closing:
            clients = await self._start_clients(closing)
            try:
                await self._wait(lambda: all(self.deliveries.acknowledged), 60, "the clients to begin")
                await self._break(faults, seconds)
                await self._recover(clients)
                await self._check()
            except (Violation, UndecidedError) as error:
                violation = str(error)
            finally:
                self.is_over = True
                for one in clients.values():
                    one.cancel()
                await asyncio.gather(*clients.values(), return_exceptions=True)
        self._row("Remark", violation or "every promise was kept")
        return Found(
            violation,
            sum(map(len, self.deliveries.acknowledged)),
            sum(map(len, self.histories.registers.values())),
            len(self.histories.settings),
            self.groups.rebalances,
            self.groups.checks + self.groups.offsets.reads,
            len(faults),
            self.rows,
        )

    # What the clients know

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def has_written_all(self) -> bool:
        return self.is_over and set(WRITERS) <= self._has_ended

    def expect(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Violation as violation:
            self._broken = self._broken or violation

    async def end(self, name: str) -> None:
        self._has_ended.add(name)

    # How it goes

    async def _start_clients(self, closing: AsyncExitStack) -> dict[str, asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        started: dict[str, asyncio.Task[None]] = {}
        for name in WRITERS:
            started[name] = loop.create_task(write(self._host(name), self))
        await self._wait(lambda: all(self.deliveries.acknowledged), 60, "the writers to begin")
        started["reader"] = loop.create_task(read(self._host("reader"), self))
        for number in range(4):
            group = list(self._groups)[number % 2]
            name = f"member{number}"
            member = be_a_member(self._host(name), self, group, self._groups[group])
            started[name] = loop.create_task(member)
        started["auditor"] = loop.create_task(audit(self._host("auditor"), self, list(self._groups)))
        for number in range(REGISTER_CLIENTS):
            chance = random.Random(f"{self._seed}/registers/{number}")
            cluster = await closing.enter_async_context(Cluster(self.bootstrap, settings=_SETTINGS))
            using = use_registers(cluster, self._registers, self.histories, chance, lambda: self.is_over)
            started[f"registers{number}"] = loop.create_task(using)
        cluster = await closing.enter_async_context(Cluster(self.bootstrap, settings=_SETTINGS))
        chance = random.Random(f"{self._seed}/settings")
        changing = change_settings(cluster, self._setting, self.histories, chance, lambda: self.is_over)
        started["settings"] = loop.create_task(changing)
        return started

    def _host(self, name: str) -> Host:
        return replace(real_host(name), random=random.Random(f"{self._seed}/{name}"))

    async def _break(self, faults: Sequence[Fault], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in faults:
            await self._wait_until(began + fault.time_ns / 1e9)
            problem = await asyncio.to_thread(self._injector.apply, fault)
            target = " ".join(map(str, fault.args))
            text = f"{fault.kind} {target}" + (f": not possible, {problem}" if problem else "")
            self._tell(f"{loop.time() - began:7.2f} s  {text}")
            fields = {"fault": fault.kind, "target": target, "is_done": problem is None}
            self._row("Fault", text, **fields)
        await self._wait_until(began + seconds)

    async def _wait_until(self, at: float) -> None:
        while (left := at - self.now_s) > 0:
            if self._broken is not None:
                raise self._broken
            await asyncio.sleep(min(left, 0.1))

    async def _recover(self, clients: dict[str, asyncio.Task[None]]) -> None:
        self._tell("the faults are over: everything is healed")
        self._row("Remark", "the faults are over: everything is healed")
        deadline = self.now_s + RECOVERY_S
        while True:
            try:
                await asyncio.to_thread(self._injector.heal_everything)
                await asyncio.to_thread(self._control.wait_until_ready, 30.0)
                break
            except (ClusterError, OSError) as error:
                if self.now_s > deadline:
                    raise Violation(f"the cluster is not ready again: {error}") from None
                await asyncio.sleep(1)
        self.is_over = True
        done = [*WRITERS, "reader", "settings", *(f"registers{one}" for one in range(REGISTER_CLIENTS))]
        await self._wait(
            lambda: all(clients[name].done() for name in done), deadline - self.now_s, "the clients to finish"
        )
        for name in done:
            clients[name].result()
        ends = await self._ends()
        await self._wait(
            lambda: all(
                (self.groups.offsets.last_acknowledged(Place(group, self.topic, partition)) or 0) >= end
                for group in self._groups
                for partition, end in enumerate(ends)
            ),
            deadline - self.now_s,
            "the groups to commit everything",
        )

    async def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = self.now_s + seconds
        while not condition():
            if self._broken is not None:
                raise self._broken
            if self.now_s > deadline:
                raise Violation(f"waited {seconds:.0f} s for {what}")
            await asyncio.sleep(0.1)

    # The checks

    async def _check(self) -> None:
        ends = await self._ends()
        async with Cluster(self.bootstrap, settings=_SETTINGS) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({(self.topic, partition): 0 for partition in range(self.partitions)})
            values: list[dict[int, bytes]] = [{} for _ in range(self.partitions)]
            while any(len(found) < end for found, end in zip(values, ends, strict=True)):
                for part in await fetcher.fetch(timeout_ms=5000):
                    for record in part.records():
                        values[part.partition][record.offset] = bytes(record.value or b"")
        for partition, found in enumerate(values):
            self.deliveries.check_log(partition, found)
        for key, history in self.histories.registers.items():
            problem = explain(history)
            if problem is not None:
                raise Violation(f"register {key}: {problem}")
        await self._check_settings()

    async def _ends(self) -> list[int]:
        async with Cluster(self.bootstrap, settings=_SETTINGS) as cluster:
            wanted = {(self.topic, partition): -1 for partition in range(self.partitions)}
            found = await Admin(cluster).list_offsets(wanted)
            return [found[one].offset for one in sorted(found)]

    async def _check_settings(self) -> None:
        """The order of the metadata log is that of real time, and nothing acknowledged is missing in it."""
        if not self._controllers:
            return  # a cluster without a metadata log
        offsets: dict[int, int] = {}
        async with Controllers(self._controllers) as controllers:
            try:
                history = await controllers.read_log()
            except (ApiError, Unavailable) as error:
                raise Violation(f"the metadata log cannot be read after the faults: {error}") from None
        for batch in history.log:
            header = read_header(batch)
            if header.is_control:
                continue
            for record in records(batch, header):
                message, _ = decode_record(record.value or b"")
                if not isinstance(message, ConfigRecord) or message.resource_name != self._setting:
                    continue
                if message.name == SETTING and message.value is not None:
                    offsets.setdefault(int(message.value), record.offset)
        acknowledged = [one for one in self.histories.settings if one[1] < float("inf")]
        missing = [value for _, _, value in acknowledged if value not in offsets]
        if missing and not history.snapshot_end_offset:
            raise Violation(f"setting {missing[0]} was acknowledged, and is not in the metadata log")
        order = [(begun, ended, offsets[value]) for begun, ended, value in acknowledged if value in offsets]
        problem = order_problem(order)
        if problem is not None:
            raise Violation(f"the metadata log: {problem}")

    def _row(self, kind: str, text: str, **fields: object) -> None:
        now_ms = time.time_ns() // 1_000_000
        row = {"version": 1, "sequence": len(self.rows), "time_ms": now_ms, "kind": kind, "text": text}
        self.rows.append({**row, **fields})


def _addresses(text: str) -> list[Address]:
    pairs = (one.rpartition(":") for one in text.split(",") if one)
    return [(host, int(port)) for host, _, port in pairs]
