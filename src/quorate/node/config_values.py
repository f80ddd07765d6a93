"""Values in the file of a node: how each kind is read, and what is not allowed.

A reader takes a text and raises `ValueError` for what makes no sense; what is allowed, in words, stands
beside it in `config.SETTINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from quorate.coordinator.assignors import ASSIGNORS
from quorate.node.logs import LEVELS

__all__ = [
    "INT_MAX",
    "ConfigError",
    "Listener",
    "Setting",
    "at_least",
    "between",
    "boolean",
    "integer",
    "ms",
    "one_of",
    "read_address_or_none",
    "read_assignors",
    "read_digest",
    "read_ensemble",
    "read_level",
    "read_listeners",
    "read_names",
    "read_protocol_version",
    "read_rebalance_protocols",
    "read_roles",
    "read_servers",
    "read_validation",
    "read_voters",
]

INT_MAX: Final = 2**31 - 1
_ZOOKEEPER_PORT: Final = 2181
_ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
_REBALANCE_PROTOCOLS: Final = frozenset({"classic", "consumer", "share", "streams"})


class ConfigError(Exception):
    """Something that an operator must fix."""


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Setting:
    read: Callable[[str], Any]
    allowed: str
    default: Any


def integer(lowest: int, highest: int = 2**63 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError
        return value

    return read


def ms(default: int) -> Setting:
    return Setting(integer(0, 2**31 - 1), "milliseconds from 0 on", default)


def at_least(lowest: int, default: int) -> Setting:
    return Setting(integer(lowest), f"a number from {lowest} on", default)


def between(lowest: int, highest: int, default: int) -> Setting:
    return Setting(integer(lowest, highest), f"a number from {lowest} to {highest}", default)


def _true_or_false(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower()


def boolean(default: bool) -> Setting:
    return Setting(lambda text: _true_or_false(text) == "true", "true or false", default)


def read_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def read_assignors(text: str) -> tuple[str, ...]:
    """The names of assignors. In a file for Kafka their classes may stand instead."""
    names = tuple(_ASSIGNOR_CLASSES.get(name, name) for name in read_names(text))
    if not names or not set(names) <= set(ASSIGNORS) or len(set(names)) != len(names):
        raise ValueError
    return names


def read_rebalance_protocols(text: str) -> tuple[str, ...]:
    """Nobody can do without the classic one."""
    names = read_names(text)
    if "classic" not in names or not set(names) <= _REBALANCE_PROTOCOLS:
        raise ValueError
    return names


def read_roles(text: str) -> tuple[str, ...]:
    roles = read_names(text)
    if not roles or not set(roles) <= {"broker", "controller"} or len(set(roles)) != len(roles):
        raise ValueError
    return roles


def _host_and_port(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d+)", text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError
    return match["v6"] or match["host"], int(match["port"])


def read_validation(text: str) -> str:
    if text not in ("records", "header"):
        raise ValueError
    return text


def one_of(*texts: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in texts:
            raise ValueError
        return text

    return read


def read_level(text: str) -> str:
    return one_of(*LEVELS[:-1])(text.upper())


def read_address_or_none(text: str) -> tuple[str, int] | None:
    return _host_and_port(text) if text else None


def read_listeners(text: str) -> tuple[Listener, ...]:
    found = []
    for part in read_names(text):
        name, separator, address = part.partition("://")
        if not separator or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise ValueError
        found.append(Listener(name.upper(), *_host_and_port(address)))
    if not found or len({one.name for one in found}) != len(found):
        raise ValueError
    return tuple(found)


def read_voters(text: str) -> tuple[tuple[int, str, int], ...]:
    """`id@host:port,...`; an address that stands for all interfaces cannot be connected to."""
    found = []
    for part in read_names(text):
        voter_id, _, address = part.partition("@")
        host, port = _host_and_port(address)
        if host in ("", "0.0.0.0", "::") or not port:
            raise ValueError
        found.append((integer(0, 2**31 - 1)(voter_id), host, port))
    if len({voter_id for voter_id, _, _ in found}) != len(found):
        raise ValueError
    return tuple(found)


def read_ensemble(text: str) -> str:
    """`host:port,host:port/path`; the path is of all of them, and stands at the end."""
    servers, slash, path = text.partition("/")
    found = [
        _host_and_port(part if ":" in part else f"{part}:{_ZOOKEEPER_PORT}") for part in read_names(servers)
    ]
    if not found or any(not host or not port for host, port in found) or (slash and "//" in f"/{path}"):
        raise ValueError
    return text.rstrip("/")


def read_protocol_version(text: str) -> str:
    """3.4 is the first with all requests that we send, 3.9 the last with ZooKeeper."""
    match = re.fullmatch(r"3\.([4-9])(?:\.\d+)?(?:-IV\d+)?", text)
    if match is None:
        raise ValueError
    return text


def read_digest(text: str) -> str | None:
    if text and ":" not in text:
        raise ValueError
    return text or None


def read_servers(text: str) -> tuple[tuple[str, int], ...]:
    servers = tuple(_host_and_port(part) for part in read_names(text))
    if any(not host or not port for host, port in servers):
        raise ValueError
    return servers
