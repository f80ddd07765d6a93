"""Registering, with everything that may stand in the way; on a real ZooKeeper."""

import asyncio
import json

import pytest
from plane_town import Clerk
from sessions import DEADLINE_S, expire, kazoo_at, open_session, session_at, until
from test_controller_duties import creation

from quorate.metadata.brokers import Listener
from quorate.zookeeper import membership, paths
from quorate.zookeeper.errors import Fatal, NoAuth
from quorate.zookeeper.jute import Create, Exists, Get, Set
from quorate.zookeeper.membership import (
    agree_on_cluster_id,
    check_addresses,
    ensure_base_paths,
    generate_broker_id,
    read_members,
    register,
)
from quorate.zookeeper.registration_json import Member

pytestmark = pytest.mark.zookeeper


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def member(broker_id=1, port=9092):
    return Member(broker_id, (Listener("PLAINTEXT", "h", port),))


def test_the_paths_that_everybody_expects_are_made(connect):
    async def story():
        async with session_at(connect) as session:
            await ensure_base_paths(session)
            await ensure_base_paths(session)
            for path in paths.BASE_PATHS:
                assert (await session.ask(Get(path))).data == b""

    run(story())


def test_of_several_who_propose_a_cluster_id_one_is_right(connect):
    async def story():
        async with session_at(connect) as first, session_at(connect) as second:
            await ensure_base_paths(first)
            found = await asyncio.gather(
                *(agree_on_cluster_id(one, name) for name in "abc" for one in (first, second))
            )
            assert len(set(found)) == 1
            with kazoo_at(connect) as client:
                value = json.loads(client.get("/cluster/id")[0])
                assert value == {"version": "1", "id": found[0]}

    run(story())


def test_ids_are_given_in_turn(connect):
    async def story():
        async with session_at(connect) as session:
            await ensure_base_paths(session)
            assert [await generate_broker_id(session, 1000) for _ in range(3)] == [1001, 1002, 1003]

    run(story())


def test_a_member_is_seen_and_its_epoch_is_its_own(connect):
    async def story():
        async with session_at(connect) as session:
            await ensure_base_paths(session)
            first = await register(session, member())
            with kazoo_at(connect) as client:
                _, stat = client.get("/brokers/ids/1")
                assert (stat.czxid, stat.version) == (first.epoch, 1)
                assert stat.ephemeralOwner == session.session_id
            assert (await read_members(session))[1] == first
            # Asked again, as after a lost answer, it is the same.
            assert (await register(session, member())).epoch == first.epoch

    run(story())


def test_a_node_of_our_last_session_is_replaced(connect):
    async def story():
        old = await open_session(connect)
        await ensure_base_paths(old)
        before = await register(old, member())
        async with session_at(connect) as new:
            after = await register(new, member(), previous_session_id=old.session_id)
            assert after.epoch > before.epoch
            assert (await new.ask(Exists("/brokers/ids/1"))).ephemeral_owner == new.session_id
        await old.close()

    run(story())


def test_a_second_process_with_the_same_id_is_refused_and_told_whose_it_is(connect, monkeypatch, caplog):
    monkeypatch.setattr(membership, "PATIENCE", 0.1)
    monkeypatch.setattr(membership, "PATIENCE_MORE_MS", 0)

    async def story():
        async with session_at(connect) as first, session_at(connect) as second:
            await ensure_base_paths(first)
            kept = await register(first, member())
            with pytest.raises(
                Fatal, match=f"broker id 1 is taken: session {first.session_id:#x} at PLAINTEXT"
            ):
                await register(second, member(port=9093))
            assert (await read_members(second))[1] == kept  # the first is not disturbed
        assert "waiting up to" in caplog.text

    run(story())


def test_whoever_crashed_and_is_back_waits_for_its_own_node_to_go(connect):
    async def story():
        crashed = await open_session(connect, session_timeout_ms=1000)
        await ensure_base_paths(crashed)
        before = await register(crashed, member())
        await crashed.abandon()
        async with session_at(connect) as session:
            assert (await register(session, member())).epoch > before.epoch

    run(story())


def test_two_brokers_cannot_be_in_one_place(connect):
    async def story():
        async with session_at(connect) as session:
            await ensure_base_paths(session)
            await register(session, member(1))
            with pytest.raises(Fatal, match="broker 1 says that it is there"):
                await check_addresses(session, member(2))
            await check_addresses(session, member(2, port=9093))

    run(story())


