"""What lies between machines: how long a segment takes, and where none gets through."""

from __future__ import annotations

import random

from quorate.lab.clockwork import Clockwork
from quorate.values import dataclass

__all__ = ["LOOPBACK", "Link", "Wires"]

USER_TIMEOUT_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class Link:
    """How long a segment travels in one direction: base, plus jitter, plus rarely a long tail, plus its
    bytes."""

    base_ns: int = 150_000
    jitter_ns: int = 100_000
    tail_probability: float = 0.005
    tail_ns: int = 20_000_000
    byte_ns: float = 0.8

    def latency_ns(self, size: int, source: random.Random) -> int:
        drawn = source.random()
        if drawn < self.tail_probability:
            return self.base_ns + int(self.tail_ns * source.random() + size * self.byte_ns)
        return self.base_ns + int(self.jitter_ns * drawn + size * self.byte_ns)

    def slowed(self, factor: float) -> Link:
        return Link(
            int(self.base_ns * factor),
            int(self.jitter_ns * factor),
            self.tail_probability,
            int(self.tail_ns * factor),
            self.byte_ns * factor,
        )


LOOPBACK = Link(base_ns=10_000, jitter_ns=10_000, tail_probability=0.0, byte_ns=0.1)


class Wires:
    """The links between all machines. One seed decides how fast they are and how they cut streams in
    pieces."""

    def __init__(self, clockwork: Clockwork, source: random.Random) -> None:
        self.clockwork = clockwork
        self.default = Link(
            base_ns=source.choice((20_000, 150_000, 1_000_000)),
            jitter_ns=source.choice((10_000, 100_000, 2_000_000)),
            tail_probability=source.choice((0.0, 0.001, 0.01)),
        )
        self.split_probability = source.choice((0.0, 0.02, 0.2))
        self.join_probability = source.choice((0.0, 0.5, 1.0))
        self.user_timeout_ns = USER_TIMEOUT_NS
        """How long sent data may stay unacknowledged (TCP_USER_TIMEOUT); Linux by itself waits 15 minutes."""
        self.troubled = False
        """Whether anything is cut or down at all: the question asked for every segment."""
        self._links: dict[tuple[str, str], Link] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}

    def latency_ns(self, machine: str, to: str, size: int, source: random.Random) -> int:
        if machine == to:
            return LOOPBACK.latency_ns(size, source)
        return self._links.get((machine, to), self.default).latency_ns(size, source)

    def set_link(self, machine: str, to: str, link: Link | None) -> None:
        """Gives one direction between two machines its own latency; None gives it the usual one again."""
        if link is None:
            self._links.pop((machine, to), None)
        else:
            self._links[machine, to] = link

    def is_cut(self, machine: str, to: str) -> bool:
        """Whether nothing gets from one machine to another now."""
        return self.troubled and ((machine, to) in self._cuts or machine in self._down or to in self._down)

    def is_open(self, machine: str, to: str) -> bool:
        """Whether segments get there and their acknowledgements back."""
        return not self.troubled or not (self.is_cut(machine, to) or self.is_cut(to, machine))

    def cut(self, machine: str, to: str) -> None:
        self._cuts[machine, to] = None
        self.troubled = True

    def heal(self, machine: str, to: str) -> None:
        self._cuts.pop((machine, to), None)
        self.troubled = bool(self._cuts or self._down)

    def cuts(self) -> list[tuple[str, str]]:
        return list(self._cuts)

    def machine_down(self, machine: str) -> None:
        self._down[machine] = None
        self.troubled = True

    def machine_up(self, machine: str) -> None:
        self._down.pop(machine, None)
        self.troubled = bool(self._cuts or self._down)
