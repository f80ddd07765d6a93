"""Several brokers in one process that follow each other over real sockets, under a controller of the test's.

The controller grants every proposal that is of now, and decides who leads; when each broker hears of it is
the test's choice. A broker that has not heard goes on as before: so logs go different ways, and have to meet.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from serving import LISTENER, START_MS, Shelf, a_batch, in_loop, topic_id

from quorate.broker.control_plane import Assignment, Changes, IsrAnswer
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.fetcher import Fetchers, FetcherSettings
from quorate.broker.handlers.fetch import FetchHandler
from quorate.broker.handlers.offsets import ListOffsetsHandler
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.leadership import Proposal
from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.replicas import Replicas
from quorate.broker.serving import Broker
from quorate.broker.settings import BrokerSettings
from quorate.broker.waiting import CommitWait
from quorate.metadata import records as r
from quorate.metadata.image import TOPIC, ClusterImage
from quorate.metadata.partitions import Partition as PartitionState
from quorate.net.connections import Connections
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.api.produce_fetch import FetchRequest, ListOffsetsRequest
from quorate.protocol.batch import batches, records
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError

KEY = TopicPartition("t", topic_id("t"), 0)
THREE = (1, 2, 3)
SETTINGS = FetcherSettings(backoff_ms=5, wait_max_ms=20)


class Member:
    """One broker."""

    def __init__(self, cluster: Cluster, broker_id: int, directory: Path) -> None:
        self.id = broker_id
        self._cluster = cluster
        loop = asyncio.get_running_loop()
        settings = BrokerSettings(broker_id=broker_id, cluster_id="c", replica_lag_time_max_ms=cluster.lag_ms)
        around = Surroundings(
            broker_id=broker_id,
            lag_ms_max=cluster.lag_ms,
            now_ms=lambda: loop.time() * 1000,
            wall_ms=lambda: START_MS,
            is_eligible=lambda other, _: other in cluster.members,
        )
        self.connections = Connections(rng=random.Random(broker_id), connect_timeout_ms=1000)
        self.proposals = IsrProposals(cluster)  # type: ignore[arg-type]
        self.fetchers = Fetchers(
            broker_id,
            self.connections,
            SETTINGS,
            lambda other: ("127.0.0.1", cluster.members[other].port) if other in cluster.members else None,
            lambda: 100 + broker_id,
            self._take_offline,
        )
        self.shelf = Shelf(directory)
        self.replicas = Replicas(settings, around, self.shelf, self.fetchers, self.proposals)
        broker = Broker(
            settings=settings,
            configs=DynamicConfig(broker_id),
            replicas=self.replicas,
            proposals=self.proposals,
            control_plane=cluster,  # type: ignore[arg-type]
            random=random.Random(broker_id),
            now_ms=around.now_ms,
            wall_ms=around.wall_ms,
            current_image=lambda: cluster.image,
            broker_epoch=lambda: 100 + broker_id,
        )
        routes = [
            Route(FetchRequest, FetchHandler(broker)),
            Route(ListOffsetsRequest, ListOffsetsHandler(broker)),
        ]
        self._server = Server(LISTENER, RouteTable(routes))
        self._tasks: list[asyncio.Task[None]] = []

    def _take_offline(self, partition: Partition, error: StorageError) -> None:
        raise AssertionError(f"{partition.key} on broker {self.id}: {error}")

    async def start(self) -> None:
        await self._server.start("127.0.0.1", 0)
        duties = (self.fetchers.run(), self.proposals.run(), self.replicas.watch_followers())
        self._tasks = [asyncio.create_task(duty) for duty in duties]

    @property
    def port(self) -> int:
        return self._server.port

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.close(timeout_ms=0)
        await self.connections.close()
        await self.replicas.close()
        self.shelf.close()

    def check(self) -> None:
        for task in self._tasks:
            assert not task.done(), task.result()

    async def hear(self, state: PartitionState) -> None:
        """The metadata reaches this broker."""
        self.check()
        await self.replicas.apply(Changes(self._cluster.image, [Assignment(KEY, state)]))

    @property
    def partition(self) -> Partition:
        found = self.replicas.of_topic(KEY.topic_id, 0)
        assert found is not None
        return found

    def append(self, *numbers: int, acks: int = 1) -> int:
        """One batch with these numbers; its last offset. `ApiError` if it does not lead."""
        data = a_batch(len(numbers), key=" ".join(map(str, numbers)).encode())
        self.partition.check_append(acks)
        return self.partition.append(memoryview(data)).last_offset

    async def commit(self, *numbers: int, timeout_ms: float = 10_000) -> ErrorCode:
        """The same, and waits until it is committed."""
        last_offset = self.append(*numbers, acks=-1)
        wait = CommitWait(1, timeout_ms)
        self.partition.when_committed(last_offset, wait, 0)
        await wait.done
        return wait.errors.get(0, ErrorCode.NONE)

    @property
    def stored(self) -> bytes:
        log, data, offset = self.partition.log, b"", self.partition.log.start_offset
        while offset < log.end_offset:
            view = log.read(offset, 1 << 20)
            data += bytes(view)
            offset = list(batches(view))[-1].next_offset
        return data

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Those that have records."""
        log = self.partition.log
        return tuple(one for one in log.epochs if one.start_offset < log.end_offset)

    @property
    def numbers(self) -> list[int]:
        """Everything in the log."""
        data = self.stored
        found = []
        for header in batches(data):
            listed = [int(one) for one in (records(data, header)[0].key or b"").split()]
            found += listed
        return found


