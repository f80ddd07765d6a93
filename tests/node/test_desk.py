"""Requests at the desk of a controller that runs: who waits, for what, and who is told that it is in vain."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from node.test_controller import HeldSyncs, formatted, until
from quorate.controller import controller as deciding
from quorate.controller.decision import Asker, Decision
from quorate.controller.events import QueueFilled
from quorate.metadata.errors import ImageError
from quorate.metadata.image import GROUP
from quorate.metadata.records import RemoveTopicRecord
from quorate.node import desk as module
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
)
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError

IDS = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)


def configure(name):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="45000")
    resources = [resource(resource_type=GROUP, resource_name=name, configs=[config])]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def code_of(answer):
    return answer.responses[0].error_code


class Running:
    """A node that is its own quorum, leads, and has nothing left to do."""

    def __init__(self, node, task):
        self.node = node
        self.task = task
        self.desk = node.desk

    def ask(self, request):
        return asyncio.create_task(self.desk.ask(request, Asker()))

    async def ask_and_wait(self, request, count):
        """Asks, and returns once so many wait for their commit."""
        asked = self.ask(request)
        await until(lambda: self.desk.active.count_waiting == count)
        return asked


@asynccontextmanager
async def running(tmp_path):
    config = await formatted(tmp_path, idle_ms=0)
    config.values["controller.quorum.election.timeout.ms"] = 10
    node = Node(real_host("1"), config)
    task = asyncio.create_task(node.run())
    await until(lambda: task.done() or 1 in node.state.image.controllers)
    try:
        yield Running(node, task)
    finally:
        node.stop()
        await asyncio.wait([task])
    if task.exception() is not None:
        raise task.exception()


def scenario(tmp_path, play):
    async def run():
        async with running(tmp_path) as one:
            await play(one)

    asyncio.run(run())


def test_an_answer_comes_with_the_commit_and_not_before(tmp_path, monkeypatch):
    async def play(one):
        syncs = HeldSyncs(monkeypatch)
        syncs.hold()
        asked = await one.ask_and_wait(configure("a"), 1)
        same = await one.ask_and_wait(
            configure("a"), 2
        )  # it changes nothing, but has read what is not committed
        assert (GROUP, "a") in one.desk.active.image.configs
        assert (GROUP, "a") not in one.node.state.image.configs
        assert not asked.done()
        assert not same.done()
        syncs.release()
        assert code_of(await asked) == code_of(await same) == ErrorCode.NONE
        assert (GROUP, "a") in one.node.state.image.configs

    scenario(tmp_path, play)


def test_who_asks_for_nothing_does_not_wait(tmp_path, monkeypatch):
    async def play(one):
        syncs = HeldSyncs(monkeypatch)
        syncs.hold()
        asked = await one.ask_and_wait(configure("a"), 1)
        assert (await one.ask(CreateTopicsRequest(topics=[], timeout_ms=1))).topics == []
        assert not asked.done()
        syncs.release()
        await asked

    scenario(tmp_path, play)


def test_when_leadership_is_lost_those_who_wait_are_told_and_the_next_epoch_begins_with_the_log(
    tmp_path, monkeypatch
):
    async def play(one):
        syncs = HeldSyncs(monkeypatch)
        syncs.hold()
        epoch, lost = one.desk.active.epoch, one.desk.active
        asked = await one.ask_and_wait(configure("a"), 1)
        one.node.replica.resign()
        # Whether it comes to pass is open: it stands in the log.
        assert code_of(await asked) == ErrorCode.NOT_CONTROLLER
        syncs.release()
        await until(lambda: one.desk.active is not None and one.desk.active.epoch > epoch)
        assert one.desk.active is not lost
        assert one.desk.active.image.equals(one.node.state.image)
        assert code_of(await one.ask(configure("b"))) == ErrorCode.NONE
        assert one.node.metrics.new_active_controllers == 2

    scenario(tmp_path, play)


def test_a_standby_says_so_at_once(tmp_path):
    async def play(one):
        one.desk.active, active = None, one.desk.active
        assert code_of(await one.ask(configure("a"))) == ErrorCode.NOT_CONTROLLER
        assert (await one.ask(IDS)).error_code == ErrorCode.NOT_CONTROLLER
        one.desk.active = active

    scenario(tmp_path, play)


def test_whoever_leaves_without_an_answer_takes_its_place_along_when_it_is_served(tmp_path, monkeypatch):
    """Else those who ask and go, again and again, would fill the memory of one that cannot commit."""
    seen = []

    async def play(one):
        syncs = HeldSyncs(monkeypatch)
        monkeypatch.setattr(module, "WAITING_MAX", 3)
        monkeypatch.setattr(one.desk._observer, "saw", seen.extend)
        syncs.hold()
        for number in range(3):
            asked = await one.ask_and_wait(configure(f"group-{number}"), number + 1)
            asked.cancel()
        for _ in range(2):
            assert code_of(await one.ask(configure("one too many"))) == ErrorCode.REQUEST_TIMED_OUT
        assert [event for event in seen if isinstance(event, QueueFilled)] == [QueueFilled(3)]
        syncs.release()
        await until(lambda: one.desk.active.count_waiting == 0)
        assert code_of(await one.ask(configure("a"))) == ErrorCode.NONE
        groups = [name for kind, name in one.node.state.image.configs if kind == GROUP]
        assert len(groups) == 4, "what was asked for was done all the same"

    scenario(tmp_path, play)


def test_a_heartbeat_is_a_sign_of_life_even_when_nobody_more_can_wait(tmp_path, monkeypatch):
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=5, current_metadata_offset=1, want_fence=False, want_shut_down=False
    )

    async def play(one):
        sessions = one.desk.active.sessions
        sessions.begin(1, 5)
        monkeypatch.setattr(module, "WAITING_MAX", 0)
        assert (await one.ask(request)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert sessions.of(1).ms_since_contact(one.node.replica.now().ms) is not None

    scenario(tmp_path, play)


def test_a_node_that_stops_leaves_nobody_waiting(tmp_path, monkeypatch):
    async def play(one):
        syncs = HeldSyncs(monkeypatch)
        syncs.hold()
        asked = await one.ask_and_wait(configure("a"), 1)
        one.node.stop()
        assert code_of(await asked) == ErrorCode.NOT_CONTROLLER
        assert code_of(await one.ask(configure("b"))) == ErrorCode.NOT_CONTROLLER
        syncs.release()

    scenario(tmp_path, play)


def test_a_decision_that_cannot_be_applied_ends_the_node_and_is_not_in_the_log(tmp_path, monkeypatch):
    removal = RemoveTopicRecord(topic_id=Uuid(b"there is no such"))
    decision = Decision(reply=None, records=[removal])
    ends = []

    async def play(one):
        monkeypatch.setitem(deciding.DECISIONS, AllocateProducerIdsRequest, lambda *_: decision)
        ends.append(one.node.replica.quorum.log.end_offset)
        assert (await one.ask(IDS)).error_code == ErrorCode.NOT_CONTROLLER
        await asyncio.wait([one.task])
        ends.append(one.node.replica.quorum.log.end_offset)

    with pytest.raises(BaseExceptionGroup) as caught:
        scenario(tmp_path, play)
    assert caught.group_contains(ImageError)
    assert ends[0] == ends[1]


def test_a_disk_that_is_full_ends_the_node_and_nobody_is_promised_anything(tmp_path, monkeypatch):
    async def play(one):
        def append(_buffers, _now_ms):
            raise StorageError("log", "no space left on device")

        monkeypatch.setattr(one.node.replica.log.log, "append", append)
        assert code_of(await one.ask(configure("a"))) == ErrorCode.NOT_CONTROLLER
        await asyncio.wait([one.task])
        assert (GROUP, "a") not in one.node.state.image.configs

    with pytest.raises(BaseExceptionGroup) as caught:
        scenario(tmp_path, play)
    assert caught.group_contains(StorageError)


def test_decisions_know_who_votes(tmp_path, monkeypatch):
    seen = []

    def decide(situation, _request):
        seen.append(situation.voters)
        reply = AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=0, producer_id_len=0
        )
        return Decision(reply=reply)

    async def play(one):
        monkeypatch.setitem(deciding.DECISIONS, AllocateProducerIdsRequest, decide)
        await one.ask(IDS)

    scenario(tmp_path, play)
    assert seen == [(1,)]
