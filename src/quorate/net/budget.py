"""The memory that all connections of a node may hold together.

What is held: requests that have arrived in part, wait, or are parked with their handler, and answers that the
peer has not taken. A few KiB of each connection do not count; nor do ranges of files, which are no memory.

While there is room nobody notices. When there is none:

- Small requests are read as before, in small pieces. Followers must go on fetching, or what producers wait
  for would never be committed, and what they hold never be given back.
- A large request stops arriving when its buffer is full: nothing more is read from its connection until there
  is room again. Whoever has waited longest goes on first.
- A part of the budget is for one of those who wait: so one of them can always complete its request, and
  requests that are all half complete cannot wait for each other for ever.
- Beyond the whole budget no small request is served whose answer might be large.
- A connection that makes others wait and does not move, because its peer does not send what it has announced
  or does not take its answers, is ended after a while. The protocol has no word for that.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

__all__ = ["SLACK_BYTES", "UNLIMITED_BYTES", "Budget", "Holder"]

UNLIMITED_BYTES: Final = 1 << 62
# What a connection holds without being asked.
SLACK_BYTES: Final = 16 * 1024
# How slow a peer may be, when others wait for the memory that it holds.
PATIENCE_MS: Final = 10_000
# How often is looked who moves while memory is short, besides when some is given back.
_LOOKS_PER_PATIENCE: Final = 50


class Holder(Protocol):
    """Somebody who holds memory: a connection."""

    held_bytes: int
    """As the budget knows it: `Budget.settle` sets it."""

    def measure(self) -> int:
        """How much it is now. What a peer has taken since it was measured last is given back by that."""

    def wanted_bytes(self) -> int:
        """How much more it waits for."""

    def go_on(self) -> None:
        """There is room for what it waits for."""

    def stall(self, now: float, patience_s: float) -> str | None:
        """Why it does not move, if that is its peer's fault."""

    def shed(self, reason: str) -> None:
        """Ends it."""


class Budget:
    """`used_bytes` is what is held. The limit is for all; `first_bytes` of it for the first who waits."""

    def __init__(
        self, limit_bytes: int = UNLIMITED_BYTES, first_bytes: int = 0, *, patience_ms: int = PATIENCE_MS
    ) -> None:
        assert 0 <= first_bytes < limit_bytes
        self._all_bytes = limit_bytes
        self._first_bytes = first_bytes
        self._patience_s = patience_ms / 1000
        self.limit_bytes = limit_bytes
        self._shared_bytes = limit_bytes - first_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self.is_short = False  # there is no room for anybody but the first
        self.is_over = False
        self.shed = 0
        self._holders: dict[Holder, None] = {}
        self._waiting: dict[Holder, None] = {}
        self._first: Holder | None = None
        self._first_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_choosing = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def set_aside(self, size_bytes: int) -> None:
        """Takes a part of the budget away, for what is held and not counted."""
        self.limit_bytes = max(self._all_bytes - size_bytes, self._all_bytes // 2)
        self._shared_bytes = max(self.limit_bytes - self._first_bytes, self.limit_bytes // 2)
        self._judge()

    def fits(self, size_bytes: int) -> bool:
        """Whether there is room for so much more."""
        if self.used_bytes + size_bytes <= self._shared_bytes:
            return True
        if self.is_short:
            return False
        self._measure()
        return self.used_bytes + size_bytes <= self._shared_bytes

    def settle(self, holder: Holder, held_bytes: int) -> None:
        """What somebody holds from now on."""
        change = held_bytes - holder.held_bytes
        holder.held_bytes = held_bytes
        self.used_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        if held_bytes:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        was_short = self.is_short
        self._judge()
        if self.is_short:
            if not was_short:
                self._measure()
            self._look_later()
        if change < 0 and self._waiting:
            self._let_go_on()

    def wait(self, holder: Holder) -> None:
        """Somebody needs more than there is: it is told when there is room."""
        if holder is self._first and self._fits_first(holder):
            holder.go_on()
            return
        self._waiting.setdefault(holder)
        self._look_later()
        self._let_go_on()

    def done(self, holder: Holder) -> None:
        """Somebody has all that it waited for, whatever was first in it."""
        if holder is self._first:
            self._first = None
            self._let_go_on()

    def forget(self, holder: Holder) -> None:
        """Somebody is gone."""
        self._waiting.pop(holder, None)
        if holder is self._first:
            self._first = None
        self.settle(holder, 0)
        if self._waiting:
            self._let_go_on()
        elif self._timer is not None and not self.is_short:
            self._timer.cancel()
            self._timer = None

    # Who goes on

    def _judge(self) -> None:
        self.is_short = self.used_bytes > self._shared_bytes - SLACK_BYTES
        self.is_over = self.used_bytes > self.limit_bytes

    def _measure(self) -> None:
        """Takes back what was sent meanwhile: nobody tells us of it when it happens."""
        for holder in list(self._holders):
            held_bytes = holder.measure()
            self.used_bytes += held_bytes - holder.held_bytes
            holder.held_bytes = held_bytes
            if not held_bytes:
                self._holders.pop(holder, None)
        self._judge()

    def _let_go_on(self) -> None:
        """Those who fit, in the order in which they came; and the first of the others, if nobody is."""
        if self._is_choosing:
            return  # somebody who goes on has given something back
        self._is_choosing = True
        try:
            while (holder := self._next()) is not None:
                del self._waiting[holder]
                holder.go_on()
        finally:
            self._is_choosing = False

    def _next(self) -> Holder | None:
        first = self._first
        if first is not None and first in self._waiting and self._fits_first(first):
            return first
        for holder in self._waiting:
            if holder is first:
                continue
            if self.used_bytes + holder.wanted_bytes() <= self._shared_bytes:
                return holder
            if first is None:
                self._first, self._first_since = holder, asyncio.get_running_loop().time()
                return holder if self._fits_first(holder) else None
            return None  # nobody overtakes
        return None

    def _fits_first(self, holder: Holder) -> bool:
        return self.used_bytes + holder.wanted_bytes() <= self.limit_bytes

    # Looking after those who wait

    def _look_later(self) -> None:
        if self._timer is None:
            delay_s = self._patience_s / _LOOKS_PER_PATIENCE
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._measure()
        now = asyncio.get_running_loop().time()
        if self._waiting:
            for holder in list(self._holders):
                reason = holder.stall(now, self._patience_s)
                if reason is not None:
                    self._end(holder, reason)
        self._let_go_on()
        first = self._first
        if first is not None and first in self._waiting and now - self._first_since > 2 * self._patience_s:
            self._make_room(first)
        if self._waiting or self.is_short:
            self._look_later()

    def _make_room(self, first: Holder) -> None:
        """The first has waited for long, and nobody is to blame: of the others, who holds most has to go."""
        others = [one for one in self._waiting if one is not first and one.held_bytes]
        if others:
            self._end(max(others, key=lambda one: one.held_bytes), "others could not go on")

    def _end(self, holder: Holder, reason: str) -> None:
        self.shed += 1
        self._waiting.pop(holder, None)
        holder.shed(f"memory is short, and {reason}")
