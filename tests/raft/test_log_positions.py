"""Where a log is, against a model that has the records."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.raft.positions import Diverging, LogPositions, NeedsSnapshot, Position, Valid


@dataclass
class Model:
    """A log as the list of the epochs of its records, from offset 0 on, however much of it is deleted."""

    epochs: list[int] = field(default_factory=list)
    start_offset: int = 0
    snapshots: list[Position] = field(default_factory=list)

    @classmethod
    def of(cls, epochs: list[int], start_offset: int = 0, snapshot_offsets: tuple[int, ...] = ()) -> Model:
        offsets = sorted({*snapshot_offsets, *([start_offset] if start_offset else [])})
        kept = [offset for offset in offsets if start_offset <= offset <= len(epochs)]
        return cls(epochs, start_offset, [Position(offset, epochs[offset - 1]) for offset in kept])

    @property
    def positions(self) -> LogPositions:
        """The same, written record by record."""
        log = LogPositions()
        for offset, epoch in enumerate(self.epochs):
            log.append(epoch, offset, offset + 1)
        for snapshot in self.snapshots:
            log.add_snapshot(snapshot)
        if self.start_offset:
            log.delete_before(self.snapshots[0])
        return log

    def is_prefix(self, other: list[int]) -> bool:
        """Whether a log of these epochs is what ours begins with. Raft: the last record says it all."""
        return self.epochs[: len(other)] == other


def logs(min_size: int = 0) -> st.SearchStrategy[list[int]]:
    """Epochs from 1 on, in order, with gaps."""
    return st.lists(st.integers(1, 6), min_size=min_size, max_size=8).map(sorted)


@st.composite
def forked_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as Raft lets them be: the same up to a point, and no common epoch after it."""
    common = draw(logs())
    first = common[-1] if common else 1
    owners = {epoch: draw(st.booleans()) for epoch in range(first, 8)}
    ours = [epoch for epoch in draw(logs()) if epoch >= first and owners[epoch]]
    theirs = [epoch for epoch in draw(logs()) if epoch >= first and not owners[epoch]]
    return common + ours, common + theirs


def end_of(epochs: list[int]) -> tuple[int, int]:
    return len(epochs), epochs[-1] if epochs else 0


# Laws


@given(forked_logs())
def test_a_replica_goes_on_exactly_where_it_agrees(pair: tuple[list[int], list[int]]) -> None:
    ours, theirs = pair
    verdict = Model.of(ours).positions.check(*end_of(theirs))
    if Model.of(ours).is_prefix(theirs):
        assert verdict == Valid()
    else:
        assert isinstance(verdict, Diverging)