class Cluster:
    """The brokers, and who decides."""

    def __init__(self, root: Path, lag_ms: int) -> None:
        self._root = root
        self.lag_ms = lag_ms
        self.members: dict[int, Member] = {}
        self.image = ClusterImage()
        self.granted: list[tuple[int, ...]] = []
        self.state = PartitionState(
            replicas=THREE,
            directories=(Uuid(bytes(16)),) * 3,
            isr=THREE,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )

    async def start(self, *ids: int) -> None:
        for one in ids:
            member = Member(self, one, self._root / f"broker-{one}")
            await member.start()
            self.members[one] = member

    async def stop(self, broker_id: int) -> None:
        await self.members.pop(broker_id).close()

    def configure(self, **configs: object) -> None:
        for offset, (key, value) in enumerate(configs.items()):
            record = r.ConfigRecord(
                resource_type=TOPIC, resource_name="t", name=key.replace("_", "."), value=str(value)
            )
            self.image.apply(record, offset)

    # Decisions

    def decide(self, *, leader: int, isr: Sequence[int] | None = None) -> PartitionState:
        """Somebody else leads. Nobody knows yet."""
        state = self.state
        self.state = replace(
            state,
            leader=leader,
            isr=tuple(state.isr if isr is None else isr),
            leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1,
        )
        return self.state

    async def tell(self, *ids: int) -> None:
        """These brokers hear what is decided; all, if none is named."""
        for one in ids or list(self.members):
            await self.members[one].hear(self.state)

    async def propose(
        self, proposals: Iterable[tuple[TopicPartition, Proposal]]
    ) -> dict[TopicPartition, IsrAnswer]:
        await asyncio.sleep(0)
        answers = {}
        for key, proposal in proposals:
            state = self.state
            if proposal.leader_epoch != state.leader_epoch:
                answers[key] = IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)
            elif proposal.partition_epoch != state.partition_epoch:
                answers[key] = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
            elif not self.members.keys() >= set(proposal.isr) - set(state.isr):
                answers[key] = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
            else:
                self.granted.append(proposal.isr)
                self.state = replace(state, isr=proposal.isr, partition_epoch=state.partition_epoch + 1)
                answers[key] = IsrAnswer(
                    ErrorCode.NONE, proposal.isr, state.leader_epoch, self.state.partition_epoch
                )
        return answers

    # Waiting

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            for member in self.members.values():
                member.check()
            await asyncio.sleep(0.002)

    async def until_alike(self) -> None:
        """Until everybody has the same, byte for byte, and knows that it is committed."""

        def is_so() -> bool:
            partitions = [one.partition for one in self.members.values()]
            ends = {one.log.end_offset for one in partitions}
            return len(ends) == 1 and {one.high_watermark for one in partitions} == ends

        await self.until(is_so)
        assert len({one.stored for one in self.members.values()}) == 1
        assert len({one.epochs for one in self.members.values()}) == 1

    async def until_in_sync(self, *ids: int) -> None:
        await self.until(lambda: set(self.state.isr) == set(ids))


