"""The event loop of one incarnation of a node: asyncio in front, the world's clockwork behind.

One loop per incarnation is the decision from which almost everything follows. A loop has its own clock, so
`sleep` and `timeout` drift with the node. Each handle, task, future and transport belongs to a node without
bookkeeping. A Queue shared by two nodes raises. And death is one flag:

- A dead loop runs nothing. Its tasks and handles stay in a graveyard: were they dropped, Python would close
  the suspended coroutines, and their `finally` blocks would run in the middle of the simulation.
- Every effect passes `gate()`, which raises NodeDead once the node is dead. So code that does run after all,
  in the callback in which the node died or at the end of the world, sends and writes nothing.

Threads are imitated: `run_in_executor` runs the function at a later instant and delivers its result at
another one. What cannot be imitated raises NotImplementedError.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from asyncio.events import _set_running_loop
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from quorate.lab.clock import MachineClock
from quorate.lab.clockwork import Clockwork, Handle, NodeDead, Problem
from quorate.lab.refusals import RefusingLoop, refuse, refuse_options

__all__ = ["NodeLoop", "NodeTask", "Sockets"]

_T = TypeVar("_T")
_Context = contextvars.Context
_ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

_MS = 1_000_000
_WORKERS = 4
_WORK_DELAY_NS_MAX = 300_000
_CLOSE_ATTEMPTS_MAX = 100


class Sockets(Protocol):
    """The network as a loop needs it."""

    async def connect(
        self, loop: NodeLoop, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    def listen(
        self,
        loop: NodeLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        *,
        serving: bool,
    ) -> asyncio.AbstractServer: ...

    def addresses(self, loop: NodeLoop, host: str | None, port: int) -> list[tuple[Any, ...]]: ...


class NodeTask(asyncio.Task[Any]):
    """A task whose hash is a number of its world, because asyncio keeps tasks in sets and iterates over
    them."""

    def __init__(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        loop: NodeLoop,
        name: str,
        context: _Context | None,
    ) -> None:
        self.number = loop.clockwork.next_task_number()
        self.trace_code = loop.clockwork.trace.code(f"task {getattr(coro, '__qualname__', 'unnamed')}")
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number


class NodeLoop(RefusingLoop):
    """The loop of one process. With `like_uvloop` its timers have the manners of uvloop's: whole
    milliseconds, sometimes early, and in no order within a millisecond."""

    def __init__(
        self,
        clockwork: Clockwork,
        machine: str,
        incarnation: int,
        index: int,
        clock: MachineClock,
        source: random.Random,
        sockets: Sockets,
        *,
        like_uvloop: bool,
        on_problem: Callable[[Problem], None],
        on_exit: Callable[[NodeLoop, BaseException | None], None],
    ) -> None:
        self.clockwork = clockwork
        self.machine = machine
        self.name = f"{machine}.{incarnation}"
        self.index = index
        self.dead = False
        self.paused_until_ns = 0
        self.graveyard: list[object] = []
        self.running_loop = self
        self.like_uvloop = like_uvloop
        self.root: asyncio.Task[Any] | None = None
        self._clock = clock
        self._random = source
        self._sockets = sockets
        self._on_problem = on_problem
        self._on_exit = on_exit
        self._tasks_made = 0
        self._worker_free_ns = [0] * _WORKERS
        self._exception_handler: _ExceptionHandler | None = None
        self._task_factory: Any = None

    # Life and death

    def begin(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Starts the node's root task. When it ends, the process has exited."""
        self.call_soon(self._begin, main)

    def die(self) -> None:
        """From now on nothing of this node runs."""
        if not self.dead:
            self.dead = True
            self.graveyard.extend(asyncio.all_tasks(self))

    def gate(self) -> None:
        """Stands before every effect."""
        if self.dead:
            raise NodeDead(self.name)

    def close_graves(self) -> None:
        """Ends the coroutines of a dead node after the run, in a fixed order and without effects, rather than
        leave them to the garbage collector."""
        assert self.dead
        tasks = [each for each in self.graveyard if isinstance(each, NodeTask)]
        for task in sorted(tasks, key=lambda task: task.number):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self.graveyard.clear()

    def callback_failed(self, name: str, exception: BaseException) -> None:
        if isinstance(exception, SystemExit):
            self._on_exit(self, exception)
        else:
            self.call_exception_handler({"message": f"exception in {name}", "exception": exception})

    def _begin(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.root = self.create_task(main(), name="root")
        self.root.add_done_callback(self._root_ended)

    def _root_ended(self, root: asyncio.Task[Any]) -> None:
        self._on_exit(self, asyncio.CancelledError() if root.cancelled() else root.exception())

    # Time and callbacks

    def time(self) -> float:
        shown_s = self._clock.monotonic_s(self.clockwork.now_ns)
        return int(shown_s * 1000) / 1000 if self.like_uvloop else shown_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: _Context | None = None
    ) -> Handle:
        return self.clockwork.soon(self, callback, args, context or contextvars.copy_context())

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: _Context | None = None
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: _Context | None = None
    ) -> Handle:
        instant_ns = self._coarse_ns(when) if self.like_uvloop else self._clock.instant_ns(when)
        return self.clockwork.at(
            instant_ns, self, callback, args, context or contextvars.copy_context(), deadline_s=when
        )

    def set_clock_rate(self, rate: float) -> None:
        """Makes the clock faster or slower; timers that are set already follow it."""
        self._clock.set_rate(self.clockwork.now_ns, rate)
        self.clockwork.reschedule(self, self._clock.instant_ns)

    def _coarse_ns(self, when: float) -> int:
        now_ns = self.clockwork.now_ns
        delay_s = when - self.time()
        if delay_s <= 0:
            return now_ns
        whole_ms = round(delay_s * 1000)
        if not whole_ms:  # uvloop calls it at once, but even that takes time: a loop that waits must get on
            return now_ns + self._random.randrange(1, _MS // 2)
        return self._clock.instant_ns(self.time() + whole_ms / 1000) + self._random.randrange(_MS)

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: _Context | None = None,
    ) -> asyncio.Task[_T]:
        if self.dead:
            coro.close()  # it has not begun: nothing of it runs, and Python does not complain about it
            raise NodeDead(self.name)
        self._tasks_made += 1  # asyncio's own default names count for the whole interpreter
        return NodeTask(coro, self, name or f"{self.name}/{self._tasks_made}", context)

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None:
            refuse("set_task_factory")

    def get_task_factory(self) -> Any:
        return None

    # Threads

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        del executor  # whoever should do it, virtual workers do
        self.gate()
        future: asyncio.Future[_T] = self.create_future()
        worker = min(range(_WORKERS), key=self._worker_free_ns.__getitem__)
        free_ns = max(self.clockwork.now_ns, self._worker_free_ns[worker])
        start_ns = free_ns + self._random.randrange(1, _WORK_DELAY_NS_MAX)
        end_ns = start_ns + self._random.randrange(1, _WORK_DELAY_NS_MAX)
        self._worker_free_ns[worker] = end_ns
        self.clockwork.at(start_ns, self, self._work, (future, end_ns, func, args))
        return future

    def _work(
        self, future: asyncio.Future[_T], end_ns: int, func: Callable[..., _T], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled():
            return
        _set_running_loop(None)  # a thread of an executor has no running loop
        try:
            result = func(*args)
        except (SystemExit, KeyboardInterrupt, NodeDead):
            raise
        except BaseException as exception:
            self.clockwork.at(end_ns, self, _set_exception, (future, exception))
        else:
            self.clockwork.at(end_ns, self, _set_result, (future, result))

    def set_default_executor(self, executor: Any) -> None:
        """Whatever it is, virtual workers do its work."""

    async def shutdown_default_executor(self) -> None:
        """There is nothing to shut down."""

    async def shutdown_asyncgens(self) -> None:
        """Asynchronous generators are not followed; long-lived ones are not allowed in nodes."""

    # Network

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        refuse_options("create_connection", options)
        assert host is not None, "a host must be named"
        assert port is not None, "a port must be named"
        self.gate()
        return await self._sockets.connect(self, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        backlog: int = 100,  # noqa: ARG002  # a machine of the simulator accepts everything
        reuse_address: bool | None = None,  # noqa: ARG002  # no port here waits to be used again
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.AbstractServer:
        refuse_options("create_server", options)
        assert port is not None, "a port must be named; 0 stands for any"
        self.gate()
        return self._sockets.listen(self, protocol_factory, host, port, serving=start_serving)

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: str | None,
        port: int,
        *,
        family: int = 0,  # noqa: ARG002
        type: int = 0,  # noqa: A002, ARG002
        proto: int = 0,  # noqa: ARG002
        flags: int = 0,  # noqa: ARG002
    ) -> list[tuple[Any, ...]]:
        return self._sockets.addresses(self, host, port)

    # State and errors

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        if enabled:
            refuse("set_debug")

    def set_exception_handler(self, handler: _ExceptionHandler | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> _ExceptionHandler | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The world has it already."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What reaches this handler is a mistake of the node's code; a seed with any such entry fails."""
        if self.dead:
            return
        message = str(context.get("message", "unhandled exception"))
        self._on_problem(Problem(self.clockwork.now_ns, self.name, message, context.get("exception")))
        if self._exception_handler is not None:
            self._exception_handler(self, context)

    def __repr__(self) -> str:
        return f"<NodeLoop {self.name}>"


def _set_result(future: asyncio.Future[_T], result: _T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], exception: BaseException) -> None:
    if not future.done():
        future.set_exception(exception)


def _close(coroutine: Any) -> None:
    """Ends a coroutine. Its `finally` blocks may await something even now; that is ended then, the innermost
    first: an outer one that were told of it would leave it to the garbage collector."""
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        innermost = coroutine
        while getattr(inner := getattr(innermost, "cr_await", None), "cr_frame", None) is not None:
            innermost = inner
        try:
            innermost.close()
        except BaseException:  # whatever it meets is of no interest
            continue
        if innermost is coroutine:
            return
