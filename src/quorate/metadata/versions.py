"""What each level of `metadata.version` allows, and which record versions it writes.

Levels below 7 are of the time before Kafka 3.3 and are not supported, as in Apache Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.metadata import records
from quorate.protocol.message import Record

__all__ = [
    "ELR",
    "ELR_VERSION",
    "GROUP_VERSION",
    "KRAFT_VERSION",
    "METADATA_VERSION",
    "METADATA_VERSION_LATEST",
    "METADATA_VERSION_LOWEST",
    "record_version",
    "version_of",
]

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"

METADATA_VERSION_LOWEST: Final = 7
METADATA_VERSION_LATEST: Final = 30

MIGRATION: Final = 8  # 3.4-IV0
SCRAM: Final = 11  # 3.5-IV2
SHRINK_KEEPS_EPOCH: Final = 12  # 3.6-IV0: no new leader epoch when the ISR shrinks
TRANSACTIONS: Final = 13  # 3.6-IV1
TOKENS: Final = 14  # 3.6-IV2
CONTROLLER_REGISTRATION: Final = 15  # 3.7-IV0
DIRECTORIES: Final = 17  # 3.7-IV2
ELR: Final = 23  # 4.0-IV1
CORDONED: Final = 30  # 4.3-IV0

# The version of a record by the lowest level that writes it, where it is not always 0.
_VERSIONS: Final[Mapping[type[Record], tuple[tuple[int, int], ...]]] = {
    records.RegisterBrokerRecord: ((CORDONED, 4), (DIRECTORIES, 3), (MIGRATION, 2), (7, 1)),
    records.PartitionRecord: ((ELR, 2), (DIRECTORIES, 1)),
    records.PartitionChangeRecord: ((ELR, 2), (DIRECTORIES, 1)),
}


def version_of(record: Record, metadata_version: int) -> int:
    """The version in which this record is written at a level: a change of a registration in the lowest that
    can say it, as Apache's controllers do, everything else as its kind is."""
    if isinstance(record, records.BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else int(record.in_controlled_shutdown != 0)
    return record_version(type(record), metadata_version)


def record_version(record: type[Record], metadata_version: int) -> int:
    """The version in which a record is written at a level.

    >>> record_version(records.PartitionRecord, 30), record_version(records.PartitionRecord, 20)
    (2, 1)
    """
    for level, version in _VERSIONS.get(record, ()):
        if metadata_version >= level:
            return version
    return 0
