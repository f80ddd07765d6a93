"""Becoming a member: the paths that everybody expects, who the cluster is, who we are, and our own node.

A broker is a member for as long as its ephemeral node is there, which is as long as its session. The
transaction that created the node is its epoch, so a broker that left and came back can be told from one that
stayed. The node is made with nothing in it and then filled, both in one transaction, as Apache Kafka does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from quorate.zookeeper import paths, znodes
from quorate.zookeeper.errors import (
    Fatal,
    MalformedZnode,
    MultiFailed,
    NodeExists,
    NoNode,
    ZooKeeperError,
)
from quorate.zookeeper.jute import (
    CREATOR_AND_READERS,
    CREATOR_ONLY,
    EPHEMERAL,
    OPEN_ACL,
    Acl,
    Children,
    Content,
    Create,
    Delete,
    Exists,
    Get,
    GetChildren,
    Multi,
    Set,
    Stat,
)
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.session import Session

__all__ = [
    "acl_for",
    "agree_on_cluster_id",
    "check_addresses",
    "ensure_base_paths",
    "ensure_paths",
    "generate_broker_id",
    "read_members",
    "register",
]

PATIENCE: Final = 1.5  # sessions that a node of our id is waited for: its owner may have crashed
PATIENCE_MORE_MS: Final = 1_000

_logger = logging.getLogger("quorate.zookeeper")


def acl_for(path: str, *, is_set: bool) -> Acl:
    """Open, unless ACLs are set: then only its creator may change a node, and everybody read most."""
    if not is_set or path == "/consumers":
        return OPEN_ACL
    is_secret = any(path == one or path.startswith(one + "/") for one in paths.SECRET_PREFIXES)
    return CREATOR_ONLY if is_secret else CREATOR_AND_READERS


async def ensure_paths(session: Session, wanted: Sequence[str], *, is_acl_set: bool) -> None:
    """Makes nodes without content, parents first; those that are there stay."""
    operations = [Create(path, None, 0, acl_for(path, is_set=is_acl_set)) for path in wanted]
    for result in await session.ask_all(operations):
        if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExists):
            raise result


async def ensure_base_paths(session: Session, *, is_acl_set: bool = False) -> None:
    await ensure_paths(session, paths.BASE_PATHS, is_acl_set=is_acl_set)


async def agree_on_cluster_id(session: Session, proposed: str, *, is_acl_set: bool = False) -> str:
    """The id of the cluster: the proposed one, unless somebody was faster."""
    await ensure_paths(session, (paths.CLUSTER,), is_acl_set=is_acl_set)
    acl = acl_for(paths.CLUSTER_ID, is_set=is_acl_set)
    try:
        await session.ask(Create(paths.CLUSTER_ID, znodes.cluster_id(proposed), 0, acl))
        return proposed
    except NodeExists:
        found: Content = await session.ask(Get(paths.CLUSTER_ID))
        try:
            return znodes.cluster_id_in(paths.CLUSTER_ID, found.data)
        except MalformedZnode as error:
            raise Fatal(str(error)) from error


async def generate_broker_id(session: Session, reserved_max: int) -> int:
    """An id that nobody has had: each write gives the node another version."""
    stat: Stat = await session.ask(Set(paths.BROKER_SEQUENCE, b""))
    return reserved_max + stat.version


async def read_members(session: Session) -> dict[int, Member]:
    """Everybody who is registered, by id."""
    listed: Children = await session.ask(GetChildren(paths.BROKER_IDS))
    return await members_among(session, listed.names)


async def members_among(session: Session, names: Sequence[str]) -> dict[int, Member]:
    """Those of the nodes that are there and make sense. One that does not is complained about."""
    members = {}
    nodes = [f"{paths.BROKER_IDS}/{name}" for name in names]
    for path, result in zip(nodes, await session.ask_all([Get(path) for path in nodes]), strict=True):
        if isinstance(result, NoNode):
            continue
        if isinstance(result, ZooKeeperError):
            raise result
        try:
            member = Member.read(path, result.data, result.stat.czxid, result.stat.ephemeral_owner)
        except MalformedZnode as error:
            _logger.error("a broker is ignored: %s", error)
            continue
        members[member.id] = member
    return members


async def check_addresses(session: Session, member: Member) -> None:
    """`Fatal` if another live broker says that it is where we are."""
    ours = {(one.host, one.port): one.name for one in member.listeners}
    for other in (await read_members(session)).values():
        for one in other.listeners:
            if other.id != member.id and (one.host, one.port) in ours:
                raise Fatal(
                    f"broker {member.id} cannot be at {one.host}:{one.port}: broker {other.id} says that it"
                    " is there, and it is alive"
                )


async def register(
    session: Session, member: Member, previous_session_id: int = 0, *, is_acl_set: bool = False
) -> Member:
    """Our node, made by this session; the result has our epoch.

    A node of our id that is there already is our own first attempt, whose answer was lost; or what is left of
    our last session, which is replaced; or somebody else's. That may be a predecessor that crashed, whose
    session is not over yet, so it is waited for a while; then it is `Fatal`, naming the owner.
    """
    loop = asyncio.get_running_loop()
    deadline: float | None = None
    path = paths.broker(member.id)
    node = Create(path, None, EPHEMERAL, acl_for(path, is_set=is_acl_set))
    while True:
        try:
            results = await session.ask(Multi.of(node, Set(path, member.encode(), version=0)))
            return _registered(member, results[1])
        except MultiFailed as error:
            if not isinstance(error.first, NodeExists):
                raise error.first from None
        owner = (await session.ask_all([Get(path)]))[0]
        if isinstance(owner, NoNode):
            continue
        if isinstance(owner, ZooKeeperError):
            raise owner
        if owner.stat.ephemeral_owner == session.session_id:
            return _registered(member, owner.stat)
        if previous_session_id and owner.stat.ephemeral_owner == previous_session_id:
            _logger.info("our node of a session that is over is replaced broker=%d", member.id)
            await session.ask_all([Delete(path, owner.stat.version)])
            continue
        if deadline is None:
            patience_s = (PATIENCE * session.timeout_ms + PATIENCE_MORE_MS) / 1000
            deadline = loop.time() + patience_s
            _logger.warning(
                "broker id %d is taken: %s; waiting up to %.1f s for that session to end",
                member.id,
                _described(path, owner),
                patience_s,
            )
        if not await _is_gone(session, path, deadline - loop.time()):
            raise Fatal(
                f"broker id {member.id} is taken: {_described(path, owner)}; stop that process, or use"
                " another broker.id"
            )


def _registered(member: Member, stat: Stat) -> Member:
    return replace(member, epoch=stat.czxid, session_id=stat.ephemeral_owner)


async def _is_gone(session: Session, path: str, timeout_s: float) -> bool:
    """Waits until a node is gone; whether it is."""
    changed = asyncio.Event()
    result = (await session.ask_all([Exists(path, lambda _: changed.set())]))[0]
    if isinstance(result, NoNode):
        return True
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await changed.wait()
    except TimeoutError:
        return False
    return True


def _described(path: str, owner: Content) -> str:
    """Who has a node."""
    try:
        member = Member.read(path, owner.data)
        places = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in member.listeners)
    except MalformedZnode:
        places = "an unknown place"
    since = f"since {owner.stat.ctime_ms} ms of 1970"
    return f"session {owner.stat.ephemeral_owner:#x} at {places} has it, {since}"
