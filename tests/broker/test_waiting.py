"""Waits end once, by whatever comes first, and leave nothing behind."""

from __future__ import annotations

import asyncio

from serving import in_loop, turns

from quorate.broker.waiting import CommitQueue, CommitWait, DataWait
from quorate.protocol.errors import ErrorCode

LONG_MS = 1_000_000
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Place:
    """Something that has data now and then."""

    def __init__(self) -> None:
        self.data_waits: dict[DataWait, int] = {}

    def change(self) -> None:
        for wait, number in list(self.data_waits.items()):
            wait.look(number)


# Commits


@in_loop
async def test_a_commit_wait_ends_when_all_partitions_have_committed():
    first, second = CommitQueue(), CommitQueue()
    wait = CommitWait(2, LONG_MS)
    first.add(9, wait, 0)
    second.add(4, wait, 1)
    first.committed(9, NONE)
    assert len(first) == 1, "the high watermark must pass the offset"
    first.committed(10, NONE)
    assert not wait.done.done()
    second.committed(100, NONE)
    assert wait.done.done()
    assert wait.errors == {}
    assert len(first) == len(second) == 0


@in_loop
async def test_each_partition_fails_for_itself():
    first, second = CommitQueue(), CommitQueue()
    wait = CommitWait(3, LONG_MS)
    first.add(9, wait, 0)
    second.add(4, wait, 1)
    wait.finished(2)
    first.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    second.committed(5, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    await wait.done
    assert wait.errors == {
        0: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        1: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }


@in_loop
async def test_a_batch_that_was_sent_again_is_not_held_up_by_later_ones():
    queue = CommitQueue()
    later, again = CommitWait(1, LONG_MS), CommitWait(1, LONG_MS)
    queue.add(20, later, 0)
    queue.add(5, again, 0)
    queue.committed(6, NONE)
    assert again.done.done()
    assert not later.done.done()
    later.end()


@in_loop
async def test_a_commit_wait_ends_in_time():
    done, stuck = CommitQueue(), CommitQueue()
    for timeout_ms in (5, 0, -1):
        wait = CommitWait(2, timeout_ms)
        done.add(1, wait, 0)
        stuck.add(1, wait, 1)
        done.committed(2, NONE)
        await wait.done
        assert wait.errors == {1: TIMED_OUT}
        assert len(stuck) == 0


@in_loop
async def test_a_commit_wait_that_nobody_wants_leaves_nothing():
    queue = CommitQueue()
    wait = CommitWait(2, LONG_MS)
    queue.add(1, wait, 0)
    queue.add(2, wait, 1)
    wait.end()
    assert len(queue) == 0
    assert wait.done.done()
    wait.finished(0, TIMED_OUT)
    wait.end()
    assert wait.errors == {}


# Data


@in_loop
async def test_a_data_wait_is_asked_about_the_one_that_changed():
    places = [Place(), Place(), Place()]
    enough, asked, over = False, [], []

    def is_enough(number: int) -> bool:
        asked.append(number)
        return enough

    DataWait(places, LONG_MS, is_enough, lambda: over.append(True))
    places[2].change()
    places[0].change()
    await turns()
    assert asked == [2, 0]
    assert not over
    enough = True
    places[1].change()
    assert not any(place.data_waits for place in places)
    places[1].change()
    await turns()
    assert asked == [2, 0, 1]
    assert over == [True]


@in_loop
async def test_what_changes_in_one_turn_is_there_when_the_wait_is_over():
    places, changed, seen = [Place(), Place()], [], []
    DataWait(places, LONG_MS, lambda _: True, lambda: seen.extend(changed))
    for number, place in enumerate(places):
        changed.append(number)
        place.change()
        assert not seen, "whoever changes something is not called back into"
    await turns()
    assert seen == [0, 1]


@in_loop
async def test_a_data_wait_ends_in_time():
    place = Place()
    for timeout_ms in (5, 0, -1):
        over = asyncio.Event()
        DataWait([place], timeout_ms, lambda _: False, over.set)
        await over.wait()
        assert not place.data_waits


@in_loop
async def test_a_data_wait_that_nobody_wants_leaves_nothing():
    place, over = Place(), []
    wait = DataWait([place], LONG_MS, lambda _: False, lambda: over.append(True))
    wait.finish()
    wait.finish()
    wait.join(place)
    assert not place.data_waits
    await turns()
    assert over == [True]
