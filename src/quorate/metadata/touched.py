"""What records were about: who follows the cluster looks at these again, and at nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Touched"]

Column = NDArray[Any]


@dataclass(slots=True)
class Touched:
    """Ids and names of what may have changed; what did not change may be among them.

    Topics are those that were added or removed, with their names; a removed one stands for its partitions,
    and what is noted of these besides may be gone. A topic that was removed and added again under its name
    has another id.
    """

    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    topics_added: dict[Uuid, str] = field(default_factory=dict)
    topics_removed: dict[Uuid, str] = field(default_factory=dict)
    configs: set[tuple[int, str]] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    quotas: set[tuple[tuple[str, str | None], ...]] = field(default_factory=set)
    acls: set[Uuid] = field(default_factory=set)
    scram: set[tuple[str, int]] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False
    _partitions: set[tuple[Uuid, int]] = field(default_factory=set)
    _many: list[tuple[Column, Column]] = field(default_factory=list)

    def note_partition(self, topic_id: Uuid, partition_id: int) -> None:
        self._partitions.add((topic_id, partition_id))

    def note_partitions(self, topic_ids: Column, partition_ids: Column) -> None:
        """Many partitions: ids of topics (V16), and ids within them."""
        if len(topic_ids):
            self._many.append((topic_ids, partition_ids.astype(np.int32)))

    def partitions(self) -> Iterator[tuple[Uuid, int]]:
        """The partitions one by one, some perhaps more than once."""
        yield from sorted(self._partitions)
        for topic_ids, partition_ids in self._many:
            for topic_id, partition_id in zip(topic_ids, partition_ids.tolist(), strict=True):
                yield Uuid(topic_id.tobytes()), partition_id

    def partition_columns(self) -> tuple[Column, Column]:
        """The same as columns: ids of topics (V16), and ids within them."""
        single = sorted(self._partitions)
        topic_ids = np.frombuffer(b"".join(topic_id for topic_id, _ in single), "V16")
        partition_ids = np.array([one for _, one in single], np.int32)
        return (
            np.concatenate([topic_ids, *(topics for topics, _ in self._many)]),
            np.concatenate([partition_ids, *(ids for _, ids in self._many)]),
        )

    @property
    def has_partitions(self) -> bool:
        return bool(self._partitions or self._many)

    def __bool__(self) -> bool:
        noted = (
            self.brokers,
            self.controllers,
            self.topics_added,
            self.topics_removed,
            self.configs,
            self.features,
            self.quotas,
            self.acls,
            self.scram,
            self.tokens,
            self.producer_ids,
            self.has_partitions,
        )
        return any(noted)
