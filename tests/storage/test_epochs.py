"""Leader epochs, against the rules written out the long way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.raft.positions import LogPositions, Position
from quorate.storage.epochs import (
    EPOCHS_NAME,
    UNDEFINED_END,
    EpochEnd,
    LeaderEpochs,
    load_epochs,
    store_epochs,
)
from quorate.storage.errors import StorageError

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["assign", "assign", "end", "start"]), st.integers(0, 6), st.integers(0, 30)),
    max_size=15,
)


class NaiveEpochs:
    """Every rule as one sentence over a dict {epoch: start offset}."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def assign(self, epoch: int, start: int) -> None:
        latest = max(self.starts, default=None)
        if epoch == latest and start >= self.starts[epoch]:
            return
        self.starts = {e: s for e, s in self.starts.items() if e < epoch and s < start} | {epoch: start}

    def cut_end(self, end: int) -> None:
        self.starts = {e: s for e, s in self.starts.items() if s < end}

    def cut_start(self, start: int) -> None:
        before = [e for e, s in self.starts.items() if s <= start]
        self.starts = {e: s for e, s in self.starts.items() if s > start}
        if before:
            self.starts[max(before)] = start

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        if not self.starts or epoch > max(self.starts):
            return (-1, -1)
        if epoch == max(self.starts):
            return (epoch, log_end)
        higher = min(e for e in self.starts if e > epoch)
        lower = [e for e in self.starts if e <= epoch]
        return (max(lower) if lower else epoch, self.starts[higher])


@given(OPERATIONS, st.integers(0, 7))
def test_they_follow_the_rules(operations: list[tuple[str, int, int]], asked: int) -> None:
    epochs, naive = LeaderEpochs(), NaiveEpochs()
    for kind, epoch, offset in operations:
        before = list(epochs)
        match kind:
            case "assign":
                naive.assign(epoch, offset)
                changed = epochs.assign(epoch, offset)
            case "end":
                naive.cut_end(offset)
                changed = epochs.truncate_from_end(offset)
            case _:
                naive.cut_start(offset)
                changed = epochs.truncate_from_start(offset)
        assert [tuple(one) for one in epochs] == sorted(naive.starts.items())
        assert changed == (before != list(epochs))
        assert epochs.end_offset_for(asked, 100) == naive.end_of(asked, 100)
        covering = [e for e, s in naive.starts.items() if s <= offset]
        assert epochs.epoch_at(offset) == max(covering, default=None)
    assert list(LeaderEpochs.parse(epochs.text())) == list(epochs)


@given(OPERATIONS, st.integers(0, 7), st.none() | st.tuples(st.integers(0, 30), st.integers(0, 6)))
def test_the_quorum_asks_as_the_raft_layer_does(
    operations: list[tuple[str, int, int]], asked: int, snapshot: tuple[int, int] | None
) -> None:
    epochs = LeaderEpochs()
    for _, epoch, offset in operations:
        if epochs.latest_epoch is None or epoch > epochs.latest_epoch:
            epochs.assign(epoch, offset)
    if snapshot is not None and len(epochs) and snapshot[0] > next(iter(epochs)).start_offset:
        snapshot = None  # the earliest snapshot ends at or before the log's beginning, if the log has moved
    elif snapshot is not None and len(epochs):
        snapshot = (snapshot[0], min(snapshot[1], next(iter(epochs)).epoch))
    positions = LogPositions(
        0, 100, [tuple(one) for one in epochs], [Position(*snapshot)] if snapshot else []
    )
    end = epochs.quorum_end_offset_for(asked, 100, positions.last_epoch, snapshot)
    assert Position(end.end_offset, end.epoch) == positions.end_of_epoch(asked)


def test_where_log_and_snapshot_meet_the_snapshot_counts() -> None:
    epochs = LeaderEpochs([(5, 50), (7, 70)])
    assert epochs.quorum_end_offset_for(4, 100, 7, (50, 3)) == EpochEnd(3, 50)
    assert epochs.quorum_end_offset_for(4, 100, 7, (40, 3)) == EpochEnd(4, 50)
    assert epochs.quorum_end_offset_for(9, 100, 7, (50, 3)) == EpochEnd(7, 100)
    assert LeaderEpochs().quorum_end_offset_for(4, 50, 3, (50, 3)) == EpochEnd(3, 50)
    assert epochs.end_offset_for(-1, 100) == UNDEFINED_END


# The file


def test_the_file_is_as_kafka_writes_it(tmp_path: Path) -> None:
    asyncio.run(store_epochs(FILES, str(tmp_path), LeaderEpochs([(1, 0), (4, 70)])))
    assert (tmp_path / EPOCHS_NAME).read_text() == "0\n2\n1 0\n4 70\n"
    assert list(load_epochs(FILES, str(tmp_path))) == [(1, 0), (4, 70)]


def test_no_file_means_no_epochs(tmp_path: Path) -> None:
    assert list(load_epochs(FILES, str(tmp_path))) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it ends before the number of entries"),
        ("0\n", "it ends before the number of entries"),
        ("1\n0\n", "version '1', not 0"),
        ("0\n2\n1 0\n", "'2' entries announced, and 1 found"),
        ("0\n0\n1 0\n", "'0' entries announced, and 1 found"),
        ("0\nx\n", "'x' entries announced, and 0 found"),
        ("0\n1\n1\n", "'1' is no epoch and offset"),
        ("0\n1\n1 0 0\n", "'1 0 0' is no epoch and offset"),
        ("0\n1\n-1 0\n", "'-1 0' is no epoch and offset"),
        ("0\n1\n1 x\n", "'1 x' is no epoch and offset"),
        ("0\n1\n\u00b2 1\n", "can't decode"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / EPOCHS_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(
        StorageError, match="leader-epoch-checkpoint: not a leader epoch checkpoint"
    ) as refusal:
        load_epochs(FILES, str(tmp_path))
    assert reason in str(refusal.value)


def test_entries_that_were_overtaken_are_forgotten() -> None:
    assert list(LeaderEpochs.parse("0\n3\n1 0\n5 10\n3 8\n")) == [(1, 0), (3, 8)]
