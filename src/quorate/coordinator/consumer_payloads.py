"""What classic consumers say and are told inside of their group's protocol, for a coordinator that assigns.

Whatever a payload is that cannot be read raises ValueError: it is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from struct import Struct
from typing import Final, Protocol

from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from quorate.coordinator.topics_view import TopicsView
from quorate.protocol import codec
from quorate.protocol.errors import ProtocolError
from quorate.protocol.types import Uuid

__all__ = ["assignment_bytes", "partitions_by_id", "read_assignment", "read_subscription", "version_of"]

_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3


class _TopicPartition(Protocol):
    topic: str
    partitions: list[int]


def version_of(payload: bytes) -> int:
    """The version that a payload is written in; of one that is newer than we know, the newest we do."""
    if len(payload) < _VERSION.size:
        raise ValueError("a payload has no version")
    version: int = _VERSION.unpack_from(payload)[0]
    if version < 0:
        raise ValueError(f"a payload has version {version}")
    return min(version, _VERSION_MAX)


def read_subscription(payload: bytes) -> ConsumerProtocolSubscription:
    """What a member wants. Newer versions only add to what is known."""
    try:
        message, _ = codec.decode_prefix(
            ConsumerProtocolSubscription, version_of(payload), payload, _VERSION.size
        )
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return message


def read_assignment(payload: bytes) -> ConsumerProtocolAssignment:
    """What a member was given; one that was never given anything has nothing."""
    if not payload:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    try:
        message, _ = codec.decode_prefix(
            ConsumerProtocolAssignment, version_of(payload), payload, _VERSION.size
        )
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return message


def assignment_bytes(partitions: Mapping[Uuid, AbstractSet[int]], topics: TopicsView, version: int) -> bytes:
    """What a member is told to have. Topics that are gone are left out."""
    found = ((topics.by_id(topic_id), held) for topic_id, held in partitions.items())
    named = sorted((topic.name, sorted(held)) for topic, held in found if topic is not None)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=held) for name, held in named
        ]
    )
    return _VERSION.pack(version) + codec.encode(assignment, version)


def partitions_by_id(listed: Iterable[_TopicPartition], topics: TopicsView) -> dict[Uuid, frozenset[int]]:
    """Partitions by the ids of their topics. Topics that do not exist are left out."""
    found: dict[Uuid, frozenset[int]] = {}
    for entry in listed:
        topic = topics.by_name(entry.topic)
        if topic is not None and entry.partitions:
            found[topic.id] = found.get(topic.id, frozenset()).union(entry.partitions)
    return found
