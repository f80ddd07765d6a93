"""Replication within its throttle, on both sides; whoever is in sync is never held up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, turns, wanted
from test_follower_fetches import batch, data_of, scene

from quorate.broker.throttled_replication import ReplicationThrottle, throttled_partitions

BATCH_BYTES = 10_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("*", [0, 1, 2, 3]),
        ("0:1", [0]),
        (" 0:1 , 1:2, 3:1 ", [0, 3]),
        ("0:11,1:12", []),
        ("0:1:2,x,2:1,-3:1,", [2]),  # what others have written that makes no sense is passed over
    ],
)
def test_which_partitions_are_listed(text: str, expected: list[int]):
    listed = throttled_partitions(text, 1)
    assert [one for one in range(4) if one in listed] == expected
    assert bool(listed) == bool(expected)


def test_a_throttle_is_open_until_it_is_set():
    throttle = ReplicationThrottle()
    throttle.record(10**12, 0)
    assert not throttle.is_exceeded(0)
    throttle.limit = 10**6
    assert throttle.is_exceeded(0)
    assert throttle.delay_ms(0) > 0


async def a_leader(tmp_path: Path, listed: str, isr: tuple[int, ...]) -> Serving:
    serving = Serving(tmp_path)
    await serving.topic(
        "t", replicas=(1, 2), isr=isr, leader_replication_throttled_replicas=listed, min_insync_replicas=1
    )
    for _ in range(3):
        await serving.ask(produce(("t", 0, a_batch(value_bytes=BATCH_BYTES))), 9)
    serving.broker.leader_throttle.limit = 1000
    return serving


def follow(offset: int, max_wait_ms: int = 0):
    place = wanted("t", offset=offset, max_bytes=1, log_start_offset=0)
    return fetch(place, version=12, replica_id=2, max_wait_ms=max_wait_ms)


@pytest.mark.parametrize(
    ("listed", "isr", "is_held_up"),
    [
        ("0:1", (1,), True),
        ("*", (1,), True),
        ("0:2", (1,), False),  # a replica of another broker
        ("1:1", (1,), False),
        ("", (1,), False),
        ("*", (1, 2), False),  # in sync
    ],
)
@in_loop
async def test_what_a_leader_gives(tmp_path: Path, listed: str, isr: tuple[int, ...], is_held_up: bool):
    serving = await a_leader(tmp_path, listed, isr)
    first = await serving.ask(follow(0), 12)
    assert offsets_in(first.responses[0].partitions[0].records) == [0], "there was nothing before"
    second = await serving.ask(follow(1), 12)
    (said,) = second.responses[0].partitions
    assert (said.error_code, offsets_in(said.records)) == (0, [] if is_held_up else [1])
    assert serving.broker.leader_throttle.held_up == is_held_up
    await serving.close()


@in_loop
async def test_what_those_in_sync_get_counts(tmp_path: Path):
    serving = await a_leader(tmp_path, "*", (1, 2))
    await serving.ask(follow(0), 12)
    assert serving.broker.leader_throttle.total_bytes > BATCH_BYTES
    await serving.close()


@in_loop
async def test_a_follower_that_is_held_up_waits_and_gets_more_later(tmp_path: Path):
    serving = await a_leader(tmp_path, "*", (1,))
    await serving.ask(follow(0), 12)
    parked = serving.park(follow(1, max_wait_ms=60_000), 12)
    await serving.ask(produce(("t", 0, a_batch())), 9)
    await turns()
    assert not parked.done(), "more records are no reason"
    serving.now_ms += 10_500
    await serving.ask(produce(("t", 0, a_batch())), 9)
    answer = await parked
    assert offsets_in(answer.responses[0].partitions[0].records) == [1]
    await serving.close()


@in_loop
async def test_consumers_are_not_held_up(tmp_path: Path):
    serving = await a_leader(tmp_path, "*", (1,))
    await serving.ask(follow(0), 12)
    answer = await serving.ask(fetch(wanted("t"), version=12), 12)
    assert offsets_in(answer.responses[0].partitions[0].records) == [0, 1, 2]
    await serving.close()


# What a follower takes


@in_loop
async def test_a_follower_asks_for_no_more_than_it_may_take(tmp_path: Path):
    async with scene(tmp_path) as it:
        throttle = it.fetchers.throttle
        held_up = await it.followed(partition_id=0)
        free = await it.followed(name="free", partition_id=1)
        held_up.configure(replace(held_up.config, throttled_as_follower=throttled_partitions("0:1", 1)))
        throttle.limit = 1
        await it.leader.until_asked(1)
        it.leader.answer(
            (held_up, data_of(batch(0, 9), high_watermark=5)),
            (free, data_of(batch(0, 9), partition_id=1, high_watermark=5)),
        )
        second = await it.leader.until_asked(2)
        assert [topic.topic_id for topic in second.topics] == [free.key.topic_id]
        assert throttle.held_up > 0
        assert throttle.total_bytes == len(batch(0, 9)), "only what is listed counts"
        throttle.limit = 1 << 62
        it.leader.answer((free, data_of(batch(1, 9), partition_id=1, high_watermark=5)))
        while all(
            held_up.key.topic_id not in [one.topic_id for one in r.topics] for r in it.leader.asked[2:]
        ):
            it.leader.answer((free, data_of(partition_id=1, high_watermark=5)))
            await asyncio.sleep(0.001)


@in_loop
async def test_a_follower_that_is_in_sync_is_never_held_up(tmp_path: Path):
    async with scene(tmp_path) as it:
        throttle = it.fetchers.throttle
        partition = await it.followed()
        partition.configure(replace(partition.config, throttled_as_follower=throttled_partitions("*", 1)))
        throttle.limit = 1
        for offset in range(5):
            await it.leader.until_asked(offset + 1)
            it.leader.answer((partition, data_of(batch(offset, 9), high_watermark=offset + 1)))
        await it.leader.until_asked(6)
        assert throttle.is_exceeded(asyncio.get_running_loop().time() * 1000)
        assert throttle.held_up == 0
