"""A node can be connected to before it is there."""

import asyncio
import socket
from contextlib import closing

import pytest

from node.processes import HOST
from node.test_controller import formatted_voters, until
from quorate.net.client import Connection
from quorate.node.early_listening import listen_early
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.api.quorum import DescribeQuorumRequest


def free_port() -> int:
    with closing(socket.create_server((HOST, 0))) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def file(tmp_path):
    """Writes a node's file with these listeners, and says where."""

    def write(listeners: str) -> str:
        path = tmp_path / "node.properties"
        path.write_text(f"node.id=1\nlisteners={listeners}\n")
        return str(path)

    return write


def test_every_listener_with_an_address_is_open(file):
    one, two = free_port(), free_port()
    opened = listen_early(file(f"PLAINTEXT://{HOST}:{one},\\\n  controller://{HOST}:{two}"))
    assert {name: it.getsockname() for name, it in opened.items()} == {
        "PLAINTEXT": (HOST, one),
        "CONTROLLER": (HOST, two),
    }
    for it in opened.values():
        with closing(socket.create_connection(it.getsockname())):
            pass
        it.close()


@pytest.mark.parametrize(
    "listeners",
    [
        "",
        "nonsense",
        "PLAINTEXT://:9092",
        f"PLAINTEXT://{HOST}:0",
        f"PLAINTEXT://{HOST}:99999",
        "A://no such:1",
    ],
)
def test_what_cannot_be_opened_is_left_to_the_node(file, listeners):
    assert listen_early(file(listeners)) == {}


def test_a_port_that_is_in_use_is_left_to_the_node(file, tmp_path):
    with closing(socket.create_server((HOST, 0))) as taken:
        assert listen_early(file(f"PLAINTEXT://{HOST}:{taken.getsockname()[1]}")) == {}
    assert listen_early(str(tmp_path / "missing")) == {}


def test_a_listener_that_stands_there_twice_leaves_nothing_open(file):
    one, two = free_port(), free_port()
    (left,) = listen_early(file(f"A://{HOST}:{one},A://{HOST}:{two}")).values()
    left.close()
    assert free_to_bind(one)
    assert free_to_bind(two)


def free_to_bind(port: int) -> bool:
    with closing(socket.socket()) as it:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        it.bind((HOST, port))
    return True


def test_whoever_comes_before_the_node_is_answered_by_it(tmp_path):
    async def scenario():
        (config,) = await formatted_voters(tmp_path, 1)
        port = config.controller_listener.port
        opened = {"CONTROLLER": socket.create_server((HOST, port))}
        connecting = asyncio.create_task(Connection.connect(HOST, port, timeout_ms=30_000))
        host = real_host("1", opened=opened)
        node = Node(host, config)
        running = asyncio.create_task(node.run())
        connection = await connecting
        await until(lambda: node.state.leadership.leader_id == 1)
        version = connection.version_for(DescribeQuorumRequest)
        answer = await connection.request(DescribeQuorumRequest(topics=[]), version, timeout_ms=30_000)
        assert answer.error_code == 0
        assert host.opened == {}
        await connection.close()
        node.stop()
        await running
        assert free_to_bind(port)

    asyncio.run(scenario())
