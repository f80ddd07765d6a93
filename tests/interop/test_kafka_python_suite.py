"""The integration tests of kafka-python, its own, against one node of ours."""

import shutil
from pathlib import Path

import pytest
from kafka_python_suite import Doors, all_modules, run_suite

from net.certificates import Authority
from node.cluster import ClusterProcesses
from node.processes import HOST

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program"),
]

MODULES = ("admin", "consumer", "producer", "ssl")
# What is not asked of us, and why.
WHOLE_EXCEPTIONS = {"sasl": "there is no SASL"}
EXCEPTIONS = {
    "test_create_describe_delete_acls": "there is no authorizer, and the answer is SECURITY_DISABLED",
    "test_transactional_producer_messages": "transactions do not work yet",
    "test_transactional_producer_offsets": "transactions do not work yet",
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
COUNT = 22 + 17 + 17 + 2 - len(EXCEPTIONS)


class OneNode(ClusterProcesses):
    """Node 0, as the tests take it to be called, with and without TLS."""

    def __init__(self, root: Path, authority: Authority) -> None:
        super().__init__(
            root,
            combined=1,
            listeners={"PLAINTEXT": HOST, "SECURE": HOST},
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(authority.signed("node")),
            **SETTINGS,
        )
        self.controller_ids = self.broker_ids = range(1)

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        protocols = "PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT"
        super().configure_node(node_id, listener_security_protocol_map=protocols, **changes)


def test_the_integration_tests_pass(tmp_path, record_property):
    authority = Authority(tmp_path)
    with OneNode(tmp_path, authority) as cluster:
        doors = Doors(cluster.client_port(0), cluster.client_port(0, "SECURE"), authority.certificate)
        outcomes, again = run_suite(doors, MODULES, EXCEPTIONS, tmp_path)
    assert all_modules() == {*MODULES, *WHOLE_EXCEPTIONS}
    record_property("figure", f"tests of kafka-python: {len(outcomes)}, of which run again: {again}")
    assert len(outcomes) == COUNT
    assert {one for one, outcome in outcomes.items() if outcome == "skipped"} == FOR_OLD_BROKERS
    assert not [one for one, outcome in outcomes.items() if outcome == "failed"]
