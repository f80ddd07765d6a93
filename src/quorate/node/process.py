"""Running a node as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from socket import socket
from typing import TYPE_CHECKING, Final

from quorate.metadata.errors import ImageError
from quorate.node.config import ConfigError, NodeConfig
from quorate.node.config_file import load_config
from quorate.node.file_limit import connections_allowed, files_for_segments, raised_limit
from quorate.node.host import Host, real_host
from quorate.node.logs import set_up as set_up_logs
from quorate.node.node import Node, NodeFailed
from quorate.storage.errors import StorageError
from quorate.storage.troubled_files import TroubledFiles

if TYPE_CHECKING:
    from quorate.node.zookeeper_node import ZooKeeperNode

__all__ = ["loop_factory", "make_node", "run"]

_DISK_THREADS = 4


# How many more objects there must be before the new ones, those of some rounds, and all are looked through
# for garbage. What a node has it mostly keeps; to look through all of it takes some seconds with 60,000
# replicas: nobody is answered meanwhile. Most garbage is gone without that.
_LOOKED_THROUGH_AFTER: Final = (5_000, 20, 20)


def run(path: str, opened: dict[str, socket] | None = None) -> None:
    """Runs the node of a file until it has ended. `opened` is what listens already: see `early_listening`."""
    opened = {} if opened is None else opened
    try:
        _run_config(path, load_config(path), opened)
    finally:
        for one in opened.values():  # that nobody has taken
            one.close()


def _run_config(path: str, config: NodeConfig, opened: dict[str, socket]) -> None:
    gc.set_threshold(*_LOOKED_THROUGH_AFTER)
    set_up_logs(sys.stderr, config["quorate.log.format"], config["quorate.log.level"])
    # Raised in `except*`, some releases of Python 3.11 put it in a group.
    failure: BaseException | None = None
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_run(config, opened))
    except* (StorageError, ConfigError, ImageError, NodeFailed) as group:
        failure = _first(group)
    except* OSError as group:
        failure = ConfigError(f"{path}: {_first(group)}")
    if failure is not None:
        raise failure


def make_node(
    host: Host, config: NodeConfig, *, stopwatch: Callable[[], float] | None = None
) -> Node | ZooKeeperNode:
    """The node that a file describes, of either mode."""
    if config.is_of_zookeeper:
        from quorate.node.zookeeper_node import ZooKeeperNode

        return ZooKeeperNode(host, config, stopwatch=stopwatch)
    return Node(host, config, stopwatch=stopwatch)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one; otherwise the standard loop, which does the same."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(config: NodeConfig, opened: dict[str, socket]) -> None:
    limit, connections_max = raised_limit(), config["max.connections"]
    files_max = files_for_segments(limit, connections_max)
    allowed_max = connections_allowed(limit)
    if connections_max > allowed_max:
        logging.getLogger("quorate.node").warning(
            "few files may be open: limit=%d max.connections=%d files=%d connections=%d",
            limit,
            connections_max,
            files_max,
            allowed_max,
        )
    with ThreadPoolExecutor(_DISK_THREADS, "disk") as executor:
        host = real_host(f"{config.node_id}", executor, files_max, opened, allowed_max)
        if config["quorate.lab.enabled"]:
            host = replace(host, files=TroubledFiles(executor, files_max))
        node = make_node(host, config, stopwatch=time.perf_counter)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.stop)
        await node.run()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The innermost exception that came first."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
