"""The admin endpoint: what it answers, on the active controller and on a standby."""

import asyncio
import http.client
import json
import random

import pytest

from controller_cluster import incarnation
from lab.running import run_process
from node.views import EPOCH, View, real_files_host, routes_of, small_cluster
from quorate.lab.world import World
from quorate.net.http import HttpServer
from quorate.node.admin import AdminEndpoint
from quorate.node.admin_view import VoterView, quorum_view
from quorate.node.host import Host
from quorate.raft.positions import LogPositions
from quorate.raft.quorum import Now, Quorum, QuorumSettings
from quorate.raft.state import Follower, Leader, Progress
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet


@pytest.fixture
def view():
    return View(small_cluster())


@pytest.fixture
def get(view, tmp_path):
    """Asks for a path and query; status and answer."""
    server = HttpServer(routes_of(view, tmp_path).table())

    def ask(target: str):
        response = asyncio.run(server.answer(target.encode()))
        is_json = response.content_type == "application/json"
        return response.status, json.loads(response.body) if is_json else response.body.decode()

    return ask


# Brokers


def test_brokers_are_listed_with_what_they_lead_and_when_they_were_heard(get, view):
    status, found = get("/v1/brokers")
    assert status == 200
    assert (found["node_id"], found["is_active"]) == (3000, True)
    assert found["applied_offset"] == view.applied_offset
    keys = ("id", "state", "rack", "leaders", "replicas", "ms_since_heartbeat", "metadata_offset")
    assert [tuple(one[key] for key in keys) for one in found["brokers"]] == [
        (1, "active", None, 2, 3, 1000.0, -1),
        (2, "active", None, 1, 2, 1000.0, -1),
        (3, "fenced", "b", 0, 0, 400.0, 2),
    ]


def test_a_broker_is_described(get, view):
    view.cluster.shut_down(1)
    status, found = get("/v1/brokers/1")
    assert status == 200
    broker = found["broker"]
    assert broker["state"] == "shutting down"
    assert broker["incarnation_id"] == str(incarnation(1))
    assert broker["listeners"] == [
        {"name": "PLAINTEXT", "host": "broker-1", "port": 9092, "security_protocol": "PLAINTEXT"}
    ]
    assert broker["features"]["group.version"] == [0, 1]
    assert len(broker["directories"]) == 1


def test_ids_may_be_as_large_as_they_like(get, view):
    large = 2**31 - 1
    view.cluster.register(large)
    view.cluster.create(2, [(large, 1)])
    brokers = {one["id"]: (one["leaders"], one["replicas"]) for one in get("/v1/brokers")[1]["brokers"]}
    assert (brokers[large], brokers[1], brokers[3]) == ((1, 1), (2, 4), (0, 0))


def test_a_standby_lists_brokers_without_heartbeats(get, view):
    view.is_active, view.leader_id = False, 3001
    status, found = get("/v1/brokers")
    assert (status, found["is_active"]) == (200, False)
    assert {one["ms_since_heartbeat"] for one in found["brokers"]} == {None}
    assert get("/v1/brokers/3")[1]["broker"]["metadata_offset"] is None


def test_the_session_of_an_earlier_incarnation_is_not_shown(get, view):
    view.cluster.register(1, run=1)
    assert get("/v1/brokers/1")[1]["broker"]["ms_since_heartbeat"] is None


def test_why_says_what_keeps_a_broker_fenced(get, view):
    status, found = get("/v1/brokers/3/why")
    registered_at = view.image.brokers[3].registration_offset
    assert status == 200
    assert (found["broker_id"], found["is_fenced"]) == (3, True)
    assert (found["metadata_offset"], found["registration_offset"]) == (2, registered_at)
    assert found["ms_since_heartbeat"] == 400
    assert str(registered_at) in found["explanation"]
    assert get("/v1/brokers/1/why")[1]["is_fenced"] is False


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/brokers/9", 404),
        ("/v1/brokers/9/why", 404),
        ("/v1/brokers/one", 400),
        ("/v1/brokers/", 400),
        ("/v1/brokers/-1", 400),
        ("/v1/brokers/1.5", 400),
        ("/v1/brokers/%D9%A1", 400),  # a digit, but not one of ours
        ("/v1/brokers/99999999999", 400),
        ("/v1/brokers/" + "9" * 5000 + "/why", 400),
        ("/v1/preflight/stop", 400),
        ("/v1/preflight/stop?ids=", 400),
        ("/v1/preflight/stop?ids=,,", 400),
        ("/v1/preflight/stop?ids=1,two", 400),
        ("/v1/preflight/stop?ids=" + "1," * 2000, 400),
        ("/v1/events?from=x", 400),
        ("/v1/events?limit=0", 400),
        ("/v1/events?limit=1000000", 400),
        ("/v1/nothing", 404),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(get, path, status):
    found, content = get(path)
    assert found == status
    assert content["error"]
    assert len(content["error"]) < 300


