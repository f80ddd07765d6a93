"""One term of a controller: an event queue, and one task that works it off.

Watches, requests and answers of brokers only put events into the queue, so one thing happens at a time, and
whatever it finds in the context stays so until it is done. It never waits for a broker. A watch that is told
while its event is still waiting adds nothing.

The term ends with `ControllerMoved` or `SessionExpired`; whoever runs it resigns then, and may be elected
again. What ZooKeeper refuses otherwise is said in one line and tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from quorate.metadata.event import Event
from quorate.net.connections import Connections
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.zookeeper import paths
from quorate.zookeeper.broker_changes import (
    apply_members,
    fail_brokers,
    fail_replicas,
    tell_all_that_it_has,
)
from quorate.zookeeper.channels import Channels
from quorate.zookeeper.context import Context, Key
from quorate.zookeeper.deletion import Deletions
from quorate.zookeeper.errors import ControllerMoved, MalformedZnode, SessionExpired, ZooKeeperError
from quorate.zookeeper.events import ControllerLoaded
from quorate.zookeeper.fence import Fence
from quorate.zookeeper.jute import GetChildren
from quorate.zookeeper.loading import Watchers, load, read_brokers, read_some, read_topics
from quorate.zookeeper.notifications import (
    elections_asked,
    isr_changes_noted,
    log_dirs_failed,
    reassignments_asked,
)
from quorate.zookeeper.office import Office
from quorate.zookeeper.preferred import balance_leaders
from quorate.zookeeper.reassignments import go_on, write_topic
from quorate.zookeeper.settings import ZooKeeperSettings

__all__ = ["Controller"]

REQUESTS_MAX: Final = 10_000  # that wait for their turn
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
FIRST_BALANCE_S: Final = 5.0

_logger = logging.getLogger("quorate.zookeeper")

Work = Callable[[], Awaitable[Any]]


class _Event(NamedTuple):
    name: str
    work: Work
    answer: asyncio.Future[Any] | None = None


class Controller:
    """`run` lasts for the term. `ask` has work done in its turn."""

    def __init__(
        self,
        fence: Fence,
        broker_id: int,
        settings: ZooKeeperSettings,
        connections: Connections,
        random: Random,
        wall_ms: Callable[[], int],
        saw: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        self._events: deque[_Event] = deque()
        self._waiting: set[str] = set()
        self._wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._is_over = False
        self.is_loaded = asyncio.Event()
        context = Context(broker_id, fence.epoch)
        channels = Channels(
            connections,
            (settings.control_plane_listener, settings.inter_broker_listener),
            settings.controller_socket_timeout_ms,
            self._answered,
            self._overflowed,
        )
        self.office = Office(fence.session, fence, context, channels, settings, random, wall_ms, saw)
        self.deletions = Deletions(self.office)
        self._watchers = Watchers(
            brokers=lambda _: self.put("brokers", self._brokers_changed),
            broker=lambda _: self.put("brokers", self._brokers_changed),
            topics=lambda _: self.put("topics", self._topics_changed),
            topic=lambda path: self.put(path, lambda: self._topic_changed(path.rpartition("/")[2])),
            deletions=lambda _: self.put("deletions", self._deletions_marked),
            isr_changes=lambda _: self.put(
                "isr changes", lambda: isr_changes_noted(self.office, self._watchers)
            ),
            log_dir_events=lambda _: self.put(
                "log dir events", lambda: log_dirs_failed(self.office, self._watchers)
            ),
            reassignments=lambda _: self.put(
                "reassignments", lambda: reassignments_asked(self.office, self._watchers)
            ),
            elections=lambda _: self._put_note("elections", elections_asked),
        )

    @property
    def epoch(self) -> int:
        return self.office.fence.epoch

    @property
    def waiting(self) -> int:
        """Events that wait for their turn."""
        return len(self._events)

    # The queue

    def put(self, name: str, work: Work) -> None:
        """An event, unless the same one is waiting."""
        if name not in self._waiting and not self._is_over:
            self._waiting.add(name)
            self._events.append(_Event(name, work))
            self._wake.set()

    def _put_note(self, name: str, work: Callable[[Office, Watchers], Awaitable[None]]) -> None:
        self.put(name, lambda: work(self.office, self._watchers))

    async def ask(self, work: Work) -> Any:
        """Has something done in its turn, and returns what came of it. NOT_CONTROLLER if the term is over."""
        if self._is_over:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
        if len(self._events) >= REQUESTS_MAX:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many requests wait for the controller")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._events.append(_Event("request", work, answer))
        self._wake.set()
        return await answer

    async def run(self) -> None:
        """The whole term."""
        balancing = asyncio.get_running_loop().create_task(self._balance_now_and_then())
        try:
            await self._begin()
            while True:
                while not self._events:
                    self._wake.clear()
                    await self._wake.wait()
                event = self._events.popleft()
                self._waiting.discard(event.name)
                await self._work_off(event)
        finally:
            balancing.cancel()
            self._end()
            await self.office.channels.stop()

    def _end(self) -> None:
        self._is_over = True
        gone = ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
        for event in self._events:
            if event.answer is not None and not event.answer.done():
                event.answer.set_exception(gone)
        self._events.clear()

    async def _work_off(self, event: _Event) -> None:
        if event.answer is not None and event.answer.cancelled():
            return  # nobody waits for it any more, and it has not begun
        try:
            result = await event.work()
        except (ControllerMoved, SessionExpired) as error:
            self._settle(event, ApiError(ErrorCode.NOT_CONTROLLER, str(error)))
            raise
        except ApiError as error:
            self._settle(event, error)
        except (ZooKeeperError, MalformedZnode) as error:
            if event.answer is None:
                self._try_later(event, error)
            else:
                _logger.error("a request failed: %s", error)
                self._settle(event, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        except asyncio.CancelledError:
            self._settle(event, ApiError(ErrorCode.NOT_CONTROLLER, "this broker stops"))
            raise
        else:
            self._failures.pop(event.name, None)
            if event.answer is not None and not event.answer.done():
                event.answer.set_result(result)

    def _settle(self, event: _Event, error: ApiError) -> None:
        if event.answer is not None and not event.answer.done():
            event.answer.set_exception(error)

    def _try_later(self, event: _Event, error: Exception) -> None:
        failures = self._failures[event.name] = self._failures.get(event.name, 0) + 1
        delay_s = min(RETRY_S * 2 ** (failures - 1), RETRY_MAX_S)
        _logger.error("%s: trying again in %.0f s: %s", event.name, delay_s, error)
        asyncio.get_running_loop().call_later(delay_s, self.put, event.name, event.work)

    # The beginning

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        context, office = self.office.context, self.office
        await load(office, self._watchers)
        loaded = loop.time()
        for member in context.members.values():
            office.channels.open(member)
        await self._deletions_marked(is_resumed=False)
        batch = office.batch()
        batch.tell_everyone()  # before anybody follows a leader he must know where it is
        office.send(batch)
        dead = {one for one in context.hosts() if not context.is_registered(one)}
        if dead:
            await fail_brokers(office, dead)
        keys = list(context.keys())
        await office.elect_where_needed(keys)
        elected = loop.time()
        await office.tell_of(keys)
        await office.tell_everything(list(context.members))
        office.saw(
            [
                ControllerLoaded(
                    broker_id=context.broker_id,
                    epoch=context.epoch,
                    brokers=len(context.members),
                    topics=len(context.topics),
                    partitions=len(keys),
                    leaderless=len(context.leaderless(keys)),
                    loaded_ms=round((loaded - began) * 1000),
                    elected_ms=round((elected - loaded) * 1000),
                    told_ms=round((loop.time() - elected) * 1000),
                )
            ]
        )
        await go_on(office, list(context.moving))
        await reassignments_asked(office, self._watchers)
        await elections_asked(office, self._watchers)
        await self.deletions.resume()
        self.is_loaded.set()

    # Brokers

    async def _brokers_changed(self) -> None:
        members = await read_brokers(self.office, self._watchers)
        found = await apply_members(self.office, members)
        self.deletions.brokers_left([*found.dead, *found.bounced])
        if found.new or found.bounced:
            self.deletions.broker_joined([*found.new, *found.bounced])
            await go_on(self.office, list(self.office.context.moving))
        if any(found):
            await self.deletions.resume()

    def _overflowed(self, broker_id: int) -> None:
        async def tell() -> None:
            await self.office.tell_everything([broker_id])
            await tell_all_that_it_has(self.office, broker_id)

        self.put(f"everything for {broker_id}", tell)

    def _answered(self, broker_id: int, request: Request, response: Response) -> None:
        """What brokers answer counts where it says that a disk has failed, or that a replica is deleted."""
        code = getattr(response, "error_code", 0)
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            _logger.warning("broker %d has heard of a newer controller than epoch %d", broker_id, self.epoch)
        elif code:
            _logger.warning("broker %d answers %s with error %d", broker_id, type(request).__name__, code)
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            self._replicas_stopped(broker_id, request, response)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
            self._replicas_told(broker_id, request, response)

    def _replicas_stopped(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        errors: dict[Key, int] = {
            (topic.topic_name, one.partition_index): response.error_code
            for topic in request.topic_states
            for one in topic.partition_states
            if one.delete_partition
        }
        for one in response.partition_errors:
            if (one.topic_name, one.partition_index) in errors:
                errors[one.topic_name, one.partition_index] = response.error_code or one.error_code
        if any(topic in self.office.deleting for topic, _ in errors):

            async def note() -> None:
                if self.deletions.answered(broker_id, errors):
                    await self.deletions.resume()

            self._events.append(_Event("stopped", note))
            self._wake.set()

    def _replicas_told(
        self, broker_id: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> None:
        if response.error_code:
            return
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        codes: dict[Key, int] = {
            (names[topic.topic_id], one.partition_index): one.error_code
            for topic in response.topics
            if topic.topic_id in names
            for one in topic.partition_errors
        }
        failed = {key for key, code in codes.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
        known = self.office.context.failed_replicas.get(broker_id, set())
        healed = {key for key, code in codes.items() if not code} & known
        if not (failed - known) and not healed:
            return

        async def note() -> None:
            known = self.office.context.failed_replicas.setdefault(broker_id, set())
            new = failed - known
            known |= failed
            known -= healed
            if new:
                await fail_replicas(self.office, broker_id, new)

        self._events.append(_Event("told", note))
        self._wake.set()

    # Topics

    async def _topics_changed(self) -> None:
        office = self.office
        new, gone = await read_topics(office, self._watchers)
        for name in gone:
            office.context.remove_topic(name)
        await self.begin_partitions(new)

    async def begin_partitions(self, topics: list[str]) -> None:
        """Topics are known now: their new partitions get leaders."""
        context = self.office.context
        keys = [key for name in topics if name in context.topics for key in context.topics[name].keys()]  # noqa: SIM118
        if keys:
            await self.office.elect_where_needed(keys)

    async def _topic_changed(self, name: str) -> None:
        office = self.office
        topic = office.context.topics.get(name)
        if topic is None:
            return  # it is new, or gone: the list is watched as well
        before = dict(topic.partitions)
        if not await read_some(office, [name], self._watchers):
            return
        topic = office.context.topics[name]
        if name in office.deleting:
            added = [number for number in topic.partitions if number not in before]
            if added:
                _logger.warning("topic %s is being deleted: partitions are not added to it", name)
                for number in added:
                    del topic.partitions[number]
                await write_topic(office, topic)
            return
        # Moves are ours to write; what anybody else writes about replicas that there are does not count.
        for number, assignment in before.items():
            office.context.assign((name, number), assignment)
        await self.begin_partitions([name])

    async def watch_topics(self, topics: list[str]) -> None:
        """Of topics that we made ourselves."""
        await read_some(self.office, topics, self._watchers)

    async def _deletions_marked(self, *, is_resumed: bool = True) -> None:
        office = self.office
        listed = await office.session.ask(GetChildren(paths.DELETE_TOPICS, self._watchers.deletions))
        known = [name for name in listed.names if name in office.context.topics]
        if office.settings.controller.delete_topic_enable:
            await self.deletions.refuse([name for name in listed.names if name not in known])
            self.deletions.mark(known)
        else:
            await self.deletions.refuse(listed.names)
        if is_resumed:
            await self.deletions.resume()

    # Balance

    async def _balance_now_and_then(self) -> None:
        settings = self.office.settings.controller
        if not settings.auto_leader_rebalance_enable:
            return
        await self.is_loaded.wait()
        delay_s = FIRST_BALANCE_S
        while True:
            await asyncio.sleep(delay_s)
            delay_s = settings.leader_imbalance_check_interval_s
            self.put("balance", lambda: balance_leaders(self.office))
