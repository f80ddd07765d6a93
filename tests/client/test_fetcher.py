"""Reading: positions, resets, truncation, and what is never handed over."""

import asyncio

import pytest
from model_cluster import TOPIC, ModelBroker, ModelCluster
from worlds import BACKOFF, run_client

from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.fetcher import EARLIEST, LATEST, Fetcher, FetcherSettings, Reset
from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import Record, build
from quorate.protocol.errors import ApiError

AT = TopicPartition(TOPIC, 0)


def run_fetcher(model: ModelCluster, main, disturb=lambda _world: None, **settings) -> None:
    async def whole(cluster: Cluster, _host) -> None:
        async with Fetcher(cluster, FetcherSettings(backoff=BACKOFF, **settings)) as fetcher:
            await main(fetcher)

    run_client(model, whole, disturb=disturb)


def filled(brokers: int = 1, partitions: int = 1, batches: int = 10) -> ModelCluster:
    """Every partition has batches of two records."""
    model = ModelCluster(brokers, partitions)
    for log in model.logs.values():
        write(log, batches)
    return model


def write(log, batches: int = 1) -> None:
    for _ in range(batches):
        offset = log.end_offset
        log.write(build([Record(i, 0, None, b"%d" % (offset + i)) for i in range(2)]))


async def read(fetcher: Fetcher, count: int) -> dict[int, list[int]]:
    """The offsets of that many records, by partition."""
    found: dict[int, list[int]] = {}
    while sum(map(len, found.values())) < count:
        for part in await fetcher.fetch():
            for record in part.records():
                assert record.value == b"%d" % record.offset
                found.setdefault(part.partition, []).append(record.offset)
    return found


def test_from_the_beginning_the_middle_and_the_end():
    model = filled(3, 3)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({(TOPIC, 0): EARLIEST, (TOPIC, 1): 13, (TOPIC, 2): LATEST})
        found = await read(fetcher, 27)
        assert found == {0: list(range(20)), 1: list(range(13, 20))}
        assert await fetcher.fetch(timeout_ms=100) == []
        write(model.log(2))
        assert await read(fetcher, 2) == {2: [20, 21]}
        assert [fetcher.position((TOPIC, index)) for index in range(3)] == [20, 20, 22]
        assert fetcher.high_watermark((TOPIC, 2)) == 22

    run_fetcher(model, main)


def test_a_long_poll_ends_when_records_come():
    model = filled(batches=0)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign([AT])
        waiting = asyncio.ensure_future(fetcher.fetch())
        await asyncio.sleep(20)
        assert not waiting.done()
        write(model.log())
        (part,) = await waiting
        assert [one.offset for one in part.records()] == [0, 1]
        assert (part.topic, part.partition, part.high_watermark) == (TOPIC, 0, 2)

    run_fetcher(model, main)


def test_positions_outlive_a_new_assignment_unless_told_otherwise():
    model = filled(1, 2)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 4})
        await read(fetcher, 16)
        fetcher.assign({AT: None, (TOPIC, 1): 18})
        assert await read(fetcher, 2) == {1: [18, 19]}
        fetcher.seek(AT, 17)
        assert await read(fetcher, 3) == {0: [17, 18, 19]}
        fetcher.assign([(TOPIC, 1)])
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            fetcher.position(AT)
        with pytest.raises(ValueError, match="expected 0 or more, EARLIEST or LATEST"):
            fetcher.assign({AT: -7})

    run_fetcher(model, main)


def test_what_was_buffered_before_a_seek_is_not_handed_over():
    model = filled()

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 0})
        await asyncio.sleep(1)
        assert fetcher._buffered
        fetcher.seek(AT, 15)
        assert await read(fetcher, 5) == {0: [15, 16, 17, 18, 19]}
        assert fetcher._buffered_bytes == 0

    run_fetcher(model, main)


def test_paused_partitions_keep_what_they_have():
    model = filled(1, 2)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign([AT, (TOPIC, 1)])
        fetcher.pause(AT)
        assert await read(fetcher, 20) == {1: list(range(20))}
        assert await fetcher.fetch(timeout_ms=1000) == []
        fetcher.resume(AT)
        fetcher.pause((TOPIC, 1))
        assert await read(fetcher, 20) == {0: list(range(20))}

    run_fetcher(model, main)


def test_no_more_is_asked_for_than_there_is_room():
    model = filled(1, 4)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign(list(model.logs))
        await asyncio.sleep(30)
        assert len(fetcher._buffered) == 4  # one response each, and no second one
        held = fetcher._buffered_bytes
        await asyncio.sleep(30)
        assert fetcher._buffered_bytes == held
        await read(fetcher, 80)
        assert fetcher._buffered_bytes == 0

    run_fetcher(model, main, buffer_bytes_max=1)