# Preflight


def test_preflight_says_what_would_happen(get):
    status, found = get("/v1/preflight/stop?ids=1,3,3000")
    assert status == 200
    assert found["verdict"] == "unsafe"
    assert found["leaderless"] == {"count": 1, "examples": ["orders-2"]}
    assert found["below_min_isr"] == {"count": 1, "examples": ["orders-2"]}
    assert found["already_fenced"] == [3]
    assert (found["quorum_lost"], found["voters_left"], found["voters_needed"]) == (False, 2, 2)
    assert found["reasons"] == [
        "1 partition would have no leader",
        "1 partition would be below min.insync.replicas",
    ]


def test_preflight_counts_only_voters_that_have_caught_up(get, view):
    assert get("/v1/preflight/stop?ids=3001")[1]["verdict"] == "safe"
    view.behind = (3002,)
    assert get("/v1/preflight/stop?ids=3001")[1]["quorum_lost"] is True
    assert get("/v1/preflight/stop?ids=3002")[1]["quorum_lost"] is False


# The controller, events, metrics


def test_the_controller_describes_the_quorum(get, view):
    view.behind = (3001,)
    _, found = get("/v1/controller")
    voters = found.pop("voters")
    end = view.applied_offset + 1
    assert found == {
        "node_id": 3000,
        "is_active": True,
        "controller_id": 3000,
        "epoch": EPOCH,
        "high_watermark": end,
        "log_end_offset": end,
        "applied_offset": end - 1,
        "lag_ms": 0,
    }
    assert [(one["id"], one["lag"], one["is_caught_up"]) for one in voters] == [
        (3000, 0, True),
        (3001, 7, False),
        (3002, 0, True),
    ]
    view.is_active, view.leader_id = False, -1
    _, found = get("/v1/controller")
    assert (found["is_active"], found["controller_id"], found["lag_ms"]) == (False, None, 250)
    assert {one["lag"] for one in found["voters"]} == {None}


@pytest.mark.parametrize("path", ["/v1/brokers/3/why", "/v1/preflight/stop?ids=1"])
@pytest.mark.parametrize(
    ("leader_id", "addresses", "named", "address"),
    [
        (3001, {}, 3001, None),
        (3001, {3001: "http://there:80"}, 3001, "http://there:80"),
        (-1, {}, None, None),
        (3000, {}, None, None),  # it was elected, and has not got ready yet
    ],
)
def test_a_standby_says_whom_to_ask(get, view, path, leader_id, addresses, named, address):
    view.is_active, view.leader_id, view.addresses = False, leader_id, addresses
    status, found = get(path)
    assert status == 421
    assert found == {
        "error": "not the active controller",
        "controller_id": named,
        "controller_admin": address,
    }


def test_events_come_in_pages(get):
    assert [one["sequence"] for one in get("/v1/events?limit=2")[1]["events"]] == [1, 2]
    _, found = get("/v1/events")
    assert [one["sequence"] for one in found["events"]] == [0, 1, 2]
    assert (found["next"], found["dropped"]) == (3, 0)
    _, found = get("/v1/events?from=1&limit=1")
    assert ([one["sequence"] for one in found["events"]], found["next"]) == ([1], 2)
    assert get("/v1/events?from=99")[1] == {"events": [], "next": 99, "dropped": 0}


