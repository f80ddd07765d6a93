"""What classic consumers put into their protocol, written and read the way a client does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from quorate.protocol import codec


def subscription_bytes(
    names: Sequence[str],
    held: Mapping[str, set[int]] | None = None,
    *,
    version: int = 3,
    rack: str | None = None,
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(names),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in (held or {}).items()
        ],
        rack_id=rack,
    )
    return version.to_bytes(2, "big") + bytes(codec.encode(message, version))


def assignment_payload(
    held: Mapping[str, set[int]], user_data: bytes | None = None, version: int = 3
) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in held.items()
        ],
        user_data=user_data,
    )
    return version.to_bytes(2, "big") + bytes(codec.encode(message, version))


def assigned(payload: bytes) -> dict[str, set[int]]:
    version = int.from_bytes(payload[:2], "big")
    message = codec.decode(ConsumerProtocolAssignment, version, bytes(payload), 2)
    return {entry.topic: set(entry.partitions) for entry in message.assigned_partitions}
