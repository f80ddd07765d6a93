"""What a session watches. A watch is told once, and is armed by a read that succeeds; `Exists` arms one for a
node that is not there as well. After a reconnection the new server is told of all that are armed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from quorate.zookeeper import jute
from quorate.zookeeper.errors import NoNode, ZooKeeperError

__all__ = ["Watches"]

_DELETED: Final = 2
_CHILDREN: Final = 4

FRAME_PATHS_MAX: Final = 1_000  # told at once; a server takes no frame above a megabyte

_Armed = dict[str, list[jute.Watch]]


class Watches:
    def __init__(self) -> None:
        self._data: _Armed = {}
        self._absent: _Armed = {}
        self._children: _Armed = {}

    def note(self, operation: jute.Operation, result: Any) -> None:
        """An answer has come: what it armed is armed."""
        watch = getattr(operation, "watch", None)
        if watch is None:
            return
        if isinstance(result, ZooKeeperError):
            if not (isinstance(operation, jute.Exists) and isinstance(result, NoNode)):
                return
            armed = self._absent
        else:
            armed = self._children if isinstance(operation, jute.GetChildren) else self._data
        watchers = armed.setdefault(operation.path, [])
        if watch not in watchers:
            watchers.append(watch)

    def fire(self, event: jute.WatchEvent) -> None:
        tables = [self._children] if event.kind == _CHILDREN else [self._data, self._absent]
        if event.kind == _DELETED:
            tables.append(self._children)
        told: list[jute.Watch] = []
        for armed in tables:
            for watch in armed.pop(event.path, ()):
                if watch not in told:
                    told.append(watch)
        for watch in told:
            watch(event.path)

    def frames(self, zxid: int, chroot: str) -> Iterator[bytes]:
        """What tells another server of them."""
        everything = [
            (kind, path)
            for kind, armed in enumerate((self._data, self._absent, self._children))
            for path in armed
        ]
        for start in range(0, len(everything), FRAME_PATHS_MAX):
            some = everything[start : start + FRAME_PATHS_MAX]
            data, absent, children = ([path for kind, path in some if kind == one] for one in range(3))
            yield jute.set_watches_frame(zxid, data, absent, children, chroot)

    def clear(self) -> None:
        self._data.clear()
        self._absent.clear()
        self._children.clear()