def test_metrics_and_health(get):
    status, text = get("/metrics")
    assert status == 200
    assert "kafka_controller_kafkacontroller_fencedbrokercount 1.0" in text
    assert 'quorate_events_total{check="metadata offset",kind="UnfenceWithheld"} 2.0' in text
    assert get("/healthz") == (200, {"status": "ok", "node_id": 3000, "is_active": True})


# Listening


def test_it_listens_and_says_where(view, tmp_path):
    async def scenario():
        endpoint = AdminEndpoint(real_files_host(), str(tmp_path), routes_of(view, tmp_path))
        address = await endpoint.start("127.0.0.1", 0)
        assert (tmp_path / "admin-address").read_text() == f"{address}\n"

        def ask():
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
            connection.request("GET", "/healthz")
            found = json.loads(connection.getresponse().read())
            connection.close()
            return found

        assert (await asyncio.to_thread(ask))["status"] == "ok"
        await endpoint.close()
        assert not (tmp_path / "admin-address").exists()
        await endpoint.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("listen", "prefix"),
    [("", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")],
)
def test_the_address_is_one_to_connect_to(view, tmp_path, listen, prefix):
    async def scenario():
        endpoint = AdminEndpoint(real_files_host(), str(tmp_path), routes_of(view, tmp_path))
        assert (await endpoint.start(listen, 0)).startswith(prefix)
        await endpoint.close()

    asyncio.run(scenario())


def test_a_full_disk_does_not_keep_it_from_listening(view, tmp_path):
    async def scenario(host: Host) -> None:
        host.files.make_directory("/data")
        endpoint = AdminEndpoint(host, "/data", routes_of(view, tmp_path))
        world.machines["c1"].disk.room_bytes = 0
        assert (await endpoint.start("127.0.0.1", 0)).startswith("http://127.0.0.1:")
        assert not host.files.exists("/data/admin-address")
        await endpoint.close()

    with World(1) as world:
        run_process(world, "c1", scenario)
        world.check()


# What a quorum looks like

NOW = Now(50_000.0, 1_700_000_050_000)


def quorum_of_three() -> Quorum:
    voters = VoterSet.of(Voter(ReplicaKey(one), (Endpoint("C", f"c{one}", 9093),)) for one in (1, 2, 3))
    return Quorum(
        ReplicaKey(1),
        (Endpoint("C", "c1", 9093),),
        log=LogPositions(),
        voters=VoterHistory(voters),
        settings=QuorumSettings(fetch_timeout_ms=2000),
        random=random.Random(1),
    )


def progress(offset: int, fetched_ms_ago: float, caught_up_ms_ago: int) -> Progress:
    return Progress(
        offset,
        NOW.ms - fetched_ms_ago,
        int(NOW.wall_ms - fetched_ms_ago),
        NOW.wall_ms - caught_up_ms_ago if caught_up_ms_ago >= 0 else -1,
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (progress(10, 100, 100), True),
        (progress(9, 100, 600), True),  # the last records are on their way
        (progress(10, 2001, 2001), False),  # it has not fetched for too long
        (progress(5, 100, 30_000), False),  # it fetches, and is far behind
        (progress(5, 100, -1), False),  # it never was there
        (Progress(), False),
    ],
)
def test_a_voter_has_caught_up_if_it_could_go_on(other, expected):
    quorum = quorum_of_three()
    quorum.role = Leader(4, 0, float("inf"), replicas={ReplicaKey(2): other})
    found = quorum_view(quorum, NOW)
    assert found.leader_id == 1
    assert [one.id for one in found.voters] == [1, 2, 3]
    assert found.voters[0].is_caught_up
    assert found.voters[1].is_caught_up is expected
    assert found.voters[2] == VoterView(3, None, None, None, False)


def test_a_follower_knows_the_leader_and_no_more():
    quorum = quorum_of_three()
    quorum.role = Follower(4, 2, Endpoint("C", "c2", 9093), float("inf"))
    found = quorum_view(quorum, NOW)
    assert (found.leader_id, found.epoch, found.high_watermark) == (2, 4, -1)
    assert found.voters == tuple(VoterView(one, None, None, None, None) for one in (1, 2, 3))
