"""What ZooKeeper answers when it does not do what it was asked."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AuthFailed",
    "BadVersion",
    "ConnectionLoss",
    "ControllerMoved",
    "Fatal",
    "MalformedZnode",
    "MultiFailed",
    "NoAuth",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "SessionExpired",
    "ZooKeeperError",
    "error_for",
]

OK: Final = 0


class ZooKeeperError(Exception):
    """An error code, and the path that it is about."""

    code = -1
    word = "failed"

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"{path or 'ZooKeeper'}: {reason or self.word}")


class ConnectionLoss(ZooKeeperError):  # noqa: N818
    """Whether the request was carried out is not known."""

    code = -4
    word = "the connection was lost before there was an answer"


class NoNode(ZooKeeperError):  # noqa: N818
    code = -101
    word = "there is no such node"


class NoAuth(ZooKeeperError):  # noqa: N818
    code = -102
    word = "ZooKeeper denies access: the node's ACL does not include us"


class BadVersion(ZooKeeperError):  # noqa: N818
    code = -103
    word = "the node has another version"


class NodeExists(ZooKeeperError):  # noqa: N818
    code = -110
    word = "there is such a node already"


class NotEmpty(ZooKeeperError):  # noqa: N818
    code = -111
    word = "the node has children"


class SessionExpired(ZooKeeperError):  # noqa: N818
    """The session is over, and with it all watches and ephemeral nodes."""

    code = -112
    word = "the session has expired"


class AuthFailed(ZooKeeperError):  # noqa: N818
    code = -115
    word = "ZooKeeper does not accept our credentials"


class UnknownError(ZooKeeperError):
    """One that nobody here expects."""

    def __init__(self, code: int, path: str) -> None:
        super().__init__(path, f"ZooKeeper answers with error {code}")
        self.code = code


class MultiFailed(ZooKeeperError):  # noqa: N818
    """None of the operations was carried out. `errors` has one for each; `first` is the one that decided."""

    def __init__(self, errors: list[ZooKeeperError | None]) -> None:
        self.errors = errors
        causes = [one for one in errors if one is not None and one.code not in (OK, _ROLLED_BACK)]
        self.first = causes[0] if causes else UnknownError(_ROLLED_BACK, "")
        super().__init__(self.first.path, str(self.first))
        self.code = self.first.code


class ControllerMoved(Exception):  # noqa: N818
    """Another controller has been elected since: nothing that we decide counts any more."""


class MalformedZnode(ValueError):  # noqa: N818
    """The content of a node is not what its path promises."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is malformed: {reason}")
        self.path = path


class Fatal(Exception):  # noqa: N818
    """Nothing that waiting would help against: another has our id, or the cluster is not the one we know."""


_ROLLED_BACK: Final = -2

_KNOWN: Final = {
    one.code: one
    for one in (
        ConnectionLoss,
        NoNode,
        NoAuth,
        BadVersion,
        NodeExists,
        NotEmpty,
        SessionExpired,
        AuthFailed,
    )
}


def error_for(code: int, path: str) -> ZooKeeperError:
    """The exception for an error code.

    >>> error_for(-101, "/a")
    NoNode('/a: there is no such node')
    """
    known = _KNOWN.get(code)
    return UnknownError(code, path) if known is None else known(path)
