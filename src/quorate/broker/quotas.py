"""Who may use how much of a broker: bytes in and out, time of the broker, new connections.

Pure; time is an argument. A quota is for a user, a client id, both together, or everybody of a kind who has
none of his own; the most specific counts, and says who shares it (`controller.mutation_quota.find_rate`). Who
goes beyond it is told for how long to be quiet, and is not read from for as long: see `throttling`.

    produce     bytes of Produce requests
    fetch       bytes of Fetch responses to consumers; what is too much is not given, and not counted
    request     percent of the time of this broker's one loop that the handlers of a client are at work
    connections new connections of an address, which are held back and then closed

The values are in the metadata, and `update` tells of them; what was recorded before counts for new values as
well. Where there is no quota of a kind, asking costs a look at an attribute. Clients are remembered for an
hour after they were seen last, and only so many.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final

from quorate.broker.quotas_rates import CLIENT_WINDOW, Rate, Window
from quorate.controller.client_quotas import IP
from quorate.controller.mutation_quota import Owner, find_rate
from quorate.metadata.image import Entity

__all__ = ["CLIENTS_MAX", "IDLE_MS_MAX", "ConnectionQuota", "Quota", "Quotas", "Throttles"]

CLIENTS_MAX: Final = 10_000
IDLE_MS_MAX: Final = 3_600_000.0
SWEEP_MS: Final = 60_000.0
THROTTLE_MS_MAX: Final = (1 << 31) - 1

Limits = Mapping[Entity, Mapping[str, float]]


class Throttles:
    """How often somebody was made to wait, and for how long altogether."""

    __slots__ = ("count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0

    def add(self, throttle_ms: int) -> None:
        self.count += 1
        self.total_ms += throttle_ms


class _Account:
    """What those have used who share a quota."""

    __slots__ = ("limit", "owner", "rate", "used_ms")

    def __init__(self, owner: Owner, limit: float, window: Window, now_ms: float) -> None:
        self.owner = owner
        self.limit = limit
        self.rate = Rate(window)
        self.used_ms = now_ms


class Quota:
    """The quotas of one kind, by the key that they have in the metadata."""

    def __init__(
        self,
        key: str,
        window: Window = CLIENT_WINDOW,
        *,
        throttle_ms_max: int = THROTTLE_MS_MAX,
        clients_max: int = CLIENTS_MAX,
    ) -> None:
        self.key = key
        self.is_set = False  # for anybody
        self.throttles = Throttles()
        self._window = window
        self._throttle_ms_max = throttle_ms_max
        self._clients_max = clients_max
        self._limits: Limits = {}
        self._swept_ms = 0.0
        self._accounts: dict[Owner, _Account] = {}
        # By principal and client id, as far as they were asked for since something changed.
        self._found: dict[tuple[str, str], _Account | None] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def update(self, limits: Limits) -> None:
        """Other values count from now on."""
        self._limits = {
            entity: {self.key: values[self.key]} for entity, values in limits.items() if self.key in values
        }
        self.is_set = bool(self._limits)
        self._found.clear()
        if not self.is_set:
            self._accounts.clear()

    def charge(self, principal: str, client_id: str, value: float, now_ms: float) -> int:
        """Somebody has used something. For how many milliseconds he is to be quiet: 0 within his quota."""
        account = self._of(principal, client_id, now_ms) if self.is_set else None
        if account is None:
            return 0
        account.used_ms = now_ms
        account.rate.record(value, now_ms)
        return min(round(account.rate.delay_ms(account.limit, now_ms)), self._throttle_ms_max)

    def give_back(self, principal: str, client_id: str, value: float, now_ms: float) -> None:
        """What was charged just now was not used after all."""
        account = self._of(principal, client_id, now_ms) if self.is_set else None
        if account is not None:
            account.rate.record(-value, now_ms)

    def has_used_no_more(self, principal: str, client_id: str, value: float, now_ms: float) -> bool:
        """Whether what was charged just now is all that somebody has used of late."""
        account = self._of(principal, client_id, now_ms) if self.is_set else None
        return account is not None and account.rate.total(now_ms) <= value

    def most_at_once(self, principal: str, client_id: str, now_ms: float) -> float | None:
        """What may be used at once by somebody who has not used anything: more would always be too much."""
        account = self._of(principal, client_id, now_ms) if self.is_set else None
        return None if account is None else account.limit * self._window.begun_s

    def rates(self, now_ms: float) -> Iterator[tuple[Owner, float, float]]:
        """Of those who have a quota and were seen lately: who, how much a second, and the quota."""
        for owner, account in self._accounts.items():
            yield owner, account.rate.per_second(now_ms), account.limit

    def _of(self, principal: str, client_id: str, now_ms: float) -> _Account | None:
        try:
            return self._found[principal, client_id]
        except KeyError:
            return self._look_up(principal, client_id, now_ms)

    def _look_up(self, principal: str, client_id: str, now_ms: float) -> _Account | None:
        found = find_rate(self._limits, principal.partition(":")[2], client_id, self.key)
        account = None
        if found is not None:
            limit, owner = found
            account = self._accounts.get(owner)
            if account is None:
                self._make_room(now_ms)
                account = self._accounts[owner] = _Account(owner, limit, self._window, now_ms)
            account.limit = limit
        if len(self._found) >= self._clients_max:
            self._found.clear()
        self._found[principal, client_id] = account
        return account

    def _make_room(self, now_ms: float) -> None:
        """Before somebody new is remembered: once in a while, forgets who was not seen for an hour; if there
        are too many even so, the half that was not seen for longest."""
        is_full = len(self._accounts) >= self._clients_max
        if not is_full and now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        kept = [one for one in self._accounts.values() if now_ms - one.used_ms < IDLE_MS_MAX]
        if len(kept) >= self._clients_max:
            kept = sorted(kept, key=lambda one: one.used_ms)[-(self._clients_max // 2) :]
        if len(kept) < len(self._accounts):
            self._accounts = {one.owner: one for one in kept}
            self._found.clear()


class ConnectionQuota:
    """How many connections an address may make in a second."""

    KEY: Final = "connection_creation_rate"

    def __init__(self, window: Window = CLIENT_WINDOW, addresses_max: int = CLIENTS_MAX) -> None:
        self.is_set = False
        self.throttles = Throttles()
        self._window = window
        self._addresses_max = addresses_max
        self._limits: dict[str | None, float] = {}
        self._rates: dict[str, Rate] = {}  # the one that was seen last comes last

    def __len__(self) -> int:
        return len(self._rates)

    def update(self, limits: Limits) -> None:
        self._limits = {}
        for entity, values in limits.items():
            if self.KEY in values:
                ((_, address),) = (part for part in entity if part[0] == IP)
                self._limits[None if address is None else _plain(address)] = values[self.KEY]
        self.is_set = bool(self._limits)
        if not self.is_set:
            self._rates.clear()

    def charge(self, address: str, now_ms: float) -> int:
        """A connection was made. For how many milliseconds it is held back before it is closed; one that is
        served counts, others do not."""
        if not self.is_set:
            return 0
        address = _plain(address)
        limit = self._limits.get(address, self._limits.get(None))
        if limit is None:
            return 0
        rate = self._rates.pop(address, None) or Rate(self._window)
        if len(self._rates) >= self._addresses_max:
            del self._rates[next(iter(self._rates))]
        self._rates[address] = rate
        rate.record(1, now_ms)
        throttle_ms = min(round(rate.delay_ms(limit, now_ms)), round(self._window.sample_ms))
        if throttle_ms:
            rate.record(-1, now_ms)
            self.throttles.add(throttle_ms)
        return throttle_ms


class Quotas:
    """All of a broker."""

    def __init__(self, window: Window = CLIENT_WINDOW) -> None:
        self.produce = Quota("producer_byte_rate", window)
        self.fetch = Quota("consumer_byte_rate", window)
        # Time that was used cannot be taken back: one sample is waited at most, and then looked at again.
        self.request = Quota("request_percentage", window, throttle_ms_max=round(window.sample_ms))
        self.connections = ConnectionQuota(window)
        # What the controller says of the partitions that somebody creates and deletes is only counted here.
        self.mutations = Throttles()

    def update(self, limits: Limits) -> None:
        """The metadata has these values, for whom and by key."""
        self.produce.update(limits)
        self.fetch.update(limits)
        self.request.update(limits)
        self.connections.update(limits)


def _plain(address: str) -> str:
    """One way to write an address; an IPv4 address that came over IPv6 is one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
