"""A log does the same as a list of batches, through everything that can be done to it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stored_batches import a_batch, opened, read_all, split

from quorate.protocol.batch import BatchHeader, read_header
from quorate.storage.limits import LogConfig
from quorate.storage.log import Log

T = TypeVar("T")
PARTS = st.sampled_from([0, 0.1, 0.3, 0.5, 0.8, 1])
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_ms=300)


@dataclass
class ListOfBatches:
    """The log as one would write it on a blackboard."""

    start_offset: int = 0
    batches: list[bytes] = field(default_factory=list)
    base_offset: int = 0  # of the next batch, if there is none
    last_epoch: int | None = None  # of the last batch, if there is none left to say so

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]

    @property
    def end_offset(self) -> int:
        return self.headers()[-1].next_offset if self.batches else self.base_offset

    def readable(self) -> list[bytes]:
        return [batch for batch in self.batches if read_header(batch).next_offset > self.start_offset]

    def read(self, offset: int, max_bytes: int, before_offset: int) -> list[bytes]:
        """What a read may give at most: it ends at the end of a segment, which this does not know."""
        found: list[bytes] = []
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset >= offset:
                too_large = sum(map(len, found)) + len(batch) > max_bytes
                if header.next_offset > before_offset or (found and too_large):
                    break
                found.append(batch)
        return found

    def truncate(self, offset: int) -> None:
        first_base = self.headers()[0].base_offset if self.batches else self.base_offset
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        if not self.batches:
            self.base_offset = min(first_base, offset)
        self.start_offset = min(self.start_offset, self.end_offset)
        self.forget_epochs_without_batches()

    def forget_epochs_without_batches(self) -> None:
        readable = self.readable()
        self.last_epoch = read_header(readable[-1]).partition_leader_epoch if readable else None

    def epochs(self) -> list[tuple[int, int]]:
        found: dict[int, int] = {}
        for header in self.headers():
            if header.next_offset > self.start_offset:
                found.setdefault(header.partition_leader_epoch, max(header.base_offset, self.start_offset))
        if not found and self.last_epoch is not None:
            return [(self.last_epoch, self.start_offset)]
        return sorted(found.items())


class LogAndList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.model = ListOfBatches()
        self.epoch = 1
        self.timestamp = 1000
        self.log: Log = self.run(opened(self.directory.name, CONFIG))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.log.abandon()
        self.directory.cleanup()
        self.loop.close()

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=4), later_ms=st.integers(-50, 150))
    def append(self, counts: list[int], later_ms: int) -> None:
        self.timestamp += later_ms
        made = []
        for count in counts:
            made.append(a_batch(self.model.end_offset, count, epoch=self.epoch, timestamp=self.timestamp))
            self.model.batches.append(made[-1])
        self.model.last_epoch = self.epoch
        self.log.append(made, 0)

    @rule(more=st.integers(1, 3))
    def begin_epoch(self, more: int) -> None:
        self.epoch += more

    @rule()
    def roll(self) -> None:
        self.log.roll(0)

    @rule()
    def flush(self) -> None:
        assert self.run(self.log.flush()) == self.model.end_offset

    @rule(back=st.integers(0, 40))
    def truncate(self, back: int) -> None:
        offset = max(0, self.model.end_offset - back)
        self.model.truncate(offset)
        assert self.run(self.log.truncate_to(offset)) == self.model.end_offset

    @rule(part=PARTS)
    def delete(self, part: float) -> None:
        offset = self.model.start_offset + int(part * (self.model.end_offset - self.model.start_offset))
        self.run(self.log.delete_until(offset, 0))
        self.model.start_offset = offset
        first_base = self.log.segments[0].base_offset
        assert len(self.log.segments) == 1 or self.log.segments[1].base_offset > offset
        self.model.batches = [one for one in self.model.batches if read_header(one).base_offset >= first_base]
        if not self.model.batches:
            self.model.base_offset = first_base

    @rule(ahead=st.integers(0, 10))
    def restart(self, ahead: int) -> None:
        offset = self.model.end_offset + ahead
        self.run(self.log.restart_at(offset, 0))
        self.model = ListOfBatches(start_offset=offset, base_offset=offset)

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            self.run(self.log.close())
        else:
            self.log.abandon()
        self.log = self.run(
            opened(
                self.directory.name,
                CONFIG,
                recovery_point=None if is_clean else 0,
                start_offset=self.model.start_offset,
            )
        )
        self.model.forget_epochs_without_batches()
        assert self.log.recovery.damage == ""
        assert self.log.recovery.rebuilt_indexes == []
        assert self.log.flushed_offset == self.model.end_offset

    @precondition(lambda self: self.model.end_offset > self.model.start_offset)
    @rule(part=PARTS, max_bytes=st.integers(0, 500), ahead=st.integers(0, 30))
    def read(self, part: float, max_bytes: int, ahead: int) -> None:
        size = self.model.end_offset - self.model.start_offset
        offset = min(self.model.start_offset + int(part * size), self.model.end_offset - 1)
        expected = self.model.read(offset, max_bytes, offset + ahead)
        found = split(self.log.read(offset, max_bytes, before_offset=offset + ahead))
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    @invariant()
    def they_are_the_same(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (
            self.model.start_offset,
            self.model.end_offset,
        )
        assert read_all(self.log, max_bytes=300) == self.model.readable()
        assert [tuple(one) for one in self.log.epochs] == self.model.epochs()
        assert self.log.flushed_offset <= self.log.end_offset


TestLogAndList = LogAndList.TestCase
TestLogAndList.settings = settings(max_examples=60, stateful_step_count=30)
