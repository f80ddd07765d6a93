"""Finding one's way in a cluster: metadata, retries, deadlines, errors."""

import asyncio

import pytest
from model_cluster import TOPIC, ModelBroker, ModelCluster
from worlds import SETTINGS, run_client

from quorate.client.cluster import ANY, CONTROLLER, Cluster, ClusterSettings, LeaderOf
from quorate.client.errors import Unavailable
from quorate.client.offsets import EARLIEST, LATEST, list_offsets
from quorate.lab.world import MS, SECOND
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.api.transactions import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.errors import ApiError, ErrorCode

IDENTIFY = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """The topics of every metadata request."""
    requests = []
    original = ModelBroker.metadata

    def metadata(self, context, header, request: MetadataRequest):
        requests.append([topic.name for topic in request.topics])
        return original(self, context, header, request)

    monkeypatch.setattr(ModelBroker, "metadata", metadata)
    return requests


def test_whoever_asks_at_the_same_time_shares_one_request(asked):
    async def main(cluster: Cluster, _host) -> None:
        await asyncio.gather(*(cluster.topic(TOPIC) for _ in range(10)))
        assert asked == [[TOPIC]]
        await asyncio.gather(*(cluster.refresh() for _ in range(10)))
        assert asked == [[TOPIC]] * 2
        first = asyncio.ensure_future(cluster.refresh())
        await asyncio.sleep(0)
        with pytest.raises(ApiError):
            await cluster.topic("another", timeout_ms=300)  # not covered by the one under way
        await first
        assert asked[3] == [TOPIC, "another"]

    run_client(ModelCluster(1, 1), main)


def test_who_comes_when_an_answer_has_just_arrived_asks_anew_if_it_is_not_covered(asked, monkeypatch):
    """The request is over, and whoever made it has not been woken yet."""
    waits = []
    shield = asyncio.shield

    def counted_shield(waited_for):
        waits.append(waited_for)
        assert len(waits) < 100, "it waits for what is over, again and again"
        return shield(waited_for)

    async def main(cluster: Cluster, _host) -> None:
        has_answer = asyncio.get_running_loop().create_future()
        refresh = cluster._refresh

        async def refresh_and_tell(topics: list[str]) -> None:
            await refresh(topics)
            if not has_answer.done():
                has_answer.set_result(None)

        monkeypatch.setattr(cluster, "_refresh", refresh_and_tell)
        monkeypatch.setattr(asyncio, "shield", counted_shield)
        first = asyncio.ensure_future(cluster.refresh())
        await has_answer
        assert cluster._refreshing is not None
        assert cluster._refreshing.done()
        assert (await cluster.topic(TOPIC)).name == TOPIC
        await first
        assert asked == [[], [TOPIC]]
        assert cluster._refreshing is None

    run_client(ModelCluster(1, 1), main)


