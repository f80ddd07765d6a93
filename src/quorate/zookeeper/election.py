"""Who is controller: whoever has made the ephemeral `/controller`, in one transaction with the next epoch.

Both happen or neither, so no two controllers have the same epoch, and a later one has a higher one. The
version that `/controller_epoch` got is what the winner's writes are fenced by (`fence`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from quorate.zookeeper import paths
from quorate.zookeeper.errors import (
    BadVersion,
    Fatal,
    MalformedZnode,
    MultiFailed,
    NodeExists,
    NoNode,
    ZooKeeperError,
)
from quorate.zookeeper.fence import Fence
from quorate.zookeeper.jute import EPHEMERAL, Create, Delete, Exists, Get, Multi, Set, Stat
from quorate.zookeeper.membership import acl_for
from quorate.zookeeper.session import Session
from quorate.zookeeper.znodes import NO_CONTROLLER, ControllerNode, controller_epoch_in

__all__ = ["current_controller", "elect", "resign"]

FIRST_EPOCH: Final = 0  # of nobody: whoever is elected first has the next one

_logger = logging.getLogger("quorate.zookeeper")


async def current_controller(session: Session, changed: Callable[[str], None] | None = None) -> int:
    """The id of the controller, or -1. `changed` is called once when there is another one, or none."""
    watching, found = await session.ask_all([Exists(paths.CONTROLLER, changed), Get(paths.CONTROLLER)])
    for result in (watching, found):
        if isinstance(result, ZooKeeperError) and not isinstance(result, NoNode):
            raise result
    if isinstance(found, NoNode):
        return NO_CONTROLLER
    try:
        return ControllerNode.read(paths.CONTROLLER, found.data).broker_id
    except MalformedZnode as error:
        _logger.error("nobody knows who the controller is: %s", error)
        return NO_CONTROLLER


async def elect(session: Session, broker_id: int, wall_ms: int, *, is_acl_set: bool = False) -> Fence | None:
    """Tries to become the controller; None if another was faster, or is it already."""
    epoch, version = await _epoch(session, is_acl_set=is_acl_set)
    node = ControllerNode(broker_id, wall_ms)
    acl = acl_for(paths.CONTROLLER, is_set=is_acl_set)
    try:
        results = await session.ask(
            Multi.of(
                Create(paths.CONTROLLER, node.encode(), EPHEMERAL, acl),
                Set(paths.CONTROLLER_EPOCH, b"%d" % (epoch + 1), version),
            )
        )
        stat: Stat = results[1]
        return Fence(session, epoch + 1, stat.version)
    except MultiFailed as error:
        if not isinstance(error.first, NodeExists | BadVersion):
            raise error.first from None
    return await _own_attempt(session, broker_id, epoch + 1)


async def _own_attempt(session: Session, broker_id: int, wanted_epoch: int) -> Fence | None:
    """It may have been ourselves who was faster: the answer was lost, and the question asked again."""
    controller, epoch = await session.ask_all([Get(paths.CONTROLLER), Get(paths.CONTROLLER_EPOCH)])
    if isinstance(controller, ZooKeeperError) or isinstance(epoch, ZooKeeperError):
        return None
    if controller.stat.ephemeral_owner != session.session_id:
        return None
    try:
        named = ControllerNode.read(paths.CONTROLLER, controller.data).broker_id
        found = controller_epoch_in(paths.CONTROLLER_EPOCH, epoch.data)
    except MalformedZnode:
        return None
    is_ours = named == broker_id and found == wanted_epoch
    return Fence(session, found, epoch.stat.version) if is_ours else None


async def _epoch(session: Session, *, is_acl_set: bool) -> tuple[int, int]:
    """The epoch of the last controller, and the version of its node, which is made if it is missing."""
    (found,) = await session.ask_all([Get(paths.CONTROLLER_EPOCH)])
    if isinstance(found, NoNode):
        acl = acl_for(paths.CONTROLLER_EPOCH, is_set=is_acl_set)
        await session.ask_all([Create(paths.CONTROLLER_EPOCH, b"%d" % FIRST_EPOCH, 0, acl)])
        found = await session.ask(Get(paths.CONTROLLER_EPOCH))
    if isinstance(found, ZooKeeperError):
        raise found
    try:
        return controller_epoch_in(paths.CONTROLLER_EPOCH, found.data), found.stat.version
    except MalformedZnode as error:
        raise Fatal(f"no controller can be elected: {error}") from error


async def resign(fence: Fence) -> None:
    """Gives the office up, so that another broker takes it. Nothing happens if we have lost it already."""
    await fence.write_all([Delete(paths.CONTROLLER)])
