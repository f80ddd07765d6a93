"""Whom a node can reach: the place where a network between nodes is cut, on purpose.

Every connection between two nodes is opened by one of them, so a network is cut when both refuse to talk to
the addresses of the other. Connections to a cut address end. Opening another one waits until its time is
over, as it does where packets are dropped, or until the cut is healed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

__all__ = ["Address", "Gate", "Gated"]

Address = tuple[str, int]


class Gated(Protocol):
    """Whoever has connections that a cut ends."""

    def drop(self, address: Address) -> None: ...


class Gate:
    """The addresses that one node cannot reach; at first there are none."""

    def __init__(self) -> None:
        self.cut: frozenset[Address] = frozenset()
        self._gated: WeakSet[Gated] = WeakSet()
        self._changed = asyncio.Event()

    def watch(self, gated: Gated) -> None:
        self._gated.add(gated)

    def may_connect(self, address: Address) -> bool:
        return address not in self.cut

    def set_cut(self, addresses: Iterable[Address]) -> None:
        """Cuts these addresses off, and no others."""
        before, self.cut = self.cut, frozenset(addresses)
        for gated in list(self._gated):
            for address in self.cut - before:
                gated.drop(address)
        self._changed.set()
        self._changed = asyncio.Event()

    async def passed(self, address: Address) -> None:
        """Returns when an address can be reached."""
        while not self.may_connect(address):
            await self._changed.wait()
