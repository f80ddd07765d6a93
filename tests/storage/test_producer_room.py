"""How many producers are remembered: the limits of a partition and of a node, and who is forgotten."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from failing_files import FailingFiles
from hypothesis import given
from hypothesis import strategies as st
from partition_logs import (
    TOPIC_ID,
    a_marker,
    a_produced,
    check_producers,
    opened_partition,
    produce,
    replayed,
)
from stored_batches import FILES

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.protocol.batch import HEADER_BYTES, BatchHeader, read_header, stamp
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage import partition_producers
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import DamagedBatchError, PartitionLog
from quorate.storage.producer_room import ProducerRoom
from quorate.storage.producer_snapshots import (
    encode_entries,
    encode_snapshot,
    load_snapshot,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from quorate.storage.producer_states import ProducerStates

ONE_SEGMENT = LogConfig()


def header_of(buffer: bytearray, base_offset: int) -> BatchHeader:
    stamp(buffer, 0, base_offset, 0)
    return read_header(buffer)


def wrote(
    states: ProducerStates, *producers: int, first_offset: int = 0, in_transaction: bool = False
) -> None:
    """Each producer writes a first batch."""
    for offset, producer_id in enumerate(producers, first_offset):
        states.update(header_of(a_produced(producer_id, 0, is_transactional=in_transaction), offset))


def ids(states: ProducerStates) -> set[int]:
    return {state.producer_id for state in states}


# Of a partition


def test_who_wrote_nothing_for_longest_is_forgotten_first() -> None:
    states = ProducerStates(ProducerRoom(partition_max=3))
    wrote(states, 1, 2, 3)
    states.update(header_of(a_produced(1, 1), 3))
    wrote(states, 4, first_offset=4)
    assert ids(states) == {1, 3, 4}


def test_time_stamps_do_not_say_who_wrote_last() -> None:
    states = ProducerStates(ProducerRoom(partition_max=2))
    states.update(header_of(a_produced(1, 0, timestamp=1 << 50), 0))
    states.update(header_of(a_produced(2, 0, timestamp=0), 1))
    wrote(states, 3, first_offset=2)
    assert ids(states) == {2, 3}


def test_some_are_forgotten_at_once_so_that_it_need_not_be_done_for_each() -> None:
    states = ProducerStates(ProducerRoom(partition_max=160))
    wrote(states, *range(161))
    assert ids(states) == set(range(11, 161))


def test_a_producer_that_was_forgotten_may_go_on_with_any_number_as_one_that_expired() -> None:
    states = ProducerStates(ProducerRoom(partition_max=1))
    wrote(states, 1, 2)
    assert states.check(read_header(a_produced(1, 0))) is None
    assert states.check(read_header(a_produced(1, 17))) is None
    assert states.check(read_header(a_produced(1, 17, epoch=5))) is None
    with pytest.raises(ApiError) as refused:
        states.check(read_header(a_produced(2, 17)))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    states = ProducerStates(ProducerRoom(partition_max=2, node_max=2))
    wrote(states, 1, 2, 3, in_transaction=True)
    wrote(states, *range(4, 20), first_offset=3)
    assert ids(states) >= {1, 2, 3}
    assert len(states) <= 4
    assert states.first_unstable_offset == 0
    marker = a_marker(1, is_abort=False)
    states.take(header_of(marker, 30), marker)
    states.replicated_to(31)
    assert states.first_unstable_offset == 1
    wrote(states, 40, first_offset=40)
    assert 1 not in ids(states)


@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.booleans()), max_size=80),
)
def test_neither_a_partition_nor_a_node_has_more_than_it_may(
    partition_max: int, node_max: int, events: list[tuple[int, int, bool]]
) -> None:
    room = ProducerRoom(partition_max, node_max)
    partitions = [ProducerStates(room) for _ in range(4)]
    for offset, (number, producer_id, in_transaction) in enumerate(events):
        states = partitions[number]
        state = states.of(producer_id)
        sequence = 0 if state is None else state.last_sequence + 1
        states.update(header_of(a_produced(producer_id, sequence, is_transactional=in_transaction), offset))
        assert producer_id in ids(states)
        open_here = [len(one.open_transactions) for one in partitions]
        for one, count in zip(partitions, open_here, strict=True):
            assert len(one) <= max(partition_max, count + 1)
            assert ids(one) >= {producer for _, producer in one.open_transactions}
        assert sum(map(len, partitions)) <= max(node_max, sum(open_here) + 1)


# Of a node


def test_a_node_forgets_those_who_wrote_nothing_for_longest_in_all_partitions() -> None:
    room = ProducerRoom(node_max=4)
    one, other = ProducerStates(room), ProducerStates(room)
    wrote(one, 1, 2)
    wrote(other, 3, 4)
    one.update(header_of(a_produced(1, 1), 2))
    wrote(other, 5, first_offset=2)
    assert (ids(one), ids(other)) == ({1}, {3, 4, 5})


def test_what_has_expired_or_is_closed_leaves_room_for_others() -> None:
    room = ProducerRoom(node_max=4)
    one, other, third = (ProducerStates(room) for _ in range(3))
    wrote(one, 1, 2)
    wrote(other, 3, 4)
    one.expire(1 << 40, 1)
    other.leave()
    wrote(third, *range(10, 14))
    assert len(third) == 4
    assert len(room) == 4


def test_logs_that_are_closed_or_cleared_count_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        room = ProducerRoom()
        first, second = [await opened(tmp_path / name, room) for name in ("a", "b")]
        for log in (first, second):
            for producer_id in range(5):
                produce(log, a_produced(producer_id, 0))
        assert len(room) == 10
        await second.restart_at(100, 0)
        assert len(room) == 5
        await first.close()
        assert len(room) == 0
        again = await opened(tmp_path / "a", room)
        assert len(room) == 5
        await again.truncate_to(2)
        assert len(room) == 2
        again.abandon()
        assert len(room) == 0
        second.abandon()

    asyncio.run(scenario())


def test_a_log_that_cannot_be_opened_leaves_no_producers_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        room = ProducerRoom()
        log = await opened(tmp_path, room)
        for producer_id in range(5):
            produce(log, a_produced(producer_id, 0, is_transactional=producer_id == 4))
        await log.close()
        log = await opened(tmp_path, room)
        log.append_control(a_marker(4, is_abort=False), 0, 0)
        await log.close()
        Path(snapshot_path(str(tmp_path), 6)).unlink()  # so that the end of the transaction has to be read
        (path,) = tmp_path.glob("*.log")
        record_bytes = len(a_marker(4, is_abort=False)) - HEADER_BYTES
        path.write_bytes(path.read_bytes()[:-record_bytes] + b"\xff" * record_bytes)
        with pytest.raises(DamagedBatchError):
            await opened(tmp_path, room)
        assert len(room) == 0

    asyncio.run(scenario())


def test_a_snapshot_of_more_producers_than_there_is_room_for_gives_the_last_of_the_log(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path, ProducerRoom())
        for producer_id in range(20):
            produce(log, a_produced(producer_id, 0))
        await log.close()
        small = await opened(tmp_path, ProducerRoom(partition_max=4))
        assert ids(small.producers) >= {18, 19}
        assert len(small.producers) <= 4
        small.abandon()

    asyncio.run(scenario())


async def opened(directory: Path, room: ProducerRoom) -> PartitionLog:
    return await PartitionLog.open(
        FILES, str(directory), ONE_SEGMENT, topic_id=TOPIC_ID, now_ms=0, recovery_point=None, room=room
    )


# Snapshots of many producers


@pytest.fixture
def bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even few producers are too many to save at once."""
    monkeypatch.setattr(partition_producers, "_SAVED_AT_ONCE", 2)


