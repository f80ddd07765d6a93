"""Deadlines by key, made for being pushed back again and again.

A heartbeat moves a deadline later, thousands of times before it is ever reached. So moving one later only
writes it down; the queue keeps the earlier time and finds out when that time comes.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """At most one deadline per key. Setting or cancelling one costs no search.

    >>> deadlines = Deadlines[tuple[str, str]]()
    >>> deadlines.set(("session", "a"), 10); deadlines.set(("session", "a"), 30)
    >>> deadlines.expired(20), deadlines.expired(30)
    ([], [('session', 'a')])
    """

    __slots__ = ("_due_ms", "_queue", "_queued_ms", "_sequence")

    def __init__(self) -> None:
        self._due_ms: dict[K, float] = {}
        self._queued_ms: dict[K, float] = {}  # the earliest entry of the key in the queue
        self._queue: list[tuple[float, int, K]] = []
        self._sequence = 0  # keeps the queue from comparing keys, and its order that of the calls

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def get(self, key: K) -> float | None:
        return self._due_ms.get(key)

    def set(self, key: K, due_ms: float) -> None:
        self._due_ms[key] = due_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or due_ms < queued_ms:
            self._enqueue(key, due_ms)

    def push_back(self, key: K, due_ms: float) -> bool:
        """Moves a deadline later, which nobody has to be told of. False, and nothing is done, if there is
        none, or if it would not be later."""
        before_ms = self._due_ms.get(key)
        if before_ms is None or due_ms < before_ms:
            return False
        self._due_ms[key] = due_ms
        return True

    def cancel(self, key: K) -> None:
        self._due_ms.pop(key, None)

    def clear(self) -> None:
        """Nothing is waited for any more."""
        self._due_ms.clear()
        self._queued_ms.clear()
        self._queue.clear()

    def next_ms(self) -> float | None:
        """No deadline comes before this time; None if there is none at all."""
        while self._queue and self._queue[0][2] not in self._due_ms:
            self._dequeue()
        return self._queue[0][0] if self._queue else None

    def expired(self, now_ms: float) -> list[K]:
        """The keys whose deadline has come, in the order of their deadlines. They are forgotten with this."""
        expired: list[tuple[float, int, K]] = []
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, sequence, key = self._queue[0]
            is_latest = self._queued_ms.get(key) == queued_ms
            self._dequeue()
            due_ms = self._due_ms.get(key)
            if due_ms is None or not is_latest:
                continue
            if due_ms > now_ms:
                self._enqueue(key, due_ms)
                continue
            del self._due_ms[key]
            expired.append((due_ms, sequence, key))
        expired.sort(key=lambda entry: entry[:2])
        return [key for _, _, key in expired]

    def take(self, now_ms: float) -> K | None:
        """The key whose deadline came first; None if none has come. It is forgotten with this.

        Whoever takes one at a time never sees a deadline that was moved or cancelled because of another.
        """
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, _, key = self._queue[0]
            is_latest = self._queued_ms.get(key) == queued_ms
            self._dequeue()
            due_ms = self._due_ms.get(key)
            if due_ms is None or not is_latest:
                continue
            if due_ms > queued_ms:
                self._enqueue(key, due_ms)
                continue
            del self._due_ms[key]
            return key
        return None

    def _enqueue(self, key: K, due_ms: float) -> None:
        self._sequence += 1
        self._queued_ms[key] = due_ms
        heappush(self._queue, (due_ms, self._sequence, key))
        if len(self._queue) > 2 * len(self._due_ms) + 64:
            self._rebuild()

    def _dequeue(self) -> None:
        queued_ms, _, key = heappop(self._queue)
        if self._queued_ms.get(key) == queued_ms:
            del self._queued_ms[key]

    def _rebuild(self) -> None:
        self._queue = [(due_ms, index, key) for index, (key, due_ms) in enumerate(self._due_ms.items())]
        heapify(self._queue)
        self._queued_ms = dict(self._due_ms)
        self._sequence = len(self._queue)