@asynccontextmanager
async def cluster(root: Path, *ids: int, lag_ms: int = 10_000, **configs: object) -> AsyncIterator[Cluster]:
    made = Cluster(root, lag_ms)
    made.configure(**configs)
    try:
        await made.start(*(ids or THREE))
        await made.tell()
        yield made
    finally:
        for one in list(made.members):
            await made.stop(one)


@in_loop
async def test_what_is_committed_is_everywhere(tmp_path: Path):
    async with cluster(tmp_path, min_insync_replicas=3) as it:
        for number in range(5):
            assert await it.members[1].commit(number) is ErrorCode.NONE
            assert all(one.partition.log.end_offset == number + 1 for one in it.members.values())
        await it.until_alike()


@in_loop
async def test_nothing_is_committed_that_not_everyone_in_sync_has(tmp_path: Path):
    async with cluster(tmp_path, 1, 2) as it:
        assert await it.members[1].commit(7, timeout_ms=100) is ErrorCode.REQUEST_TIMED_OUT
        assert it.members[1].partition.high_watermark == 0
        await it.start(3)
        await it.tell(3)
        await it.until_alike()
        assert it.members[3].numbers == [7]


@in_loop
async def test_a_leader_that_does_not_know_that_it_is_none(tmp_path: Path):
    """It goes on with what nobody gets, and gives it up when it hears."""
    async with cluster(tmp_path) as it:
        await it.members[1].commit(1)
        it.decide(leader=2)
        await it.tell(2, 3)
        old = [asyncio.create_task(it.members[1].commit(number)) for number in (50, 51)]
        new = asyncio.create_task(it.members[2].commit(2))
        await it.until(lambda: it.members[3].numbers == [1, 2])
        assert not new.done(), "broker 1 is in sync, and has not asked the new leader yet"
        await it.tell(1)
        assert [await one for one in (*old, new)] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NONE,
        ]
        await it.until_alike()
        assert it.members[1].numbers == [1, 2]


@pytest.mark.parametrize("count", [1, 2, 4])
@in_loop
async def test_logs_that_went_different_ways_several_times(tmp_path: Path, count: int):
    """Unclean elections: everybody has led alone, in epochs that the others never heard of."""
    async with cluster(tmp_path, lag_ms=60_000) as it:
        await it.members[1].commit(1)
        number = 100
        for _ in range(count):
            for one in THREE:
                it.decide(leader=one, isr=(one,))
                await it.tell(one)
                for _ in range(one):
                    it.members[one].append(number, number + 1)
                    number += 2
        it.decide(leader=2, isr=(2,))
        await it.tell()
        assert await it.members[2].commit(number) is ErrorCode.NONE
        await it.until_in_sync(1, 2, 3)
        await it.until_alike()
        assert it.members[1].numbers == it.members[2].numbers
        assert it.members[1].numbers[-1] == number


@in_loop
async def test_a_leader_with_less_than_its_followers(tmp_path: Path):
    async with cluster(tmp_path, 1, 2) as it:
        for number in range(4):
            it.members[1].append(number)
        await it.until(lambda: it.members[2].partition.log.end_offset == 4)
        await it.start(3)
        it.decide(leader=3, isr=(3,))
        await it.tell()
        await it.members[3].commit(90)
        await it.until_in_sync(1, 2, 3)
        await it.until_alike()
        assert it.members[1].numbers == [90]


