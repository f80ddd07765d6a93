"""Connections to several nodes: made when needed, once, and again after a while when they failed."""

import asyncio
from random import Random

import pytest
from nodes import HOST, Parked, beat, serving, wait_until

from quorate.net.client import ConnectionLost
from quorate.net.connections import Backoff, Connections
from quorate.net.routes import Route
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError

QUICK = Backoff(first_ms=1, max_ms=4)


def connections(backoff: Backoff = QUICK) -> Connections:
    return Connections(rng=Random(1), backoff=backoff)


def test_delays_double_up_to_a_limit_and_are_not_the_same():
    backoff, rng = Backoff(first_ms=100, max_ms=1000), Random(1)
    for failures, expected in ((1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (6, 1000), (10_000, 1000)):
        delays = {backoff.delay_ms(failures, rng) for _ in range(50)}
        assert len(delays) == 50
        assert expected * 0.8 <= min(delays) < expected < max(delays) <= expected * 1.2


async def test_callers_share_one_connection():
    async with serving() as server:
        pool = connections()
        address = (HOST, server.port)
        answers = await asyncio.gather(
            *(pool.request(address, beat(i), timeout_ms=10_000) for i in range(20))
        )
        assert [one.throttle_time_ms for one in answers] == list(range(20))
        assert server.counters.connections_accepted == 1
        await pool.close()
        await wait_until(lambda: server.connections == 0)


async def test_a_node_is_reached_before_it_is_asked():
    pool = connections()
    async with serving() as server:
        address = (HOST, server.port)
        assert not pool.is_connected(address)
        await pool.reach(address, timeout_ms=10_000)
        assert pool.is_connected(address)
        await pool.reach(address, timeout_ms=10_000)
        await pool.request(address, beat(), timeout_ms=10_000)
        assert server.counters.connections_accepted == 1
        pool.drop(address)
        assert not pool.is_connected(address)
    with pytest.raises(ConnectionLost):
        await pool.reach(address, timeout_ms=10_000)
    await pool.close()


async def test_versions_are_capped():
    versions = []

    def answer(_context, header, _request):
        versions.append(header.request_api_version)
        return HeartbeatResponse(error_code=0)

    async with serving(Route(HeartbeatRequest, answer)) as server:
        pool = connections()
        address = (HOST, server.port)
        for cap in (None, 2, 50):
            await pool.request(address, beat(), cap, timeout_ms=10_000)
        with pytest.raises(ApiError) as caught:
            await pool.request(address, MetadataRequest(topics=[]), timeout_ms=10_000)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert versions == [4, 2, 4]
        assert server.counters.connections_accepted == 1
        await pool.close()


async def test_a_node_that_comes_back_is_found_again():
    pool = connections()
    async with serving() as server:
        address = (HOST, server.port)
        await pool.request(address, beat(), timeout_ms=10_000)
    with pytest.raises(ConnectionLost):
        await pool.request(address, beat(), timeout_ms=50)
    async with serving(port=address[1]):
        assert (await pool.request(address, beat(9), timeout_ms=10_000)).throttle_time_ms == 9
    await pool.close()


async def test_a_node_that_is_down_is_left_alone_for_a_while():
    """A caller waits for the next attempt as long as its time allows, and no longer."""
    async with serving() as server:
        address = (HOST, server.port)
    pool = connections(Backoff(first_ms=3_600_000, max_ms=3_600_000))
    with pytest.raises(ConnectionLost, match=r"refused|Connect call failed"):
        await pool.request(address, beat(), timeout_ms=10_000)
    with pytest.raises(ConnectionLost, match="failed 1 times, not tried again in time"):
        await pool.request(address, beat(), timeout_ms=20)
    await pool.close()


async def test_attempts_go_on_while_callers_ask():
    async with serving() as server:
        address = (HOST, server.port)
    pool = connections()
    for failures in range(1, 6):
        with pytest.raises(ConnectionLost):
            await pool.request(address, beat(), timeout_ms=10_000)
        assert pool._peers[address].failures == failures
    await pool.close()


async def test_those_who_wait_for_the_same_attempt_share_its_refusal():
    """Otherwise each would wait for an attempt of its own, and each longer than the one before."""
    async with serving() as server:
        address = (HOST, server.port)
    pool = connections(Backoff(first_ms=3_600_000, max_ms=3_600_000))
    results = await asyncio.gather(
        *(pool.request(address, beat(i), timeout_ms=60_000) for i in range(20)), return_exceptions=True
    )
    assert [type(result) for result in results] == [ConnectionLost] * 20
    assert len({str(result).partition(": ")[0] for result in results}) == 1
    assert pool._peers[address].failures == 1
    await pool.close()


async def test_a_time_out_costs_the_connection_and_the_next_request_makes_a_new_one():
    parked = Parked()
    async with serving(parked.route()) as server:
        pool = connections()
        address = (HOST, server.port)
        results = await asyncio.gather(
            *(pool.request(address, beat(i), timeout_ms=30) for i in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [ConnectionLost] * 3
        assert pool._peers[address].failures == 1  # of one connection, however many waited
        parked.release(7)
        assert (await pool.request(address, beat(7), timeout_ms=10_000)).throttle_time_ms == 7
        assert pool._peers[address].failures == 0
        assert server.counters.connections_accepted == 2
        await pool.close()


async def test_a_bad_request_does_not_cost_the_connection():
    async with serving() as server:
        pool = connections()
        address = (HOST, server.port)
        with pytest.raises(ProtocolError):
            await pool.request(address, beat("x"), timeout_ms=10_000)
        await pool.request(address, beat(), timeout_ms=10_000)
        assert server.counters.connections_accepted == 1
        await pool.close()


async def test_a_caller_that_goes_away_while_connecting_leaves_the_place_to_the_next():
    async with serving() as server:
        pool = connections()
        address = (HOST, server.port)
        first = asyncio.ensure_future(pool.request(address, beat(1), timeout_ms=10_000))
        second = asyncio.ensure_future(pool.request(address, beat(2), timeout_ms=10_000))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).throttle_time_ms == 2
        await pool.close()


async def test_forgetting_a_node():
    parked = Parked()
    async with serving(parked.route()) as server:
        pool = connections()
        address = (HOST, server.port)
        call = asyncio.ensure_future(pool.request(address, beat(), timeout_ms=10_000))
        await parked.is_asked(0)
        pool.forget(address)
        pool.forget(address)
        with pytest.raises(ConnectionLost, match="the node has left"):
            await call
        await pool.close()


async def test_nothing_can_be_asked_after_closing():
    async with serving() as server:
        pool = connections()
        address = (HOST, server.port)
        connecting = asyncio.ensure_future(pool.request(address, beat(), timeout_ms=10_000))
        await asyncio.sleep(0)
        await pool.close()
        for call in (connecting, pool.request(address, beat(), timeout_ms=10_000)):
            with pytest.raises(ConnectionLost, match="closed by us"):
                await call
        await wait_until(lambda: server.connections == 0)
