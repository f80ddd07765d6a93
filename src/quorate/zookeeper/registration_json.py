"""What a broker says of itself in its ephemeral node: versions 1 to 5 of Apache Kafka's format.

Version 1 has a host and a port; 2 adds `endpoints`, 3 the rack, 4 the security protocols of the listeners by
name, 5 the features. We write 5. The host and port at the top are those of the first plain listener.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from quorate.metadata.brokers import Listener, SecurityProtocol
from quorate.values import dataclass
from quorate.zookeeper.errors import MalformedZnode
from quorate.zookeeper.znodes import encoded, json_in

__all__ = ["Member"]

_PLAINTEXT: Final = 0
_CODES: Final = {name: code for code, name in SecurityProtocol.NAMES.items()}
_ENDPOINT: Final = re.compile(r"([^:/]+)://(\[[^\]]*\]|[^:]*):(-?\d+)")


@dataclass(frozen=True, slots=True)
class Member:
    """A broker that is registered. `epoch` is the transaction that made its node: no two lives share it."""

    id: int
    listeners: tuple[Listener, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    epoch: int = -1
    session_id: int = 0
    timestamp_ms: int = 0

    def listener(self, name: str) -> Listener | None:
        return next((one for one in self.listeners if one.name == name), None)

    def encode(self) -> bytes:
        plain = next((one for one in self.listeners if one.security_protocol == _PLAINTEXT), None)
        value: dict[str, Any] = {
            "version": 5,
            "host": None if plain is None else plain.host,
            "port": -1 if plain is None else plain.port,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [f"{one.name}://{_bracketed(one.host)}:{one.port}" for one in self.listeners],
            "listener_security_protocol_map": {
                one.name: SecurityProtocol.NAMES[one.security_protocol] for one in self.listeners
            },
            "features": {
                name: {"min_version": lowest, "max_version": highest}
                for name, (lowest, highest) in self.features.items()
            },
        }
        if self.rack is not None:
            value["rack"] = self.rack
        return encoded(value)

    @classmethod
    def read(cls, path: str, data: bytes, epoch: int = -1, session_id: int = 0) -> Member:
        broker_id = path.rpartition("/")[2]
        if not broker_id.isdigit():
            raise MalformedZnode(path, "its name is no broker id")
        value = json_in(path, data)
        version = value.get("version")
        if type(version) is not int or version < 1:
            raise MalformedZnode(path, f"version {version!r}: 1 or more was expected")
        rack, timestamp = value.get("rack"), str(value.get("timestamp", "0"))
        return cls(
            int(broker_id),
            _only_one(path, value) if version == 1 else _listeners(path, value),
            rack if isinstance(rack, str) else None,
            _features(path, value.get("features") or {}),
            epoch,
            session_id,
            int(timestamp) if timestamp.isdigit() else 0,
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _only_one(path: str, value: Mapping[str, Any]) -> tuple[Listener, ...]:
    host, port = value.get("host"), value.get("port")
    if not isinstance(host, str) or type(port) is not int:
        raise MalformedZnode(path, f"host {host!r} and port {port!r}")
    return (Listener("PLAINTEXT", host, port),)


def _listeners(path: str, value: Mapping[str, Any]) -> tuple[Listener, ...]:
    protocols = value.get("listener_security_protocol_map") or {}
    found = []
    for one in value.get("endpoints") or ():
        match = _ENDPOINT.fullmatch(one) if isinstance(one, str) else None
        if match is None:
            raise MalformedZnode(path, f"no endpoint: {one!r:.100}")
        name, host, port = match.groups()
        protocol = _CODES.get(str(protocols.get(name, name)))
        if protocol is None:
            raise MalformedZnode(path, f"the security protocol of {name} is {protocols.get(name)!r}")
        found.append(Listener(name, host.strip("[]"), int(port), protocol))
    if not found:
        raise MalformedZnode(path, "it has no endpoints")
    return tuple(found)


def _features(path: str, value: Any) -> dict[str, tuple[int, int]]:
    try:
        return {name: (int(one["min_version"]), int(one["max_version"])) for name, one in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise MalformedZnode(path, f"features: {value!r:.100}") from None
