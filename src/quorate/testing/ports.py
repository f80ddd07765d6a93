"""Ports of clusters on this machine: which are free, and which another cluster counts on.

A node that is down has a port on which nobody listens, and wants it back. So whoever runs a cluster keeps a
claim on each of its ports: the UDP port of the same number, which the system gives to one process only and
takes back from one that was killed.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from typing import Final, Self

from quorate.node.config_values import ConfigError

__all__ = ["HOST", "Ports", "claim", "is_free"]

HOST: Final = "127.0.0.1"
PORTS: Final = range(10_000, 30_000)  # below those that the system gives to connections
_TRIES: Final = 200


class Ports:
    """Free ports, none of them twice. They are held until they are all chosen.

    with Ports() as ports:
        port, other = ports.any(), ports.any()
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._held:
            one.close()

    def next_for_clients(self) -> int:
        """The next after the first that is free; any, if no first one was asked for."""
        if not self._next:
            return self.any()
        while not self._hold(self._next, socket.SOCK_STREAM):
            self._next += 1
        self._next += 1
        return self._next - 1

    def any(self) -> int:
        """One that nobody listens on or has a claim on."""
        for port in random.SystemRandom().sample(PORTS, _TRIES):
            if self._hold(port, socket.SOCK_DGRAM) and self._hold(port, socket.SOCK_STREAM):
                return port
        raise ConfigError(f"no port from {PORTS.start} to {PORTS.stop} is free")

    def _hold(self, port: int, kind: socket.SocketKind) -> bool:
        held = _bound(port, kind)
        if held is None:
            return False
        self._held.append(held)
        return True


def claim(ports: Iterable[int]) -> list[socket.socket]:
    """Claims on ports, for as long as these are open. What somebody else has is left to the nodes, which say
    so if they cannot listen."""
    claims = [_bound(port, socket.SOCK_DGRAM) for port in ports]
    return [one for one in claims if one is not None]


def is_free(port: int) -> bool:
    bound = _bound(port, socket.SOCK_STREAM)
    if bound is None:
        return False
    bound.close()
    return True


def _bound(port: int, kind: socket.SocketKind) -> socket.socket | None:
    one = socket.socket(type=kind)
    try:
        if kind is socket.SOCK_STREAM:  # connections that have just ended do not matter
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((HOST, port))
    except OSError:
        one.close()
        return None
    return one
