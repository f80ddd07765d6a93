"""The producers of a log on disk: what is known of them is saved where a segment ends, and found out again
from the last save and the batches after it.

Where there are many, saving takes a while, and others have the loop meanwhile. What is saved is what was
known where the segment ended, whatever is appended until it is all written. A crash before that, or a disk
that is full then, costs nothing but time: the save before is used, and the batches since are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from quorate.protocol.batch import BatchHeader, read_header
from quorate.protocol.errors import ApiError
from quorate.storage.files import Files
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.log import Log
from quorate.storage.places import DamagedBatchError
from quorate.storage.producer_room import ProducerRoom
from quorate.storage.producer_snapshots import (
    encode_entries,
    load_snapshot,
    remove_snapshot,
    remove_unfinished,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from quorate.storage.producer_state import ProducerState
from quorate.storage.producer_states import ProducerStates
from quorate.storage.segment import Segment

__all__ = ["PartitionProducers"]

# After so many batches, whoever reads a log to find out about producers lets others have the loop.
_REPLAY_SLICE: Final = 5000
# Whoever saves so many producers, likewise: that takes about a millisecond.
_SAVED_AT_ONCE: Final = 1000


class PartitionProducers:
    """The companion of the log of a partition. `states` is what is known at the end of the log."""

    __slots__ = (
        "_files",
        "_log",
        "_room",
        "_saving",
        "_snapshot_offset",
        "_to_save",
        "_unsynced",
        "states",
    )

    def __init__(self, files: Files, log: Log, room: ProducerRoom) -> None:
        self.states = ProducerStates(room)
        self._files = files
        self._log = log
        self._room = room
        self._to_save: list[tuple[int, list[ProducerState]]] = []  # by offset, what was known there
        self._saving: asyncio.Task[None] | None = None
        self._unsynced: list[int] = []  # the offsets of snapshots
        self._snapshot_offset: int | None = None  # where the newest one is, if it still says what is true

    async def load(self) -> None:
        """After the log was opened: finds out what is known, and puts right which transactions were
        aborted."""
        log, directory = self._log, self._log.directory
        remove_unfinished(self._files, directory)
        bases = [segment.base_offset for segment in log.segments_from(0)]
        offsets = snapshot_offsets(self._files, directory)
        # what is beyond the log, or of deleted segments, is none of this log; of those between the segments
        # only the newest can be useful, which is that of an orderly end
        usable = [one for one in offsets if bases[0] <= one <= log.end_offset]
        kept = {*bases, *usable[-1:]} & {*usable}
        for offset in offsets:
            if offset not in kept:
                remove_snapshot(self._files, directory, offset)
        doubtful_from = log.recovery.doubtful_from
        if doubtful_from is None:
            self._now_known((await self._replay(log.end_offset))[0])
        else:
            states, aborted = await self._replay(doubtful_from)
            self._now_known(states)
            for segment in log.segments_from(doubtful_from):
                base_offset, next_offset = segment.base_offset, segment.next_offset
                here = [one for one in aborted if base_offset <= one.last_offset < next_offset]
                await segment.replace_aborted(here)
        if log.end_offset == bases[0] and not len(self.states):
            self._snapshot_offset = log.end_offset  # nothing is known of nothing
        if offsets != snapshot_offsets(self._files, directory):
            await self._files.fsync_dir(directory)

    def adopt(self, states: ProducerStates) -> None:
        """Another log of the same batches knows more, of producers whose batches are deleted. It is saved at
        once, so that it is still known after a crash."""
        self._now_known(states.taken_over(self._room))
        self._snapshot_offset = None
        self.ends_at(self._log.end_offset)

    def close(self) -> None:
        """Nothing more is saved, and what is known counts no more."""
        self._stop_saving()
        self.states.leave()

    # What the log says

    def ends_at(self, offset: int) -> None:
        if offset == self._snapshot_offset:
            return
        states = self.states.freeze()
        if len(states) <= _SAVED_AT_ONCE:
            self._save(offset, [encode_entries(states)])
        else:
            self._to_save.append((offset, states))
            if self._saving is None:
                self._saving = asyncio.get_running_loop().create_task(self._save_bit_by_bit())
        self._snapshot_offset = offset

    def is_cleared(self) -> None:
        self._remove_snapshots(-1)
        self._now_known(ProducerStates(self._room))

    async def is_cut(self) -> None:
        self._remove_snapshots(self._log.end_offset)
        if len(self.states):
            self._now_known((await self._replay(self._log.end_offset))[0])

    async def sync(self) -> None:
        while self._saving is not None:
            await asyncio.wait([self._saving])
        while self._unsynced:
            path = snapshot_path(self._log.directory, self._unsynced.pop())
            if self._files.exists(path):  # its segment may have been deleted
                file = self._files.open(path)
                try:
                    await file.fsync()
                finally:
                    file.close()

    # How

    def _remove_snapshots(self, after_offset: int) -> None:
        """What they say of the log is not true any more."""
        self._stop_saving()
        self._snapshot_offset = None
        for offset in snapshot_offsets(self._files, self._log.directory):
            if offset > after_offset:
                remove_snapshot(self._files, self._log.directory, offset)

    def _now_known(self, states: ProducerStates) -> None:
        self.states.leave()
        self.states = states

    def _save(self, offset: int, parts: Sequence[bytes]) -> None:
        write_snapshot(self._files, self._log.directory, offset, parts)
        self._unsynced.append(offset)

    async def _save_bit_by_bit(self) -> None:
        """Saves what is to be saved, in its order. The last step of each is done at once, or not at all."""
        while self._to_save:
            offset, states = self._to_save[0]
            parts = []
            for first in range(0, len(states), _SAVED_AT_ONCE):
                parts.append(encode_entries(states[first : first + _SAVED_AT_ONCE]))
                await asyncio.sleep(0)
            try:
                self._save(offset, parts)
            except OSError:
                self._snapshot_offset = None  # whoever closes the log tries again
            del self._to_save[0]
        self._saving = None

    def _stop_saving(self) -> None:
        """What is not saved yet never is."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        self._to_save.clear()
        self._unsynced.clear()

    async def _replay(self, before: int) -> tuple[ProducerStates, list[AbortedTransaction]]:
        """What is known at the end of the log, and which transactions were aborted after the snapshot, which
        is one of an offset up to `before`."""
        states, offset = self._newest_snapshot(before)
        try:
            return states, await self._read_from(offset, states)
        except BaseException:
            states.leave()
            raise

    async def _read_from(self, offset: int, states: ProducerStates) -> list[AbortedTransaction]:
        """Takes into account what the log has from there on. Which transactions were aborted in it."""
        found: list[AbortedTransaction] = []
        count = 0
        for segment in self._log.segments_from(offset):
            for position, header in segment.headers_at(offset):
                count += 1
                if count % _REPLAY_SLICE == 0:
                    await asyncio.sleep(0)
                if header.producer_id >= 0 and header.base_offset >= offset:
                    aborted = _take(states, segment, position, header)
                    if aborted is not None:
                        found.append(aborted)
        return found

    def _newest_snapshot(self, before: int) -> tuple[ProducerStates, int]:
        """The newest one that is not damaged, and its offset; without one, the beginning of the log."""
        directory = self._log.directory
        for offset in reversed(snapshot_offsets(self._files, directory)):
            if offset <= before:
                try:
                    states = load_snapshot(self._files, directory, offset, self._room)
                except ValueError:
                    remove_snapshot(self._files, directory, offset)  # a crash tore it
                else:
                    self._snapshot_offset = offset
                    return states, offset
        return ProducerStates(self._room), self._log.segments_from(0)[0].base_offset


def _take(
    states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Takes a batch of the log into account; only of control batches the records are read."""
    if not header.is_control:
        states.update(header)
        return None
    data = segment.batch(position, header)
    try:
        return states.take(read_header(data), data)
    except ApiError as error:
        raise DamagedBatchError(segment.path, f"position {position}: {error.message}") from None
