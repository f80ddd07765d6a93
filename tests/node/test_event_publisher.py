"""The event publisher: the journal's events in a topic, each of them at least once."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from broker.serving import in_loop
from controller_cluster import Cluster as Members
from node.cluster import ClusterProcesses
from node.one_node import OneNode
from node.views import WALL_MS, real_files_host
from quorate.client.cluster import Cluster
from quorate.client.fetcher import EARLIEST, Fetcher
from quorate.controller.events import UnfenceWithheld
from quorate.net.connections import Backoff
from quorate.node.cluster_state import ClusterState
from quorate.node.event_journal import EventJournal, JournalLimits
from quorate.node.event_publisher import TOPIC, EventPublisher, PublisherSettings
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

QUICK = PublisherSettings(interval_ms=1, settle_ms=0, timeout_ms=2000, backoff=Backoff(first_ms=1, max_ms=2))
SECONDS_MAX = 60


async def read_until(bootstrap, is_enough):
    """The records of the topic, key and event, until there are enough."""
    found = []
    async with asyncio.timeout(SECONDS_MAX), Cluster(bootstrap) as cluster:
        while True:
            try:
                await cluster.topic(TOPIC)
                break
            except ApiError as error:
                assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with Fetcher(cluster) as fetcher:
            fetcher.assign({(TOPIC, 0): EARLIEST})
            while not is_enough(found):
                for part in await fetcher.fetch():
                    found += [(bytes(one.key), json.loads(bytes(one.value))) for one in part.records()]
    return found


def lines_of(directory: Path):
    """What stands in a journal, by sequence."""
    files = sorted(directory.glob("events-*.jsonl"))
    entries = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {entry["sequence"]: entry for entry in entries}


def position(directory: Path) -> int:
    return json.loads((directory / "events-published").read_text())["next_sequence"]


@in_loop
async def test_the_topic_has_what_the_journal_has_and_goes_on_after_a_restart(tmp_path):
    node = OneNode(tmp_path, quorate_events_publish="true", quorate_events_settle_ms="0")
    async with node:
        at_least = len(lines_of(node.directory))
        before = await read_until(node.bootstrap, lambda found: len(found) >= max(at_least, 3))
        await node.until(lambda: node.node.publisher.published and not node.node.publisher.waiting)
    async with node:
        ended = max(lines_of(node.directory))
        found = await read_until(
            node.bootstrap,
            lambda found: found and found[-1][1]["sequence"] >= max(ended, before[-1][1]["sequence"] + 1),
        )
    journal = lines_of(node.directory)
    assert [event["sequence"] for _, event in found] == list(range(len(found)))  # no gap, and none twice
    assert [event for _, event in found] == [journal[number] for number in range(len(found))]
    assert {key for key, _ in found} == {b"1"}
    assert len({event["incarnation"] for _, event in found}) == 2
    assert {"node", "incarnation", "sequence", "time_ms", "kind"} <= found[0][1].keys()
    assert position(node.directory) >= len(found) - 200


@pytest.mark.processes
def test_controllers_find_their_brokers_and_everyone_publishes(tmp_path):
    settings = {"quorate_events_publish": "true", "quorate_events_settle_ms": "500"}
    with ClusterProcesses(tmp_path, controllers=1, brokers=2, **settings) as cluster:

        def is_complete(found):
            have = {(event["node"], event["incarnation"], event["sequence"]) for _, event in found}
            return all(
                {(event["node"], event["incarnation"], number) for number, event in lines.items()} <= have
                for lines in (lines_of(cluster.directory(one)) for one in cluster.node_ids)
            )

        found = asyncio.run(read_until(cluster.bootstrap, lambda found: found and is_complete(found)))
        assert {event["node"] for _, event in found} == {1, 101, 102}
        assert {key for key, _ in found} == {b"1", b"101", b"102"}
        cluster.kill(1)
        cluster.start(1)
        cluster.wait("the controller is back", cluster.describe)
        asyncio.run(read_until(cluster.bootstrap, lambda found: found and is_complete(found)))


# On its own


class Topic:
    """Where a publisher's batches go, instead of to brokers; it may fail."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.sequences: list[int] = []
        self.failures = 0
        publisher._send = self._send  # type: ignore[method-assign]
        publisher._publish = lambda: publisher._copy(None)  # type: ignore[method-assign, arg-type]

    async def _send(self, _producer, batch) -> None:
        if self.failures:
            self.failures -= 1
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "a test")
        self.sequences += [event["sequence"] for event in batch]


def state_with_brokers() -> ClusterState:
    state = ClusterState()
    state.image = Members([1, 2, 3]).image
    return state


