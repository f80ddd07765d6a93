"""Consumers read from a replica in their rack: which one they are sent to, and what it gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, topic_id, turns, wanted

from quorate.broker.leadership import Follower, Leadership
from quorate.broker.replica_selection import NO_PREFERENCE, RACK_AWARE, closest_replica
from quorate.metadata import records as r
from quorate.metadata.image import ClusterImage
from quorate.protocol.errors import ErrorCode

LISTENER = "PLAINTEXT"
RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def register(broker_id: int, rack: str | None, *, fenced: bool = False, listener: str = LISTENER):
    endpoint = r.RegisterBrokerRecord.BrokerEndpoint(
        name=listener, host=f"host-{broker_id}", port=9000 + broker_id, security_protocol=0
    )
    return r.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=topic_id(f"run-{broker_id}"),
        broker_epoch=100 + broker_id,
        end_points=[endpoint],
        features=[],
        rack=rack,
        fenced=fenced,
        log_dirs=[topic_id("directory")],
    )


def image_of(*records) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def led_by_1(isr=(1, 2, 3, 4), **offsets: int) -> Leadership:
    """All followers have offsets 10 to 100, unless they are named: `_2=50`."""
    leading = Leadership(
        broker_id=1,
        leader_epoch=0,
        partition_epoch=0,
        replicas=(1, 2, 3, 4),
        isr=isr,
        epoch_start_offset=0,
        high_watermark=100,
    )
    for one in (2, 3, 4):
        end_offset = offsets.get(f"_{one}", 100)
        leading.followers[one] = Follower(end_offset=end_offset, log_start_offset=10, caught_up_ms=one)
    return leading


IMAGE = image_of(*(register(one, rack) for one, rack in RACKS.items()))


@pytest.mark.parametrize(
    ("why", "leading", "rack", "offset", "expected"),
    [
        ("no rack is named", led_by_1(), "", 50, NO_PREFERENCE),
        ("the leader is there", led_by_1(), "a", 50, NO_PREFERENCE),
        ("nobody is there", led_by_1(), "x", 50, NO_PREFERENCE),
        ("one is there", led_by_1(), "c", 50, 4),
        ("of two the one that is furthest", led_by_1(_3=99), "b", 50, 2),
        ("of equals the one that caught up last", led_by_1(), "b", 50, 3),
        ("only those in sync", led_by_1(isr=(1, 2)), "b", 50, 2),
        ("nobody there is in sync", led_by_1(isr=(1, 4)), "b", 50, NO_PREFERENCE),
        ("it has the offset", led_by_1(_4=50), "c", 50, 4),
        ("it has not got so far", led_by_1(_4=49), "c", 50, NO_PREFERENCE),
        ("it begins later", led_by_1(), "c", 9, NO_PREFERENCE),
        ("it has not been heard of", led_by_1(_4=-1), "c", 10, NO_PREFERENCE),
    ],
)
def test_the_closest_replica(why, leading, rack, offset, expected):
    assert closest_replica(leading, IMAGE, LISTENER, rack, offset) == expected, why


def test_a_replica_that_cannot_be_reached_is_not_chosen():
    others = [register(one, RACKS[one]) for one in (1, 2, 3)]
    fenced = image_of(*others, register(4, "c", fenced=True))
    elsewhere = image_of(*others, register(4, "c", listener="INSIDE"))
    for image in (fenced, elsewhere, image_of(*others)):
        assert closest_replica(led_by_1(), image, LISTENER, "c", 50) == NO_PREFERENCE


# Answers


async def a_leader(tmp_path: Path, selector: str = RACK_AWARE) -> Serving:
    """Broker 1 in rack a leads, 2 in rack b follows and has offsets 0 and 1 of three."""
    serving = Serving(tmp_path, replica_selector_class=selector)
    for one in (1, 2, 3):
        serving.apply(register(one, RACKS[one]))
    await serving.topic("t", replicas=(1, 2))
    for _ in range(3):
        await serving.ask(produce(("t", 0, a_batch())), 9)
    for offset in (0, 2):
        await serving.ask(fetch(wanted("t", offset=offset, log_start_offset=0), version=12, replica_id=2), 12)
    return serving


def in_rack(rack: str, *partitions, version: int = 12, **about):
    request = fetch(*partitions, version=version, **about)
    request.rack_id = rack
    return request


@pytest.mark.parametrize("version", [11, 12, 17])
@in_loop
async def test_the_leader_sends_a_consumer_to_its_rack_at_once(tmp_path: Path, version: int):
    serving = await a_leader(tmp_path)
    answer = await serving.ask(
        in_rack("b", wanted("t", offset=1), version=version, max_wait_ms=60_000), version
    )
    (said,) = answer.responses[0].partitions
    assert (said.error_code, said.preferred_read_replica, bytes(said.records)) == (0, 2, b"")
    assert said.high_watermark == 2
    await serving.close()


@pytest.mark.parametrize(
    ("selector", "rack", "offset", "version"),
    [
        ("", "b", 0, 12),
        (RACK_AWARE, "", 0, 12),
        (RACK_AWARE, "a", 0, 12),
        (RACK_AWARE, "b", 0, 10),
    ],
)
@in_loop
async def test_others_read_from_the_leader(
    tmp_path: Path, selector: str, rack: str, offset: int, version: int
):
    serving = await a_leader(tmp_path, selector)
    answer = await serving.ask(in_rack(rack, wanted("t", offset=offset), version=version), version)
    (said,) = answer.responses[0].partitions
    assert said.preferred_read_replica == NO_PREFERENCE
    assert offsets_in(said.records) == [0, 1]
    await serving.close()


@in_loop
async def test_a_follower_that_is_behind_is_not_named(tmp_path: Path):
    serving = await a_leader(tmp_path)
    answer = await serving.ask(in_rack("b", wanted("t", offset=3)), 12)
    (said,) = answer.responses[0].partitions
    assert (said.error_code, said.preferred_read_replica) == (0, NO_PREFERENCE)
    await serving.close()


@in_loop
async def test_a_session_hears_of_it_every_time(tmp_path: Path):
    serving = await a_leader(tmp_path)
    opened = await serving.ask(in_rack("b", wanted("t", offset=1), session=(0, 0)), 12)
    again = await serving.ask(in_rack("b", session=(opened.session_id, 1), max_wait_ms=60_000), 12)
    assert again.responses[0].partitions[0].preferred_read_replica == 2
    await serving.close()


# Followers


async def a_follower(tmp_path: Path) -> Serving:
    """Broker 1 follows 2; it has offsets 0 to 2, and knows that 0 and 1 are committed."""
    serving = Serving(tmp_path, replica_selector_class=RACK_AWARE)
    await serving.topic("t", replicas=(2, 1), leader=2)
    data = bytearray()
    for offset in range(3):
        batch = a_batch()
        batch[0:8] = offset.to_bytes(8, "big")
        batch[12:16] = (0).to_bytes(4, "big")
        data += batch
    serving.partition("t").append_fetched(0, 0, memoryview(data), 2)
    return serving


@in_loop
async def test_a_follower_gives_what_it_knows_to_be_committed(tmp_path: Path):
    serving = await a_follower(tmp_path)
    answer = await serving.ask(in_rack("a", wanted("t", offset=0)), 12)
    (said,) = answer.responses[0].partitions
    assert (said.error_code, said.preferred_read_replica, said.high_watermark) == (0, NO_PREFERENCE, 2)
    assert offsets_in(said.records) == [0, 1]
    await serving.close()


@in_loop
async def test_who_waits_at_a_follower_hears_when_its_high_watermark_moves(tmp_path: Path):
    serving = await a_follower(tmp_path)
    parked = serving.park(in_rack("a", wanted("t", offset=2), max_wait_ms=60_000), 12)
    await turns()
    assert not parked.done()
    serving.partition("t").append_fetched(0, 3, memoryview(b""), 3)
    answer = await parked
    assert offsets_in(answer.responses[0].partitions[0].records) == [2]
    await serving.close()


@pytest.mark.parametrize(
    ("offset", "epoch", "version", "expected"),
    [
        (4, -1, 12, ErrorCode.OFFSET_OUT_OF_RANGE),  # it may be behind: the client asks the leader
        (3, -1, 12, ErrorCode.NONE),  # there, and not committed as far as it knows
        (0, 1, 12, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, 0, 12, ErrorCode.NONE),
        (0, -1, 10, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
@in_loop
async def test_what_a_follower_says_to_consumers(
    tmp_path: Path, offset: int, epoch: int, version: int, expected: ErrorCode
):
    serving = await a_follower(tmp_path)
    request = fetch(wanted("t", offset=offset, current_leader_epoch=epoch), version=version)
    answer = await serving.ask(request, version)
    assert answer.responses[0].partitions[0].error_code == expected
    await serving.close()


# How a follower hears of the high watermark


@in_loop
async def test_a_follower_hears_of_a_moved_high_watermark_at_once(tmp_path: Path):
    serving = Serving(tmp_path, replica_selector_class=RACK_AWARE)
    await serving.topic("t", replicas=(1, 2, 3))
    await serving.ask(produce(("t", 0, a_batch())), 9)

    def follow(replica_id: int, offset: int):
        return fetch(
            wanted("t", offset=offset, log_start_offset=0),
            version=12,
            replica_id=replica_id,
            max_wait_ms=60_000,
        )

    for one in (2, 3):
        await serving.ask(follow(one, 0), 12)
    parked = serving.park(follow(2, 1), 12)
    answer = await serving.ask(follow(3, 1), 12)
    assert answer.responses[0].partitions[0].high_watermark == 1, "its own fetch has moved it"
    answer = await parked
    assert answer.responses[0].partitions[0].high_watermark == 1, "and the one that waited hears of it"
    for one in (2, 3):
        task = serving.park(follow(one, 1), 12)
        await turns()
        assert not task.done(), "nothing new"
        task.cancel()
    await turns()
    await serving.close()


@in_loop
async def test_without_a_selector_it_hears_with_the_next_records(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await serving.ask(produce(("t", 0, a_batch())), 9)
    await serving.ask(fetch(wanted("t"), version=12, replica_id=2), 12)
    parked = serving.park(fetch(wanted("t", offset=1), version=12, replica_id=2, max_wait_ms=60_000), 12)
    assert serving.partition("t").high_watermark == 1
    await turns()
    assert not parked.done()
    await serving.ask(produce(("t", 0, a_batch())), 9)
    assert (await parked).responses[0].partitions[0].high_watermark == 1
    await serving.close()
