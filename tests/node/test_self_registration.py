"""How a controller makes itself known in the log."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from quorate.controller.settings import SUPPORTED_FEATURES, ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.metadata.records import FeatureLevelRecord, RegisterControllerRecord
from quorate.net.client import ConnectionLost
from quorate.net.connections import Backoff
from quorate.node import self_registration as module
from quorate.node.host import Host
from quorate.protocol.api.brokers import ControllerRegistrationResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.effects import Leadership
from quorate.raft.voters import Endpoint

MINE, ANOTHER = Uuid(b"incarnation 0001"), Uuid(b"incarnation 0002")
DEADLINE_S = 20


def answer(code):
    return ControllerRegistrationResponse(throttle_time_ms=0, error_code=code, error_message=None)


class Cluster:
    """What the controller reads, and the active one that it asks."""

    def __init__(self, monkeypatch, *, level=30, leader_id=2):
        self.image = ClusterImage()
        self.leadership = Leadership(1, leader_id)
        self.asked = []
        self.answers = []  # before the last: an answer, or an exception
        self.is_registered_by_asking = True
        self.image.apply(FeatureLevelRecord(name="metadata.version", feature_level=level), 0)
        for name in ("_CHECK_S", "_SEEN_S"):
            monkeypatch.setattr(module, name, 0.001)
        monkeypatch.setattr(module, "_BACKOFF", Backoff(first_ms=1, max_ms=2))

    async def ask(self, request):
        self.asked.append(request)
        if self.answers:
            found = self.answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found
        if self.is_registered_by_asking:
            self.register(request.incarnation_id)
        return answer(ErrorCode.NONE)

    def register(self, incarnation_id):
        record = RegisterControllerRecord(
            controller_id=1,
            incarnation_id=incarnation_id,
            zk_migration_ready=False,
            end_points=[],
            features=[],
        )
        self.image.apply(record, 1)

    def run_until(self, condition):
        host = Host("1", SimpleNamespace(), random.Random(1), lambda: 0, None)
        settings = ControllerSettings(node_id=1)
        endpoint = Endpoint("CONTROLLER", "here", 9093)

        async def run():
            registering = module.register_self(host, settings, MINE, endpoint, self, self.ask)
            task = asyncio.create_task(registering)
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    assert not task.done(), task.exception()
                    await asyncio.sleep(0.001)
            task.cancel()

        asyncio.run(run())

    @property
    def is_known(self):
        known = self.image.controllers.get(1)
        return known is not None and known.incarnation_id == MINE


class Checks:
    """True after it was asked so many times."""

    def __init__(self, count):
        self.count = count

    def __call__(self):
        self.count -= 1
        return self.count < 0


def test_it_says_where_it_is_and_what_it_knows_and_then_is_silent(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.run_until(lambda: cluster.is_known)
    cluster.run_until(Checks(20))
    [request] = cluster.asked
    [listener] = request.listeners
    assert (request.controller_id, request.incarnation_id) == (1, MINE)
    assert (listener.name, listener.host, listener.port) == ("CONTROLLER", "here", 9093)
    assert {one.name for one in request.features} == set(SUPPORTED_FEATURES)


def test_the_registration_of_an_earlier_run_is_replaced(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.register(ANOTHER)
    cluster.run_until(lambda: cluster.is_known)


def test_one_that_is_lost_with_the_log_is_written_again(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.run_until(lambda: cluster.is_known)
    cluster.image.controllers.clear()
    cluster.run_until(lambda: cluster.is_known)
    assert len(cluster.asked) == 2


@pytest.mark.parametrize(("level", "leader_id"), [(14, 2), (30, None)])
def test_before_its_time_it_does_not_ask(monkeypatch, level, leader_id):
    cluster = Cluster(monkeypatch, level=level, leader_id=leader_id)
    cluster.run_until(Checks(20))
    assert cluster.asked == []


def test_it_asks_once_the_level_allows(monkeypatch):
    cluster = Cluster(monkeypatch, level=14)
    cluster.run_until(Checks(5))
    cluster.image.apply(FeatureLevelRecord(name="metadata.version", feature_level=15), 1)
    cluster.run_until(lambda: cluster.is_known)


def test_it_goes_on_until_the_log_says_so_whatever_it_is_answered(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.answers = [
        ConnectionLost("gone"),
        ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads"),
        answer(ErrorCode.NOT_CONTROLLER),
        answer(9999),  # of a later release
        answer(ErrorCode.NONE),  # and yet it is not in the log: the controller that answered is gone
    ]
    cluster.run_until(lambda: cluster.is_known)
    assert len(cluster.asked) == 6
