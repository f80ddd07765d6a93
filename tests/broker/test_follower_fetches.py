"""Following a leader: what is asked, what becomes of the answer, and what if something changes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import START_MS, a_batch, in_loop, topic_id, turns

from quorate.broker.fetcher import Fetchers, FetcherSettings
from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.topic_config import topic_config
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import Partition as PartitionState
from quorate.net.client import ConnectionLost
from quorate.protocol.api.produce_fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from quorate.protocol.batch import stamp
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles
from quorate.storage.partition_log import PartitionLog

ME, LEADER, OTHER = 1, 2, 3
BROKER_EPOCH = 77
SETTINGS = FetcherSettings(backoff_ms=1, wait_max_ms=5)
LATEST, EARLIEST = -1, -2

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class Leader:
    """Stands for all connections: keeps what is asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []
        self.offsets = {LATEST: 0, EARLIEST: 0}
        self.offsets_code = ErrorCode.NONE
        self.refusals = 0
        self.may_tell_offsets = asyncio.Event()
        self.may_tell_offsets.set()
        self._answers: asyncio.Queue[Response | Exception] = asyncio.Queue()

    def is_connected(self, _address: Any) -> bool:
        return False

    async def reach(self, _address: Any, *, timeout_ms: float) -> None:
        assert timeout_ms > 0
        if self.refusals:
            self.refusals -= 1
            raise ConnectionLost("refused")

    async def request(self, address: Any, request: Request, *, timeout_ms: float) -> Response:
        assert (address, timeout_ms > 0) == ((f"host-{LEADER}", 9092), True)
        if isinstance(request, ListOffsetsRequest):
            return await self._offset(request)
        assert isinstance(request, FetchRequest)
        self.asked.append(request)
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _offset(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        await self.may_tell_offsets.wait()
        wanted = request.topics[0].partitions[0]
        found = ListOffsetsResponse.TopicResponse.PartitionResponse(
            partition_index=wanted.partition_index,
            error_code=self.offsets_code,
            offset=self.offsets[wanted.timestamp],
        )
        topic = ListOffsetsResponse.TopicResponse(name=request.topics[0].name, partitions=[found])
        return ListOffsetsResponse(topics=[topic])

    def answer(
        self, *partitions: tuple[Partition, PartitionData], session_id: int = 0, code: int = 0
    ) -> None:
        responses = [
            FetchResponse.FetchableTopicResponse(topic_id=partition.key.topic_id, partitions=[data])
            for partition, data in partitions
        ]
        self._answers.put_nowait(FetchResponse(error_code=code, session_id=session_id, responses=responses))

    def lose(self) -> None:
        self._answers.put_nowait(ConnectionLost("gone"))

    async def until_asked(self, times: int) -> FetchRequest:
        """The request of that number; everything before it has been dealt with."""
        while len(self.asked) < times:
            await asyncio.sleep(0.001)
        await turns()
        assert len(self.asked) == times
        return self.asked[-1]


def data_of(
    *batches: bytes | bytearray,
    code: int = 0,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    diverging: tuple[int, int] | None = None,
    partition_id: int = 0,
) -> PartitionData:
    made = PartitionData(
        partition_index=partition_id,
        error_code=code,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=b"".join(batches),
    )
    if diverging is not None:
        made.diverging_epoch = PartitionData.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return made


def batch(offset: int, epoch: int, count: int = 1) -> bytearray:
    made = a_batch(count)
    stamp(made, 0, offset, epoch)
    return made


def state(leader: int, leader_epoch: int, partition_epoch: int | None = None) -> PartitionState:
    return PartitionState(
        replicas=(1, 2, 3),
        directories=(Uuid(bytes(16)),) * 3,
        isr=(1, 2, 3),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch if partition_epoch is None else partition_epoch,
    )


class Scene:
    """A follower, its fetchers, and the leader."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.leader = Leader()
        self.offline: list[tuple[Partition, StorageError]] = []
        self.fetchers = Fetchers(
            ME,
            self.leader,  # type: ignore[arg-type]
            SETTINGS,
            self._address_of,
            lambda: BROKER_EPOCH,
            lambda *failed: self.offline.append(failed),
        )
        self.partitions: list[Partition] = []

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        return (f"host-{broker_id}", 9092) if broker_id == LEADER else None

    async def partition(
        self, *epochs: Sequence[int], name: str = "t", partition_id: int = 0, high_watermark: int = 0
    ) -> Partition:
        """A replica with a log of these (epoch, records)."""
        key = TopicPartition(name, topic_id(name), partition_id)
        config = topic_config(ClusterImage(), name, ME, {})
        log = await PartitionLog.open(
            RealFiles(),
            str(self._directory / str(key)),
            config.log,
            topic_id=key.topic_id,
            now_ms=START_MS,
            recovery_point=0,
        )
        for epoch, count in epochs:
            for _ in range(count):
                log.append_replicated(batch(log.end_offset, epoch), START_MS)
        around = Surroundings(
            broker_id=ME,
            lag_ms_max=1000,
            now_ms=lambda: 0.0,
            wall_ms=lambda: START_MS,
            is_eligible=lambda *_: True,
        )
        made = Partition(key, around, log, config, high_watermark)
        self.partitions.append(made)
        return made

    async def followed(self, *epochs: Sequence[int], leader_epoch: int = 9, **about: Any) -> Partition:
        made = await self.partition(*epochs, **about)
        self.follow(made, leader_epoch)
        return made

    def follow(self, partition: Partition, leader_epoch: int, leader: int = LEADER) -> None:
        assert partition.follow(state(leader, leader_epoch))
        self.fetchers.follow(partition)


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    it = Scene(directory)
    running = asyncio.create_task(it.fetchers.run())
    try:
        yield it
        assert not running.done(), running
    finally:
        running.cancel()
        for partition in it.partitions:
            await partition.settled()
            partition.log.abandon()


def rows(request: FetchRequest) -> dict[str, tuple[int, ...]]:
    """What is asked of each partition: its leader epoch, offset, last epoch and log start."""
    return {
        f"{topic.topic}-{one.partition}": (
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.log_start_offset,
        )
        for topic in request.topics
        for one in topic.partitions
    }


def forgotten(request: FetchRequest) -> list[str]:
    return [f"{topic.topic}-{one}" for topic in request.forgotten_topics_data for one in topic.partitions]


# What is asked


@in_loop
async def test_a_log_is_asked_for_at_its_end_with_its_last_epoch(tmp_path: Path):
    async with scene(tmp_path) as it:
        partitions = [await it.partition((3, 2), (7, 1), name="t"), await it.partition(name="empty")]
        for partition in partitions:
            it.follow(partition, 9)
        request = await it.leader.until_asked(1)
        assert rows(request) == {"t-0": (9, 3, 7, 0), "empty-0": (9, 0, -1, 0)}
        assert request.replica_state == FetchRequest.ReplicaState(replica_id=ME, replica_epoch=BROKER_EPOCH)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (request.min_bytes, request.max_wait_ms) == (SETTINGS.min_bytes, SETTINGS.wait_max_ms)


@in_loop
async def test_in_a_session_only_what_has_changed_is_asked(tmp_path: Path):
    async with scene(tmp_path) as it:
        one, other = await it.partition(name="one"), await it.partition(name="other")
        it.follow(one, 9)
        it.follow(other, 9)
        await it.leader.until_asked(1)
        it.leader.answer((one, data_of(batch(0, 9))), (other, data_of()), session_id=5)
        request = await it.leader.until_asked(2)
        assert (request.session_id, request.session_epoch) == (5, 1)
        assert rows(request) == {"one-0": (9, 1, 9, 0)}
        it.fetchers.forget(other)
        it.leader.answer(session_id=5)
        request = await it.leader.until_asked(3)
        assert (request.session_epoch, rows(request), forgotten(request)) == (2, {}, ["other-0"])


@pytest.mark.parametrize("code", [None, 70, 71, 106])
@in_loop
async def test_when_the_session_is_over_everything_is_asked_again(tmp_path: Path, code: int | None):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2))
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of()), session_id=5)
        await it.leader.until_asked(2)
        if code is None:
            it.leader.lose()
        else:
            it.leader.answer(code=code)
        request = await it.leader.until_asked(3)
        assert (request.session_epoch, rows(request)) == (0, {"t-0": (9, 2, 3, 0)})


@in_loop
async def test_who_is_not_known_is_asked_later(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.partition()
        it.follow(partition, 1, leader=OTHER)
        await asyncio.sleep(0.005)
        assert not it.leader.asked
        it.follow(partition, 2)
        await it.leader.until_asked(1)


@in_loop
async def test_a_leader_that_is_gone_is_tried_without_listing_anything(tmp_path: Path):
    async with scene(tmp_path) as it:
        it.leader.refusals = 3
        partition = await it.followed()
        assert partition.asker is not None
        await it.leader.until_asked(1)
        assert it.leader.refusals == 0


@in_loop
async def test_nobody_is_asked_where_nobody_leads(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.partition()
        it.follow(partition, 1, leader=-1)
        await asyncio.sleep(0.005)
        assert not it.leader.asked


# What is answered


@in_loop
async def test_records_are_appended_and_committed_as_far_as_the_leader_says(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2))
        await it.leader.until_asked(1)
        answer = data_of(batch(2, 3), batch(3, 9, 2), high_watermark=4)
        it.leader.answer((partition, answer))
        request = await it.leader.until_asked(2)
        assert rows(request) == {"t-0": (9, 5, 9, 0)}
        assert partition.high_watermark == 4
        it.leader.answer((partition, data_of(high_watermark=100)))
        await it.leader.until_asked(3)
        assert partition.high_watermark == 5, "no further than the log"


@in_loop
async def test_a_batch_that_was_cut_short_is_left_for_the_next_time(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed()
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(batch(0, 9), batch(1, 9)[:-1])))
        assert rows(await it.leader.until_asked(2)) == {"t-0": (9, 1, 9, 0)}


@in_loop
async def test_what_the_leader_cannot_have_written_is_left_out(tmp_path: Path):
    """A record of an epoch that is still to come (KAFKA-18723)."""
    async with scene(tmp_path) as it:
        partition = await it.followed(leader_epoch=3)
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(batch(0, 3), batch(1, 4), batch(2, 3))))
        await it.leader.until_asked(2)
        assert partition.log.end_offset == 1


@in_loop
async def test_the_log_begins_where_the_leaders_does(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 5))
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(log_start_offset=4)))
        assert rows(await it.leader.until_asked(2)) == {"t-0": (9, 5, 3, 4)}
        assert (partition.log.start_offset, partition.high_watermark) == (4, 4)


@in_loop
async def test_an_empty_log_may_begin_within_a_batch(tmp_path: Path):
    """The leader's log begins in the middle of its first batch: records were deleted up to there."""
    async with scene(tmp_path) as it:
        partition = await it.followed()
        it.leader.offsets = {LATEST: 9, EARLIEST: 4}
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert rows(await it.leader.until_asked(2)) == {"t-0": (9, 4, -1, 4)}
        answer = data_of(batch(2, 1, 5), batch(7, 2, 2), high_watermark=9, log_start_offset=4)
        it.leader.answer((partition, answer))
        assert rows(await it.leader.until_asked(3)) == {"t-0": (9, 9, 2, 4)}
        assert (partition.log.start_offset, partition.high_watermark) == (4, 9)


# Where two logs part


@pytest.mark.parametrize(
    ("ours", "diverging", "end"),
    [
        ([(1, 5)], (1, 3), 3),  # the same epoch, of which the leader has less
        ([(1, 5)], (1, 9), 5),  # or more, which nobody asked about: nothing is cut
        ([(1, 3), (2, 4)], (1, 3), 3),  # an epoch that the leader does not know
        ([(1, 3), (2, 4)], (1, 2), 2),  # and less of the one before
        ([(1, 3), (4, 4)], (2, 5), 3),  # we do not know the leader's: as far as our last before it
        ([(1, 2), (3, 2), (5, 2), (7, 2)], (4, 3), 4),  # many gaps: the last common one may be earlier still
        ([(3, 4)], (1, 2), 0),  # nothing in common
        ([(3, 4)], (1, 0), 0),
    ],
)
@in_loop
async def test_what_the_leader_does_not_have_is_cut_off(
    tmp_path: Path, ours: list[tuple[int, int]], diverging: tuple[int, int], end: int
):
    async with scene(tmp_path) as it:
        partition = await it.followed(*ours)
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(diverging=diverging, high_watermark=99, log_start_offset=99)))
        request = await it.leader.until_asked(2)
        assert rows(request)["t-0"][1] == end
        assert partition.high_watermark == partition.log.start_offset == 0, (
            "of this answer nothing else counts"
        )