@pytest.mark.parametrize("start", [0, 4, 5, 6])
@in_loop
async def test_an_empty_broker_fills_itself(tmp_path: Path, start: int):
    """From where the leader's log begins, which may be within a batch."""
    async with cluster(tmp_path, 1, 2, min_insync_replicas=1) as it:
        it.decide(leader=1, isr=(1, 2))
        await it.tell()
        for number in range(0, 12, 3):
            await it.members[1].commit(number, number + 1, number + 2)
        await it.members[1].partition.start_at(start)
        await it.start(3)
        await it.tell(3)
        await it.until_in_sync(1, 2, 3)
        assert await it.members[1].commit(12) is ErrorCode.NONE
        await it.until(lambda: it.members[3].partition.high_watermark == 13)
        assert it.members[3].partition.log.start_offset == start
        assert it.members[3].stored == it.members[1].stored


@in_loop
async def test_a_follower_that_is_away_leaves_the_isr_and_comes_back(tmp_path: Path):
    async with cluster(tmp_path, lag_ms=200) as it:
        await it.members[1].commit(1)
        await it.stop(3)
        assert await it.members[1].commit(2) is ErrorCode.NONE
        assert it.state.isr == (1, 2)
        await it.start(3)
        await it.tell(3)
        await it.until_in_sync(1, 2, 3)
        assert await it.members[1].commit(3) is ErrorCode.NONE
        await it.until_alike()
        assert it.granted == [(1, 2), (1, 2, 3)]


@in_loop
async def test_too_few_in_sync(tmp_path: Path):
    async with cluster(tmp_path, 1, 2, lag_ms=200, min_insync_replicas=2) as it:
        it.decide(leader=1, isr=(1, 2))
        await it.tell()
        assert await it.members[1].commit(1) is ErrorCode.NONE
        await it.stop(2)
        waiting = asyncio.create_task(it.members[1].commit(2, timeout_ms=500))
        await it.until_in_sync(1)
        assert await waiting is ErrorCode.REQUEST_TIMED_OUT, "it does not count while they are too few"
        assert it.members[1].partition.high_watermark == 1
        with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
            it.members[1].append(3, acks=-1)
        await it.start(2)
        await it.tell(2)
        await it.until_in_sync(1, 2)
        await it.until_alike()


@pytest.mark.parametrize("seed", range(8))
@in_loop
async def test_no_acknowledged_record_is_lost_while_one_in_sync_survives(tmp_path: Path, seed: int):
    """Leaders change at random among those in sync, brokers hear of it late, and are stopped and started."""
    source = random.Random(seed)
    acknowledged: list[int] = []
    async with cluster(tmp_path, lag_ms=100, min_insync_replicas=2) as it:
        number = 0

        async def write() -> None:
            nonlocal number
            while True:
                await asyncio.sleep(source.uniform(0, 0.004))
                for member in list(it.members.values()):
                    if member.replicas.of_topic(KEY.topic_id, 0) and member.partition.leading is not None:
                        number += 1
                        asyncio.ensure_future(try_to_commit(member, number))  # noqa: RUF006

        async def try_to_commit(member: Member, mine: int) -> None:
            try:
                if await member.commit(mine, timeout_ms=2000) is ErrorCode.NONE:
                    acknowledged.append(mine)
            except ApiError:
                pass

        writing = asyncio.create_task(write())
        for _ in range(25):
            await asyncio.sleep(source.uniform(0, 0.03))
            running = [one for one in it.state.isr if one in it.members]
            step = source.random()
            if step < 0.2 and len(it.members) > 2 and len(running) > 1:
                gone = source.choice(running)
                await it.stop(gone)
                if it.state.leader == gone:
                    left = [one for one in it.state.isr if one != gone]
                    it.decide(leader=source.choice([one for one in left if one in it.members]), isr=left)
            elif step < 0.4 and len(it.members) < 3:
                back = next(one for one in THREE if one not in it.members)
                await it.start(back)
                await it.tell(back)
            elif step < 0.8 and running:
                it.decide(leader=source.choice(running))
            for one in source.sample(sorted(it.members), len(it.members)):
                if source.random() < 0.7:
                    await it.tell(one)
        writing.cancel()
        await it.start(*(one for one in THREE if one not in it.members))
        await it.tell()
        await it.until_in_sync(1, 2, 3)
        await it.until_alike()
        found = it.members[1].numbers
        assert acknowledged, "nothing was written"
        assert not set(acknowledged) - set(found)
        assert len(set(found)) == len(found)
