"""Which leader epoch began at which offset: what makes two logs comparable.

Two replicas agree up to the end of the latest epoch that both have. So a leader is asked where an epoch
ended, and the asker cuts its log there. The entries can be found in the batches of the log too; the file
`leader-epoch-checkpoint` spares reading all of it. It may lag behind, so what it says beyond the log is
dropped when it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.whole_files import read_whole, store_whole

__all__ = [
    "EPOCHS_NAME",
    "UNDEFINED_END",
    "EpochEnd",
    "EpochStart",
    "LeaderEpochs",
    "load_epochs",
    "store_epochs",
]

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class EpochStart(NamedTuple):
    """An epoch, and the offset of its first record, or where that would be."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(-1, -1)

_epoch: Final = attrgetter("epoch")
_start_offset: Final = attrgetter("start_offset")


class LeaderEpochs:
    """The epochs of a log. Both epochs and their start offsets increase.

    >>> epochs = LeaderEpochs([(1, 0), (4, 70)])
    >>> epochs.end_offset_for(4, log_end_offset=100), epochs.end_offset_for(3, log_end_offset=100)
    (EpochEnd(epoch=4, end_offset=100), EpochEnd(epoch=1, end_offset=70))
    """

    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochStart] = []
        self.latest_epoch: int | None = None
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that an offset belongs to; None before the first."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else None

    # What changes them. Each says whether it did.

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins here, so no later one, and none that begins later, is true any more."""
        if self._entries:
            latest = self._entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return False
        kept = [one for one in self._entries if one.epoch < epoch and one.start_offset < start_offset]
        self._entries = [*kept, EpochStart(epoch, start_offset)]
        self.latest_epoch = epoch
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log was cut at `end_offset`. It matters even if nothing was cut: an epoch that begins at the
        end has no records, and two replicas that each hold on to one would never agree (KAFKA-10706)."""
        kept = [one for one in self._entries if one.start_offset < end_offset]
        return self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now begins at `start_offset`, with the epoch that covers it."""
        index = bisect_right(self._entries, start_offset, key=_start_offset)
        if index == 0:
            return False
        covering = EpochStart(self._entries[index - 1].epoch, start_offset)
        return self._replace([covering, *self._entries[index:]])

    def clear(self) -> bool:
        return self._replace([])

    def _replace(self, entries: list[EpochStart]) -> bool:
        is_changed = entries != self._entries
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else None
        return is_changed

    # Where epochs end

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The end of the greatest known epoch at or below `epoch`, for a replica of a data partition.

        An epoch that we have not heard of yet has no end here. One before all that we know ended where the
        first of these began.
        """
        if not self._entries or epoch > self._entries[-1].epoch or epoch < 0:
            return UNDEFINED_END
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        index = bisect_right(self._entries, epoch, key=_epoch)
        if index == 0:
            return EpochEnd(epoch, self._entries[0].start_offset)
        return EpochEnd(self._entries[index - 1].epoch, self._entries[index].start_offset)

    def quorum_end_offset_for(
        self, epoch: int, log_end_offset: int, last_epoch: int, earliest_snapshot: tuple[int, int] | None
    ) -> EpochEnd:
        """The same for a replica of the metadata log. It differs in two cases.

        An epoch above all known ends where the log does, in its last epoch (that of the latest snapshot, if
        the log is empty). Where log and snapshot meet, the end belongs to the snapshot's epoch: a position in
        an epoch that neither has must not look valid. Snapshots are (offset, epoch).
        """
        end = self.end_offset_for(epoch, log_end_offset)
        if end == UNDEFINED_END:
            return EpochEnd(last_epoch, log_end_offset)
        if earliest_snapshot is not None and end == (epoch, earliest_snapshot[0]):
            return EpochEnd(earliest_snapshot[1], end.end_offset)
        return end

    # As text

    def text(self) -> str:
        lines = [
            _VERSION,
            str(len(self._entries)),
            *(f"{one.epoch} {one.start_offset}" for one in self._entries),
        ]
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> LeaderEpochs:
        """Raises ValueError with the reason. Entries out of order were overtaken by those after them."""
        lines = text.splitlines()
        if len(lines) < 2:
            raise ValueError("it ends before the number of entries")
        if lines[0] != _VERSION:
            raise ValueError(f"version {lines[0]!r}, not {_VERSION}")
        if not lines[1].isascii() or not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
            raise ValueError(f"{lines[1]!r} entries announced, and {len(lines) - 2} found")
        return cls(_parse_entry(line) for line in lines[2:])


def load_epochs(files: Files, directory: str) -> LeaderEpochs:
    """The epochs that were saved with a log; none if there is no file."""
    path = f"{directory}/{EPOCHS_NAME}"
    data = read_whole(files, path)
    if data is None:
        return LeaderEpochs()
    try:
        return LeaderEpochs.parse(data.decode("ascii"))
    except ValueError as error:
        raise StorageError(path, f"not a leader epoch checkpoint: {error}") from None


async def store_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    await store_whole(files, f"{directory}/{EPOCHS_NAME}", epochs.text().encode("ascii"))


def _parse_entry(line: str) -> tuple[int, int]:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise ValueError(f"{line!r} is no epoch and offset")
    return int(fields[0]), int(fields[1])
