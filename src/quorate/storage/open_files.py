"""How many files of logs a process has open at once: a bound, and who gives way when it is reached.

A broker may have a hundred thousand logs, most of which nobody writes or reads at the moment, and a process
may have some thousand files open. So a file of a log is opened when it is needed first (`log_file`), and if
too many are open then, one that was not used lately is closed. It is opened again when it is needed again.

Which one: they stand in a queue. Whoever is at its head and was used since it was last there goes to the end
of the queue once more; the first that was not is closed. That is nearly the least recently used one, and a
use costs no more than a mark.

One that somebody holds (a range that is being sent, a sync) gains nothing by being closed, and stays. If all
are held, opening one more is refused, with EMFILE: what is left of the limit is for what must not fail, a
sync or a cut.

Only one thread may use this, that of the event loop. Whoever works on files in another thread holds them.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Sized
from typing import Protocol

__all__ = ["GivesWay", "OpenFiles"]


class GivesWay(Protocol):
    """What is open, and can be closed for a while."""

    is_used: bool
    """Since this was last set to False."""

    @property
    def is_held(self) -> bool: ...

    def rest(self) -> None:
        """Closes it, until it is needed again."""


class OpenFiles:
    """Those of one process. `counted` is what is bounded, if that is more than these files."""

    def __init__(self, open_max: int | None = None, counted: Sized | None = None) -> None:
        self.open_max = open_max
        self._queue: OrderedDict[GivesWay, None] = OrderedDict()
        self._counted: Sized = self._queue if counted is None else counted
        self.closed_for_others = 0
        """How often one was closed because another one was needed."""

    def __len__(self) -> int:
        return len(self._queue)

    def make_room(self, path: str) -> None:
        """Before a file is opened. OSError, EMFILE, if there is no room."""
        if not self.has_room():
            reason = (
                f"{len(self._counted)} files are open, all of them are in use, and no more than"
                f" {self.open_max} may be for logs: this process needs a higher limit of open files"
                " (ulimit -n)"
            )
            raise OSError(errno.EMFILE, reason, path)

    def has_room(self) -> bool:
        """Makes some if need be. Whether there is."""
        while self.open_max is not None and len(self._counted) >= self.open_max:
            if not self._close_one():
                return False
        return True

    def add(self, file: GivesWay) -> None:
        """It is open now."""
        self._queue[file] = None

    def remove(self, file: GivesWay) -> None:
        """It is not any more."""
        self._queue.pop(file, None)

    def _close_one(self) -> bool:
        """Whether one was found: twice round the queue is enough to see all of them unused."""
        queue = self._queue
        for _ in range(2 * len(queue)):
            file = next(iter(queue))
            if file.is_used or file.is_held:
                file.is_used = False
                queue.move_to_end(file)
                continue
            del queue[file]
            file.rest()
            self.closed_for_others += 1
            return True
        return False
