"""Coordinators on a broker: loaded, asked, held to the commit, and dropped with the leadership."""

import asyncio
import logging
from math import inf

import pytest

from broker.serving import Serving, in_loop
from quorate.broker.coordinators import DUE_MAX, STEPS_MAX, Coordinators
from quorate.broker.coordinators_gathering import QUIET_S, TOGETHER_MAX
from quorate.coordinator.effects import Answer, Effects, LogRecord, Moment
from quorate.coordinator.group_records import OffsetCommitKey, OffsetCommitValue
from quorate.protocol.api.groups import HeartbeatResponse
from quorate.protocol.batch import batches, records
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.errors import StorageError

TOPIC = "__consumer_offsets"


class Counting:
    """A state of one number: the sum of all that was committed. Waits can be ended, and time be kept."""

    def __init__(self):
        self.sum = 0
        self.offsets = []
        self.refused = []
        self.waiting = []
        self.next_deadline_ms = inf
        self.ticks = 0
        self.is_loaded = False

    def apply(self, record, offset, _producer_id=-1):
        self.sum += record.value.offset
        self.offsets.append(offset)

    def commit_transaction(self, producer_id):
        pass

    abort_transaction = commit_transaction

    def loaded(self, _moment):
        self.is_loaded = True
        return Effects()

    def append_refused(self, effects, code, _moment):
        self.refused.append(code)
        return Effects(answers=[Answer(one.ticket, answer(code)) for one in effects.answers])

    def unload(self):
        return Effects(answers=[Answer(one, answer(ErrorCode.NOT_COORDINATOR)) for one in self.waiting])

    def tick(self, _moment):
        self.ticks += 1
        self.next_deadline_ms = inf
        return Effects([add(1000)])

    def tick_again(self, _moment):
        """Something is due as soon as it is done."""
        self.ticks += 1
        assert self.ticks < 100_000, "nobody else gets a turn"
        return Effects()

    # Requests

    def add(self, number):
        return lambda ticket, _: Effects([add(number)], [Answer(ticket, answer())])

    def note(self, number):
        """Writes something that the answer does not rest on."""
        return lambda ticket, _: Effects([add(number)], [Answer(ticket, answer())], is_answered_at_once=True)

    def look(self, *, reads_uncommitted=False):
        return lambda ticket, _: Effects((), [Answer(ticket, answer())], reads_uncommitted=reads_uncommitted)

    def wait(self, ticket, _):
        self.waiting.append(ticket)
        return Effects()

    def end_waits(self, ticket, _):
        ended, self.waiting = self.waiting, []
        return Effects(answers=[Answer(one, answer()) for one in (*ended, ticket)])


def answer(code=ErrorCode.NONE):
    return HeartbeatResponse(error_code=code)


def add(number):
    value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=0)
    return LogRecord(OffsetCommitKey(group="g", topic="t", partition=number % 7), value)


class Hosting:
    """A broker that leads the partitions of a log, with a `Counting` for each."""

    def __init__(self, directory):
        self.serving = Serving(directory)
        self.shards = Coordinators(
            lambda _: Counting(),
            lambda: Moment(self.serving.now_ms, self.serving.wall_ms),
            commit_timeout_ms=5000,
            offline=self.serving.replicas.offline,
            saw=lambda _: None,
            logger=logging.getLogger("test"),
        )

    async def lead(self, **topic):
        partition = await self.serving.topic(TOPIC, **topic)
        self.shards.elected(partition)
        await self.settle()
        return self.shards.active(0)

    async def settle(self):
        while self.shards.is_loading:
            await asyncio.sleep(0)

    async def ask(self, hosted, step):
        found = hosted.ask(step, answer)
        return (found if isinstance(found, HeartbeatResponse) else await found).error_code

    def begin(self, hosted, step):
        found = hosted.ask(step, answer)
        assert not isinstance(found, HeartbeatResponse)
        return found


@pytest.fixture
def hosting(tmp_path):
    return Hosting(tmp_path)


@in_loop
async def test_what_is_asked_is_written_and_applied(hosting):
    hosted = await hosting.lead()
    assert hosted.shard.is_loaded
    assert await hosting.ask(hosted, hosted.shard.add(5)) == ErrorCode.NONE
    assert await hosting.ask(hosted, hosted.shard.add(6)) == ErrorCode.NONE
    assert hosted.shard.sum == 11
    data = hosted.partition.log.read(0, 1 << 20)
    written = [record.offset for header in batches(data) for record in records(data, header)]
    assert written == hosted.shard.offsets == [0, 1]


