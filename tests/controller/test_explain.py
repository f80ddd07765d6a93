"""Why is this broker fenced?"""

import json

import pytest

from broker_requests import beat, expire, register, start
from controller_cluster import Cluster, directory
from quorate.controller.explain import Why, why_fenced

SESSION_MS = 9000


def ask(cluster: Cluster, broker_id: int = 1):
    return why_fenced(cluster.image, cluster.sessions, cluster.settings, broker_id, cluster.now_ms)


def not_registered(_cluster):
    pass


def registered(cluster):
    register(cluster, 1)


def serving(cluster):
    start(cluster, 1)


def shutting_down(cluster):
    start(cluster, 1)
    start(cluster, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)


def shut_down(cluster):
    start(cluster, 1)
    beat(cluster, 1, want_shut_down=True)


def shut_down_under_another_controller(cluster):
    shutting_down(cluster)
    beat(cluster, 2)
    beat(cluster, 1)
    cluster.sessions.restart([], cluster.now_ms)


def fenced_under_another_controller(cluster):
    register(cluster, 1)
    beat(cluster, 1, offset=0)
    cluster.sessions.restart([], cluster.now_ms)


def silent(cluster):
    start(cluster, 1)
    cluster.now_ms += SESSION_MS + 1
    expire(cluster)


def wants_fence(cluster):
    register(cluster, 1)
    beat(cluster, 1, want_fence=True)


def behind(cluster):
    register(cluster, 1)
    beat(cluster, 1, offset=3)


def without_disks(cluster):
    start(cluster, 1)
    beat(cluster, 1, offline=[directory(1)])


def fenced_by_hand(cluster):
    start(cluster, 1)
    cluster.fence(1)


@pytest.mark.parametrize(
    ("given", "why", "is_fenced", "words"),
    [
        (not_registered, Why.NOT_REGISTERED, False, ["No broker 1"]),
        (serving, Why.NOT_FENCED, False, ["not fenced"]),
        (shutting_down, Why.SHUTTING_DOWN, False, ["all active brokers"]),
        (shut_down, Why.SHUT_DOWN, True, ["in order"]),
        (shut_down_under_another_controller, Why.SHUT_DOWN, True, ["in order"]),
        (registered, Why.NEVER_HEARD, True, ["no heartbeat"]),
        (fenced_under_another_controller, Why.NEVER_HEARD, True, ["this controller"]),
        (silent, Why.SILENT, True, ["silent for 9001 ms", "9000 ms"]),
        (without_disks, Why.NO_DIRECTORY, True, ["disks"]),
        (wants_fence, Why.WANTS_FENCE, True, ["asks to stay fenced"]),
        (behind, Why.BEHIND, True, ["offset 3"]),
        (fenced_by_hand, Why.READY, True, ["next heartbeat", "2000 ms"]),
    ],
)
def test_one_check_decides(given, why, is_fenced, words):
    cluster = Cluster()
    given(cluster)

    standing = ask(cluster)

    assert (standing.check, standing.is_fenced) == (why.value, is_fenced)
    assert [word for word in words if word not in standing.explanation] == []
    assert json.loads(json.dumps(standing.to_json()))["check"] == why.value


def test_the_numbers_are_there():
    cluster = Cluster()
    behind(cluster)
    cluster.now_ms += 250

    standing = ask(cluster)

    broker = cluster.image.brokers[1]
    assert (standing.epoch, standing.registration_offset) == (broker.epoch, broker.registration_offset)
    assert (standing.metadata_offset, standing.want_fence) == (3, False)
    assert (standing.ms_since_heartbeat, standing.session_timeout_ms) == (250, SESSION_MS)


def test_who_falls_silent_while_it_starts_is_silent():
    cluster = Cluster()
    behind(cluster)
    cluster.now_ms += SESSION_MS + 1

    assert ask(cluster).check == Why.SILENT.value


def test_asking_changes_nothing():
    cluster = Cluster()

    ask(cluster, 99)

    assert cluster.sessions.of(99) is None
