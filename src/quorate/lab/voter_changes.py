"""An administrator who adds and removes voters of a simulated quorum at random."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.node.host import Host
from quorate.node.node import Node
from quorate.protocol.api.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest
from quorate.protocol.errors import ApiError
from quorate.raft.state import Leader
from quorate.raft.voters import Endpoint

__all__ = ["change_voters"]

_VOTERS_MIN: Final = 3


async def change_voters(
    host: Host, cluster_id: str, endpoints: Mapping[str, Endpoint], nodes: Mapping[str, Node], every_s: float
) -> None:
    """Never fewer than three voters are left; whether a change works is not its concern. `endpoints` are
    those of all controllers, by the names of their machines."""
    connections = Connections(rng=host.random, connect_timeout_ms=1000)
    names: Sequence[str] = list(endpoints)
    while True:
        await asyncio.sleep(host.random.expovariate(1 / every_s))
        leading = [nodes[name] for name in names if name in nodes and _leads(nodes[name])]
        if not leading or leading[0].replica is None:
            continue
        quorum = leading[0].replica.quorum
        voters = quorum.voters.latest
        name = host.random.choice(names)
        target = nodes.get(name)
        if target is None or target.replica is None:
            continue
        key = target.replica.quorum.me
        voter = voters.get(key.id)
        request: AddRaftVoterRequest | RemoveRaftVoterRequest
        if voter is None:
            endpoint = endpoints[name]
            listener = AddRaftVoterRequest.Listener(
                name=endpoint.name, host=endpoint.host, port=endpoint.port
            )
            request = AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=2000,
                voter_id=key.id,
                voter_directory_id=key.directory,
                listeners=[listener],
            )
        elif len(voters) > _VOTERS_MIN:
            request = RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=voter.key.id, voter_directory_id=voter.key.directory
            )
        else:
            continue
        address = quorum.endpoints[0].host, quorum.endpoints[0].port
        try:
            await connections.request(address, request, timeout_ms=3000)
        except (ConnectionLost, ApiError):
            continue


def _leads(node: Node) -> bool:
    return node.replica is not None and isinstance(node.replica.quorum.role, Leader)