def rolled(log: PartitionLog) -> None:
    log._log.roll(0)


@pytest.mark.usefixtures("bit_by_bit")
def test_a_snapshot_says_what_was_known_where_it_was_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, config=ONE_SEGMENT)
        for producer_id in range(9):
            produce(log, a_produced(producer_id, 0))
        produce(log, a_produced(20, 0, is_transactional=True))
        known, _ = replayed(log)
        rolled(log)
        assert snapshot_offsets(FILES, str(tmp_path)) == []
        produce(log, a_produced(3, 1))
        produce(log, a_produced(20, 1, is_transactional=True))
        produce(log, a_produced(4, 0, epoch=1))
        produce(log, a_produced(30, 0))
        marker = a_marker(20, is_abort=True)
        log.append_control(marker, 0, 0)
        log.producers.expire(1 << 40, 1)
        await log.flush()
        assert snapshot_offsets(FILES, str(tmp_path)) == [10]
        assert sorted(load_snapshot(FILES, str(tmp_path), 10).entries()) == sorted(known.entries())
        log.abandon()

    asyncio.run(scenario())


@pytest.mark.usefixtures("bit_by_bit")
@pytest.mark.parametrize("turns", range(12))
def test_a_snapshot_that_was_not_finished_is_not_missed(tmp_path: Path, turns: int) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, config=ONE_SEGMENT)
        for producer_id in range(9):
            produce(log, a_produced(producer_id, 0))
        await log.flush()
        rolled(log)
        produce(log, a_produced(3, 1))
        rolled(log)
        produce(log, a_produced(30, 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        log.abandon()  # as far as it has come
        again = await opened_partition(tmp_path, config=ONE_SEGMENT, recovery_point=9)
        check_producers(again)
        assert ids(again.producers) == {*range(9), 30}
        again.abandon()

    asyncio.run(scenario())


def test_what_a_crash_has_left_of_a_snapshot_is_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, config=ONE_SEGMENT)
        produce(log, a_produced(1, 0))
        await log.flush()
        log.abandon()
        left = tmp_path / f"{1:020}.snapshot.tmp"
        left.write_bytes(encode_snapshot([encode_entries(log.producers)])[:-3])
        again = await opened_partition(tmp_path, config=ONE_SEGMENT, recovery_point=1)
        assert not left.exists()
        check_producers(again)
        again.abandon()

    asyncio.run(scenario())


@pytest.mark.usefixtures("bit_by_bit")
def test_a_cut_while_a_snapshot_is_being_written_leaves_none_of_what_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, config=ONE_SEGMENT)
        for producer_id in range(9):
            produce(log, a_produced(producer_id, 0))
        rolled(log)
        await log.truncate_to(5)
        assert snapshot_offsets(FILES, str(tmp_path)) == []
        check_producers(log)
        produce(log, a_produced(77, 0))
        await log.close()
        again = await opened_partition(tmp_path, config=ONE_SEGMENT, recovery_point=None)
        check_producers(again)
        again.abandon()

    asyncio.run(scenario())


