"""`quorate brokers`, as a user sees it, against real admin endpoints over a small cluster."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from node.views import View, real_files_host, routes_of, small_cluster
from quorate.cli.main import app
from quorate.net.http import HttpResponse, HttpServer
from quorate.node.admin import AdminEndpoint

HOST = "127.0.0.1"


def run(*arguments: str):
    return CliRunner().invoke(app, ["brokers", *arguments])


class Loop:
    """An event loop in a thread: the commands under test block this one."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)


@contextmanager
def serving(view, directory):
    """The admin endpoint of a controller; gives its address."""

    async def start():
        endpoint = AdminEndpoint(real_files_host(), str(directory), routes_of(view, directory))
        return endpoint, await endpoint.start(HOST, 0)

    directory.mkdir(exist_ok=True)
    with Loop() as loop:
        endpoint, address = loop.do(start())
        try:
            yield address
        finally:
            loop.do(endpoint.close(timeout_ms=0))


@contextmanager
def answering(status, body, content_type="application/json"):
    """Somebody who says the same to everything."""

    async def say(_params, _query):
        return HttpResponse(status, body, content_type)

    async def start():
        server = HttpServer({"/v1/brokers": say, "/v1/brokers/{id}/why": say, "/v1/preflight/stop": say})
        await server.start(HOST, 0)
        return server

    with Loop() as loop:
        server = loop.do(start())
        try:
            yield f"http://{HOST}:{server.port}"
        finally:
            loop.do(server.close(timeout_ms=0))


@pytest.fixture
def view():
    return View(small_cluster())


@pytest.fixture
def address(view, tmp_path):
    with serving(view, tmp_path / "c1") as found:
        yield found


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield f"http://{HOST}:{taken.getsockname()[1]}"


def configuration(directory) -> str:
    path = directory / "node.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3000\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.voters=3000@127.0.0.1:9093\nmetadata.log.dir={directory / 'c1'}\n"
    )
    return str(path)


# Answers


def test_list(address, view):
    result = run("list", "--admin", address)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    epochs = [view.image.brokers[one].epoch for one in (1, 2, 3)]
    assert lines[0].split() == [
        *("ID", "STATE", "RACK", "EPOCH", "LEADS", "REPLICAS", "METADATA", "HEARTBEAT", "LISTENERS")
    ]
    assert lines[1].split("  ")[0] == "1"
    assert lines[3] == (
        f"3   fenced  b     {epochs[2]}    0      0         2         0.4 s ago  PLAINTEXT://broker-3:9092"
    )
    starts = [lines[0].index(name) for name in ("STATE", "EPOCH", "LISTENERS")]
    assert all(line[start - 1] == " " != line[start] for line in lines for start in starts)


def test_list_of_no_brokers(tmp_path, view):
    view.cluster.image.brokers.clear()
    with serving(view, tmp_path / "c2") as address:
        assert run("list", "--admin", address).stdout == "there are no brokers\n"


def test_list_of_a_standby_says_that_it_is_one(address, view):
    view.is_active, view.leader_id = False, 3001
    lines = run("list", "--admin", address).stdout.splitlines()
    assert lines[-1].startswith("(as node 3000 sees it")
    assert lines[3].split()[6:8] == ["-", "-"]


def test_describe(address):
    result = run("describe", "3", "--admin", address)
    assert result.exit_code == 0
    facts = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert facts["state"].strip() == "fenced"
    assert facts["last heartbeat"] == "0.4 s ago"
    assert facts["cordoned"].strip() == "-"
    assert "metadata.version 7-30" in facts["features"]


def test_why(address, view):
    result = run("why", "3", "--admin", address)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first == "broker 3 is fenced (check: metadata offset); last heartbeat 0.4 s ago"
    assert str(view.image.brokers[3].registration_offset) in second
    assert run("why", "1", "--admin", address).stdout.startswith("broker 1 is not fenced")


def test_preflight_of_what_is_safe(address):
    result = run("preflight", "stop", "2", "3001", "--admin", address)
    assert (result.exit_code, result.stdout) == (0, "safe to stop 2, 3001\n")


def test_preflight_of_what_is_not(address):
    result = run("preflight", "stop", "1", "3", "--admin", address)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "not safe to stop 1, 3:",
        "  1 partition would have no leader",
        "  1 partition would be below min.insync.replicas",
        "  no leader: orders-2",
        "  below min.insync.replicas: orders-2",
        "  already fenced: 3",
    ]


