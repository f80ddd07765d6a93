"""What the keys of a node say of its connections: how many there may be, and how many may come in a second.

The keys are `max.connections`, `max.connections.per.ip`, `max.connections.per.ip.overrides` and
`max.connection.creation.rate`; the first and the last also for one listener, as
`listener.name.<listener>.max.connections`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from quorate.broker.connection_rates import ConnectionRates, CreationLimits
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.quotas_rates import Window
from quorate.controller.config_types import numbers_of_hosts
from quorate.net.admitted import Admitted, ConnectionLimits

__all__ = ["ConnectionGuard"]

_MAX: Final = "max.connections"
_PER_ADDRESS: Final = "max.connections.per.ip"
_OF_ADDRESS: Final = "max.connections.per.ip.overrides"
_RATE: Final = "max.connection.creation.rate"

Resolve = Callable[[str], Awaitable[Sequence[str]]]


class ConnectionGuard:
    """The connections of the listeners of one role, `admitted` and in their `rates`, by what the keys are
    worth now. Where there are other listeners, `protected` is one that they leave in peace. `connections_max`
    is how many there may be whatever the keys say."""

    def __init__(
        self,
        configs: DynamicConfig,
        listeners: Sequence[str],
        window: Window,
        logger: logging.Logger,
        *,
        protected: str = "",
        connections_max: int,
    ) -> None:
        self._configs = configs
        self._listeners = listeners
        self._logger = logger
        self._protected = protected if len(listeners) > 1 else ""
        self._connections_max = connections_max
        self._addresses: dict[str, Sequence[str]] = {}  # of hosts that were looked up
        self._looking: asyncio.Task[None] | None = None
        self.admitted = Admitted(self._limits())
        self.rates = ConnectionRates(self._creation_limits(), window)
        own = [self._key(listener, key) for listener in listeners for key in (_MAX, _RATE)]
        configs.when_changed(self._update, _MAX, _PER_ADDRESS, _OF_ADDRESS, _RATE, *own)
        self._look_up()

    def turn_ms(self, listener: str) -> float | None:
        """For how many milliseconds a connection that has come waits for its turn; None if too many do."""
        return self.rates.turn_ms(listener, asyncio.get_running_loop().time() * 1000)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def _update(self) -> None:
        self.admitted.limit(self._limits(), asyncio.get_running_loop().time())
        self.rates.limits = self._creation_limits()
        self._look_up()

    def _limits(self) -> ConnectionLimits:
        """To let nobody in would lock out whoever could change that."""
        overrides = self._overrides
        per_address = self._configs[_PER_ADDRESS]
        return ConnectionLimits(
            connections_max=self._at_most(self._configs[_MAX]),
            per_address_max=per_address if overrides else max(1, per_address),
            of_address={
                address: number for host, number in overrides.items() for address in self._addresses_of(host)
            },
            of_listener={one: self._at_most(number) for one, number in self._own(_MAX).items()},
            protected=self._protected,
        )

    def _creation_limits(self) -> CreationLimits:
        return CreationLimits(self._configs[_RATE], self._own(_RATE), self._protected)

    def _at_most(self, number: int) -> int:
        return max(1, min(number, self._connections_max))

    def _own(self, key: str) -> dict[str, int]:
        """What a key is worth for single listeners."""
        found = {one: self._configs[self._key(one, key)] for one in self._listeners}
        return {listener: number for listener, number in found.items() if number is not None}

    @staticmethod
    def _key(listener: str, key: str) -> str:
        return f"listener.name.{listener.lower()}.{key}"

    # Hosts that are named

    @property
    def _overrides(self) -> Mapping[str, int]:
        return numbers_of_hosts(self._configs[_OF_ADDRESS] or "")

    def _addresses_of(self, host: str) -> Sequence[str]:
        return [host] if _is_address(host) else self._addresses.get(host, ())

    def _look_up(self) -> None:
        """Finds the addresses of hosts that have a name. Until they are known the number of all counts."""
        hosts = [one for one in self._overrides if not _is_address(one) and one not in self._addresses]
        if hosts:
            if self._looking is not None:
                self._looking.cancel()
            self._looking = asyncio.get_running_loop().create_task(self._find(hosts))

    async def _find(self, hosts: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        for host in hosts:
            try:
                found: Sequence[Any] = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:  # the latter if it cannot be a name at all
                self._logger.warning("%s: host %s is not known: %s", _OF_ADDRESS, host, error)
                found = []
            self._addresses[host] = [one[4][0] for one in found]
        self.admitted.limit(self._limits(), loop.time())


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False
