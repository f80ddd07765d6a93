"""Which hosts a request may be addressed to.

A page of a browser may ask whatever its own name leads to, and who owns a name can have it lead to our
address (DNS rebinding). The browser then says that name in the Host header, so a name that is not ours is
refused. An address is nobody's to give away, and `localhost` leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_addressed_to", "plain_name"]


def is_addressed_to(header: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, `localhost`, or one of these plain names; the port is no matter.

    >>> names = {"node-1"}
    >>> [is_addressed_to(one, names) for one in ("10.0.0.1:80", "[::1]:80", "localhost", "Node-1.:8080")]
    [True, True, True, True]
    >>> [is_addressed_to(one, names) for one in ("evil.example", "node-1.evil.example", "", "[", "a@node-1")]
    [False, False, False, False, False]
    """
    try:
        found = urlsplit(f"//{header}")
        host = plain_name(found.hostname or "")
    except ValueError:
        return False
    if found.netloc != header or found.username is not None:
        return False
    return host == "localhost" or host in names or _is_address(host)


def plain_name(name: str) -> str:
    """A name as it is compared."""
    return name.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
