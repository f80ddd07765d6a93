"""Configurations, quotas and credentials: entity paths below `/config`, and the records that they come to.

    topics/t   brokers/1   brokers/<default>                              ConfigRecord
    clients/c  users/u  users/u/clients/c  ips/i, or <default> in each    ClientQuotaRecord
    users/u, keys SCRAM-SHA-256 and SCRAM-SHA-512                         UserScramCredentialRecord

Pure. Names of users and clients are written as in a URL, since they may have slashes in them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from quorate.metadata.image import BROKER, TOPIC, Entity, Resource
from quorate.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from quorate.protocol.message import Record
from quorate.zookeeper import paths
from quorate.zookeeper.errors import MalformedZnode

__all__ = ["changes_by_path", "path_of_quota", "path_of_resource", "records_between"]

Values = Mapping[str, str]

_SCRAM: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_SCRAM_NAMES: Final = {number: name for name, number in _SCRAM.items()}
_QUOTA_KINDS: Final = {
    paths.CONFIG_CLIENTS: "client-id",
    paths.CONFIG_USERS: "user",
    paths.CONFIG_IPS: "ip",
}
_QUOTA_FOLDERS: Final = {kind: folder for folder, kind in _QUOTA_KINDS.items()}


def sanitized(name: str) -> str:
    """
    >>> sanitized("a/b c*"), sanitized("CN=x,O=y")
    ('a%2Fb%20c%2A', 'CN%3Dx%2CO%3Dy')
    """
    return quote(name, safe="-_.").replace("~", "%7E")


def path_of_resource(resource: Resource) -> str | None:
    """None for what ZooKeeper has no place for."""
    kind, name = resource
    if kind == TOPIC:
        return f"{paths.CONFIG_TOPICS}/{name}"
    if kind == BROKER:
        return f"{paths.CONFIG_BROKERS}/{name or paths.DEFAULT_ENTITY}"
    return None


def path_of_quota(entity: Entity) -> str | None:
    """
    >>> path_of_quota((("client-id", None), ("user", "a/b")))
    'users/a%2Fb/clients/<default>'
    """
    by_kind = dict(entity)
    parts = []
    for kind in ("user", "client-id", "ip"):
        if kind in by_kind:
            name = by_kind.pop(kind)
            parts.append(_QUOTA_FOLDERS[kind])
            parts.append(paths.DEFAULT_ENTITY if name is None else _named(kind, name))
    return None if by_kind or not parts else "/".join(parts)


def _named(kind: str, name: str) -> str:
    return name if kind == "ip" else sanitized(name)


def _resource_of(parts: Sequence[str]) -> Resource | None:
    if len(parts) != 2:
        return None
    folder, name = parts
    if folder == paths.CONFIG_TOPICS:
        return TOPIC, name
    if folder == paths.CONFIG_BROKERS:
        return BROKER, "" if name == paths.DEFAULT_ENTITY else name
    return None


def _entity_of(parts: Sequence[str]) -> Entity | None:
    if len(parts) not in (2, 4):
        return None
    found: list[tuple[str, str | None]] = []
    for folder, name in zip(parts[::2], parts[1::2], strict=True):
        kind = _QUOTA_KINDS.get(folder)
        if kind is None:
            return None
        found.append((kind, None if name == paths.DEFAULT_ENTITY else unquote(name)))
    return tuple(sorted(found))


def records_between(entity_path: str, before: Values, after: Values) -> list[Record]:
    """What makes of an entity that had some values one that has others."""
    parts = entity_path.split("/")
    changed = {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}
    resource = _resource_of(parts)
    if resource is not None:
        kind, name = resource
        return [
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
            for key, value in changed.items()
        ]
    entity = _entity_of(parts)
    if entity is None:
        raise MalformedZnode(paths.config(entity_path), "nothing is configured by a node of this path")
    records: list[Record] = []
    for key, value in changed.items():
        if key in _SCRAM:
            records.append(_scram_record(entity_path, entity, key, value))
        else:
            records.append(_quota_record(entity_path, entity, key, value))
    return records


def _quota_record(entity_path: str, entity: Entity, key: str, value: str | None) -> ClientQuotaRecord:
    try:
        number = 0.0 if value is None else float(value)
    except ValueError:
        raise MalformedZnode(paths.config(entity_path), f"{key} is no number: {value!r:.50}") from None
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=number,
        remove=value is None,
    )


def _scram_record(entity_path: str, entity: Entity, key: str, value: str | None) -> Record:
    user = entity[0][1] or ""
    if value is None:
        return RemoveUserScramCredentialRecord(name=user, mechanism=_SCRAM[key])
    try:
        given = dict(part.split("=", 1) for part in value.split(","))
        return UserScramCredentialRecord(
            name=user,
            mechanism=_SCRAM[key],
            salt=base64.b64decode(given["salt"], validate=True),
            stored_key=base64.b64decode(given["stored_key"], validate=True),
            server_key=base64.b64decode(given["server_key"], validate=True),
            iterations=int(given["iterations"]),
        )
    except (KeyError, ValueError, binascii.Error):
        raise MalformedZnode(paths.config(entity_path), f"{key} is no credential") from None


def changes_by_path(records: Sequence[Record]) -> dict[str, dict[str, str | None]]:
    """What records change, by entity path; None removes. Records that ZooKeeper has no place for are left
    out."""
    found: dict[str, dict[str, str | None]] = {}
    for record in records:
        path: str | None = None
        key, value = "", None
        if isinstance(record, ConfigRecord):
            path = path_of_resource((record.resource_type, record.resource_name))
            key, value = record.name, record.value
        elif isinstance(record, ClientQuotaRecord):
            path = path_of_quota(tuple(sorted((one.entity_type, one.entity_name) for one in record.entity)))
            key, value = record.key, None if record.remove else _plain(record.value)
        elif isinstance(record, UserScramCredentialRecord):
            path = f"{paths.CONFIG_USERS}/{sanitized(record.name)}"
            key, value = _SCRAM_NAMES[record.mechanism], _credential(record)
        elif isinstance(record, RemoveUserScramCredentialRecord):
            path, key = f"{paths.CONFIG_USERS}/{sanitized(record.name)}", _SCRAM_NAMES[record.mechanism]
        if path is not None:
            found.setdefault(path, {})[key] = value
    return found


def _plain(value: float) -> str:
    """
    >>> _plain(1024.0), _plain(0.5)
    ('1024.0', '0.5')
    """
    return repr(float(value))


def _credential(record: UserScramCredentialRecord) -> str:
    def text(data: bytes | bytearray | memoryview) -> str:
        return base64.b64encode(bytes(data)).decode("ascii")

    return (
        f"salt={text(record.salt)},stored_key={text(record.stored_key)},"
        f"server_key={text(record.server_key)},iterations={record.iterations}"
    )