def test_leaders_move_while_somebody_reads():
    model = filled(3, 3, batches=0)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign(dict.fromkeys(model.logs, EARLIEST))
        expected = 0
        for turn in range(20):
            for at, log in model.logs.items():
                write(log)
                if turn % 3 == at.partition:
                    model.move(at)
            expected += 6
            await read(fetcher, 6)
        assert [fetcher.position(at) for at in model.logs] == [40, 40, 40]

    run_fetcher(model, main)


def unclean_election(model: ModelCluster, end: int) -> None:
    """The new leader has less, and others write to it."""
    model.log().truncate(end)
    model.move(AT)
    write(model.log(), 5)


def test_a_log_that_was_cut_short_is_read_again_from_the_cut():
    model = filled(2)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 0})
        await read(fetcher, 20)
        unclean_election(model, 14)
        assert await read(fetcher, 10) == {0: list(range(14, 24))}

    run_fetcher(model, main)


def test_or_its_reader_is_told():
    model = filled(2)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 0})
        await read(fetcher, 20)
        unclean_election(model, 14)
        for _ in range(2):
            with pytest.raises(
                ApiError, match="t-0 was read up to 20 in epoch 0, but that epoch ended at 14"
            ):
                await fetcher.fetch()
        fetcher.seek(AT, 14)
        assert await read(fetcher, 10) == {0: list(range(14, 24))}

    run_fetcher(model, main, reset=Reset.ERROR)


@pytest.mark.parametrize(("reset", "begins"), [(Reset.EARLIEST, 6), (Reset.LATEST, 20)])
def test_a_position_that_is_gone(reset, begins):
    model = filled()
    model.log().start_offset = 6

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 2})
        await fetcher.fetch(timeout_ms=2000)
        if begins == 20:
            write(model.log())
            assert await read(fetcher, 2) == {0: [20, 21]}
        else:
            await read(fetcher, 1)
        assert fetcher.position(AT) > begins

    run_fetcher(model, main, reset=reset)


def test_or_it_is_an_error():
    model = filled()

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 100})
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE: t-0 has no offset 100"):
            await fetcher.fetch()
        fetcher.assign([AT])
        assert fetcher.position(AT) == 100  # it goes on, with its error
        fetcher.assign([])
        fetcher.assign([AT])
        with pytest.raises(ApiError, match="t-0 has no position, and `reset` is ERROR"):
            await fetcher.fetch()

    run_fetcher(model, main, reset=Reset.ERROR)


def test_topics_and_partitions_that_do_not_exist():
    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({("u", 0): EARLIEST})
        with pytest.raises(ApiError, match="topic 'u' does not exist"):
            await fetcher.fetch()
        fetcher.assign({(TOPIC, 5): EARLIEST})
        with pytest.raises(ApiError, match="'t' has 1 partitions, and no 5"):
            await fetcher.fetch()

    run_fetcher(filled(), main)


def test_damaged_records_are_reported_and_not_handed_over():
    model = filled()
    model.log().batches[0][-1] ^= 1

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: 0})
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE: t-0 from offset 0: batch at offset 0"):
            await fetcher.fetch()
        fetcher.seek(AT, 2)
        assert await read(fetcher, 18) == {0: list(range(2, 20))}

    run_fetcher(model, main)


def test_a_broker_that_restarts_has_forgotten_the_session():
    model = filled(1, 2)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign(list(model.logs))
        seen = 0
        while seen < 60:
            for part in await fetcher.fetch(timeout_ms=50):
                seen += len(list(part.records()))
            for log in model.logs.values():
                if log.end_offset < 30:
                    write(log)

    def disturb(world) -> None:
        for i in range(4):
            world.call_at(world.now_ns + (30 + 150 * i) * 1_000_000, world.kill, "b1")
            world.call_at(world.now_ns + (60 + 150 * i) * 1_000_000, world.restart, "b1")

    run_fetcher(model, main, disturb=disturb)


def test_sessions_list_only_what_changed(monkeypatch):
    listed = []
    original = ModelBroker.fetch

    async def fetch(self, context, header, request):
        listed.append((request.session_epoch, sum(len(topic.partitions) for topic in request.topics)))
        return await original(self, context, header, request)

    monkeypatch.setattr(ModelBroker, "fetch", fetch)
    model = filled(1, 50, batches=0)

    async def main(fetcher: Fetcher) -> None:
        fetcher.assign(dict.fromkeys(model.logs, 0))
        await fetcher.fetch(timeout_ms=2000)
        write(model.log(7))
        await read(fetcher, 2)
        await fetcher.fetch(timeout_ms=2000)

    run_fetcher(model, main)
    assert listed[0] == (0, 50)
    assert [epoch for epoch, _ in listed] == list(range(len(listed)))
    assert sum(count for _, count in listed[1:]) <= 2  # partition 7, when it had been read


def test_closed_while_somebody_waits():
    async def main(fetcher: Fetcher) -> None:
        fetcher.assign({AT: LATEST})
        waiting = asyncio.ensure_future(fetcher.fetch())
        await asyncio.sleep(1)
        await fetcher.close()
        with pytest.raises(Unavailable, match="closed"):
            await waiting

    run_fetcher(filled(), main)
