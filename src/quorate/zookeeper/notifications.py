"""What brokers and administrators note in znodes for the controller: in-sync replicas that a leader of old
wrote itself, disks that failed, reassignments and elections that are wanted. What is done is taken away."""

from __future__ import annotations

import logging
from contextlib import suppress

from quorate.protocol.errors import ApiError
from quorate.zookeeper import paths, znodes
from quorate.zookeeper.broker_changes import tell_all_that_it_has
from quorate.zookeeper.context import Key
from quorate.zookeeper.errors import MalformedZnode, ZooKeeperError
from quorate.zookeeper.jute import Children, Delete, Exists, Get, GetChildren
from quorate.zookeeper.legacy_requests import drop_reassignment, read_elections, read_reassignments
from quorate.zookeeper.loading import Watchers
from quorate.zookeeper.office import Office
from quorate.zookeeper.preferred import elect_preferred
from quorate.zookeeper.reassignments import go_on, move
from quorate.zookeeper.situation import image_of

__all__ = ["elections_asked", "isr_changes_noted", "log_dirs_failed", "reassignments_asked"]

_logger = logging.getLogger("quorate.zookeeper")


async def isr_changes_noted(office: Office, watchers: Watchers) -> None:
    """Leaders of old wrote states themselves, and said so here."""
    listed: Children = await office.session.ask(GetChildren(paths.ISR_CHANGES, watchers.isr_changes))
    nodes = [f"{paths.ISR_CHANGES}/{name}" for name in listed.names]
    keys: dict[Key, None] = {}
    for path, found in zip(nodes, await office.session.ask_all([Get(one) for one in nodes]), strict=True):
        if not isinstance(found, ZooKeeperError):
            with suppress(MalformedZnode):
                keys |= dict.fromkeys(znodes.partitions_in(path, found.data))
    known = office.shown([key for key in keys if key in office.context.states])
    office.context.states.update(await office.read_states(known))
    if known:
        batch = office.batch()
        batch.tell_everyone(known)
        office.send(batch)
    await office.fence.write_all([Delete(path) for path in nodes])
    await go_on(office, [key for key in known if key in office.context.moving])


async def log_dirs_failed(office: Office, watchers: Watchers) -> None:
    """A broker lost a disk: it is asked about everything it has, and its answers say what is lost."""
    listed: Children = await office.session.ask(GetChildren(paths.LOG_DIR_EVENTS, watchers.log_dir_events))
    nodes = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in listed.names]
    brokers: set[int] = set()
    for path, found in zip(nodes, await office.session.ask_all([Get(one) for one in nodes]), strict=True):
        if not isinstance(found, ZooKeeperError):
            with suppress(MalformedZnode):
                brokers.add(znodes.log_dir_event_broker_in(path, found.data))
    for broker_id in sorted(brokers):
        await tell_all_that_it_has(office, broker_id)
    await office.fence.write_all([Delete(path) for path in nodes])


async def reassignments_asked(office: Office, watchers: Watchers) -> None:
    await office.session.ask_all([Exists(paths.REASSIGN_PARTITIONS, watchers.reassignments)])
    for key, target in (await read_reassignments(office)).items():
        assignment = office.context.assignment(key)
        if assignment is not None and assignment.is_reassigning and assignment.target == target:
            continue  # it is under way
        try:
            await move(office, key, target, image_of(office, [key[0]]))
        except ApiError as error:
            _logger.warning("a reassignment is refused: %s", error)
        if key not in office.context.moving:
            await drop_reassignment(office, key)


async def elections_asked(office: Office, watchers: Watchers) -> None:
    await office.session.ask_all([Exists(paths.PREFERRED_ELECTION, watchers.elections)])
    keys = await read_elections(office)
    if keys:
        await elect_preferred(office, keys)