@in_loop
async def test_steps_of_one_turn_share_a_batch(hosting):
    hosted = await hosting.lead()
    waits = [hosting.begin(hosted, hosted.shard.add(number)) for number in range(10)]
    assert hosted.shard.sum == 45  # a step sees what was before it, written or not
    assert hosted.partition.log.end_offset == 0
    await asyncio.gather(*waits)
    data = hosted.partition.log.read(0, 1 << 20)
    assert [header.record_count for header in batches(data)] == [10]


@in_loop
async def test_the_next_coordinator_knows_what_the_last_one_knew(hosting):
    hosted = await hosting.lead()
    for number in range(3):
        await hosting.ask(hosted, hosted.shard.add(number))
    await hosting.serving.assign(TOPIC, leader=2, leader_epoch=1, replicas=(1, 2))
    with pytest.raises(ApiError) as refusal:
        hosting.shards.active(0)
    assert refusal.value.code == ErrorCode.NOT_COORDINATOR
    await hosting.serving.assign(TOPIC, leader_epoch=2)
    hosting.shards.elected(hosted.partition)
    with pytest.raises(ApiError) as refusal:
        hosting.shards.active(0)
    assert refusal.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await hosting.settle()
    again = hosting.shards.active(0)
    assert again is not hosted
    assert again.shard.sum == 3
    assert again.shard.offsets == [0, 1, 2]


@in_loop
async def test_an_answer_waits_for_its_commit(hosting):
    hosted = await hosting.lead(replicas=(1, 2))
    late = hosting.begin(hosted, hosted.shard.add(5))
    await asyncio.sleep(0.01)
    assert not late.done()
    assert await hosting.ask(hosted, hosted.shard.look()) == ErrorCode.NONE  # sees nothing that may be lost
    behind = hosting.begin(hosted, hosted.shard.look(reads_uncommitted=True))
    hosted.partition.fetched_by(2, 1, 0, -1)
    assert (await late).error_code == ErrorCode.NONE
    assert (await behind).error_code == ErrorCode.NONE
    assert await hosting.ask(hosted, hosted.shard.look(reads_uncommitted=True)) == ErrorCode.NONE


@in_loop
async def test_an_answer_that_does_not_rest_on_what_is_written_does_not_wait_for_it(hosting):
    hosted = await hosting.lead(replicas=(1, 2))
    assert await hosting.ask(hosted, hosted.shard.note(5)) == ErrorCode.NONE
    assert hosted.shard.sum == 5
    late = hosting.begin(hosted, hosted.shard.add(6))
    hosted.partition.fetched_by(2, 2, 0, -1)
    assert (await late).error_code == ErrorCode.NONE