@given(forked_logs())
def test_cutting_ends_where_the_logs_agree(pair: tuple[list[int], list[int]]) -> None:
    """Round after round, as a follower and its leader do it, and nothing that they share is lost."""
    ours, theirs = pair
    leader, follower = Model.of(ours).positions, Model.of(theirs).positions
    shared = next(
        (index for index, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
        min(len(ours), len(theirs)),
    )
    for _ in range(20):
        verdict = leader.check(*follower.end)
        if isinstance(verdict, Valid):
            break
        assert isinstance(verdict, Diverging)
        before = follower.end
        follower.truncate(follower.truncation_for(verdict.end))
        assert follower.end_offset >= shared
        assert follower.end != before, "a round without progress is a loop without end"
    assert follower.end_offset == shared
    assert leader.check(*follower.end) == Valid()


@given(forked_logs(), st.data())
def test_with_snapshots_a_replica_goes_on_only_where_it_agrees(
    pair: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    epochs, theirs = pair
    start_offset = data.draw(st.integers(0, len(epochs)))
    taken = tuple(data.draw(st.lists(st.integers(1, max(1, len(epochs))), max_size=3)))
    model = Model.of(epochs, start_offset, taken)
    verdict = model.positions.check(*end_of(theirs))
    if isinstance(verdict, Valid):
        assert model.is_prefix(theirs)
        assert len(theirs) >= start_offset
    elif isinstance(verdict, NeedsSnapshot):
        assert verdict.snapshot == model.snapshots[-1]
    else:
        assert not model.is_prefix(theirs)
        assert start_offset <= verdict.end.offset <= len(epochs)


@given(logs(min_size=1), st.data())
def test_every_own_position_is_valid(epochs: list[int], data: st.DataObject) -> None:
    start_offset = data.draw(st.integers(0, len(epochs)))
    log = Model.of(epochs, start_offset).positions
    for offset in range(max(1, start_offset), len(epochs) + 1):
        assert log.check(offset, epochs[offset - 1]) == Valid()


@given(logs(), st.integers(0, 8))
def test_the_end_of_an_epoch(epochs: list[int], epoch: int) -> None:
    end = Model.of(epochs).positions.end_of_epoch(epoch)
    known = [each for each in epochs if each <= epoch]
    if known:
        assert end == Position(len(known), known[-1])
    else:
        assert end == Position(0, epoch if epochs else 0)


@given(logs(), st.integers(0, 8))
def test_a_cut_log_is_as_if_the_rest_had_never_been(epochs: list[int], end_offset: int) -> None:
    log = Model.of(epochs).positions
    if end_offset > len(epochs):
        return
    log.truncate(end_offset)
    shorter = Model.of(epochs[:end_offset]).positions
    assert (log.end, log.epochs) == (shorter.end, shorter.epochs)


@given(logs(min_size=1), st.data())
def test_a_picture_is_the_same_after_a_restart(epochs: list[int], data: st.DataObject) -> None:
    """What was kept up to date says the same as what is read from the log."""
    start_offset = data.draw(st.integers(0, len(epochs)))
    model = Model.of(epochs, start_offset)
    starts = [
        (epoch, offset)
        for offset, epoch in enumerate(epochs)
        if offset >= start_offset and (offset == start_offset or epochs[offset - 1] != epoch)
    ]
    read = LogPositions(start_offset, len(epochs), starts, model.snapshots)
    kept = model.positions
    assert read.end == kept.end
    for offset in range(len(epochs) + 2):
        for epoch in range(8):
            assert read.check(offset, epoch) == kept.check(offset, epoch)


# Cases


def test_an_empty_log_ends_at_its_snapshot() -> None:
    log = LogPositions(snapshots=[Position(0, 0)])
    assert log.end == (0, 0)
    log.begin_at(Position(7, 3))
    assert (log.start_offset, log.end, log.flushed_offset) == (7, (7, 3), 7)
    assert log.earliest_snapshot == log.latest_snapshot == (7, 3)
    log.append(5, 7, 9)
    assert log.end == (9, 5)
    assert log.end_of_epoch(4) == (7, 3)  # where log and snapshot meet


def test_rival_epochs_without_records_are_forgotten() -> None:
    """KAFKA-10706: two logs end at the same offset, each with an empty epoch that the other does not know."""
    ours, theirs = LogPositions(), LogPositions()
    for log, empty_epochs in ((ours, [2, 5]), (theirs, [3, 4])):
        log.append(1, 0, 4)
        for epoch in empty_epochs:
            log.begin_epoch(epoch, 4)
    assert ours.epochs == ((1, 0), (5, 4))  # an earlier empty epoch says nothing any more
    verdict = ours.check(*theirs.end)
    assert verdict == Diverging(Position(4, 1))
    assert isinstance(verdict, Diverging)
    theirs.truncate(theirs.truncation_for(verdict.end))  # there is nothing to cut, and yet
    assert theirs.end == (4, 1)
    assert ours.check(*theirs.end) == Valid()


def test_an_epoch_without_a_record_bounds_the_one_before() -> None:
    log = LogPositions()
    log.append(1, 0, 4)
    log.begin_epoch(2, 4)
    assert log.end_of_epoch(1) == (4, 1)
    assert log.end == (4, 2)
    log.append(2, 4, 5)
    assert log.epochs == ((1, 0), (2, 4))


def test_a_cut_starts_a_new_generation() -> None:
    log = LogPositions()
    log.append(1, 0, 4)
    log.flushed_offset = 4
    log.truncate(2)
    assert (log.flushed_offset, log.generation) == (2, 1)
    log.begin_at(Position(9, 2))
    assert log.generation == 2


def test_records_go_on_where_the_log_ends() -> None:
    log = LogPositions()
    with pytest.raises(AssertionError):
        log.append(1, 3, 4)
    log.append(4, 0, 1)
    with pytest.raises(AssertionError):
        log.append(3, 1, 2)


def test_snapshots_are_kept_in_order_and_once() -> None:
    log = LogPositions()
    log.append(2, 0, 9)
    for snapshot in (Position(5, 2), Position(3, 2), Position(5, 2)):
        log.add_snapshot(snapshot)
    assert log.snapshots == [(3, 2), (5, 2)]
    log.delete_before(Position(5, 2))
    assert (log.start_offset, log.snapshots, log.epochs) == (5, [(5, 2)], ((2, 5),))


def test_the_first_checkpoint_sends_nobody_away() -> None:
    log = LogPositions(snapshots=[Position(0, 0)])
    log.append(1, 0, 3)
    assert log.check(0, 0) == Valid()
    log.add_snapshot(Position(2, 1))
    assert log.check(0, 0) == NeedsSnapshot(Position(2, 1))


def test_an_epoch_of_nothing_cuts_everything_that_the_leader_has_not() -> None:
    log = LogPositions()
    log.append(3, 0, 5)
    assert log.truncation_for(Position(0, 0)) == 0
    assert log.truncation_for(Position(9, 0)) == 5
    assert log.truncation_for(Position(2, 3)) == 2
    assert log.truncation_for(Position(9, 3)) == 5
    assert log.truncation_for(Position(2, 2)) == 0