class Alone:
    """A journal and its publisher."""

    def __init__(self, directory: Path, *, state=None, settings=QUICK, limits=None) -> None:
        host = real_files_host()
        self.journal = EventJournal(host, str(directory), 7, Uuid(b"incarnation 0001"), limits)
        self.publisher = EventPublisher(
            host, str(directory), 7, self.journal, state or state_with_brokers(), settings=settings
        )
        self.topic = Topic(self.publisher)

    def say(self, count: int) -> None:
        for number in range(count):
            self.journal.append(UnfenceWithheld(3, 4, "metadata offset", number, 4), WALL_MS)
        self.journal.flush()

    async def run_until(self, condition) -> None:
        running = asyncio.create_task(self.publisher.run())
        while not condition():
            assert not running.done()
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def close(self) -> None:
        self.journal.close()


@in_loop
async def test_what_fails_is_sent_again_until_it_succeeds(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    alone = Alone(tmp_path)
    alone.say(3)
    alone.topic.failures = 5
    await alone.run_until(lambda: alone.topic.sequences)
    assert alone.topic.sequences == [0, 1, 2]
    assert len([one for one in caplog.records if "events not published" in one.message]) == 1
    alone.close()


@in_loop
async def test_it_goes_on_where_it_was_acknowledged(tmp_path):
    alone = Alone(
        tmp_path,
        settings=PublisherSettings(interval_ms=1, batch_max=2, backoff=Backoff(first_ms=1, max_ms=2)),
    )
    alone.say(5)
    await alone.run_until(lambda: not alone.publisher.waiting)
    assert position(tmp_path) == 5
    alone.close()

    again = Alone(tmp_path)
    again.say(2)
    await again.run_until(lambda: not again.publisher.waiting)
    assert again.topic.sequences == [5, 6]
    again.close()


@in_loop
async def test_a_journal_that_lost_its_end_is_published_from_there(tmp_path):
    alone = Alone(tmp_path)
    alone.say(5)
    await alone.run_until(lambda: not alone.publisher.waiting)
    alone.close()
    (journal,) = tmp_path.glob("events-*.jsonl")
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))

    again = Alone(tmp_path)
    again.say(3)
    await again.run_until(lambda: again.topic.sequences)
    assert again.topic.sequences == [3, 4, 5]
    again.close()


@pytest.mark.parametrize(
    "content", ["", "nonsense", "[]", '{"next_sequence": "x"}', '{"next_sequence": null}']
)
def test_a_damaged_position_publishes_everything_again(tmp_path, content):
    @in_loop
    async def scenario():
        alone = Alone(tmp_path)
        alone.say(3)
        await alone.run_until(lambda: not alone.publisher.waiting)
        alone.close()
        (tmp_path / "events-published").write_text(content)

        again = Alone(tmp_path)
        await again.run_until(lambda: again.topic.sequences)
        assert again.topic.sequences == [0, 1, 2]
        again.close()

    scenario()


@in_loop
async def test_what_the_journal_gave_up_is_reported_and_skipped(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    alone = Alone(tmp_path, limits=JournalLimits(files_max=2, file_bytes_max=1000))
    alone.say(50)
    first = min(lines_of(tmp_path))
    assert first > 0
    await alone.run_until(lambda: not alone.publisher.waiting)
    assert alone.topic.sequences == list(range(first, 50))
    assert f"events lost before they were published from=0 count={first}" in caplog.text
    alone.close()


@in_loop
async def test_without_brokers_it_waits(tmp_path):
    state = ClusterState()
    alone = Alone(tmp_path, state=state)
    alone.say(1)
    find, looks = alone.publisher._addresses, []
    alone.publisher._addresses = lambda: looks.append(find()) or looks[-1]
    await alone.run_until(lambda: len(looks) > 3)
    assert alone.topic.sequences == []
    state.image = Members([1]).image
    await alone.run_until(lambda: alone.topic.sequences)
    alone.close()


@in_loop
async def test_a_mistake_in_it_ends_nothing(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    alone = Alone(tmp_path)
    alone.say(1)

    async def break_down():
        raise ZeroDivisionError

    alone.publisher._publish = break_down
    await alone.run_until(lambda: "ZeroDivisionError" in caplog.text)
    alone.close()


@in_loop
async def test_the_topic_is_not_created_on_few_brokers_at_once(tmp_path):
    state = ClusterState()
    state.image = Members([1]).image
    alone = Alone(tmp_path, state=state, settings=PublisherSettings(settle_ms=3_600_000))
    assert not await alone.publisher._has_topic(None)
    alone.close()