def test_malformed_registrations_are_passed_over_with_a_line(connect, caplog):
    async def story():
        async with session_at(connect) as session:
            await ensure_base_paths(session)
            await register(session, member())
            await session.ask(Create("/brokers/ids/7", b"{nonsense"))
            await session.ask(Create("/brokers/ids/x", b"{}"))
            assert set(await read_members(session)) == {1}
        assert "/brokers/ids/7 is malformed" in caplog.text

    run(story())


def test_a_directory_of_another_cluster_is_refused(connect):
    async def story():
        first = await Clerk(connect, 1).start()
        stranger = Clerk(connect, 2)
        try:
            with pytest.raises(Fatal, match="belongs to cluster other"):
                await stranger.plane.connect(known_cluster_id="other", known_broker_id=None)
            with pytest.raises(Fatal, match=r"broker\.id=2, but this directory belongs to broker 5"):
                await stranger.plane.connect(known_cluster_id=first.plane.cluster_id, known_broker_id=5)
        finally:
            await stranger.plane.stop()
            await first.stop()

    run(story())


def test_an_id_that_may_not_be_generated_must_be_given(connect):
    async def story():
        clerk = Clerk(connect, is_broker_id_generated=False)
        with pytest.raises(Fatal, match=r"broker\.id is not set"):
            await clerk.plane.connect(known_cluster_id=None, known_broker_id=None)
        await clerk.plane.stop()

    run(story())


def test_bad_connect_strings_say_what_is_wrong():
    for text, reason in [("", "no server"), ("a:b", "no port"), ("a:1/b//c", "no path")]:
        with pytest.raises(Fatal, match=reason):
            asyncio.run(_made(text))


async def _made(text):
    Clerk(text, 1)


def test_a_broker_that_may_not_write_says_so_and_is_there_when_it_may(connect, caplog):
    """The ACL of a parent denies it; an operator repairs that."""

    async def story():
        async with session_at(connect, digest="root:x") as root:
            await ensure_base_paths(root)
            with kazoo_at(connect, auth_data=[("digest", "root:x")]) as client:
                from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

                client.set_acls("/brokers/ids", [make_digest_acl("root", "x", all=True)])
                clerk = Clerk(connect, 1)
                starting = asyncio.create_task(clerk.start())
                await until(lambda: "denies access" in caplog.text)
                assert not starting.done()
                client.set_acls("/brokers/ids", OPEN_ACL_UNSAFE)
            await starting
            assert set(await read_members(root)) == {1}
            await clerk.stop()

    run(story())


def test_what_is_made_belongs_to_its_creator_where_acls_are_set(connect):
    async def story():
        async with session_at(connect, digest="alice:x") as alice, session_at(connect) as other:
            await ensure_base_paths(alice, is_acl_set=True)
            assert (await other.ask(Get("/brokers/topics"))).data == b""
            with pytest.raises(NoAuth):
                await other.ask(Create("/brokers/topics/t", b""))
            with pytest.raises(NoAuth):
                await other.ask(Get("/config/users"))

    run(story())


def test_an_expiry_storm_of_all_brokers_loses_nobody(connect):
    async def story():
        clerks = [await Clerk(connect, number).start() for number in (1, 2, 3)]
        try:
            before = [one.plane.broker_epoch for one in clerks]
            await asyncio.gather(*(expire(connect, one.plane.session) for one in clerks))
            await until(
                lambda: all(one.plane.broker_epoch > old for one, old in zip(clerks, before, strict=True))
            )
            async with session_at(connect) as session:
                assert set(await read_members(session)) == {1, 2, 3}
            await until(lambda: sum(one.plane.is_controller for one in clerks) == 1)
            await until(lambda: all(one.brokers == {1, 2, 3} for one in clerks))
            assert all(one.epochs == sorted(one.epochs) for one in clerks)
        finally:
            for one in clerks:
                await one.stop()

    run(story())


def test_a_broker_lives_where_acls_are_set(connect):
    async def story():
        clerk = await Clerk(connect, 1, digest="alice:x", is_acl_set=True).start()
        try:
            await until(lambda: clerk.plane.is_controller)
            response = await clerk.plane.forward(creation("t"), 7, "User:ANONYMOUS", "test")
            assert response.topics[0].error_code == 0
            async with session_at(connect) as other:
                assert (await other.ask(Get("/brokers/topics/t/partitions/0/state"))).data
                for path in ("/controller", "/brokers/ids/1", "/brokers/topics/t/partitions/0/state"):
                    with pytest.raises(NoAuth):
                        await other.ask(Set(path, b""))
        finally:
            await clerk.stop()

    run(story())
