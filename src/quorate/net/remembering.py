"""What one connection remembers of its requests: a shortcut for each kind that it had, if there is one."""

from __future__ import annotations

from quorate.net.repetition import Repetitions
from quorate.net.routes import RequestContext, RouteTable
from quorate.net.shortcuts import Shortcut, Undecoded
from quorate.protocol.api.connection import RequestHeader

__all__ = ["Remembered"]


class Remembered:
    """Shortcuts by route id. They are those of a table of routes, and forgotten with it."""

    __slots__ = ("_routes", "_shortcuts")

    def __init__(self) -> None:
        self._routes: RouteTable | None = None
        self._shortcuts: dict[int, Shortcut] = {}

    def find(self, routes: RouteTable, route_id: int) -> Shortcut | None:
        """The shortcut for a kind of requests, if there was one of that kind."""
        return self._shortcuts.get(route_id) if routes is self._routes else None

    def learn(
        self,
        routes: RouteTable,
        route_id: int,
        context: RequestContext,
        header: RequestHeader,
        request: object,
        answer: object,
        frame: Undecoded,
    ) -> None:
        """A request was served the long way, of a kind for which `routes` has a shortcut."""
        if routes is not self._routes:
            self._routes = routes
            self._shortcuts.clear()
        shortcut = self._shortcuts.get(route_id)
        if shortcut is None:
            shortcut = self._shortcuts[route_id] = _new_shortcut(routes, route_id)
        shortcut.learn(context, header, request, answer, frame)


def _new_shortcut(routes: RouteTable, route_id: int) -> Shortcut:
    if route_id in routes.shortcuts:
        return routes.shortcuts[route_id]()
    return Repetitions(routes.again[route_id])
