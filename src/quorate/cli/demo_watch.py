"""What the demo sees of its cluster: asked of whichever controller is active, at its admin endpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from quorate.testing.control import ClusterError, Launched, ask_admin, wait_until

__all__ = ["Active", "ClusterWatch"]

TIMEOUT_S: Final = 90.0  # for anything that is waited for; a quiet machine needs seconds
_ASK_S: Final = 2.0
_EVENTS: Final = 500

T = TypeVar("T")


class Active(NamedTuple):
    """The controller that leads."""

    id: int
    epoch: int
    high_watermark: int


class ClusterWatch:
    def __init__(self, launched: Launched) -> None:
        self._launched = launched

    def node_ids(self, role: str) -> list[int]:
        return [one["id"] for one in self._launched.state()["nodes"] if role in one["roles"]]

    def active(self) -> Active:
        """Waits for one."""
        return self.wait(self._active, "a controller to lead")

    def offset(self) -> int:
        """How far the metadata log is committed: the offset of the next record."""
        return self.active().high_watermark

    def voters(self) -> dict[int, dict[str, Any]]:
        """Every controller, as the active one sees it."""
        return {one["id"]: one for one in self._ask_active("/v1/controller")["voters"]}

    def brokers(self) -> dict[int, dict[str, Any]]:
        return {one["id"]: one for one in self._ask_active("/v1/brokers")["brokers"]}

    def partitions(self) -> dict[str, int]:
        """How many there are in `total`, `leaderless` and `under_replicated`."""
        found: dict[str, int] = self._ask_active("/v1/partitions")
        return found

    def event(self, kind: str, since_ms: int, broker_id: int) -> dict[str, Any]:
        """The last event of a kind about a broker; waits until there is one."""

        def find() -> dict[str, Any] | None:
            events = self._ask_active(f"/v1/events?limit={_EVENTS}")["events"]
            of_kind = [one for one in events if one["kind"] == kind and one["time_ms"] >= since_ms]
            return next((one for one in reversed(of_kind) if one.get("broker_id") == broker_id), None)

        return self.wait(find, f"the controller to note {kind} of broker {broker_id}")

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        """The first answer that is true."""
        found = wait_until(condition, TIMEOUT_S, what)
        assert found is not None
        return found

    def _ask_active(self, path: str) -> dict[str, Any]:
        """A controller that cannot be asked now is asked again, or its successor."""
        return self.wait(lambda: self._ask_now(path), f"a controller to answer {path}")

    def _ask_now(self, path: str) -> dict[str, Any] | None:
        active = self._active()
        if active is not None:
            admin = self._launched.node(active.id)["admin"]
            with contextlib.suppress(ClusterError):
                return ask_admin(admin or "", path, timeout_s=_ASK_S)
        return None

    def _active(self) -> Active | None:
        for one in self._launched.state()["nodes"]:
            if "controller" in one["roles"] and one["state"] == "running" and one["admin"] is not None:
                with contextlib.suppress(ClusterError):
                    found = ask_admin(one["admin"], "/v1/controller", timeout_s=_ASK_S)
                    if found["is_active"]:
                        return Active(found["node_id"], found["epoch"], found["high_watermark"])
        return None
