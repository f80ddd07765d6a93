"""Breaking a node on purpose, over its admin endpoint: `POST /v1/lab/cut?addresses=host:port,...`.

It exists only where `quorate.lab.enabled=true` stands in the node's file, and like all that changes something
it is served to the same machine alone. A node that is cut off from addresses can no longer reach them, until
it is told another list, or an empty one, or starts again. A network between nodes is cut when both sides are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.net.gate import Address, Gate
from quorate.net.http import HttpError, HttpHandler, HttpResponse

__all__ = ["LabRoutes"]

ADDRESSES_MAX: Final = 1000


class LabRoutes:
    """What can be done to a node."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def table(self) -> dict[str, HttpHandler]:
        return {"POST /v1/lab/cut": self._cut}

    async def _cut(self, _params: Mapping[str, str], query: Mapping[str, str]) -> HttpResponse:
        texts = [text for text in query.get("addresses", "").split(",") if text]
        if len(texts) > ADDRESSES_MAX:
            raise HttpError(400, f"addresses: allowed are up to {ADDRESSES_MAX}")
        self._gate.set_cut(_address(text) for text in texts)
        return HttpResponse.json({"cut": sorted(f"{host}:{port}" for host, port in self._gate.cut)})


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise HttpError(400, f"addresses: {text[:100]} is not host:port")
    return host.strip("[]"), int(port)
