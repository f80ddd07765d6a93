"""What goes over a connection to ZooKeeper: operations, their answers, and the handshake.

Everything is big-endian, in frames of a four-byte length; strings and buffers are an int32 length and bytes.
Pure: an operation is a value that can write itself and read its answer. Paths are below the chroot of the
session, which is put before them when they are written and taken away when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from quorate.values import dataclass
from quorate.zookeeper.errors import MultiFailed, ZooKeeperError, error_for

__all__ = [
    "CREATOR_AND_READERS",
    "CREATOR_ONLY",
    "OPEN_ACL",
    "Acl",
    "Check",
    "Children",
    "Content",
    "Create",
    "Delete",
    "Exists",
    "Get",
    "GetChildren",
    "Handshake",
    "Multi",
    "Operation",
    "Set",
    "Stat",
    "Sync",
    "WatchEvent",
    "Welcome",
]

ANY_VERSION: Final = -1

_INT: Final = Struct(">i")
_REPLY: Final = Struct(">iqi")  # xid, zxid, error
_STAT: Final = Struct(">qqqqiiiqiiq")
_MULTI_HEADER: Final = Struct(">i?i")
_EVENT: Final = Struct(">ii")
_HANDSHAKE: Final = Struct(">iqiqi16s?")
_WELCOME: Final = Struct(">iiqi")
_SET_WATCHES: Final = Struct(">q")
_AUTH: Final = Struct(">i")

REPLY_BYTES: Final = _REPLY.size
CLOSE: Final = -11
PING: Final = 11
AUTH: Final = 100
SET_WATCHES: Final = 101

# xids that are nobody's request
XID_EVENT: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8

Acl = tuple[tuple[int, str, str], ...]  # permissions, scheme, id
OPEN_ACL: Final[Acl] = ((31, "world", "anyone"),)
CREATOR_ONLY: Final[Acl] = ((31, "auth", ""),)
CREATOR_AND_READERS: Final[Acl] = ((31, "auth", ""), (1, "world", "anyone"))

EPHEMERAL: Final = 1
SEQUENCE: Final = 2

Watch = Callable[[str], None]


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


class Content(NamedTuple):
    data: bytes
    stat: Stat


class Children(NamedTuple):
    names: list[str]
    stat: Stat


class WatchEvent(NamedTuple):
    """`kind`: 1 created, 2 deleted, 3 data changed, 4 children changed."""

    kind: int
    path: str


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT.pack(len(data)) + data


def _buffer(value: bytes | None) -> bytes:
    """None is not the same as nothing, in ZooKeeper."""
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def _read_buffer(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(data, at)
    end = at + 4 + max(length, 0)
    if end > len(data):
        raise ValueError(f"a buffer of {length} bytes in an answer of {len(data)}")
    return data[at + 4 : end], end


def _read_stat(data: bytes, at: int) -> Stat:
    return Stat._make(_STAT.unpack_from(data, at))


def _acl(acl: Acl) -> bytes:
    parts = [_INT.pack(len(acl))]
    for permissions, scheme, name in acl:
        parts += (_INT.pack(permissions), _text(scheme), _text(name))
    return b"".join(parts)


_OPEN: Final = _acl(OPEN_ACL)


@dataclass(frozen=True, slots=True)
class Operation:
    """What ZooKeeper is asked for. `result` reads the answer that it gave."""

    path: str
    code: ClassVar[int]

    def body(self, chroot: str) -> bytes:
        raise NotImplementedError

    def result(self, data: bytes, at: int, chroot: str) -> Any:
        raise NotImplementedError

    def error(self, code: int) -> ZooKeeperError:
        return error_for(code, self.path)


@dataclass(frozen=True, slots=True)
class Create(Operation):
    """The result is the path, which a sequence number may have been added to."""

    data: bytes | None = None
    flags: int = 0
    acl: Acl = OPEN_ACL
    code: ClassVar[int] = 1

    def body(self, chroot: str) -> bytes:
        acl = _OPEN if self.acl is OPEN_ACL else _acl(self.acl)
        return _text(chroot + self.path) + _buffer(self.data) + acl + _INT.pack(self.flags)

    def result(self, data: bytes, at: int, chroot: str) -> str:
        return _read_buffer(data, at)[0].decode()[len(chroot) :]

    def skip(self, data: bytes, at: int) -> int:
        return _read_buffer(data, at)[1]


@dataclass(frozen=True, slots=True)
class Delete(Operation):
    version: int = ANY_VERSION
    code: ClassVar[int] = 2

    def body(self, chroot: str) -> bytes:
        return _text(chroot + self.path) + _INT.pack(self.version)

    def result(self, data: bytes, at: int, chroot: str) -> None:  # noqa: ARG002
        return None

    def skip(self, data: bytes, at: int) -> int:  # noqa: ARG002
        return at


@dataclass(frozen=True, slots=True)
class Set(Operation):
    """The result is the new `Stat`."""

    data: bytes | None
    version: int = ANY_VERSION
    code: ClassVar[int] = 5

    def body(self, chroot: str) -> bytes:
        return _text(chroot + self.path) + _buffer(self.data) + _INT.pack(self.version)

    def result(self, data: bytes, at: int, chroot: str) -> Stat:  # noqa: ARG002
        return _read_stat(data, at)

    def skip(self, data: bytes, at: int) -> int:  # noqa: ARG002
        return at + _STAT.size


@dataclass(frozen=True, slots=True)
class Check(Operation):
    """Part of a `Multi`: all of it fails unless the node has this version."""

    version: int
    code: ClassVar[int] = 13

    def body(self, chroot: str) -> bytes:
        return _text(chroot + self.path) + _INT.pack(self.version)

    def result(self, data: bytes, at: int, chroot: str) -> None:  # noqa: ARG002
        return None

    def skip(self, data: bytes, at: int) -> int:  # noqa: ARG002
        return at


@dataclass(frozen=True, slots=True)
class _Read(Operation):
    watch: Watch | None = None

    def body(self, chroot: str) -> bytes:
        path = chroot + self.path if self.path != "/" or not chroot else chroot
        return _text(path) + (b"\0" if self.watch is None else b"\1")


@dataclass(frozen=True, slots=True)
class Exists(_Read):
    """The result is the `Stat`. It can watch a node that is not there."""

    code: ClassVar[int] = 3

    def result(self, data: bytes, at: int, chroot: str) -> Stat:  # noqa: ARG002
        return _read_stat(data, at)


@dataclass(frozen=True, slots=True)
class Get(_Read):
    code: ClassVar[int] = 4

    def result(self, data: bytes, at: int, chroot: str) -> Content:  # noqa: ARG002
        content, at = _read_buffer(data, at)
        return Content(content, _read_stat(data, at))


@dataclass(frozen=True, slots=True)
class GetChildren(_Read):
    code: ClassVar[int] = 12

    def result(self, data: bytes, at: int, chroot: str) -> Children:  # noqa: ARG002
        (count,) = _INT.unpack_from(data, at)
        at += 4
        names = []
        for _ in range(count):
            name, at = _read_buffer(data, at)
            names.append(name.decode())
        return Children(names, _read_stat(data, at))


@dataclass(frozen=True, slots=True)
class Sync(Operation):
    """What is read after it is as new as what anybody had written before it."""

    code: ClassVar[int] = 9

    def body(self, chroot: str) -> bytes:
        return _text(chroot + self.path)

    def result(self, data: bytes, at: int, chroot: str) -> None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Multi(Operation):
    """All of them or none. The result is a list of theirs; `MultiFailed` has an error for each."""

    operations: Sequence[Create | Delete | Set | Check] = ()
    code: ClassVar[int] = 14

    @classmethod
    def of(cls, *operations: Create | Delete | Set | Check) -> Multi:
        return cls(operations[-1].path, operations)

    def body(self, chroot: str) -> bytes:
        parts: list[bytes] = []
        for one in self.operations:
            parts += (_MULTI_HEADER.pack(one.code, False, -1), one.body(chroot))
        parts.append(_MULTI_HEADER.pack(-1, True, -1))
        return b"".join(parts)

    def result(self, data: bytes, at: int, chroot: str) -> list[Any]:
        results: list[Any] = []
        errors: list[ZooKeeperError | None] = []
        for one in self.operations:
            kind, _, code = _MULTI_HEADER.unpack_from(data, at)
            at += _MULTI_HEADER.size
            if kind == -1:
                (code,) = _INT.unpack_from(data, at)
                at += 4
                errors.append(one.error(code) if code else None)
                continue
            results.append(one.result(data, at, chroot))
            at = one.skip(data, at)
        if errors:
            raise MultiFailed(errors)
        return results

    def error(self, code: int) -> ZooKeeperError:
        return error_for(code, self.path)


# Frames


def frame(xid: int, operation: Operation, chroot: str) -> bytes:
    body = operation.body(chroot)
    return b"".join((_INT.pack(8 + len(body)), _INT.pack(xid), _INT.pack(operation.code), body))


def reply(data: bytes) -> tuple[int, int, int]:
    """xid, zxid and error code of an answer."""
    return _REPLY.unpack_from(data, 0)


def event(data: bytes, chroot: str) -> WatchEvent:
    kind, _ = _EVENT.unpack_from(data, REPLY_BYTES)
    path, _ = _read_buffer(data, REPLY_BYTES + _EVENT.size)
    return WatchEvent(kind, path.decode()[len(chroot) :] or "/")


PING_FRAME: Final = Struct(">iii").pack(8, XID_PING, PING)
CLOSE_FRAME: Final = Struct(">iii").pack(8, 0, CLOSE)


def auth_frame(scheme: str, credentials: bytes) -> bytes:
    body = _AUTH.pack(0) + _text(scheme) + _buffer(credentials)
    return b"".join((_INT.pack(8 + len(body)), _INT.pack(XID_AUTH), _INT.pack(AUTH), body))


def set_watches_frame(
    zxid: int, data: Sequence[str], absent: Sequence[str], children: Sequence[str], chroot: str
) -> bytes:
    """Arms watches again on another connection; what has changed since the zxid is told at once."""
    parts = [_SET_WATCHES.pack(zxid)]
    for paths in (data, absent, children):
        parts.append(_INT.pack(len(paths)))
        parts += (_text(chroot if chroot and path == "/" else chroot + path) for path in paths)
    body = b"".join(parts)
    return b"".join((_INT.pack(8 + len(body)), _INT.pack(XID_SET_WATCHES), _INT.pack(SET_WATCHES), body))


class Handshake(NamedTuple):
    """What a client begins with. A session id of 0 asks for a new session."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes

    def frame(self) -> bytes:
        body = _HANDSHAKE.pack(0, self.last_zxid, self.timeout_ms, self.session_id, 16, self.password, False)
        return _INT.pack(len(body)) + body


class Welcome(NamedTuple):
    """What the server answers. A timeout of 0 says that the session has expired."""

    timeout_ms: int
    session_id: int
    password: bytes

    @classmethod
    def read(cls, data: bytes) -> Welcome:
        _, timeout_ms, session_id, _ = _WELCOME.unpack_from(data, 0)
        password, _ = _read_buffer(data, _WELCOME.size - 4)
        return cls(timeout_ms, session_id, password)
