"""Where ZooKeeper is: the servers and the chroot of `zookeeper.connect`."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["Servers"]

DEFAULT_PORT: Final = 2181


class Servers:
    """
    >>> servers = Servers.parse("a:1234,[::1]:5,b/kafka/one")
    >>> servers.addresses, servers.chroot
    ([('a', 1234), ('::1', 5), ('b', 2181)], '/kafka/one')
    """

    def __init__(self, addresses: list[tuple[str, int]], chroot: str = "") -> None:
        self.addresses = addresses
        self.chroot = chroot
        self._turn: list[tuple[str, int]] = []

    @classmethod
    def parse(cls, text: str) -> Servers:
        """Raises `ValueError` that says what is wrong."""
        hosts, slash, path = text.strip().partition("/")
        chroot = (slash + path).rstrip("/")
        if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
            raise ValueError(f"the path {chroot} is no path of ZooKeeper's")
        addresses = []
        for one in hosts.split(","):
            if not one.strip():
                continue
            host, colon, port = one.strip().rpartition(":")
            if not colon or "]" in port:
                host, port = one.strip(), str(DEFAULT_PORT)
            if not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{one.strip()}: {port} is no port")
            addresses.append((host.strip("[]"), int(port)))
        if not addresses:
            raise ValueError("no server is named: allowed is host:port,host:port/chroot")
        return cls(addresses, chroot)

    def __len__(self) -> int:
        return len(self.addresses)

    def next(self, random: Random) -> tuple[str, int]:
        """The servers in turn, each round in an order of its own, so that many clients spread."""
        if not self._turn:
            self._turn = list(self.addresses)
            random.shuffle(self._turn)
        return self._turn.pop()
