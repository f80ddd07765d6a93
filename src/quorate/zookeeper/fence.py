"""Writes of a controller, each of which is refused if another controller has been elected since.

Every write is one transaction with a check of the version that `/controller_epoch` had when we were elected.
If the check fails, `ControllerMoved`: whatever we decided does not count. If the write itself fails, that is
its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quorate.values import dataclass
from quorate.zookeeper import paths
from quorate.zookeeper.errors import ControllerMoved, MultiFailed, NoNode, ZooKeeperError
from quorate.zookeeper.jute import Check, Create, Delete, Multi, Set
from quorate.zookeeper.session import Session

__all__ = ["Fence"]


@dataclass(frozen=True, slots=True)
class Fence:
    """What a controller has to show: its epoch, and the version of the node that it stands in."""

    session: Session
    epoch: int
    epoch_version: int

    async def write_all(self, operations: Sequence[Create | Delete | Set]) -> list[Any]:
        """The results in their order, errors among them."""
        check = Check(paths.CONTROLLER_EPOCH, self.epoch_version)
        results = await self.session.ask_all([Multi.of(check, one) for one in operations])
        return [self._unwrapped(one) for one in results]

    async def write(self, operation: Create | Delete | Set) -> Any:
        """The result of one; errors are raised."""
        (result,) = await self.write_all((operation,))
        if isinstance(result, ZooKeeperError):
            raise result
        return result

    async def write_together(self, operations: Sequence[Create | Delete | Set]) -> None:
        """All of them in one transaction; the error that decided is raised."""
        check = Check(paths.CONTROLLER_EPOCH, self.epoch_version)
        (result,) = await self.session.ask_all([Multi.of(check, *operations)])
        unwrapped = self._unwrapped(result)
        if isinstance(unwrapped, ZooKeeperError):
            raise unwrapped

    def _unwrapped(self, result: Any) -> Any:
        if isinstance(result, list):
            return result[1]
        if isinstance(result, MultiFailed):
            if result.errors[0] is not None and result.first is result.errors[0]:
                raise ControllerMoved(f"there is a controller after epoch {self.epoch}")
            return result.first
        if isinstance(result, NoNode) and result.path == paths.CONTROLLER_EPOCH:
            raise ControllerMoved(f"{paths.CONTROLLER_EPOCH} is gone")
        return result
