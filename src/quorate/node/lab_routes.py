"""Breaking a node on purpose, over its admin endpoint.

- `POST /v1/lab/cut?addresses=host:port,...`: the node can no longer reach these addresses, until it is told
  another list, or an empty one, or starts again. A network between nodes is cut when both sides are.
- `POST /v1/lab/disk?full=true&sync_delay_ms=200`: its disks take nothing, or are slow, until they are told
  otherwise.

Both exist only where `quorate.lab.enabled=true` stands in the node's file, and like all that changes
something they are served to the same machine alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.net.gate import Address, Gate
from quorate.net.http import HttpError, HttpHandler, HttpResponse
from quorate.storage.files import Files
from quorate.storage.troubled_files import TroubledFiles

__all__ = ["LabRoutes"]

ADDRESSES_MAX: Final = 1000
SYNC_DELAY_MS_MAX: Final = 60_000


class LabRoutes:
    """What can be done to a node."""

    def __init__(self, gate: Gate, files: Files) -> None:
        self._gate = gate
        self._disks = files.trouble if isinstance(files, TroubledFiles) else None

    def table(self) -> dict[str, HttpHandler]:
        return {"POST /v1/lab/cut": self._cut, "POST /v1/lab/disk": self._disk}

    async def _disk(self, _params: Mapping[str, str], query: Mapping[str, str]) -> HttpResponse:
        disks = self._disks
        if disks is None:
            raise HttpError(409, "this node has no disks of its own")
        full, delay = query.get("full", "false"), query.get("sync_delay_ms", "0")
        if full not in ("true", "false"):
            raise HttpError(400, f"full: {full[:100]} is neither true nor false")
        if not (delay.isascii() and delay.isdigit() and int(delay[:9]) <= SYNC_DELAY_MS_MAX):
            raise HttpError(400, f"sync_delay_ms: {delay[:100]} is not a number up to {SYNC_DELAY_MS_MAX}")
        disks.is_full, disks.sync_delay_ms = full == "true", int(delay)
        return HttpResponse.json({"full": disks.is_full, "sync_delay_ms": disks.sync_delay_ms})

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