def test_a_caller_that_goes_away_does_not_take_the_answer_with_it(asked):
    async def main(cluster: Cluster, _host) -> None:
        tasks = [asyncio.ensure_future(cluster.topic(TOPIC)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert (await tasks[1]).name == (await tasks[2]).name == TOPIC
        assert asked == [[TOPIC]]

    run_client(ModelCluster(1, 1), main)


def test_metadata_grows_old(asked):
    async def main(cluster: Cluster, _host) -> None:
        await cluster.topic(TOPIC)
        await asyncio.sleep(2)
        assert len(asked) in (3, 4)

    settings = ClusterSettings(metadata_age_max_ms=600)
    run_client(ModelCluster(1, 1), main, settings)


def test_a_request_finds_the_leader_wherever_it_goes():
    model = ModelCluster(3, 3)

    async def main(cluster: Cluster, _host) -> None:
        for at in model.logs:
            assert (await cluster.leader(*at)).id == model.logs[at].leader
        for _ in range(5):
            for at in model.logs:
                model.move(at)
            found = await list_offsets(cluster, dict.fromkeys(model.logs, LATEST))
            assert [one.offset for one in found.values()] == [0, 0, 0]

    run_client(model, main)


def test_a_broker_that_is_away_is_waited_for():
    model = ModelCluster(2, 2)

    async def main(cluster: Cluster, _host) -> None:
        for _ in range(20):
            await list_offsets(cluster, dict.fromkeys(model.logs, EARLIEST))
            await cluster.request(2, IDENTIFY)
            await asyncio.sleep(0.05)

    def disturb(world) -> None:
        for i in range(3):
            world.call_at(world.now_ns + (100 + 900 * i) * MS, world.kill, "b2")
            world.call_at(world.now_ns + (500 + 900 * i) * MS, world.restart, "b2")

    run_client(model, main, disturb=disturb)


def test_errors_that_may_pass_are_tried_again_up_to_a_limit(monkeypatch):
    codes = []

    def answer(_self, *_) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=codes.pop(0), producer_id=5, producer_epoch=0
        )

    monkeypatch.setattr(ModelBroker, "init_producer_id", answer)
    busy, no = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def main(cluster: Cluster, _host) -> None:
        codes[:] = [busy, busy, 0]
        assert (await cluster.request(ANY, IDENTIFY)).producer_id == 5
        codes[:] = [busy, no, 0]
        with pytest.raises(ApiError) as refusal:
            await cluster.request(ANY, IDENTIFY)
        assert refusal.value.code is no
        codes[:] = [busy] * 10
        with pytest.raises(ApiError, match="InitProducerIdRequest to any broker, 3 attempts") as refusal:
            await cluster.request(ANY, IDENTIFY, retries=2)
        assert refusal.value.code is busy
        assert len(codes) == 7
        codes[:] = [busy] * 100
        with pytest.raises(ApiError):
            await cluster.request(CONTROLLER, IDENTIFY, timeout_ms=1000)
        assert len(codes) > 80

    run_client(ModelCluster(1, 1), main)


def test_what_is_not_there_is_named():
    async def main(cluster: Cluster, _host) -> None:
        with pytest.raises(ApiError, match="broker 9 is not there; alive: 1, 2"):
            await cluster.request(9, IDENTIFY, retries=0)
        with pytest.raises(ApiError, match=r"topic 'u' does not exist.*create it first"):
            await cluster.topic("u")
        with pytest.raises(ApiError, match="'t' has 1 partitions, and no 4"):
            await cluster.leader(TOPIC, 4, timeout_ms=500)
        with pytest.raises(ApiError, match="topic 'u' does not exist"):
            await cluster.request(LeaderOf("u", 0), IDENTIFY, retries=1)

    run_client(ModelCluster(2, 1), main)


def test_a_partition_without_a_leader_says_who_could_lead_it():
    model = ModelCluster(2, 1)
    model.log().leader = -1

    async def main(cluster: Cluster, _host) -> None:
        with pytest.raises(ApiError, match="t-0 has no leader: its replicas are on 1, 2; alive: 1, 2"):
            await cluster.leader(TOPIC, 0, timeout_ms=500)

    run_client(model, main)


def test_a_cluster_that_nobody_reaches():
    async def main(cluster: Cluster, _host) -> None:
        with pytest.raises(Unavailable, match=r"attempts: no broker answers.*Is the cluster running"):
            await cluster.topic(TOPIC, timeout_ms=3000)
        with pytest.raises(Unavailable, match="InitProducerIdRequest to any broker"):
            await cluster.request(ANY, IDENTIFY, timeout_ms=3000)

    run_client(ModelCluster(1, 1), main, disturb=lambda world: world.kill("b1"))


def test_a_silent_broker_does_not_hide_the_others():
    """It accepts connections and says nothing; there is another one."""
    model = ModelCluster(2, 1)

    async def main(cluster: Cluster, _host) -> None:
        assert (await cluster.topic(TOPIC)).name == TOPIC
        await asyncio.sleep(1)
        await cluster.refresh()
        await cluster.refresh()

    def disturb(world) -> None:
        world.call_at(world.now_ns + 500 * MS, world.pause, "b1", 30 * SECOND)

    run_client(model, main, disturb=disturb)


def test_a_closed_client_says_so():
    async def main(cluster: Cluster, _host) -> None:
        waiting = asyncio.ensure_future(cluster.topic("u", timeout_ms=60_000))
        await asyncio.sleep(0.01)
        await cluster.close()
        with pytest.raises((Unavailable, ApiError)):
            await waiting
        with pytest.raises(ConnectionError, match="closed"):
            await cluster.refresh()

    run_client(ModelCluster(1, 1), main, SETTINGS)