@in_loop
async def test_it_is_refused_with_what_cannot_be_written(hosting):
    hosted = await hosting.lead(replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    assert await hosting.ask(hosted, hosted.shard.note(5)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert hosted.shard.sum == 0


@in_loop
async def test_what_was_found_in_the_log_and_is_not_committed_may_be_lost_as_well(hosting):
    hosted = await hosting.lead(replicas=(1, 2))
    hosting.begin(hosted, hosted.shard.add(5))
    await asyncio.sleep(0.01)
    hosting.shards.close()
    hosting.shards.elected(hosted.partition)
    await hosting.settle()
    again = hosting.shards.active(0)
    assert again.shard.sum == 5
    assert await hosting.ask(again, again.shard.look()) == ErrorCode.NONE
    behind = [hosting.begin(again, again.shard.look(reads_uncommitted=True)) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert not any(one.done() for one in behind)
    again.partition.fetched_by(2, 1, 0, -1)
    assert [(await one).error_code for one in behind] == [ErrorCode.NONE] * 2
    assert await hosting.ask(again, again.shard.look(reads_uncommitted=True)) == ErrorCode.NONE


@in_loop
async def test_whoever_waits_for_a_commit_is_told_when_the_leadership_goes(hosting):
    hosted = await hosting.lead(replicas=(1, 2))
    late = hosting.begin(hosted, hosted.shard.add(5))
    parked = hosting.begin(hosted, hosted.shard.wait)
    await hosting.serving.assign(TOPIC, leader=2, leader_epoch=1, replicas=(1, 2))
    assert (await late).error_code == ErrorCode.NOT_COORDINATOR
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    assert list(hosting.shards) == []


@in_loop
async def test_a_new_epoch_of_the_same_leader_changes_nothing(hosting):
    hosted = await hosting.lead()
    await hosting.ask(hosted, hosted.shard.add(5))
    await hosting.serving.assign(TOPIC, leader_epoch=3)
    hosting.shards.elected(hosted.partition)
    assert hosting.shards.active(0) is hosted
    assert await hosting.ask(hosted, hosted.shard.add(5)) == ErrorCode.NONE


@in_loop
async def test_too_few_in_sync_refuse(hosting):
    hosted = await hosting.lead(replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    assert await hosting.ask(hosted, hosted.shard.add(5)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert hosted.shard.sum == 0
    assert hosted.partition.log.end_offset == 0


@in_loop
async def test_what_is_too_large_is_refused(hosting):
    hosted = await hosting.lead(max_message_bytes=200)

    def many(ticket, _):
        return Effects([add(number) for number in range(10)], [Answer(ticket, answer())])

    assert await hosting.ask(hosted, many) == ErrorCode.MESSAGE_TOO_LARGE
    waits = [hosting.begin(hosted, hosted.shard.add(number)) for number in range(10)]
    assert {(await one).error_code for one in waits} == {ErrorCode.NONE}
    data = hosted.partition.log.read(0, 1 << 20)
    assert all(header.size_bytes <= 200 for header in batches(data))


async def given_up(hosting):
    """A coordinator whose follower does not take what was written in time."""
    hosted = await hosting.lead(replicas=(1, 2))
    hosting.shards.commit_timeout_ms = 0
    late = hosting.begin(hosted, hosted.shard.add(5))
    hosting.serving.now_ms += 1
    assert (await late).error_code == ErrorCode.REQUEST_TIMED_OUT
    return hosted


@in_loop
async def test_a_commit_that_takes_too_long_is_given_up(hosting):
    hosted = await given_up(hosting)
    assert hosted.shard.sum == 5  # it is in the log, and may be committed yet


@in_loop
async def test_what_nobody_waits_for_any_more_may_be_lost_as_well(hosting):
    hosted = await given_up(hosting)
    hosting.shards.commit_timeout_ms = 60_000
    behind = hosting.begin(hosted, hosted.shard.look(reads_uncommitted=True))
    await asyncio.sleep(0.01)
    assert not behind.done()
    hosted.partition.fetched_by(2, 1, 0, -1)
    assert (await behind).error_code == ErrorCode.NONE


@in_loop
async def test_a_failing_disk_ends_the_coordinator(hosting, monkeypatch):
    hosted = await hosting.lead()
    wait = hosting.begin(hosted, hosted.shard.add(5))

    def fail(*_):
        raise StorageError("disk", "gone")

    monkeypatch.setattr(hosted.partition.log, "append_made", fail)
    assert (await wait).error_code == ErrorCode.NOT_COORDINATOR
    assert list(hosting.shards) == []


@in_loop
async def test_time_passes(hosting):
    hosted = await hosting.lead()
    hosted.shard.next_deadline_ms = hosting.serving.now_ms + 5
    assert await hosting.ask(hosted, hosted.shard.look()) == ErrorCode.NONE  # a step sets the timer
    hosting.serving.now_ms += 10
    while not hosted.shard.sum:
        await asyncio.sleep(0.001)
    assert hosted.shard.ticks == 1
    assert hosted.shard.sum == 1000


@in_loop
async def test_one_that_always_has_something_to_do_holds_up_nobody(hosting):
    hosted = await hosting.lead()
    hosted.shard.tick = hosted.shard.tick_again
    hosted.shard.next_deadline_ms = hosting.serving.now_ms
    for _ in range(5):
        before = hosted.shard.ticks
        assert await hosting.ask(hosted, hosted.shard.add(1)) == ErrorCode.NONE
        await asyncio.sleep(0.001)
        assert hosted.shard.ticks > before
    hosted.shard.next_deadline_ms = inf


@in_loop
async def test_many_who_are_late_are_told_so_a_few_at_a_time(hosting):
    hosted = await hosting.lead(replicas=(1, 2))
    hosting.shards.commit_timeout_ms = 1
    late = [hosting.begin(hosted, hosted.shard.add(1)) for _ in range(3 * DUE_MAX)]
    told = []
    await asyncio.sleep(0)  # they are written
    hosting.serving.now_ms += 10
    while not all(one.done() for one in late):
        await asyncio.sleep(0)
        told.append(len(hosted.shard.refused))
    assert hosted.shard.refused == [ErrorCode.REQUEST_TIMED_OUT] * len(late)
    assert {DUE_MAX, 2 * DUE_MAX, 3 * DUE_MAX} <= set(told)
    assert [(await one).error_code for one in late] == [ErrorCode.REQUEST_TIMED_OUT] * len(late)


@in_loop
async def test_one_step_may_answer_others(hosting):
    hosted = await hosting.lead()
    parked = [hosting.begin(hosted, hosted.shard.wait) for _ in range(3)]
    assert await hosting.ask(hosted, hosted.shard.end_waits) == ErrorCode.NONE
    assert [(await one).error_code for one in parked] == [ErrorCode.NONE] * 3


@in_loop
async def test_a_log_that_cannot_be_read_coordinates_nothing(hosting, caplog):
    partition = await hosting.serving.topic(TOPIC)
    hosted_log = partition.log
    original = hosted_log.read

    def garble(*arguments):
        data = bytearray(original(*arguments))
        data[-1] ^= 0xFF
        return memoryview(data)

    hosting.shards.elected(partition)
    await hosting.settle()
    hosted = hosting.shards.active(0)
    await hosting.ask(hosted, hosted.shard.add(5))
    hosted.drop()
    hosted_log.read = garble
    try:
        hosting.shards.elected(partition)
        await hosting.settle()
    finally:
        hosted_log.read = original
    with pytest.raises(ApiError) as refusal:
        hosting.shards.active(0)
    assert refusal.value.code == ErrorCode.NOT_COORDINATOR
    assert "not loaded partition=__consumer_offsets-0" in caplog.text


@in_loop
async def test_enough_steps_are_written_before_the_next_is_taken(hosting):
    """Their askers are answered before the turn of the loop has ended, and may ask again at once."""
    hosted = await hosting.lead()
    waits = [hosting.begin(hosted, hosted.shard.add(1)) for _ in range(STEPS_MAX)]
    again = []
    waits[0].add_done_callback(lambda _: again.append(hosting.begin(hosted, hosted.shard.add(1000))))
    assert hosted.partition.log.end_offset == 0
    last = hosting.begin(hosted, hosted.shard.add(1))
    assert hosted.partition.log.end_offset == STEPS_MAX
    assert all(one.done() for one in waits)
    assert not last.done()
    assert [one.done() for one in again] == [False]
    await asyncio.gather(last, *again)
    data = hosted.partition.log.read(0, 1 << 20)
    assert [header.record_count for header in batches(data)] == [STEPS_MAX, 2]
    assert hosted.shard.offsets == list(range(STEPS_MAX + 2))


@in_loop
async def test_those_who_ask_again_when_answered_do_not_write_within_each_other(hosting):
    """However many there are, and however often: a stack is only so deep."""
    hosted = await hosting.lead()
    left = [2000]

    def ask_again(_):
        if left[0]:
            left[0] -= 1
            hosting.begin(hosted, hosted.shard.add(1)).add_done_callback(ask_again)

    for _ in range(3 * STEPS_MAX):
        ask_again(None)
    while left[0] or hosted.partition.log.end_offset < 2000:
        await asyncio.sleep(0)
    assert hosted.shard.sum == 2000
    assert hosted.shard.offsets == list(range(2000))


@in_loop
async def test_a_disk_that_fails_while_others_are_written_refuses_the_next(hosting, monkeypatch):
    hosted = await hosting.lead()
    waits = [hosting.begin(hosted, hosted.shard.add(1)) for _ in range(STEPS_MAX)]

    def fail(*_):
        raise StorageError("log", "the disk is gone")

    monkeypatch.setattr(hosted.partition, "append_made", fail)
    assert hosted.ask(hosted.shard.add(1), answer).error_code == ErrorCode.NOT_COORDINATOR
    found = await asyncio.gather(*waits)
    assert {one.error_code for one in found} == {ErrorCode.NOT_COORDINATOR}


@in_loop
async def test_an_answer_that_breaks_its_asker_reaches_the_others(hosting):
    hosted = await hosting.lead()
    broken, other = (hosting.begin(hosted, hosted.shard.add(1)) for _ in range(2))
    seen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    broken.add_done_callback(lambda _: 1 / 0)
    assert (await other).error_code == ErrorCode.NONE
    assert [type(one) for one in seen] == [ZeroDivisionError]


async def lead_several(hosting, number):
    await hosting.serving.topic(TOPIC, partitions=number)
    for at in range(number):
        hosting.shards.elected(hosting.serving.partition(TOPIC, at))
    await hosting.settle()
    return [hosting.shards.active(at) for at in range(number)]


@in_loop
async def test_all_coordinators_write_before_anybody_is_answered(hosting):
    several = await lead_several(hosting, STEPS_MAX)
    waits = [hosting.begin(one, one.shard.add(1)) for one in several]
    seen = []
    waits[0].add_done_callback(lambda _: seen.extend(one.partition.log.end_offset for one in several))
    last = hosting.begin(several[0], several[0].shard.add(1))  # before which the others are written
    assert seen == [1] * STEPS_MAX
    assert all(one.done() for one in waits)
    assert not last.done()
    assert (await last).error_code == ErrorCode.NONE
    assert several[0].partition.log.end_offset == 2


@in_loop
async def test_a_coordinator_that_breaks_keeps_no_other_from_writing(hosting, monkeypatch):
    broken, other = await lead_several(hosting, 2)
    waits = [hosting.begin(one, one.shard.add(1)) for one in (broken, other)]
    seen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    monkeypatch.setattr(broken.partition, "append_made", lambda *_: 1 / 0)
    assert (await waits[1]).error_code == ErrorCode.NONE
    assert [type(one) for one in seen] == [ZeroDivisionError]
    assert not waits[0].done()


def announcing(number):
    return lambda _: Effects([add(number)])


@in_loop
async def test_who_is_announced_is_heard_a_moment_later(hosting):
    hosted = await hosting.lead()
    heard = []

    def hear(ticket, _):
        heard.append(hosted.shard.sum)
        return Effects([add(100)], [Answer(ticket, answer())])

    waits = [hosted.ask(hear, answer, announcing(number)) for number in (1, 2)]
    assert (heard, hosted.shard.sum) == ([], 3)
    assert [(await one).error_code for one in waits] == [ErrorCode.NONE] * 2
    assert heard == [3, 103]
    data = hosted.partition.log.read(0, 1 << 20)
    assert [header.record_count for header in batches(data)] == [2, 2]


@in_loop
async def test_many_who_are_announced_are_heard_before_the_turn_ends(hosting):
    hosted = await hosting.lead()
    waits = [hosted.ask(hosted.shard.add(0), answer, announcing(1)) for _ in range(TOGETHER_MAX)]
    assert not any(one.done() for one in waits)
    hosted.ask(hosted.shard.add(0), answer)
    assert all(one.done() for one in waits)
    assert hosted.shard.sum == TOGETHER_MAX


@in_loop
async def test_others_are_heard_while_they_wait(hosting):
    hosted = await hosting.lead()
    waiting = hosted.ask(hosted.shard.add(10), answer, announcing(1))
    assert await hosting.ask(hosted, hosted.shard.add(100)) == ErrorCode.NONE
    assert not waiting.done()
    assert hosted.shard.sum == 101
    assert (await waiting).error_code == ErrorCode.NONE
    assert hosted.shard.sum == 111


@in_loop
async def test_with_nothing_to_announce_a_step_is_taken_at_once(hosting):
    hosted = await hosting.lead()
    waiting = hosted.ask(hosted.shard.add(5), answer, lambda _: Effects())
    assert hosted.shard.sum == 5
    assert (await waiting).error_code == ErrorCode.NONE


@in_loop
async def test_what_cannot_be_announced_is_tried_as_a_step(hosting):
    hosted = await hosting.lead(replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    waiting = hosted.ask(hosted.shard.add(5), answer, announcing(1))
    assert hosted.shard.refused == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert (await waiting).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@in_loop
async def test_one_who_breaks_the_coordinator_hears_of_it_alone(hosting):
    hosted = await hosting.lead()
    broken = hosted.ask(lambda *_: 1 / 0, answer, announcing(1))
    other = hosted.ask(hosted.shard.add(5), answer, announcing(1))
    assert (await other).error_code == ErrorCode.NONE
    assert isinstance(broken.exception(), ZeroDivisionError)


@in_loop
async def test_leadership_that_is_lost_before_they_are_heard(hosting):
    hosted = await hosting.lead()
    waiting = hosted.ask(hosted.shard.add(5), answer, announcing(1))
    hosted.drop()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(2 * QUIET_S)
    assert hosted.shard.sum == 1
    assert hosted.shard.sum == 1
