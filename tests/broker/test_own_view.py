"""Whoever is told by a broker that a topic was made, grown or deleted, sees it there at once."""

from __future__ import annotations

import asyncio
import functools

import pytest

from broker.test_forwarding import ANN, Forwarder, header
from controller_cluster import Cluster, topic_id
from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.own_view import OwnView
from quorate.metadata.records import RemoveTopicRecord
from quorate.protocol.api.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID

ID = topic_id(1)
LONG_MS = 60_000


def creation(*, timeout_ms=LONG_MS, validate_only=False):
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)


def created(error=ErrorCode.NONE, topic_id=ID, count=2):
    result = CreateTopicsResponse.CreatableTopicResult(
        name="t", topic_id=topic_id, error_code=error, num_partitions=count
    )
    return CreateTopicsResponse(topics=[result])


def deletion():
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=LONG_MS
    )


def deleted(topic_id=ZERO_UUID):
    result = DeleteTopicsResponse.DeletableTopicResult(name="t", topic_id=topic_id, error_code=0)
    return DeleteTopicsResponse(responses=[result])


class Broker:
    """A broker with an image of its own, which a controller's answers may be ahead of."""

    def __init__(self):
        self.cluster = Cluster([1])
        self.view = OwnView(lambda: self.cluster.image)

    def sees_topic(self, number=1, partitions=2):
        self.cluster.create(number, [[1]] * partitions, "t")
        self.view.applied()

    def sees_deletion(self, number=1):
        self.cluster.apply(RemoveTopicRecord(topic_id=topic_id(number)))
        self.view.applied()

    def asked(self, request, response, version):
        routes = Forwarding(Forwarder(response), self.view).routes()
        handler = next(one.handler for one in routes if one.request is type(request))
        return asyncio.ensure_future(handler(ANN, header(request, version), request))


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def in_loop(scenario):
    @functools.wraps(scenario)
    def test():
        async def run():
            async with asyncio.timeout(30):
                await scenario(Broker())

        asyncio.run(run())

    del test.__wrapped__  # it takes no arguments
    return test


@in_loop
async def test_a_new_topic_is_told_of_when_all_of_it_is_seen(broker):
    answer = broker.asked(creation(), created(), 7)
    await turns()
    assert not answer.done()
    broker.sees_topic(number=2, partitions=2)  # it had the name before, and is gone when the new one comes
    await turns()
    assert not answer.done()
    broker.sees_deletion(number=2)
    broker.cluster.create(1, [[1]], "t")
    broker.view.applied()
    await turns()
    assert not answer.done(), "one of two partitions"
    broker.sees_deletion()
    broker.sees_topic()
    assert await answer == created()
    assert not broker.view._held


@in_loop
async def test_old_versions_do_not_say_which_id_and_how_many(broker):
    answer = broker.asked(creation(), created(topic_id=ZERO_UUID, count=-1), 2)
    await turns()
    assert not answer.done()
    broker.sees_topic()
    await answer


@in_loop
async def test_what_is_seen_already_is_told_at_once(broker):
    broker.sees_topic()
    await broker.asked(creation(), created(), 7)


@in_loop
async def test_nothing_is_waited_for_that_does_not_come(broker):
    await broker.asked(creation(validate_only=True), created(), 7)
    await broker.asked(creation(), created(ErrorCode.INVALID_PARTITIONS), 7)


@in_loop
async def test_nobody_waits_for_longer_than_he_said(broker):
    assert await broker.asked(creation(timeout_ms=20), created(), 7) == created()
    assert not broker.view._held


@in_loop
async def test_more_partitions_are_told_of_when_they_are_seen(broker):
    broker.sees_topic(partitions=2)
    topic = CreatePartitionsRequest.Topic(name="t", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=LONG_MS, validate_only=False)
    result = CreatePartitionsResponse.TopicResult(name="t", error_code=0)
    answer = broker.asked(request, CreatePartitionsResponse(throttle_time_ms=0, results=[result]), 3)
    await turns()
    assert not answer.done()
    broker.sees_deletion()
    broker.sees_topic(partitions=3)
    await answer


@pytest.mark.parametrize("is_id_told", [False, True])
def test_a_deleted_topic_is_told_of_when_it_is_not_seen_any_more(is_id_told):
    @in_loop
    async def scenario(broker):
        broker.sees_topic()
        request, version = deletion(), 6
        if not is_id_told:
            request, version = DeleteTopicsRequest(topic_names=["t"], timeout_ms=LONG_MS), 5
        answer = broker.asked(request, deleted(ID if is_id_told else ZERO_UUID), version)
        await turns()
        assert not answer.done()
        broker.cluster.apply(RemoveTopicRecord(topic_id=ID))
        broker.sees_topic(number=2)  # somebody has made another one of this name
        await answer

    scenario()


@in_loop
async def test_a_client_that_goes_away_is_forgotten(broker):
    answer = broker.asked(creation(), created(), 7)
    await turns()
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    assert not broker.view._held
    broker.sees_topic()


@in_loop
async def test_an_answer_waits_until_what_the_image_says_is_carried_out(broker):
    carried_out = 4
    view = OwnView(lambda: broker.cluster.image, lambda: 5, lambda: carried_out)
    response = CreateTopicsResponse(topics=[])  # nothing to look for, so the image shows it at once
    waiting = asyncio.ensure_future(
        view.shows(CreateTopicsRequest(topics=[], timeout_ms=1000), response, {}, 60_000)
    )
    await asyncio.sleep(0)
    assert not waiting.done()
    carried_out = 5
    view.applied()
    assert await waiting