def test_preflight_names_a_few_and_counts_the_rest(address, view):
    view.cluster.create(2, [(2,)] * 30)
    assert "topic-2-4 and 25 more" in run("preflight", "stop", "2", "--admin", address).stdout


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("list",), "brokers"),
        (("describe", "3"), "broker"),
        (("why", "3"), "explanation"),
        (("preflight", "stop", "2"), "verdict"),
    ],
)
def test_everything_is_there_as_json(address, arguments, key):
    result = run(*arguments, "--admin", address, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)[key]


# Whom to ask


def test_a_configuration_leads_to_the_node_that_runs_here(address, tmp_path):
    assert (tmp_path / "c1" / "admin-address").read_text().strip() == address
    result = run("preflight", "stop", "2", "--config", configuration(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "safe to stop 2\n")


def test_host_and_port_are_enough(address):
    assert run("list", "--admin", address.removeprefix("http://")).exit_code == 0


def test_a_standby_leads_to_the_active_controller(address, view, tmp_path):
    standby = View(view.cluster, node_id=3001)
    standby.is_active, standby.leader_id, standby.addresses = False, 3000, {3000: address}
    with serving(standby, tmp_path / "c2") as second:
        result = run("why", "3", "--admin", second)
    assert result.exit_code == 0
    assert result.stdout.startswith("broker 3 is fenced")


def test_of_several_the_one_that_knows_answers(address, view, tmp_path, nobody):
    standby = View(view.cluster, node_id=3001)
    standby.is_active, standby.leader_id = False, 3000
    with serving(standby, tmp_path / "c2") as second:
        result = run("why", "3", "--admin", f"{nobody},{second},{address}")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("leader_id", "said"),
    [
        (3001, "the active controller is node 3001: ask that one"),
        (-1, "it is not the active controller, and knows of none now"),
    ],
)
def test_a_standby_that_knows_no_address_says_which_node_to_ask(address, view, leader_id, said):
    view.is_active, view.leader_id = False, leader_id
    result = run("preflight", "stop", "1", "--admin", address)
    assert result.exit_code == 2
    assert result.stderr == f"quorate: {address}: {said}\n"


def test_standbys_that_name_each_other_are_asked_once_each(address, view):
    view.is_active, view.leader_id, view.addresses = False, 3001, {3001: address}
    assert run("why", "3", "--admin", address).exit_code == 2


# What goes wrong


@pytest.mark.parametrize("command", [("describe",), ("why",)])
def test_a_broker_that_is_not_there(address, command):
    result = run(*command, "9", "--admin", address)
    assert result.exit_code == 1
    assert "roker 9" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments", [("list",), ("describe", "1"), ("why", "1"), ("preflight", "stop", "1")]
)
def test_nobody_answers(arguments, nobody):
    result = run(*arguments, "--admin", nobody)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"quorate: {nobody}: ")
    assert "refused" in result.stderr


def test_nobody_is_named():
    result = run("why", "1")  # which only controllers know
    assert result.exit_code == 2
    assert "--admin" in result.stderr


@pytest.mark.parametrize("admin", ["https://x:1", "http://x", "http://:1", "x", "http://x:99999", "http://["])
def test_what_is_not_an_address(admin):
    result = run("list", "--admin", admin)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [("why", "one"), ("why", "-1"), ("why",), ("preflight", "stop", "x")])
def test_what_is_not_an_id(arguments, nobody):
    assert run(*arguments, "--admin", nobody).exit_code == 2


def test_a_node_that_does_not_run(tmp_path):
    result = run("list", "--config", configuration(tmp_path))
    assert result.exit_code == 2
    assert "is that node running?" in result.stderr


def test_a_configuration_that_is_not_there(tmp_path):
    result = run("list", "--config", str(tmp_path / "nothing.properties"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"rubbish"])
def test_an_address_file_that_makes_no_sense(tmp_path, content):
    (tmp_path / "c1").mkdir()
    (tmp_path / "c1" / "admin-address").write_bytes(content)
    assert run("list", "--config", configuration(tmp_path)).exit_code == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"brokers": 7, "is_active": true}'),
        (500, b'{"error": "a mistake"}'),
        (503, b"{}"),
        (400, b'{"error": "no"}'),
        (421, b"{}"),
    ],
)
@pytest.mark.parametrize("arguments", [("list",), ("why", "1"), ("preflight", "stop", "1")])
def test_somebody_else_answers(status, body, arguments):
    with answering(status, body) as address:
        result = run(*arguments, "--admin", address)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


def test_an_endpoint_without_preflight_is_no_verdict():
    with answering(404, b'{"error": "there is no /v1/preflight/stop"}') as address:
        assert run("preflight", "stop", "1", "--admin", address).exit_code == 2
