"""The administration tests of kafka-python, its own, against one node of ours."""

import pytest
from kafka_python_suite import admin_tests, run_admin_tests

from node.cluster import ClusterProcesses

pytestmark = pytest.mark.interop

# What is not asked of us, and why.
EXCEPTIONS = {
    "test_create_describe_delete_acls": "there is no authorizer; Apache without one fails it too",
}
SETTINGS = {
    "num_partitions": "4",
    "default_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_min_session_timeout_ms": "100",
    "group_initial_rebalance_delay_ms": "0",
}
COUNT = 22


def test_the_administration_tests_pass(tmp_path):
    names = admin_tests()
    assert len(names) == COUNT
    chosen = [one for one in names if one not in EXCEPTIONS]
    cluster = ClusterProcesses(tmp_path, combined=1, **SETTINGS)
    cluster.controller_ids = cluster.broker_ids = range(1)  # the tests take it that the one node is 0
    with cluster:
        outcomes = run_admin_tests(cluster.client_port(0), chosen, tmp_path)
    assert outcomes == dict.fromkeys(chosen, "passed")
