"""Our sessions against a real ZooKeeper, with kazoo as the witness."""

import asyncio

import pytest
from sessions import DEADLINE_S, expire, kazoo_at, open_session, session_at, until

from quorate.zookeeper import jute
from quorate.zookeeper.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from quorate.zookeeper.jute import Check, Create, Delete, Exists, Get, GetChildren, Multi, Set, Sync

pytestmark = pytest.mark.zookeeper


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def test_what_we_write_kazoo_reads_and_the_other_way_round(connect):
    async def story():
        async with session_at(connect) as ours:
            with kazoo_at(connect) as theirs:
                assert await ours.ask(Create("/a", b"one")) == "/a"
                data, stat = theirs.get("/a")
                assert (data, stat.version, stat.ephemeralOwner) == (b"one", 0, 0)
                theirs.set("/a", b"two")
                theirs.create("/a/b", b"", ephemeral=True)
                found = await ours.ask(Get("/a"))
                assert (found.data, found.stat.version, found.stat.czxid) == (b"two", 1, stat.czxid)
                assert (await ours.ask(GetChildren("/a"))).names == ["b"]
                assert (await ours.ask(Exists("/a/b"))).ephemeral_owner == theirs.client_id[0]
                assert (await ours.ask(Set("/a", b"three", 1))).version == 2
                assert (await ours.ask(Create("/n_", b"", jute.SEQUENCE))).startswith("/n_00000000")
                await ours.ask(Sync("/"))
                await ours.ask(Delete("/n_0000000001"))
                assert theirs.exists("/n_0000000001") is None

    run(story())


def test_refusals_have_names(connect):
    async def story():
        async with session_at(connect) as session:
            await session.ask_all([Create("/a", b""), Create("/a/b", None)])
            results = await session.ask_all(
                [
                    Get("/none"),
                    Create("/a", b""),
                    Set("/a", b"", 7),
                    Delete("/a"),
                    Create("/none/child", b""),
                ]
            )
            assert [type(one) for one in results] == [NoNode, NodeExists, BadVersion, NotEmpty, NoNode]
            with pytest.raises(NoNode, match="/none"):
                await session.ask(Get("/none"))

    run(story())


def test_all_or_nothing(connect):
    async def story():
        async with session_at(connect) as session:
            await session.ask(Create("/epoch", b"1"))
            results = await session.ask(
                Multi.of(Check("/epoch", 0), Create("/x", b""), Set("/epoch", b"2", 0))
            )
            assert results[0] is None
            assert results[1] == "/x"
            assert results[2].version == 1
            with pytest.raises(MultiFailed) as refused:
                await session.ask(Multi.of(Check("/epoch", 0), Create("/y", b"")))
            assert isinstance(refused.value.errors[0], BadVersion)
            assert isinstance(refused.value.first, BadVersion)
            assert isinstance(await _result(session, Exists("/y")), NoNode)
            with pytest.raises(MultiFailed) as refused:
                await session.ask(Multi.of(Check("/epoch", 1), Create("/x", b"")))
            assert isinstance(refused.value.first, NodeExists)

    run(story())


async def _result(session, operation):
    return (await session.ask_all([operation]))[0]


def test_a_missing_chroot_is_made_with_its_parents(zookeeper, chroot):
    async def story():
        async with session_at(f"{zookeeper.address}{chroot}/deep/down") as session:
            await session.ask(Create("/a", b""))
            assert (await session.ask(GetChildren("/"))).names == ["a"]
        async with session_at(zookeeper.address) as session:
            await session.ask(Exists(f"{chroot}/deep/down/a"))

    run(story())


def test_watches_are_told_once_and_survive_a_lost_connection(connect):
    async def story():
        told = []
        async with session_at(connect) as ours:
            with kazoo_at(connect) as theirs:
                await ours.ask(Create("/a", b""))
                results = await ours.ask_all(
                    [
                        Get("/a", lambda path: told.append(("data", path))),
                        Exists("/b", lambda path: told.append(("created", path))),
                        GetChildren("/a", lambda path: told.append(("children", path))),
                    ]
                )
                assert isinstance(results[1], NoNode)
                theirs.set("/a", b"x")
                await until(lambda: told)
                theirs.set("/a", b"y")
                assert ours._connection is not None
                ours._connection.abort("cut by the test")
                theirs.create("/b", b"")  # while nobody listens
                await until(lambda: ("created", "/b") in told)
                theirs.create("/a/c", b"")
                await until(lambda: ("children", "/a") in told)
                assert told.count(("data", "/a")) == 1

    run(story())


