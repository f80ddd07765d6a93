"""How a broker asks the controller, which may be itself.

Who it is stands in `/controller`, where it is in its registration. A controller that says it is none any
more, and a connection that is lost, make the link look again and ask again, until there is an answer or the
time is over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from random import Random
from typing import Final

from quorate.controller.decision import Asker
from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Backoff, Connections
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.message import Request, Response
from quorate.zookeeper import paths
from quorate.zookeeper.admin_requests import answer
from quorate.zookeeper.controller import Controller
from quorate.zookeeper.errors import MalformedZnode, ZooKeeperError
from quorate.zookeeper.jute import Content, Get
from quorate.zookeeper.registration_json import Member
from quorate.zookeeper.session import Session
from quorate.zookeeper.znodes import NO_CONTROLLER

__all__ = ["ControllerLink", "is_from_broker"]

REQUEST_MS: Final = 30_000

_OF_BROKERS: Final = re.compile(r"quorate-+\d+")


def is_from_broker(client_id: str) -> bool:
    """Whether a request was passed on to us by a broker of ours, by what it calls itself.

    >>> is_from_broker("quorate-3"), is_from_broker("rdkafka")
    (True, False)
    """
    return _OF_BROKERS.fullmatch(client_id) is not None


class ControllerLink:
    """`controller_id` says who is believed to be it, `own` is our own term, if we are."""

    def __init__(
        self,
        connections: Connections,
        listener: str,
        random: Random,
        controller_id: Callable[[], int],
        own: Callable[[], Controller | None],
        session: Callable[[], Session],
    ) -> None:
        self._connections = connections
        self._listener = listener
        self._random = random
        self._controller_id = controller_id
        self._own = own
        self._session = session
        self._backoff = Backoff(first_ms=20, max_ms=500)
        self._found: tuple[int, Address] | None = None

    async def ask(self, request: Request, asker: Asker, *, timeout_ms: float) -> Response:
        """The controller's answer. `ApiError` if there is none in time: it has the reason of the failure."""
        failure = "nobody was asked"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                failures = 0
                while True:
                    try:
                        response = await self.ask_once(request, asker)
                        if not says_not_controller(response):
                            return response
                        failure = f"broker {self._controller_id()} is not the controller"
                    except ConnectionLost as error:
                        failure = str(error)
                    except ApiError as error:
                        if error.code is not ErrorCode.NOT_CONTROLLER:
                            raise
                        failure = error.message
                    failures += 1
                    await asyncio.sleep(self._backoff.delay_ms(failures, self._random) / 1000)
        except TimeoutError:
            reason = f"no answer of a controller in {timeout_ms:g} ms: {failure}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, reason) from None

    async def ask_once(self, request: Request, asker: Asker) -> Response:
        """The answer of whoever is believed to be the controller. NOT_CONTROLLER if there is none,
        `ConnectionLost` if it does not answer."""
        own = self._own()
        if own is not None:
            return await answer(own, request, asker)
        address = await self._address()
        try:
            return await self._connections.request(address, request, asker.api_version, timeout_ms=REQUEST_MS)
        except ConnectionLost:
            self._found = None
            raise
        except ProtocolError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def _address(self) -> Address:
        controller_id = self._controller_id()
        if controller_id == NO_CONTROLLER:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "there is no controller, as far as is known")
        if self._found is None or self._found[0] != controller_id:
            self._found = controller_id, await self._look_up(controller_id)
        return self._found[1]

    async def _look_up(self, controller_id: int) -> Address:
        path = paths.broker(controller_id)
        try:
            found: Content = await self._session().ask(Get(path))
            place = Member.read(path, found.data).listener(self._listener)
        except (ZooKeeperError, MalformedZnode) as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        if place is None:
            reason = f"controller {controller_id} has no listener {self._listener}"
            raise ApiError(ErrorCode.NOT_CONTROLLER, reason)
        return place.host, place.port

    async def close(self) -> None:
        await self._connections.close()


def says_not_controller(response: Response) -> bool:
    """Some responses have no error for the whole, and say it of everything that was asked for."""
    if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    for name in ("topics", "responses", "results"):
        for one in getattr(response, name, ()):
            if getattr(one, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                return True
    return False
