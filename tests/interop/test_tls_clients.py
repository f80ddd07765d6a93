"""A cluster whose nodes and clients talk by TLS alone, each with a certificate."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from net.certificates import Authority
from node.cluster import ClusterProcesses
from node.processes import HOST
from quorate.protocol.message import Request, Response

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program"),
]

DEADLINE_S = 60.0


class SecureCluster(ClusterProcesses):
    """Clients and brokers use SECURE; PLAINTEXT is for the test to look at it."""

    def __init__(self, root: Path, authority: Authority) -> None:
        super().__init__(
            root,
            controllers=1,
            brokers=2,
            listeners={"SECURE": HOST, "PLAINTEXT": HOST},
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(authority.signed("node")),
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(authority.certificate),
            ssl_client_auth="required",
        )

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        protocols = "SECURE:SSL,CONTROLLER:SSL,PLAINTEXT:PLAINTEXT"
        super().configure_node(node_id, **({"listener_security_protocol_map": protocols} | changes))

    def ask_broker(
        self, broker_id: int, request: Request, version_cap: int | None = None, *, listener: str | None = None
    ) -> Response:
        return super().ask_broker(broker_id, request, version_cap, listener=listener or "PLAINTEXT")


def test_records_go_in_and_out(tmp_path: Path):
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    authority = Authority(certificates)
    client_key = authority.signed("client")
    with SecureCluster(tmp_path, authority) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": str(client_key),
            "ssl.key.location": str(client_key),
        }
        admin = AdminClient(settings)
        made = admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=2)])
        made["t"].result(DEADLINE_S)
        values = [b"%06d" % number + bytes(20_000) for number in range(400)]
        producer = confluent_kafka.Producer({**settings, "acks": "all", "linger.ms": 20})
        for value in values:
            producer.produce("t", value, partition=0)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            found: list[bytes] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < len(values) and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None:
                    assert message.error() is None
                    found.append(message.value())
            assert found == values
        finally:
            consumer.close()
