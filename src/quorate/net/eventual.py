"""An answer that somebody will give, for whoever is to be told of it.

A handler whose answer has to wait returns something that can be awaited. A future of asyncio is more than
that takes: whoever waits for it is told in the next turn of the loop, so that all answers of a turn leave
together, after all that has arrived was read. Clients with many requests under way then have nothing to do
while the server works, and the other way round. An `Eventual` tells its listeners at once.

Whoever gives the answer is called back into from there, and must be in order when it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar, cast

__all__ = ["Eventual", "Pending", "afterwards", "pending"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """What futures of asyncio and `Eventual` have in common."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool: ...
    def result(self) -> T_co: ...
    def exception(self) -> BaseException | None: ...
    def add_done_callback(self, listener: Callable[[Any], object], /) -> None: ...


class Eventual(Generic[T]):
    """Something that will be there, or will have failed.

    >>> answer = Eventual()
    >>> answer.add_done_callback(lambda one: print("here it is:", one.result()))
    >>> answer.set_result(42)
    here it is: 42
    """

    __slots__ = ("_error", "_is_cancelled", "_is_done", "_listeners", "value")

    def __init__(self) -> None:
        self._listeners: list[Callable[[Eventual[T]], object]] = []
        self.value: T | None = None  # until it is there, or if it never is
        self._error: Exception | None = None
        self._is_done = self._is_cancelled = False

    def set_result(self, value: T) -> None:
        assert not self._is_done, "an answer is given once"
        self.value = value
        self._is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def set_exception(self, error: Exception) -> None:
        assert not self._is_done, "an answer is given once"
        self._error = error
        self._tell()

    def cancel(self) -> bool:
        """Nobody waits for it any more."""
        if self._is_done:
            return False
        self._is_cancelled = True
        self._tell()
        return True

    def _tell(self) -> None:
        self._is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> T:
        assert self._is_done
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        return self.value  # type: ignore[return-value]

    def add_done_callback(self, listener: Callable[[Eventual[T]], object], /) -> None:
        """Told in the order in which they came; at once, if it is there."""
        if self._is_done:
            listener(self)
        else:
            self._listeners.append(listener)

    def __await__(self) -> Generator[Any, None, T]:
        """A task goes on in a turn of its own, and one that is cancelled waits for nothing any more, as with
        any future."""
        if not self._is_done:
            future = asyncio.get_running_loop().create_future()

            def go_on(_: Eventual[T]) -> None:
                if not future.done():
                    future.set_result(None)

            self.add_done_callback(go_on)
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()


def pending(answer: Awaitable[T]) -> Pending[T]:
    """An answer that has to be waited for, as something that tells when it is there."""
    if isinstance(answer, Eventual):
        return answer
    return asyncio.ensure_future(answer)


def afterwards(
    done: asyncio.Future[None], end: Callable[[], None], go_on: Callable[[], T | Awaitable[T]]
) -> Eventual[T]:
    """An answer that is made when something is done: what a coroutine would be that awaits `done`, calls
    `end` in any case and then returns what `go_on` says, but without a task, which takes two turns more.

    Nobody waits for the answer any more: then nobody waits for `done`, or for what `go_on` has begun.
    """
    answer: Eventual[T] = Eventual()
    awaited: Pending[Any] = done

    def is_done(_: asyncio.Future[None]) -> None:
        if answer.done():
            return
        end()
        try:
            made = go_on()
        except Exception as error:
            answer.set_exception(error)
            return
        if isinstance(made, Awaitable):
            nonlocal awaited
            awaited = pending(made)
            awaited.add_done_callback(is_made)
        else:
            answer.set_result(made)

    def is_made(made: Pending[T]) -> None:
        if answer.done():
            return
        if made.cancelled():
            answer.cancel()
        elif (error := made.exception()) is not None:
            answer.set_exception(cast("Exception", error))
        else:
            answer.set_result(made.result())

    def is_over(_: Eventual[T]) -> None:
        if answer.cancelled():
            awaited.cancel()
            if awaited is done:
                end()

    done.add_done_callback(is_done)
    answer.add_done_callback(is_over)
    return answer
