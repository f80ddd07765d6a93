"""Which transactions are under way at a place of the log, as compaction goes through it.

What an aborted transaction wrote goes at once: no reader wants it. The marker at its end stays as long as
something before it may need it, and so does that of a committed one: a marker may go when nothing is left of
its transaction, and then not before readers had time to see it (its delete horizon). Which aborted
transactions still had something is what the transaction index of the compacted segment says.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.protocol.batch import BatchHeader, ControlType, control_type, records
from quorate.protocol.types import Buffer
from quorate.storage.indexes import AbortedTransaction

__all__ = ["PassedTransactions"]


class PassedTransactions:
    """To be shown every batch, in order."""

    __slots__ = ("_aborted", "_begun", "_has_data", "_next", "_with_commits", "still_needed")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all that reach into what will be read."""
        self._aborted = sorted(aborted, key=lambda one: one.first_offset)
        self._next = 0
        self._begun: dict[int, AbortedTransaction] = {}  # by producer, where its marker is still to come
        self._has_data: set[int] = set()  # of those, the ones of which a batch was seen
        self._with_commits: set[int] = set()  # producers of batches that were not aborted
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions whose marker was seen after some of their batches; whoever writes the index
        takes them away."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch belong to a transaction that was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._begun:
            self._has_data.add(producer_id)
            return True
        self._with_commits.add(producer_id)
        return False

    def is_unneeded_marker(self, buffer: Buffer, header: BatchHeader) -> bool:
        """Whether a control batch ends a transaction of which nothing was seen."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True  # it was emptied before
        match control_type(records(buffer, header)[0]):
            case ControlType.ABORT:
                aborted = self._begun.pop(header.producer_id, None)
                if aborted is None or header.producer_id not in self._has_data:
                    return True
                self._has_data.discard(header.producer_id)
                self.still_needed.append(aborted)
                return False
            case ControlType.COMMIT:
                if header.producer_id not in self._with_commits:
                    return True
                self._with_commits.discard(header.producer_id)
                return False
            case _:
                return False

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            aborted = self._aborted[self._next]
            self._next += 1
            self._begun.setdefault(aborted.producer_id, aborted)
