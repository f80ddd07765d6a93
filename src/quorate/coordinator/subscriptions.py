"""Which topics members of a classic group have subscribed to, as far as a coordinator can know.

What members say about themselves is theirs. Only of groups whose protocol type is `consumer` does the
coordinator look into it, and only at what every version begins with: the names of the topics. Whatever cannot
be read leaves the subscription unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from quorate.coordinator.consumer_protocol import ConsumerProtocolSubscription
from quorate.protocol import codec
from quorate.protocol.errors import ProtocolError

__all__ = ["CONSUMER", "topics_of"]

CONSUMER: Final = "consumer"
"""The protocol type of consumers; Connect's workers and others have types of their own."""

_VERSION: Final = Struct(">h")


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all of these together; None if one of them cannot be read.

    >>> topics_of([bytes.fromhex("0003 00000001 0001") + b"t" + bytes.fromhex("ffffffff 00000000")])
    frozenset({'t'})
    >>> topics_of([b"something else"]) is None
    True
    """
    topics: set[str] = set()
    for subscription in dict.fromkeys(subscriptions):  # members of a group mostly say the same
        if len(subscription) < _VERSION.size or _VERSION.unpack_from(subscription)[0] < 0:
            return None
        try:
            known, _ = codec.decode_prefix(ConsumerProtocolSubscription, 0, subscription, _VERSION.size)
        except ProtocolError:
            return None
        topics.update(known.topics)
    return frozenset(topics)