def test_many_requests_outlive_a_lost_connection(connect):
    async def story():
        async with session_at(connect, max_in_flight=50) as session:
            await session.ask(Create("/a", b""))
            asking = asyncio.create_task(
                session.ask_all([Create(f"/a/{number}", b"%d" % number) for number in range(2000)])
            )
            await until(lambda: session._zxid and len(session._waiting) < 1500)
            session._connection.abort("cut by the test")
            results = await asking
            # One that was carried out before the cut says that it exists.
            assert all(isinstance(one, str | NodeExists) for one in results)
            contents = await session.ask_all([Get(f"/a/{number}") for number in range(2000)])
            assert [one.data for one in contents] == [b"%d" % number for number in range(2000)]

    run(story())


def test_a_session_that_is_ended_behind_our_back_has_expired(connect):
    async def story():
        session = await open_session(connect)
        try:
            await session.ask(Create("/mine", b"", jute.EPHEMERAL))
            await expire(connect, session)
            with pytest.raises(SessionExpired):
                await session.ask(Get("/mine"))
        finally:
            await session.close()
        async with session_at(connect) as other:
            with pytest.raises(NoNode):
                await other.ask(Get("/mine"))

    run(story())


def test_ephemeral_nodes_are_gone_when_a_session_is_closed(connect):
    async def story():
        session = await open_session(connect)
        await session.ask(Create("/mine", b"", jute.EPHEMERAL))
        async with session_at(connect) as other:
            await session.close()
            with pytest.raises(NoNode):
                await other.ask(Get("/mine"))

    run(story())


def test_whoever_does_not_answer_is_asked_again_elsewhere(own_zookeeper):
    """Paused for less than the session, it is the same session; for longer, it has expired."""

    async def story():
        session = await open_session(own_zookeeper.address)
        await session.ask(Create("/mine", b"", jute.EPHEMERAL))
        before = session.session_id
        own_zookeeper.pause()
        asking = asyncio.create_task(session.ask(Get("/mine")))
        await until(lambda: not session.connected.is_set())  # after two thirds of the session
        own_zookeeper.resume()
        try:
            await asking
            assert session.session_id == before
        except SessionExpired:
            assert session.expired.is_set()
        await session.close()

    run(story())


def test_a_server_that_is_not_there_yet_is_waited_for(own_zookeeper, caplog):
    async def story():
        own_zookeeper.kill()
        opening = asyncio.create_task(open_session(own_zookeeper.address))
        await until(lambda: "ZooKeeper is not reached" in caplog.text)
        own_zookeeper.start()
        session = await opening
        await session.ask(Exists("/"))
        await session.close()

    run(story())


def test_a_leader_of_the_ensemble_may_die(ensemble):
    async def story():
        session = await open_session(ensemble.addresses, session_timeout_ms=10_000)
        await session.ask(Create("/mine", b"1", jute.EPHEMERAL))
        before = session.session_id
        ensemble.leader.kill()
        assert (await session.ask(Set("/mine", b"2"))).version >= 1
        assert session.session_id == before
        await session.close()

    run(story())


def test_whom_the_acl_does_not_name_is_denied(connect):
    async def story():
        async with session_at(connect, digest="alice:secret") as alice, session_at(connect) as other:
            await alice.ask(Create("/hers", b"x", 0, jute.CREATOR_ONLY))
            assert (await alice.ask(Get("/hers"))).data == b"x"
            with pytest.raises(NoAuth, match="denies access"):
                await other.ask(Get("/hers"))
            await alice.ask(Create("/readable", b"x", 0, jute.CREATOR_AND_READERS))
            assert (await other.ask(Get("/readable"))).data == b"x"
            with pytest.raises(NoAuth):
                await other.ask(Set("/readable", b"y"))

    run(story())


def test_what_is_too_large_is_refused_and_does_not_end_the_session(connect):
    async def story():
        async with session_at(connect) as session:
            with pytest.raises(ConnectionLoss, match="more than ZooKeeper takes"):
                await session.ask(Create("/big", bytes(5 << 20)))
            await session.ask(Create("/small", bytes(1 << 19)))
            assert len((await session.ask(Get("/small"))).data) == 1 << 19

    run(story())


def test_pings_keep_an_idle_session(zookeeper, chroot):
    async def story():
        async with session_at(zookeeper.address + chroot, session_timeout_ms=1000) as session:
            await session.ask(Create("/mine", b"", jute.EPHEMERAL))
            loop = asyncio.get_running_loop()
            began = loop.time()
            await until(lambda: loop.time() - began > 2.5)
            assert (await session.ask(Exists("/mine"))).ephemeral_owner == session.session_id

    run(story())
