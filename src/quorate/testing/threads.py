"""A cluster inside the caller's process: all nodes on one event loop, which a thread of its own runs.

It starts fast and needs no other process. Nodes can be stopped and started, but not killed, paused or
partitioned: what a process does when it dies only a process can show.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.node.process import loop_factory
from quorate.storage.errors import StorageError
from quorate.testing.control import ClusterError, State
from quorate.testing.plan import NodePlan, Plan, obtain_plan
from quorate.testing.ports import HOST, claim

__all__ = ["ThreadedNodes"]

_DISK_THREADS: Final = 4
_POLL_S: Final = 0.005
_END_S: Final = 60.0

T = TypeVar("T")


class ThreadedNodes:
    """The nodes of a plan, started. `end` is to be called whatever happens."""

    def __init__(self, directory: Path, wanted: Mapping[str, Any]) -> None:
        """As `control.launch`. The caller may be on an event loop, so the plan is made on ours."""
        logging.getLogger("quorate").addHandler(
            logging.NullHandler()
        )  # what is heard is for the caller to say
        self._nodes: dict[int, Node] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._executor = ThreadPoolExecutor(_DISK_THREADS, "quorate-disk")
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._run_loop, name="quorate", daemon=True)
        self._plan = self._planned(directory, wanted)
        self._claims = claim(self._plan.ports)
        self._thread.start()
        for one in self._plan.nodes:
            self.start(one.id)

    def start(self, node_id: int) -> None:
        plan = self._plan.node(node_id)

        async def start() -> None:
            if node_id in self._running and not self._running[node_id].done():
                raise ClusterError(f"node {node_id} is running")
            node = Node(real_host(str(node_id), self._executor), load_config(str(plan.file)))
            self._nodes[node_id] = node
            self._running[node_id] = asyncio.get_running_loop().create_task(node.run())

        self._do(start())

    def stop(self, node_id: int, timeout_s: float) -> None:
        """In order."""
        self._plan.node(node_id)
        self._do(self._stop(node_id), timeout_s)

    def restart(self, node_id: int, timeout_s: float) -> None:
        self.stop(node_id, timeout_s)
        self.start(node_id)
        self.wait_until_ready(timeout_s, node_id)

    def wait_until_ready(self, timeout_s: float, *node_ids: int) -> None:
        deadline = time.monotonic() + timeout_s
        while reasons := self._do(self._why_not_ready(node_ids)):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"waited {timeout_s:g} s for the cluster to be ready: {'; '.join(reasons)}"
                )
            time.sleep(_POLL_S)

    def state(self) -> State:
        nodes, plan = [self._described(one) for one in self._plan.nodes], self._plan
        return {
            "ready": all(one["ready"] for one in nodes),
            "cluster_id": plan.cluster_id,
            "bootstrap_servers": plan.bootstrap_servers,
            "bootstrap_controllers": plan.bootstrap_controllers,
            "nodes": nodes,
        }

    def end(self) -> None:
        """Brokers first, then what is left."""
        try:
            for some in (
                [one.id for one in self._plan.nodes if one.is_broker],
                [one.id for one in self._plan.nodes if not one.is_broker],
            ):
                with contextlib.suppress(Exception):  # how a node ended says `wait_until_ready`
                    self._do(self._stop(*some), _END_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._executor.shutdown()
            for one in self._claims:
                one.close()

    # On the loop

    def _planned(self, directory: Path, wanted: Mapping[str, Any]) -> Plan:
        plans: list[Plan] = []
        errors: list[Exception] = []

        def plan() -> None:
            try:
                plans.append(obtain_plan(directory, **wanted))
            except (ConfigError, StorageError) as error:
                errors.append(error)

        thread = threading.Thread(target=plan, name="quorate-plan")
        thread.start()
        thread.join()
        if not plans:
            raise ClusterError(str(errors[0]) if errors else "the cluster was not planned")
        return plans[0]

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(_gathered(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _stop(self, *node_ids: int) -> None:
        running = [one for one in node_ids if one in self._running]
        for one in running:
            if not self._running[one].done():
                self._nodes[one].stop()
        ended = await asyncio.gather(*(self._running[one] for one in running), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise ClusterError(f"a node has failed: {error!r}") from error

    async def _why_not_ready(self, node_ids: tuple[int, ...]) -> list[str]:
        reasons = []
        for node_id in node_ids or tuple(one.id for one in self._plan.nodes):
            task = self._running[node_id]
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise ClusterError(f"node {node_id} has failed: {_innermost(error)}") from error
            reason = "it has ended" if task.done() else self._nodes[node_id].why_not_ready()
            if reason is not None:
                reasons.append(f"node {node_id}: {reason}")
        return reasons

    def _do(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        done = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return done.result(timeout_s)
        except TimeoutError:
            done.cancel()
            raise ClusterError(f"not done in {timeout_s:g} s") from None

    def _described(self, plan: NodePlan) -> State:
        task, node = self._running[plan.id], self._nodes[plan.id]
        is_running = not task.done()
        return {
            "id": plan.id,
            "roles": list(plan.roles),
            "state": "running" if is_running else "stopped",
            "ready": is_running and node.why_not_ready() is None,
            "pid": None,
            "host": HOST,
            "port": plan.port,
            "listeners": dict(plan.listeners),
            "admin": _admin(plan) if is_running else None,
            "data": str(plan.data),
        }


async def _gathered(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _admin(plan: NodePlan) -> str | None:
    try:
        return (plan.data / "admin-address").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