@in_loop
async def test_what_was_not_taken_in_is_told_again(tmp_path: Path):
    """In a session, a leader says once where its high watermark is."""
    async with scene(tmp_path) as it:
        partition, other = await it.partition((1, 3)), await it.partition(name="other")
        it.follow(partition, 9)
        it.follow(other, 9)
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(diverging=(1, 2), high_watermark=2)), session_id=5)
        request = await it.leader.until_asked(2)
        assert (request.session_epoch, rows(request), forgotten(request)) == (1, {}, ["t-0"])
        assert request.max_wait_ms == 0, "there is more to say"
        it.leader.answer(session_id=5)
        request = await it.leader.until_asked(3)
        assert (request.session_epoch, set(rows(request)), forgotten(request)) == (2, {"t-0"}, [])
        assert request.max_wait_ms == SETTINGS.wait_max_ms
        it.leader.answer((partition, data_of(high_watermark=2)), session_id=5)
        request = await it.leader.until_asked(4)
        assert (request.session_epoch, rows(request), partition.high_watermark) == (3, {}, 2)
        it.follow(partition, 10)
        it.leader.answer((partition, data_of(high_watermark=3)), session_id=5)
        request = await it.leader.until_asked(5)
        assert (request.session_epoch, rows(request), forgotten(request)) == (4, {}, ["t-0"])
        it.leader.answer(session_id=5)
        assert set(rows(await it.leader.until_asked(6))) == {"t-0"}


