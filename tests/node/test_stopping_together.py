"""Who stops is not kept by those who are gone: a whole cluster that is told to stop at once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from node.zookeeper_processes import BOTH_MODES, ZooKeeperProcesses, cluster_of

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_nodes_that_stop_at_the_same_time_all_end_in_order(tmp_path: Path, mode: str):
    """Without the controllers, and without ZooKeeper, nobody lets the brokers go."""
    with cluster_of(mode, tmp_path, controllers=1, brokers=2) as cluster:
        if isinstance(cluster, ZooKeeperProcesses):
            assert cluster.zookeeper is not None
            cluster.zookeeper.kill()
        for one in cluster.node_ids:
            cluster.signal(one, signal.SIGTERM)
        assert [cluster.wait_for_end(one) for one in cluster.node_ids] == [0] * len(cluster.node_ids)
        for one in cluster.broker_ids:
            assert (cluster.directory(one) / ".kafka_cleanshutdown").exists()
