"""Brokers that are told to stop: let go by a cluster that lives, and not kept by one that does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from quorate.broker.lifecycle import State
from quorate.lab.cluster import ClusterRun
from quorate.lab.cluster_faults import BROKERS
from quorate.lab.faults import ACTIONS
from quorate.lab.story import Story
from quorate.lab.world import SECOND, World

pytestmark = pytest.mark.simulation

SILENCE_NS = 10 * SECOND  # more than the session of a broker
ELECTION_NS = 10 * SECOND  # more than any takes here
STOP_NS = 2 * SECOND  # for what was written to be put in order


@pytest.fixture
def cluster() -> Iterator[ClusterRun]:
    """Three brokers that serve, and their controllers."""
    with World(3) as world:
        run = ClusterRun(world, Story(keep=0), clients=())
        run.start()
        assert world.run_until_condition(lambda: _are_serving(run), world.now_ns + 60 * SECOND)
        yield run
        world.check()


def _are_serving(run: ClusterRun) -> bool:
    brokers = [node.broker for name, node in run.nodes.items() if name in BROKERS]
    return len(brokers) == len(BROKERS) and all(
        one is not None and one.status().state == State.RUNNING.name for one in brokers
    )


def _end_within(run: ClusterRun, span_ns: int, *names: str) -> bool:
    world = run.world
    return world.run_until_condition(lambda: not any(map(world.is_running, names)), world.now_ns + span_ns)


def _active(run: ClusterRun) -> str:
    return next(
        name for name in run.controllers if (desk := run.nodes[name].desk) and desk.active is not None
    )


def test_a_cluster_that_is_stopped_all_at_once_ends_within_seconds(cluster: ClusterRun):
    for name in cluster.ids:
        cluster._leave(cluster.world, name)
    assert _end_within(cluster, 7 * SECOND + STOP_NS, *cluster.ids)


def test_brokers_whose_controllers_are_dead_end_within_seconds(cluster: ClusterRun):
    for name in cluster.controllers:
        cluster.world.kill(name)
    for name in BROKERS:
        cluster._leave(cluster.world, name)
    assert _end_within(cluster, 3 * SECOND + STOP_NS, *BROKERS)


def test_a_broker_that_is_cut_off_from_all_controllers_gives_up_after_ten_seconds(cluster: ClusterRun):
    world, (name, *_) = cluster.world, BROKERS
    for one in cluster.controllers:
        ACTIONS["cut"](world, name, one)
    cluster._leave(world, name)
    assert not _end_within(cluster, SILENCE_NS - SECOND, name)
    assert _end_within(cluster, 2 * SECOND + STOP_NS, name)


def test_a_broker_that_leaves_during_an_election_is_let_go(
    cluster: ClusterRun, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    world, (name, *_) = cluster.world, BROKERS
    world.kill(_active(cluster))
    cluster._leave(world, name)
    assert _end_within(cluster, ELECTION_NS, name)
    assert "stopping reason=the controller has let it go" in caplog.text
