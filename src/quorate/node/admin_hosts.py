"""The names that the admin endpoint of a node answers to, besides addresses and `localhost`."""

from __future__ import annotations

from quorate.net.http_hosts import plain_name
from quorate.node.config import NodeConfig

__all__ = ["admin_hosts"]


def admin_hosts(config: NodeConfig, machine_name: str) -> frozenset[str]:
    """What the machine calls itself, where the node listens and is advertised, what operators have added."""
    address = config["quorate.admin.listener"]
    listeners = (*config["listeners"], *config["advertised.listeners"])
    names = [machine_name, *(one.host for one in listeners), *config["quorate.admin.hosts"]]
    return frozenset(plain_name(one) for one in [*names, *(address[:1] if address else ())] if one)
