"""Virtual time, and the order in which things happen in it.

Time is an integer of nanoseconds that stands still while a callback runs. What is due now waits in a queue;
what is due later waits in a heap, where equal times keep the order in which they were asked for. When
nothing is due, time jumps to the next entry. A callback belongs to an owner: one incarnation of a node
(`NodeLoop`), or the kernel, which stands for everything that is nobody's process: wires, disks, faults.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.events import _set_running_loop
from collections import Counter, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, Protocol

from quorate.lab.trace import Trace, callback_name
from quorate.values import dataclass

__all__ = ["Clockwork", "Handle", "Kernel", "Livelock", "NodeDead", "Owner", "Problem"]

STEPS_PER_INSTANT_MAX = 100_000
_SUSPECTS_WATCHED = 1_000
_HEAP_SLACK = 1_000


class NodeDead(BaseException):
    """Raised where a dead node tries to have an effect.

    Not an Exception, so that a node's own error handling does not catch it and go on living.
    """


class Livelock(Exception):  # noqa: N818  # it is an event, not an error of its raiser
    """Too many steps at one instant: something calls itself again without time passing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that must not happen in any run, whatever the faults; it fails the seed."""

    time_ns: int
    node: str
    message: str
    exception: BaseException | None

    def __str__(self) -> str:
        what = "" if self.exception is None else f": {type(self.exception).__name__}: {self.exception}"
        return f"{self.time_ns / 1e9:.9f} s, {self.node}: {self.message}{what}"


class Owner(Protocol):
    """Whose a callback is."""

    @property
    def name(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def dead(self) -> bool: ...

    @property
    def paused_until_ns(self) -> int: ...

    @property
    def graveyard(self) -> list[object]:
        """What a dead owner still referred to. It is kept, because dropping it would run `finally` blocks."""

    @property
    def running_loop(self) -> asyncio.AbstractEventLoop | None: ...

    def callback_failed(self, name: str, exception: BaseException) -> None: ...


class Kernel:
    """The owner of what happens outside of all processes. It never dies."""

    name = "world"
    index = 0
    dead = False
    paused_until_ns = 0
    running_loop: asyncio.AbstractEventLoop | None = None

    def __init__(self) -> None:
        self.graveyard: list[object] = []

    def callback_failed(self, name: str, exception: BaseException) -> NoReturn:
        """An exception here is a mistake of the simulator or of a checker, so the run ends."""
        exception.add_note(f"in {name}, which belongs to no node")
        raise exception


class Handle(asyncio.TimerHandle):
    """A callback that is going to run. One class for now and later, cheaper than asyncio's two."""

    __slots__ = ("args", "callback", "context", "deadline_s", "order", "owner", "stopped")

    def __init__(
        self,
        owner: Owner,
        order: int,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        deadline_s: float | None,
    ) -> None:
        self.owner = owner
        self.order = order
        self.callback = callback
        self.args = args
        self.context = context
        self.deadline_s = deadline_s  # on the owner's clock; None for what a changed clock does not move
        self.stopped = False

    def cancel(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.callback = _nothing
            self.args = ()

    def cancelled(self) -> bool:
        return self.stopped

    def when(self) -> float:
        assert self.deadline_s is not None
        return self.deadline_s

    def __repr__(self) -> str:
        return f"<Handle {self.owner.name} {callback_name(self.callback)}>"


class Clockwork:
    """Runs callbacks in virtual time, one after the other."""

    def __init__(self, trace: Trace) -> None:
        self.now_ns = 0
        self.trace = trace
        self.kernel = Kernel()
        self.hooks: list[Callable[[], None]] = []
        """Called after every step; a checker raises here when an invariant is broken."""
        self.last_owner: Owner = self.kernel
        """Whose the last step was."""
        self._order = 0
        self._tasks_made = 0
        self._ready: deque[Handle] = deque()
        self._heap: list[tuple[int, int, Handle]] = []
        self._prune_at = _HEAP_SLACK
        self._steps_at_instant = 0
        self._suspects: Counter[str] = Counter()

    def soon(
        self,
        owner: Owner,
        callback: Callable[..., Any],
        args: tuple[Any, ...] = (),
        context: contextvars.Context | None = None,
    ) -> Handle:
        """Runs a callback at this instant, after those that wait already."""
        self._order = order = self._order + 1
        handle = Handle(owner, order, callback, args, context, None)
        if owner.dead:
            owner.graveyard.append(handle)
        else:
            self._ready.append(handle)
        return handle

    def at(
        self,
        time_ns: int,
        owner: Owner,
        callback: Callable[..., Any],
        args: tuple[Any, ...] = (),
        context: contextvars.Context | None = None,
        deadline_s: float | None = None,
    ) -> Handle:
        """Runs a callback at a later instant."""
        self._order = order = self._order + 1
        handle = Handle(owner, order, callback, args, context, deadline_s)
        if owner.dead:
            owner.graveyard.append(handle)
            return handle
        if len(self._heap) >= self._prune_at:
            self._prune()
        heappush(self._heap, (max(time_ns, self.now_ns), order, handle))
        return handle

    def next_task_number(self) -> int:
        self._tasks_made += 1
        return self._tasks_made

    def reschedule(self, owner: Owner, instant_ns: Callable[[float], int]) -> None:
        """Moves the timers of an owner whose clock runs at another rate from now on."""
        for position, (_, order, handle) in enumerate(self._heap):
            if handle.owner is owner and handle.deadline_s is not None:
                time_ns = max(self.now_ns, instant_ns(handle.deadline_s))
                self._heap[position] = (time_ns, order, handle)
        heapify(self._heap)

    def run(self, until_ns: int, stop: Callable[[], bool] | None = None) -> bool:
        """Runs everything up to an instant, or until `stop` says so after a step: whether it did."""
        ready, heap = self._ready, self._heap
        try:
            while True:
                if ready:
                    handle = ready.popleft()
                    due_ns = self.now_ns
                elif heap and heap[0][0] <= until_ns:
                    due_ns, _, handle = heappop(heap)
                else:
                    self.now_ns = max(self.now_ns, until_ns)
                    return False
                if handle.stopped:
                    continue
                owner = handle.owner
                if owner.dead:
                    owner.graveyard.append(handle)
                    continue
                if owner.paused_until_ns > due_ns:
                    heappush(heap, (owner.paused_until_ns, handle.order, handle))
                    continue
                if due_ns > self.now_ns:
                    self.now_ns = due_ns
                    self._steps_at_instant = 0
                self._step(handle, owner)
                for hook in self.hooks:
                    hook()
                if stop is not None and stop():
                    return True
        finally:
            _set_running_loop(None)

    def _step(self, handle: Handle, owner: Owner) -> None:
        callback = handle.callback
        self.last_owner = owner
        trace = self.trace
        trace.step(self.now_ns, owner.index, trace.code_of_callback(callback))
        if trace.with_text:
            trace.line(self.now_ns, owner.name, callback_name(callback))
        self._steps_at_instant += 1
        if self._steps_at_instant > STEPS_PER_INSTANT_MAX:
            self._suspect(f"{owner.name} {callback_name(callback)}")
        _set_running_loop(owner.running_loop)
        try:
            if handle.context is None:
                callback(*handle.args)
            else:
                handle.context.run(callback, *handle.args)
        except (NodeDead, KeyboardInterrupt) as exception:
            if isinstance(exception, KeyboardInterrupt) or not owner.dead:
                raise
        except BaseException as exception:
            owner.callback_failed(callback_name(callback), exception)

    def _suspect(self, name: str) -> None:
        """Watches who is running in a livelock before reporting it, so that the report names the culprits."""
        if self._steps_at_instant == STEPS_PER_INSTANT_MAX + 1:
            self._suspects.clear()
        self._suspects[name] += 1
        if self._suspects.total() >= _SUSPECTS_WATCHED:
            often = ", ".join(f"{name} ({count})" for name, count in self._suspects.most_common(5))
            raise Livelock(
                f"{self._steps_at_instant} steps at {self.now_ns / 1e9:.9f} s; "
                f"the last {_SUSPECTS_WATCHED} were {often}"
            )

    def _prune(self) -> None:
        """Drops cancelled timers: most timers are timeouts that never happen, and they would pile up."""
        self._heap[:] = [entry for entry in self._heap if not entry[2].stopped]
        heapify(self._heap)
        self._prune_at = 2 * len(self._heap) + _HEAP_SLACK


def _nothing() -> None:
    pass
