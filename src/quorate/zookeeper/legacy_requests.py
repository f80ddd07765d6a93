"""What administrators of old times asked for by making znodes: reassignments and preferred elections.

The nodes are taken away when what they ask for is done. Tools of today ask the controller instead.
"""

from __future__ import annotations

import logging

from quorate.zookeeper import paths, znodes
from quorate.zookeeper.context import Key
from quorate.zookeeper.errors import MalformedZnode, NoNode
from quorate.zookeeper.jute import Content, Delete, Get, Set
from quorate.zookeeper.office import Office

__all__ = ["drop_reassignment", "read_elections", "read_reassignments"]

_logger = logging.getLogger("quorate.zookeeper")


async def read_reassignments(office: Office) -> dict[Key, tuple[int, ...]]:
    """What the node asks for; one that makes no sense is taken away."""
    try:
        found: Content = await office.session.ask(Get(paths.REASSIGN_PARTITIONS))
    except NoNode:
        return {}
    try:
        return znodes.reassignments_in(paths.REASSIGN_PARTITIONS, found.data)
    except MalformedZnode as error:
        _logger.error("a request is refused: %s", error)
        await office.fence.write_all([Delete(paths.REASSIGN_PARTITIONS)])
        return {}


async def drop_reassignment(office: Office, key: Key) -> None:
    """One of them is done, or cannot be."""
    try:
        found: Content = await office.session.ask(Get(paths.REASSIGN_PARTITIONS))
    except NoNode:
        return
    try:
        moves = znodes.reassignments_in(paths.REASSIGN_PARTITIONS, found.data)
    except MalformedZnode:
        moves = {}
    moves.pop(key, None)
    if moves:
        operation = Set(paths.REASSIGN_PARTITIONS, znodes.reassignment(moves), found.stat.version)
        await office.fence.write(operation)
    else:
        await office.fence.write(Delete(paths.REASSIGN_PARTITIONS, found.stat.version))


async def read_elections(office: Office) -> list[Key]:
    """The partitions that are to get their preferred leaders; the node is taken away."""
    try:
        found: Content = await office.session.ask(Get(paths.PREFERRED_ELECTION))
    except NoNode:
        return []
    keys: list[Key] = []
    try:
        keys = znodes.partitions_in(paths.PREFERRED_ELECTION, found.data)
    except MalformedZnode as error:
        _logger.error("a request is refused: %s", error)
    await office.fence.write_all([Delete(paths.PREFERRED_ELECTION)])
    return keys
