"""Who may be connected: how many connections there are, of all listeners of a broker or controller together.

There is a limit for all of them (`max.connections`), one for each listener, and one for each address. Whoever
comes when an address has as many as it may is refused. Whoever comes when all places are taken gets the place
of another, whose connection is closed. Nobody can tell a broker from a client before it has asked something;
so to refuse whoever comes last would be to refuse brokers, for as long as a client likes to stay.

Whose place it is. First those who are neither brokers nor controllers, in this order:

1. who has not sent anything for a second,
2. who has no request under way,
3. who has one;

and of each kind those of the addresses that have the most connections, and among them who was silent for
longest. Only if there are none, those of brokers and controllers, of whoever has the most.

A connection is that of a broker or controller when a request has come over it that only they send, with the
id of one that is registered (`keep`). That can be feigned: so each has so many such connections, those that
were used last, and others count as those of clients.

A listener may be protected, as that of the brokers is where clients have another: the limit for all does not
count for it, only its own, and no place on it is given away to who comes by another.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Final, Protocol

from quorate.values import dataclass

__all__ = ["KEPT_PER_PEER", "Admitted", "ConnectionLimits", "Guest"]

INT_MAX: Final = (1 << 31) - 1
KEPT_PER_PEER: Final = 32
"""Connections that a broker or controller may need: some for each purpose, and one or more to fetch by."""
_GRACE_S: Final = 1.0  # for the first request of whoever has just come
# Choosing looks at everybody: so it is one in so many whose places are given away next, but not too many.
_CHOSEN_OF: Final = 16
_CHOSEN_MAX: Final = 256


class Guest(Protocol):
    """A connection that was let in."""

    @property
    def listener(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def client_port(self) -> int: ...

    @property
    def has_spoken(self) -> bool:
        """Whether it has ever sent something."""

    @property
    def is_busy(self) -> bool:
        """Whether a request of it is under way."""

    @property
    def active_at(self) -> float:
        """When something moved on it last."""

    def displace(self) -> None:
        """Ends it: another has its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be."""

    connections_max: int = 10_000
    """Of all listeners together, and of each that has no number of its own."""
    per_address_max: int = INT_MAX
    of_address: Mapping[str, int] = field(default_factory=dict)
    of_listener: Mapping[str, int] = field(default_factory=dict)
    protected: str = ""
    """The listener that others leave in peace."""


class Admitted:
    """The connections of some listeners. A connection is let in, may be found to be of a broker, and goes."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = ConnectionLimits() if limits is None else limits
        self._guests: dict[int, Guest] = {}  # by identity
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._by_end: dict[tuple[str, str, int], Guest] = {}
        self._peers: dict[int, int] = {}  # which of them are brokers or controllers, by identity
        # By listener, whose places are given away next, and why.
        self._next: dict[str, deque[tuple[Guest, tuple[float, bool, bool]]]] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def limit(self, limits: ConnectionLimits, now: float) -> None:
        """Other limits count from now on. Whoever is too many then has to go."""
        self.limits = limits
        for listener, count in list(self._by_listener.items()):
            for _ in range(count - limits.of_listener.get(listener, limits.connections_max)):
                self._make_room(listener, now)
        for _ in range(len(self) - limits.connections_max):
            self._make_room("", now)

    def admit(self, guest: Guest, now: float) -> str | None:
        """Lets a connection in; or says why it must not be."""
        limits, listener, address = self.limits, guest.listener, _plain(guest.client_host)
        address_max = limits.of_address.get(address, limits.per_address_max)
        if self._by_address[address] >= address_max:
            return f"there are {address_max} connections from this address already"
        listener_max = limits.of_listener.get(listener, limits.connections_max)
        if self._by_listener[listener] >= listener_max and not self._make_room(listener, now):
            return f"there are {listener_max} connections already"
        is_full = len(self._guests) >= limits.connections_max and not self._make_room("", now)
        if is_full and listener != limits.protected:
            return f"there are {limits.connections_max} connections already"
        self._guests[id(guest)] = self._by_end[_end(guest)] = guest
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        return None

    def forget(self, guest: Guest) -> None:
        """A connection is over, if it was let in."""
        if self._guests.pop(id(guest), None) is None:
            return
        self._peers.pop(id(guest), None)
        if self._by_end.get(_end(guest)) is guest:
            del self._by_end[_end(guest)]
        address = _plain(guest.client_host)
        for counter, name in ((self._by_address, address), (self._by_listener, guest.listener)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    def keep(self, listener: str, client_host: str, client_port: int, peer_id: int) -> None:
        """A connection is that of a broker or controller."""
        guest = self._by_end.get((listener, client_host, client_port))
        if guest is not None:
            self._peers[id(guest)] = peer_id

    def _make_room(self, listener: str, now: float) -> bool:
        """Gives a place away: on a listener, or on any that is not protected. Whether there is one now."""
        chosen = self._next.setdefault(listener, deque())
        for _ in range(2):
            while chosen:
                guest, standing = chosen.popleft()
                if self._guests.get(id(guest)) is guest and self._standing(guest) == standing:
                    self.forget(guest)
                    guest.displace()
                    return True
            chosen.extend((one, self._standing(one)) for one in self._choose(listener, now))
        return False

    def _standing(self, guest: Guest) -> tuple[float, bool, bool]:
        """What has led to a choice. If it is another by now, the choice does not count."""
        return guest.active_at, guest.has_spoken, id(guest) in self._peers

    def _choose(self, listener: str, now: float) -> list[Guest]:
        """Whose places are given away next."""
        protected = self.limits.protected
        here = [
            one
            for one in self._guests.values()
            if (one.listener == listener if listener else one.listener != protected)
        ]
        kept = self._kept(here)
        clients = [one for one in here if id(one) not in kept]
        if not clients:
            return _silent_longest(here, [self._peers[id(one)] for one in here])
        some = [one for one in clients if not one.has_spoken and now - one.active_at > _GRACE_S]
        some = some or [one for one in clients if not one.is_busy] or clients
        return _silent_longest(some, [_plain(one.client_host) for one in some])

    def _kept(self, here: Iterable[Guest]) -> Collection[int]:
        """The identities of those that are brokers' and controllers', the most recent of each."""
        if not self._peers:
            return ()
        by_peer: dict[int, list[Guest]] = {}
        for one in here:
            if id(one) in self._peers:
                by_peer.setdefault(self._peers[id(one)], []).append(one)
        for some in by_peer.values():
            some.sort(key=_active_at)
        return {id(one) for some in by_peer.values() for one in some[-KEPT_PER_PEER:]}


def _silent_longest(some: list[Guest], owners: Sequence[str | int]) -> list[Guest]:
    """Those that were silent for longest, of the owners that have the most; none of an owner with fewer than
    are left to others."""
    counts = Counter(owners)
    wanted = min(len(some) // _CHOSEN_OF + 1, _CHOSEN_MAX)
    fair = _fair_share(list(counts.values()), wanted)
    found = []
    pairs: list[tuple[Guest, str | int]] = list(zip(some, owners, strict=True))
    pairs.sort(key=lambda pair: pair[0].active_at)
    for guest, owner in pairs:
        if counts[owner] > fair:
            counts[owner] -= 1
            found.append(guest)
            if len(found) >= wanted:
                break
    return found


def _fair_share(counts: list[int], wanted: int) -> int:
    """What everybody can be left with, at most, if so many are to be taken from those who have more.

    >>> _fair_share([9000, 500, 3], 256), _fair_share([5, 5, 1], 2), _fair_share([2, 1], 256)
    (8744, 4, 0)
    """
    low, high = 0, max(counts, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, one - middle) for one in counts) >= wanted:
            low = middle
        else:
            high = middle - 1
    return low


def _end(guest: Guest) -> tuple[str, str, int]:
    return guest.listener, guest.client_host, guest.client_port


def _plain(address: str) -> str:
    """An IPv4 address that came over IPv6 is one."""
    return address.removeprefix("::ffff:")


_active_at: Final = attrgetter("active_at")
