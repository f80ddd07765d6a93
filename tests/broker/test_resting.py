"""What rests in a session is not looked at, and nobody can tell: not its asker, nor who judges followers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from serving import Serving, a_batch, fetch, in_loop, offsets_in, produce, topic_id, turns, wanted

from quorate.broker.control_plane import Changes
from quorate.broker.fetch_sessions import FetchSession
from quorate.broker.leadership import Follower
from quorate.broker.serving import Operation
from quorate.protocol.errors import ErrorCode

NEWEST = 17
LONG_MS = 100_000
LAG_MS = 30_000


class Asker:
    """One who fetches partitions of topic t in a session."""

    def __init__(self, serving: Serving, version: int = NEWEST, **manner: Any) -> None:
        self.serving = serving
        self.version = version
        self.manner = manner
        self.id = self.epoch = 0

    async def ask(self, *partitions: Any, **about: Any) -> dict[int, tuple[int, int]]:
        """What is answered: by partition its records or minus its error, and its high watermark."""
        session = self.id, self.epoch
        request = fetch(*partitions, version=self.version, session=session, **{**self.manner, **about})
        response = await self.serving.ask(request, self.version)
        if response.error_code:
            self.id = self.epoch = 0
            return {-1: (-response.error_code, 0)}
        self.id, self.epoch = response.session_id, self.epoch + 1
        return {
            one.partition_index: (-one.error_code or len(offsets_in(one.records)), one.high_watermark)
            for topic in response.responses
            for one in topic.partitions
        }

    @property
    def session(self) -> FetchSession:
        found = self.serving.fetch_handler.sessions.get(self.id)
        assert found is not None
        return found

    @property
    def restless(self) -> set[int]:
        return {one.partition_id for one in self.session.restless.values()}


async def fill(serving: Serving, partition: int = 0) -> None:
    await serving.ask(produce(("t", partition, a_batch())), 12)


def follower(serving: Serving, broker_id: int = 2, partition: int = 0) -> Follower:
    leading = serving.partition("t", partition).leading
    assert leading is not None
    return leading.followers[broker_id]


async def two_replicas(directory: Path, partitions: int = 2, **about: Any) -> tuple[Serving, Asker]:
    """A follower that has everything of all partitions, and they are at rest in its session."""
    serving = Serving(directory)
    await serving.topic("t", partitions=partitions, replicas=(1, 2), **about)
    asker = Asker(serving, replica_id=2, broker_epoch=102)
    await asker.ask(*(wanted("t", index) for index in range(partitions)))
    return serving, asker


# Who rests, and until when


@pytest.mark.parametrize("version", [12, NEWEST])
@in_loop
async def test_what_has_nothing_to_say_rests_until_it_has(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    asker = Asker(serving, version)
    await asker.ask(*(wanted("t", index) for index in range(3)))
    assert asker.restless == set()
    await fill(serving, 1)
    assert asker.restless == {1}
    assert await asker.ask() == {1: (1, 1)}
    assert asker.restless == {1}, "it was not moved on"
    assert await asker.ask(wanted("t", 1, 1)) == {}
    assert asker.restless == set()
    await serving.close()


@in_loop
async def test_an_error_does_not_rest(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    asker = Asker(serving)
    await asker.ask(wanted("t"), wanted("t", 7))
    assert asker.restless == {7}
    await serving.close()


@pytest.mark.parametrize("follower_id", [-1, 2])
@in_loop
async def test_a_change_of_the_leader_is_told_although_nobody_asks(tmp_path: Path, follower_id: int):
    serving, asker = await two_replicas(tmp_path)
    if follower_id < 0:
        asker = Asker(serving, 10)
        await asker.ask(wanted("t"), wanted("t", 1))
    parked = asyncio.ensure_future(asker.ask(max_wait_ms=LONG_MS))
    await turns()
    assert asker.restless == set()
    await serving.assign("t", 1, replicas=(1, 2), leader=2, leader_epoch=1)
    assert await parked == {1: (-ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}
    await serving.close()


@in_loop
async def test_what_is_removed_is_told(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    asker = Asker(serving)
    await asker.ask(wanted("t"), wanted("t", 1))
    await serving.replicas.apply(Changes(serving.image, [], removed=[(topic_id("t"), 1)]))
    assert list(await asker.ask()) == [1]
    await serving.close()


@in_loop
async def test_a_replica_that_is_none_any_more_is_told(tmp_path: Path):
    serving, asker = await two_replicas(tmp_path)
    await serving.assign("t", 1, replicas=(1, 3), partition_epoch=1)
    assert [one for one, _ in (await asker.ask()).values()] == [-ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await serving.close()


@in_loop
async def test_rights_that_are_taken_away(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    asker = Asker(serving)
    await asker.ask(wanted("t"), wanted("t", 1))
    serving.denied.add((Operation.READ, "t"))
    assert {one for one, _ in (await asker.ask()).values()} == {-ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    serving.denied.clear()
    assert await asker.ask() == {0: (0, 0), 1: (0, 0)}
    assert await asker.ask() == {}
    await serving.close()


@in_loop
async def test_whoever_asks_in_another_manner_is_told_everything_that_is_new_to_it(tmp_path: Path):
    """What is not committed rests for a consumer, and not for who wants to see everything."""
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    asker = Asker(serving)
    await asker.ask(wanted("t"))
    await fill(serving)
    assert await asker.ask() == {}
    assert asker.restless == set()
    assert await asker.ask(replica_id=-2) == {0: (1, 0)}
    await serving.close()


@in_loop
async def test_nobody_rests_where_a_session_was(tmp_path: Path):
    serving, asker = await two_replicas(tmp_path)
    other = Asker(serving)
    await other.ask(wanted("t"), wanted("t", 1))
    partitions = [serving.partition("t", index) for index in range(2)]
    assert [len(one.resting.onlookers) for one in partitions] == [2, 2]
    await asker.ask(forget=[("t", 0)])
    assert [len(one.resting.onlookers) for one in partitions] == [1, 2]
    await serving.ask(fetch(version=NEWEST, session=(asker.id, -1), replica_id=2), NEWEST)
    await other.ask(forget=[("t", 0), ("t", 1)])
    assert [len(one.resting.onlookers) for one in partitions] == [0, 0]
    await serving.close()


# Waiting


@in_loop
async def test_a_fetch_waits_for_what_rests_until_it_is_enough(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    asker = Asker(serving)
    await asker.ask(*(wanted("t", index) for index in range(3)))
    size = len(a_batch())
    parked = asyncio.ensure_future(asker.ask(max_wait_ms=LONG_MS, min_bytes=3 * size))
    for index in (2, 0, 2):
        await turns()
        assert not parked.done()
        await fill(serving, index)
    assert await parked == {0: (1, 1), 2: (2, 2)}
    assert not any(one.data_waits for one in serving.replicas)
    await serving.close()


@in_loop
async def test_a_session_that_is_over_does_not_keep_its_fetch_waiting(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    asker = Asker(serving)
    await asker.ask(wanted("t"))
    parked = asyncio.ensure_future(asker.ask(max_wait_ms=LONG_MS))
    await turns()
    await serving.ask(fetch(version=NEWEST, session=(asker.id, -1)), NEWEST)
    assert await parked == {}
    assert not serving.partition("t").resting.onlookers
    await serving.close()


# Followers


@in_loop
async def test_a_follower_that_rests_is_caught_up_as_long_as_it_fetches(tmp_path: Path):
    serving, asker = await two_replicas(tmp_path)
    for _ in range(4):
        serving.now_ms += LAG_MS / 2
        assert await asker.ask() == {}
    assert asker.restless == set()
    last_ms = serving.now_ms
    assert follower(serving).last_caught_up_ms == last_ms
    serving.now_ms += LAG_MS / 2
    await fill(serving)
    assert follower(serving).last_caught_up_ms == last_ms, "that is when it had everything"
    partition = serving.partition("t")
    serving.now_ms = last_ms + LAG_MS
    assert partition.laggards_gone() is None
    serving.now_ms += 1
    gone = partition.laggards_gone()
    assert gone is not None
    assert gone.isr == (1,)
    await serving.close()


@in_loop
async def test_a_session_that_is_gone_says_nothing_of_its_follower(tmp_path: Path):
    serving, asker = await two_replicas(tmp_path)
    serving.now_ms += 100
    await asker.ask()
    again = Asker(serving, replica_id=2, broker_epoch=102)
    serving.now_ms += 100
    await again.ask(wanted("t"), wanted("t", 1))
    serving.now_ms += 100
    await again.ask()
    session = asker.session
    session.end()
    assert follower(serving).at_rest is again.session.heard, "the other one's"
    assert follower(serving).last_caught_up_ms == 300
    await serving.close()


@in_loop
async def test_who_is_not_in_sync_does_not_rest(tmp_path: Path):
    """The controller may have said no: it is proposed again, when it is asked for."""
    serving, asker = await two_replicas(tmp_path, isr=(1,))
    assert asker.restless == {0, 1}
    partition = serving.partition("t")
    for count in (1, 2):
        assert len([one for one, _ in serving.proposals.added if one is partition]) == count
        assert partition.leading is not None
        partition.leading.refused()
        await asker.ask()
    partition.isr_answered((1, 2), 1, is_recovering=False)
    await asker.ask()
    assert asker.restless == {1}
    partition.isr_answered((1,), 2, is_recovering=False)
    assert asker.restless == {0, 1}, "it has been taken out"
    await serving.close()


@in_loop
async def test_what_is_not_committed_does_not_rest(tmp_path: Path):
    """It may become so by time alone, when another one has been away for too long."""
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2, 3), isr=(1, 2))
    asker = Asker(serving, replica_id=2, broker_epoch=102)
    await asker.ask(wanted("t"))
    third = Asker(serving, replica_id=3, broker_epoch=103)
    await third.ask(wanted("t"))
    await fill(serving)
    await asker.ask(wanted("t", 0, 1))
    assert (asker.restless, serving.partition("t").high_watermark) == ({0}, 0)
    leading = serving.partition("t").leading
    assert leading is not None
    leading.refused()  # the third, which was about to join
    serving.now_ms += LAG_MS + 1
    assert await asker.ask() == {0: (0, 1)}
    assert asker.restless == set()
    await serving.close()


@in_loop
async def test_a_broker_that_has_registered_again_is_not_what_rests(tmp_path: Path):
    serving, asker = await two_replicas(tmp_path)
    serving.register(2, epoch=200)
    serving.now_ms += 100
    assert {one for one, _ in (await asker.ask()).values()} == {-ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert follower(serving).last_caught_up_ms == 0, "it does not count"
    assert await asker.ask(broker_epoch=200) == {0: (0, 0), 1: (0, 0)}
    assert follower(serving).broker_epoch == 200
    assert asker.restless == set()
    await serving.close()


# Against one who looks at everything


class World:
    """A broker with two followers and two consumers, who do what they are told."""

    def __init__(self, directory: Path, *, looks_at_everything: bool) -> None:
        self.serving = Serving(directory)
        self.looks_at_everything = looks_at_everything
        self.askers = [
            Asker(self.serving, replica_id=2, broker_epoch=102),
            Asker(self.serving, replica_id=3, broker_epoch=103),
            Asker(self.serving),
            Asker(self.serving, 12, isolation_level=1),
        ]
        self.epochs = [0] * 4

    async def do(self, step: tuple[Any, ...]) -> Any:
        serving = self.serving
        match step:
            case "append", index:
                await fill(serving, index)
            case "fetch", number, asked, forgotten, size:
                return await self._fetch(number, asked, forgotten, size)
            case "lead", index, leader, isr:
                self.epochs[index] += 1
                await serving.assign(
                    "t", index, replicas=(1, 2, 3), isr=isr, leader=leader, leader_epoch=self.epochs[index]
                )
            case "isr", index, isr:
                partition = serving.partition("t", index)
                partition.isr_answered(isr, partition.partition_epoch + 1, is_recovering=False)
            case "delete", index:
                partition = serving.partition("t", index)
                if partition.leading is not None:
                    await partition.delete_before(None)
            case "pass", ms:
                serving.now_ms += ms
            case "deny":
                serving.denied ^= {(Operation.READ, "t")}
            case "register", broker_id, epoch:
                serving.register(broker_id, epoch=epoch)
        return None

    async def _fetch(self, number: int, asked: dict[int, int], forgotten: list[int], size: int) -> Any:
        asker = self.askers[number]
        session = self.serving.fetch_handler.sessions.get(asker.id)
        if session is not None and self.looks_at_everything:
            session.stir_all()
        ends = {index: self.serving.partition("t", index).log.end_offset for index in range(4)}
        places = asked if asker.id else dict.fromkeys(range(4), 0) | asked
        rows = [wanted("t", index, max(0, ends[index] - behind)) for index, behind in places.items()]
        forget = [("t", index) for index in forgotten] if asker.id else []
        return await asker.ask(*rows, forget=forget, max_bytes=size)

    def judged(self) -> list[Any]:
        """What is believed of followers, and what was proposed."""
        found: list[Any] = []
        for index in range(4):
            partition = self.serving.partition("t", index)
            leading = partition.leading
            found.append((partition.high_watermark, leading and leading.isr, leading and leading.proposal))
            for one in leading.followers.values() if leading is not None else ():
                late = one.is_caught_up(partition.log.end_offset, self.serving.now_ms, 100)
                found.append((one.end_offset, one.last_caught_up_ms, one.broker_epoch, late))
        return [*found, len(self.serving.proposals.added)]


def a_step(random: Random) -> tuple[Any, ...]:
    index = random.randrange(4)
    isr = random.choice([(1, 2, 3), (1, 2), (1,)])
    kind = random.choices(
        ["append", "fetch", "lead", "isr", "delete", "pass", "deny", "register"],
        [20, 60, 3, 5, 2, 8, 1, 1],
    )[0]
    match kind:
        case "fetch":
            asked = {random.randrange(4): random.choice([0, 0, 0, 1]) for _ in range(random.randrange(4))}
            forgotten = [] if random.random() < 0.9 else [random.randrange(4)]
            return kind, random.randrange(4), asked, forgotten, random.choice([1, 100, 1 << 20])
        case "lead":
            return kind, index, random.choice([1, 1, 2]), isr
        case "isr":
            return kind, index, isr
        case "pass":
            return kind, random.choice([1, 60, 150])
        case "register":
            return kind, random.choice([2, 3]), random.choice([102, 103, 104])
        case "deny":
            return (kind,)
    return kind, index


@pytest.mark.parametrize("seed", range(8))
@in_loop
async def test_nobody_can_tell_it_from_looking_at_everything(tmp_path: Path, seed: int):
    random = Random(seed)
    worlds = [World(tmp_path / str(number), looks_at_everything=number == 1) for number in range(2)]
    for world in worlds:
        await world.serving.topic("t", partitions=4, replicas=(1, 2, 3))
    has_rested = 0
    for number in range(150):
        step = a_step(random)
        answers = [await world.do(step) for world in worlds]
        assert answers[0] == answers[1], (number, step)
        assert worlds[0].judged() == worlds[1].judged(), (number, step)
        has_rested += sum(len(one.resting.onlookers) for one in worlds[0].serving.replicas)
    assert has_rested > 100
    for world in worlds:
        await world.serving.close()
