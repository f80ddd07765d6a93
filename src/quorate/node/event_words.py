"""Events in words, of what is left of them as JSON: a line of a journal, a record of the topic.

Whoever reads them back may be of an older release than the node that wrote them, and anybody may write into a
topic: what is no event as this release knows it has no words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from quorate.broker import events as of_brokers
from quorate.controller import events as of_controllers
from quorate.controller import partition_events as of_partitions
from quorate.coordinator import consumer_events as of_consumer_groups
from quorate.coordinator import events as of_groups
from quorate.metadata.event import Event
from quorate.zookeeper import events as of_zookeeper

__all__ = ["KNOWN", "words_of"]

# Only modules that import next to nothing: commands load them while somebody waits.
KNOWN: Final[Mapping[str, type[Event]]] = {
    name: declared
    for module in (of_controllers, of_partitions, of_brokers, of_groups, of_consumer_groups, of_zookeeper)
    for name, declared in vars(module).items()
    if isinstance(declared, type) and issubclass(declared, Event) and declared is not Event
}
"""All kinds of events."""


def words_of(event: Mapping[str, Any]) -> str | None:
    """What the log of the node said, with how many like it were not told; None if this is no event we know.

    >>> words_of({"kind": "OffsetsExpired", "group_id": "g", "offsets": 3, "retention_ms": 5, "untold": 2})
    'Expired 3 offsets of group g retention_ms=5 untold=2'
    >>> words_of({"kind": "OffsetsExpired"}), words_of({"kind": "SomethingNew"})
    (None, None)
    """
    kind, untold = event.get("kind"), event.get("untold")
    declared = KNOWN.get(kind) if isinstance(kind, str) else None
    if declared is None:
        return None
    names = {one.name for one in fields(declared)}
    try:
        said = declared(**{name: value for name, value in event.items() if name in names})
        return said.told(untold if type(untold) is int else 0)
    except (TypeError, ValueError, AttributeError):  # a field is missing, or is not what it should be
        return None
