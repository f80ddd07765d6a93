"""Records that are written and read all along while the demo breaks things, on a thread of its own.

Every record carries the next number, and goes to the partitions in turn. What became of each is kept: the
demo proves with it afterwards that nothing was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from typing import Final, NamedTuple

from quorate.cli.demo_proof import Found, Place
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.fetched import Fetched
from quorate.client.fetcher import EARLIEST, Fetcher
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.offsets import LATEST, list_offsets
from quorate.client.producer import Delivered, Producer, ProducerSettings
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.testing.control import ClusterError, wait_until

__all__ = ["GROUP", "Counts", "Traffic", "create_topic", "elect_preferred_leaders", "read_topic"]

GROUP: Final = "demo"
RECORDS_PER_S: Final = 600
RECORDS_MAX: Final = 1_000_000  # that are remembered
_TICK_S: Final = 0.05
_FETCH_MS: Final = 200
_COMMIT_S: Final = 1.0
_CLOSE_S: Final = 15.0


class Counts(NamedTuple):
    """How many records had which fate so far."""

    sent: int
    acknowledged: int
    failed: int
    read: int


class Traffic:
    """A producer (acks from all in-sync replicas, idempotent) and a group with one consumer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: dict[int, Place] = {}
        self.failed: dict[int, str] = {}  # why, by number
        self.consumed: set[tuple[int, int]] = set()
        self.failure: BaseException | None = None  # that ended everything
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._sent = 0
        self._last = [-1] * partitions  # number that was acknowledged, by partition
        self._slowest_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None  # once it runs
        self._task: asyncio.Task[None] | None = None
        self._is_finishing = threading.Event()
        self._is_given_up = False
        self._thread = threading.Thread(target=self._run, name="demo-traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # For who tells the story

    @property
    def counts(self) -> Counts:
        return Counts(self._sent, len(self.acknowledged), len(self.failed), len(self.consumed))

    @property
    def sent(self) -> range:
        return range(self._sent)

    def take_slowest_ms(self) -> float:
        """How long the slowest acknowledgement took since this was asked the last time."""
        slowest_ms, self._slowest_s = self._slowest_s * 1000, 0.0
        return slowest_ms

    def wait_until_written_everywhere(self, timeout_s: float) -> None:
        """Until every partition has acknowledged something that was sent from now on."""
        number = self._sent

        def is_written() -> bool:
            self._check()
            return min(self._last) >= number

        wait_until(is_written, timeout_s, "every partition to take records")

    def finish(self, timeout_s: float) -> None:
        """Sends no more; returns when every record has its fate, and the consumer has all that are there."""
        self._is_finishing.set()
        self._thread.join(timeout_s)
        self._check()
        if self._thread.is_alive():
            counts = self.counts
            left = f"{counts.sent - counts.acknowledged - counts.failed} records without a fate"
            raise ClusterError(f"waited {timeout_s:g} s for the traffic to end: {left}, {counts.read} read")

    @property
    def is_under_way(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Ends at once, whatever is under way."""
        self._is_given_up = True
        self._is_finishing.set()
        if self._thread.is_alive():
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # that the loop is closed: it has just ended
                    self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(_CLOSE_S)

    def _check(self) -> None:
        if self.failure is not None:
            raise ClusterError(f"the traffic has ended: {self.failure}") from self.failure

    # On the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.failure = error

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with Cluster(self._bootstrap, client_id="demo") as cluster:
            consuming = asyncio.create_task(self._consume(cluster))
            try:
                async with Producer(cluster, ProducerSettings(linger_ms=5)) as producer:
                    await self._send(producer)
                await asyncio.sleep(0)  # so that the last receipts are noted
                while not self._has_consumed_all() and not consuming.done():
                    await asyncio.sleep(_TICK_S)
            finally:
                consuming.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await consuming

    async def _send(self, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._is_finishing.is_set():
            due = min(int((loop.time() - began) * RECORDS_PER_S), RECORDS_MAX)
            while self._sent < due:
                number, at = self._sent, loop.time()
                receipt = await producer.send(
                    self._topic, b"order %d" % number, partition=number % self._partitions
                )
                self._sent += 1
                receipt.add_done_callback(partial(self._settled, number, at))
            await asyncio.sleep(_TICK_S)

    def _settled(self, number: int, sent_at: float, receipt: asyncio.Future[Delivered]) -> None:
        error = None if receipt.cancelled() else receipt.exception()
        if self._is_given_up or receipt.cancelled():
            return
        if error is not None:
            self.failed[number] = str(error)
            return
        place = Place(*receipt.result())
        self.acknowledged[number] = place
        self._last[place.partition] = max(number, self._last[place.partition])
        self._slowest_s = max(self._slowest_s, receipt.get_loop().time() - sent_at)

    async def _consume(self, cluster: Cluster) -> None:
        """Reads and commits as any member of a group does; what is read again counts once."""
        settings = GroupConsumerSettings(protocol=GroupProtocol.CONSUMER)
        committed_at = time.monotonic()
        async with GroupConsumer(cluster, GROUP, [self._topic], settings) as consumer:
            while True:
                for part in await consumer.fetch(timeout_ms=_FETCH_MS):
                    self.consumed.update((one.partition, one.offset) for one in _records(part))
                if time.monotonic() - committed_at > _COMMIT_S:
                    with contextlib.suppress(ApiError, Unavailable):  # the next commit says it all again
                        await consumer.commit()
                    committed_at = time.monotonic()

    def _has_consumed_all(self) -> bool:
        places = self.acknowledged.values()
        return all(place in self.consumed for place in places if place.offset >= 0)


def create_topic(bootstrap: str, topic: str, *, partitions: int, replicas: int, in_sync_min: int) -> None:
    """Of a new cluster. If its controller is lost meanwhile, the client asks the next one again, which may
    have what was asked of the first: so a topic that exists is the one that was wanted."""

    async def create() -> None:
        async with Cluster(bootstrap, client_id="demo") as cluster:
            try:
                await Admin(cluster).create_topics(
                    NewTopic(
                        topic,
                        partitions=partitions,
                        replication_factor=replicas,
                        configs={"min.insync.replicas": str(in_sync_min)},
                    )
                )
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            await cluster.topic(topic)

    asyncio.run(create())


def elect_preferred_leaders(bootstrap: str) -> None:
    """Of all partitions, where another one leads."""

    async def elect() -> None:
        async with Cluster(bootstrap, client_id="demo") as cluster:
            await Admin(cluster).elect_leaders()

    asyncio.run(elect())


def read_topic(bootstrap: str, topic: str, partitions: int, timeout_s: float) -> list[Found]:
    """Everything that a topic has now, read by somebody who has seen nothing of it before."""

    async def read() -> list[Found]:
        found: list[Found] = []
        places = [(topic, one) for one in range(partitions)]
        async with asyncio.timeout(timeout_s), Cluster(bootstrap, client_id="demo-proof") as cluster:
            ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
            async with Fetcher(cluster) as fetcher:
                fetcher.assign(dict.fromkeys(places, EARLIEST))
                while any((fetcher.position(at) or 0) < end.offset for at, end in ends.items()):
                    for part in await fetcher.fetch(timeout_ms=_FETCH_MS):
                        found += _records(part)
        return found

    try:
        return asyncio.run(read())
    except TimeoutError:
        raise ClusterError(f"waited {timeout_s:g} s to read {topic} from its beginning") from None


def _records(part: Fetched) -> list[Found]:
    return [Found(part.partition, one.offset, _number(one.value)) for one in part.records()]


def _number(value: bytes | None) -> int:
    """What a record carries; -1, which no record has, for whatever is not one of ours.

    >>> _number(b"order 17"), _number(b"something else"), _number(None)
    (17, -1, -1)
    """
    word, _, digits = (value or b"").partition(b" ")
    return int(digits) if word == b"order" and digits.isdigit() else -1