@pytest.mark.usefixtures("bit_by_bit")
def test_a_snapshot_for_which_there_is_no_room_on_the_disk_is_done_without(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, config=ONE_SEGMENT, files=files)
        for producer_id in range(9):
            produce(log, a_produced(producer_id, 0))
        files.broken = {("append", ".snapshot.tmp")}
        rolled(log)
        produce(log, a_produced(3, 1))
        await log.flush()
        assert not list(tmp_path.glob("*.snapshot*"))
        files.broken = set()
        log.abandon()
        again = await opened_partition(tmp_path, config=ONE_SEGMENT, recovery_point=10)
        check_producers(again)
        await again.close()
        assert snapshot_offsets(FILES, str(tmp_path)) == [10]

    asyncio.run(scenario())


def test_a_snapshot_that_was_written_again_replaces_the_one_before(tmp_path: Path) -> None:
    states = ProducerStates()
    wrote(states, 1, 2)
    for parts in ([encode_entries(states)], []):
        write_snapshot(FILES, str(tmp_path), 2, parts)
        assert Path(snapshot_path(str(tmp_path), 2)).read_bytes() == encode_snapshot(parts)


@pytest.mark.usefixtures("bit_by_bit")
@pytest.mark.parametrize("seed", range(20))
def test_producers_are_what_the_log_says_whenever_the_power_fails(seed: int) -> None:
    source = random.Random(seed)
    flushed = [0]  # as a checkpoint would have it

    async def live(host: Host) -> None:
        config = LogConfig(segment_bytes=1500)
        log = await PartitionLog.open(
            host.files, "t-0", config, topic_id=TOPIC_ID, now_ms=0, recovery_point=flushed[0]
        )
        check_producers(log)
        while True:
            for _ in range(source.randrange(12)):
                producer_id = source.randrange(9)
                state = log.producers.of(producer_id)
                produce(log, a_produced(producer_id, 0 if state is None else state.last_sequence + 1))
            await asyncio.sleep(0)
            if not source.randrange(3):
                flushed[0] = await log.flush()
            if not source.randrange(9):
                offset = source.randrange(log.start_offset, log.end_offset + 1)
                flushed[0] = min(flushed[0], offset)
                await log.truncate_to(offset)

    with World(seed) as world:
        world.add_machine("n1")
        for _ in range(8):
            world.start("n1", live)
            world.crash_at_operation("n1", source.randint(1, 120), with_power=source.random() < 0.5)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
            world.check()
            assert not world.is_running("n1")
