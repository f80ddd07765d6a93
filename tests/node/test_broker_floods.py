"""A broker in a flood: what its connections hold together stays within its budget, and it goes on serving."""

import asyncio
import socket
from contextlib import AsyncExitStack, suppress

from broker.serving import a_batch, fetch, in_loop, wanted
from node.one_node import HOST, OneNode
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.client.producer import Producer
from quorate.net.framing import SHORT_READ_BYTES
from quorate.protocol import frame
from quorate.protocol.api.produce_fetch import ProduceRequest

MIB = 1 << 20
PEERS = 30
BATCH_BYTES = 900_000
SETTINGS = {
    "socket_request_max_bytes": str(4 * MIB),
    "queued_max_request_bytes": str(12 * MIB),
}


class Peers:
    """Connections that say what they are told to, and read nothing."""

    def __init__(self, node: OneNode) -> None:
        self._address = node.bootstrap.rpartition(":")
        self._closing = AsyncExitStack()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._closing.aclose()

    async def say(self, data: bytes, count: int = PEERS) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            peer = self._closing.enter_context(socket.create_connection((HOST, int(self._address[2]))))
            peer.setblocking(False)
            self._closing.callback(loop.create_task(self._send(loop, peer, data)).cancel)

    @staticmethod
    async def _send(loop, peer, data):
        with suppress(OSError):  # it was ended
            await loop.sock_sendall(peer, data)


def encoded(request, version):
    return bytes(frame.encode_request(request, version, 1, "flood"))


def large_produce(partitions):
    parts = [
        ProduceRequest.TopicProduceData.PartitionProduceData(
            index=index, records=a_batch(1, value_bytes=BATCH_BYTES)
        )
        for index in range(partitions)
    ]
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=parts)
    return encoded(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)


def is_within(node: OneNode) -> bool:
    broker = node.node.broker
    connections = sum(one.connections for one in broker.listeners())
    return broker.budget.peak_bytes <= broker.budget.limit_bytes + connections * 2 * SHORT_READ_BYTES


@in_loop
async def test_clients_are_served_while_others_send_large_requests_and_stop_half_way(tmp_path):
    async with OneNode(tmp_path, **SETTINGS) as node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).create_topics(NewTopic("orders", partitions=3, replication_factor=1))
        async with Peers(node) as peers:
            request = large_produce(3)
            await peers.say(request[: len(request) * 2 // 3])
            budget = node.node.broker.budget
            await node.until(lambda: budget.waiting)
            async with Producer(cluster) as producer:
                for number in range(20):
                    await (await producer.send("orders", b"apple", partition=number % 3))
            assert is_within(node)
            assert budget.waiting
        await node.until(lambda: not budget.used_bytes)
        assert (await node.http("/v1/broker"))[1]["memory"]["peak_bytes"] == budget.peak_bytes


@in_loop
async def test_clients_are_served_while_others_flood_and_do_not_read(tmp_path):
    async with OneNode(tmp_path, **SETTINGS) as node, Cluster(node.bootstrap) as cluster:
        await Admin(cluster).create_topics(NewTopic("orders", partitions=3, replication_factor=1))
        async with Producer(cluster) as producer:
            for _ in range(30):
                await producer.send("orders", bytes(BATCH_BYTES), partition=0)
        async with Peers(node) as peers:
            asked = encoded(fetch(wanted("orders", max_bytes=50 * MIB), version=12), 12)
            await peers.say(asked * 10)
            await peers.say(large_produce(3) * 3, 10)
            async with Producer(cluster) as producer:
                for number in range(20):
                    await (await producer.send("orders", b"apple", partition=number % 3))
            assert is_within(node)
