"""Listening before anything else: a node can be connected to while most of it is still being loaded.

Whoever connects meanwhile waits, as clients of a broker that has not been unfenced do, instead of being told
that nobody is there and trying again later. Nothing here needs the rest of a node: it is the first thing that
`quorate node` does.

What cannot be opened here is left to the node, which tries again and says what is wrong, in the order in
which it finds things wrong: a directory that is in use comes before a port that is.
"""

from __future__ import annotations

import socket

from quorate.storage.properties import parse_properties

__all__ = ["listen_early"]

_PORT_MAX = 65535


def listen_early(path: str) -> dict[str, socket.socket]:
    """Sockets that listen, by the name of the listener, for those in a node's file that have an address."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # pathlib takes as long as all the rest
            listeners = parse_properties(file.read()).get("listeners", "")
    except (OSError, ValueError):
        return {}
    opened: dict[str, socket.socket] = {}
    for part in listeners.split(","):
        name, _, address = part.strip().partition("://")
        host, _, port = address.rpartition(":")
        listening = _listening(host.strip("[]"), port)
        if listening is not None:
            other = opened.pop(name.upper(), None)
            if other is not None:  # a mistake that the node will find
                other.close()
            opened[name.upper()] = listening
    return opened


def _listening(host: str, port: str) -> socket.socket | None:
    """None where it takes more than one socket, or cannot be."""
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        return None
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if len(found) != 1:
            return None
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        return None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError:
        listening.close()
        return None
    return listening