@in_loop
async def test_where_the_log_begins_is_told_whoever_moves_it(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition, other = await it.partition((9, 3)), await it.partition(name="other")
        it.follow(partition, 9)
        it.follow(other, 9)
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(high_watermark=3)), (other, data_of()), session_id=5)
        assert rows(await it.leader.until_asked(2)) == {}
        await partition.start_at(2)
        it.leader.answer(session_id=5)
        assert rows(await it.leader.until_asked(3)) == {"t-0": (9, 3, 9, 2)}
        it.leader.answer(session_id=5)
        assert rows(await it.leader.until_asked(4)) == {}


@in_loop
async def test_an_error_of_one_partition_is_not_a_matter_of_the_others(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition, other = await it.partition((9, 3)), await it.partition(name="other")
        it.follow(partition, 9)
        it.follow(other, 9)
        await it.leader.until_asked(1)
        wrong = data_of(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        it.leader.answer((partition, wrong), (other, data_of()), session_id=5)
        request = await it.leader.until_asked(2)
        assert (request.session_epoch, rows(request), forgotten(request)) == (1, {}, ["t-0"])
        await asyncio.sleep(2 * SETTINGS.backoff_ms / 1000)
        it.leader.answer(session_id=5)
        request = await it.leader.until_asked(3)
        assert (request.session_epoch, set(rows(request)), forgotten(request)) == (2, {"t-0"}, [])


@in_loop
async def test_logs_meet_after_several_steps(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((1, 2), (3, 2), (5, 2), (7, 2))
        await it.leader.until_asked(1)
        for number, (diverging, expected) in enumerate(
            [((6, 9), (6, 5)), ((4, 7), (4, 3)), ((2, 5), (2, 1))], start=2
        ):
            it.leader.answer((partition, data_of(diverging=diverging)))
            _, offset, last_epoch, _ = rows(await it.leader.until_asked(number))["t-0"]
            assert (offset, last_epoch) == expected
        it.leader.answer((partition, data_of(batch(2, 2), batch(3, 9))))
        assert rows(await it.leader.until_asked(5))["t-0"][1:3] == (4, 9)


# Outside of the leader's log


@pytest.mark.parametrize(
    ("latest", "earliest", "start", "end"),
    [
        (3, 0, 0, 3),  # an unclean election: the leader has less
        (50, 20, 20, 20),  # long away: what comes next in ours is gone
    ],
)
@in_loop
async def test_a_log_that_is_elsewhere_than_the_leaders(
    tmp_path: Path, latest: int, earliest: int, start: int, end: int
):
    async with scene(tmp_path) as it:
        partition = await it.followed((1, 5), high_watermark=4)
        it.leader.offsets = {LATEST: latest, EARLIEST: earliest}
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        request = await it.leader.until_asked(2)
        assert rows(request)["t-0"][1] == end
        assert (partition.log.start_offset, partition.log.end_offset) == (start, end)
        assert partition.high_watermark == end, "not beyond the end, nor before the start"


@in_loop
async def test_who_is_in_the_leaders_log_after_all_asks_again_later(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((1, 5))
        it.leader.offsets = {LATEST: 7, EARLIEST: 2}
        for times in (1, 2, 3):
            await it.leader.until_asked(times)
            it.leader.answer((partition, data_of(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert partition.log.end_offset == 5


@in_loop
async def test_a_leader_that_does_not_tell_is_asked_later(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((1, 5))
        it.leader.offsets_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        await it.leader.until_asked(2)
        assert partition.log.end_offset == 5


# What changes meanwhile


@pytest.mark.parametrize(
    "answer", [data_of(batch(2, 3)), data_of(diverging=(1, 0)), data_of(code=74)], ids=str
)
@in_loop
async def test_an_answer_for_an_epoch_that_is_over_is_thrown_away(tmp_path: Path, answer: PartitionData):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2), leader_epoch=3)
        other = await it.followed((3, 2), leader_epoch=3, name="other")
        await it.leader.until_asked(1)
        it.follow(partition, 4)
        it.leader.answer((partition, answer), (other, data_of()))
        assert rows(await it.leader.until_asked(2))["t-0"] == (4, 2, 3, 0)


@in_loop
async def test_an_answer_for_who_leads_now_is_thrown_away(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2), leader_epoch=3)
        await it.followed(leader_epoch=3, name="other")
        await it.leader.until_asked(1)
        it.fetchers.forget(partition)
        assert partition.lead(state(ME, 4))
        it.leader.answer((partition, data_of(batch(2, 3))))
        assert list(rows(await it.leader.until_asked(2))) == ["other-0"]
        assert partition.log.end_offset == 2


@pytest.mark.parametrize("what", [LATEST, EARLIEST])
@in_loop
async def test_who_is_given_up_while_it_asks_for_offsets_is_left_alone(tmp_path: Path, what: int):
    """It may lead by now, or be closed."""
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 5), leader_epoch=3)
        await it.followed(leader_epoch=3, name="other")
        it.leader.offsets = {LATEST: 2 if what == LATEST else 50, EARLIEST: 20}
        it.leader.may_tell_offsets.clear()
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        await turns()
        it.fetchers.forget(partition)
        assert partition.lead(state(ME, 4))
        it.leader.may_tell_offsets.set()
        await it.leader.until_asked(2)
        assert partition.log.end_offset == 5
        assert not it.offline


@in_loop
async def test_the_last_partition_takes_its_fetcher_with_it(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2), leader_epoch=3)
        await it.leader.until_asked(1)
        it.fetchers.forget(partition)
        it.leader.answer((partition, data_of(batch(2, 3))))
        await turns(20)
        assert len(it.leader.asked) == 1
        assert partition.log.end_offset == 2


# What goes wrong


@in_loop
async def test_who_is_fenced_waits_for_metadata(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition, other = await it.followed((3, 2)), await it.followed(name="other")
        await it.leader.until_asked(1)
        it.leader.answer((partition, data_of(code=ErrorCode.FENCED_LEADER_EPOCH)), (other, data_of()))
        assert list(rows(await it.leader.until_asked(2))) == ["other-0"]
        await asyncio.sleep(0.005)
        it.leader.answer((other, data_of()))
        assert list(rows(await it.leader.until_asked(3))) == ["other-0"]
        it.follow(partition, 10)
        it.leader.answer((other, data_of()))
        assert "t-0" in rows(await it.leader.until_asked(4))


@pytest.mark.parametrize(
    "answer",
    [
        *(
            data_of(code=code)
            for code in (
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.INCONSISTENT_TOPIC_ID,
                ErrorCode.KAFKA_STORAGE_ERROR,
                9999,
            )
        ),
        data_of(batch(2, 3)[:-1] + b"!"),  # its checksum is wrong
        data_of(batch(1, 3)),  # not what comes next
        data_of(batch(2, 2)),  # of an epoch before that of our last
        data_of(bytes(70)),  # no batch at all
    ],
    ids=lambda one: f"{one.error_code}-{len(one.records)}",
)
@in_loop
async def test_what_does_not_go_now_is_tried_again(tmp_path: Path, answer: PartitionData):
    async with scene(tmp_path) as it:
        partition = await it.followed((3, 2))
        await it.leader.until_asked(1)
        it.leader.answer((partition, answer))
        await it.leader.until_asked(2)
        it.leader.answer((partition, data_of(batch(2, 3))))
        await it.leader.until_asked(3)
        assert partition.log.end_offset == 3
        assert not it.offline


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 9999])
@in_loop
async def test_a_refused_request_is_tried_again(tmp_path: Path, code: int):
    async with scene(tmp_path) as it:
        await it.followed((3, 2))
        await it.leader.until_asked(1)
        it.leader.answer(code=code)
        await it.leader.until_asked(2)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("append_replicated", data_of(batch(2, 3))),
        ("truncate_to", data_of(diverging=(3, 1))),
        ("delete_until", data_of(log_start_offset=1)),
    ],
)
@in_loop
async def test_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, answer: PartitionData
):
    async with scene(tmp_path) as it:
        partition, other = await it.followed((3, 2)), await it.followed(name="other")
        error = StorageError("t-0", "it is gone")

        def fail(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(partition.log, method, fail)
        await it.leader.until_asked(1)
        it.leader.answer((partition, answer), (other, data_of()))
        assert list(rows(await it.leader.until_asked(2))) == ["other-0"]
        assert it.offline == [(partition, error)]


@in_loop
async def test_one_request_at_a_time_for_all_partitions_of_a_leader(tmp_path: Path):
    async with scene(tmp_path) as it:
        partitions = [await it.followed(name=name) for name in ("t", "u", "v")]
        await it.leader.until_asked(1)
        late = await it.followed(name="late")
        await turns()
        assert len(it.leader.asked) == 1
        it.leader.answer(*((one, data_of()) for one in partitions))
        assert set(rows(await it.leader.until_asked(2))) == {"t-0", "u-0", "v-0", "late-0"}
        assert late.log.end_offset == 0
