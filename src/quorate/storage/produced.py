"""Batches of clients on their way into a log: checked, given their place, and written together."""

from __future__ import annotations

from typing import Final, NamedTuple

from quorate.protocol.batch import BatchHeader, stamp
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Buffer
from quorate.storage.errors import StorageError
from quorate.storage.producer_state import RememberedBatch
from quorate.storage.producer_states import ProducerDraft, ProducerStates

__all__ = ["Appended", "Gathered", "Produced", "already_appended", "bytes_of", "stamped_header"]


class Appended(NamedTuple):
    """Where a batch is in the log; if it is a duplicate, where it was already."""

    base_offset: int
    last_offset: int
    is_duplicate: bool
    timestamp_ms: int  # the largest of the batch


class Produced(NamedTuple):
    """A batch of a client, validated: the buffer it lies in, and its header as it is there now."""

    buffer: bytearray | memoryview
    header: BatchHeader


class Gathered:
    """Batches that will be written together, and the answers so far."""

    __slots__ = (
        "_draft",
        "_leader_epoch",
        "_next_offset",
        "answers",
        "headers",
        "parts",
        "size_bytes",
    )

    def __init__(self, producers: ProducerStates, next_offset: int, leader_epoch: int) -> None:
        self._next_offset = next_offset
        self._leader_epoch = leader_epoch
        self.answers: list[Appended | ApiError | StorageError] = []
        self._draft = ProducerDraft(producers)
        self._begin()

    def commit(self) -> None:
        """What was gathered so far has been appended."""
        self._draft.commit()
        self._begin()

    def _begin(self) -> None:
        self.parts: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.size_bytes = 0

    def add(self, buffer: bytearray | memoryview, header: BatchHeader) -> None:
        """Gives a batch its place, unless it has one. Raises `ApiError` if its producer must not send it."""
        if header.producer_id >= 0:
            duplicate = self._draft.check(header)
            if duplicate is not None:
                self.answers.append(already_appended(duplicate))
                return
        stamped = stamped_header(buffer, header, self._next_offset, self._leader_epoch)
        if header.producer_id >= 0:
            self._draft.update(stamped)
        self.parts.append(bytes_of(buffer, header))
        self.headers.append(stamped)
        self.size_bytes += header.size_bytes
        self._next_offset = stamped.next_offset
        self.answers.append(Appended(stamped.base_offset, stamped.last_offset, False, stamped.max_timestamp))


def already_appended(batch: RememberedBatch) -> Appended:
    """The answer for a duplicate of a batch."""
    return Appended(batch.base_offset, batch.last_offset, True, batch.timestamp_ms)


def stamped_header(
    buffer: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int
) -> BatchHeader:
    """Gives a batch its place in the log; its header is then this."""
    stamp(buffer, header.position, base_offset, leader_epoch)
    return _new_header(BatchHeader, (base_offset, header[1], leader_epoch) + header[3:])  # noqa: RUF005


def bytes_of(buffer: bytearray | memoryview, header: BatchHeader) -> bytearray | memoryview:
    """The batch alone, not copied."""
    position, size_bytes = header.position, header.size_bytes
    if position == 0 and len(buffer) == size_bytes:
        return buffer
    return memoryview(buffer)[position : position + size_bytes]


_new_header: Final = tuple.__new__
