"""The integration tests of kafka-python, its own, against one node of ours."""

import pytest
from kafka_python_suite import run_suite

from node.cluster import ClusterProcesses

pytestmark = pytest.mark.interop

MODULES = ("admin", "consumer", "producer")  # not those of SASL and TLS, which start brokers of their own
# What is not asked of us, and why.
EXCEPTIONS = {
    "test_create_describe_delete_acls": "there is no authorizer, and the answer is SECURITY_DISABLED",
    "test_transactional_producer_messages": "transactions have tests of their own",
    "test_transactional_producer_offsets": "transactions have tests of their own",
}
# What the suite leaves out by itself.
FOR_OLD_BROKERS = {"test_kafka_consumer_offsets_for_time_old"}  # of before 0.10.1
SETTINGS = {
    "num_partitions": "4",
    "default_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_min_session_timeout_ms": "100",
    "group_initial_rebalance_delay_ms": "0",
}
COUNT = 22 + 17 + 17 - len(EXCEPTIONS)


def test_the_integration_tests_pass(tmp_path, record_property):
    cluster = ClusterProcesses(tmp_path, combined=1, **SETTINGS)
    cluster.controller_ids = cluster.broker_ids = range(1)  # the tests take it that the one node is 0
    with cluster:
        outcomes, again = run_suite(cluster.client_port(0), MODULES, EXCEPTIONS, tmp_path)
    record_property("figure", f"tests of kafka-python: {len(outcomes)}, of which run again: {again}")
    assert len(outcomes) == COUNT
    assert {one for one, outcome in outcomes.items() if outcome == "skipped"} == FOR_OLD_BROKERS
    assert not [one for one, outcome in outcomes.items() if outcome == "failed"]
