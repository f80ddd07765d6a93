"""ZooKeeper goes away, comes back, and has nonsense in it: nobody falls over, and nothing is lost."""

import asyncio
import json

import pytest
from plane_town import Clerk, town_at
from sessions import DEADLINE_S, expire, kazoo_at, session_at, until
from test_controller_duties import creation
from zookeeper_servers import free_ports

from quorate.protocol.api.topics import ElectLeadersRequest
from quorate.zookeeper.errors import Fatal
from quorate.zookeeper.jute import Create, Get
from quorate.zookeeper.membership import read_members

pytestmark = pytest.mark.zookeeper


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 2 * DEADLINE_S))


def is_connected(clerk: Clerk) -> bool:
    """Between two sessions it has none."""
    session = clerk.plane.session
    return session is not None and session.connected.is_set()


def test_brokers_wait_for_a_zookeeper_that_is_not_there_yet(own_zookeeper, caplog):
    async def story():
        own_zookeeper.kill()
        clerk = Clerk(own_zookeeper.address, 1)
        starting = asyncio.create_task(clerk.start())
        await until(lambda: "ZooKeeper is not reached" in caplog.text)
        own_zookeeper.start()
        await starting
        await until(lambda: clerk.plane.is_controller)
        await clerk.stop()

    run(story())


def test_a_broker_that_was_told_how_long_to_try_ends_after_that():
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with pytest.raises(Fatal, match=f"{address} was not reached within zookeeper.connection.timeout.ms=300"):
        run(Clerk(address, 1, connection_timeout_ms=300).start())


def test_what_is_asked_while_zookeeper_is_away_is_done_when_it_is_back(own_zookeeper):
    """For less than a session: nobody is deposed, nobody registers again."""

    async def story():
        async with town_at(own_zookeeper.address + "/kafka", 1, 2, session_timeout_ms=20_000) as town:
            epochs = {number: one.plane.broker_epoch for number, one in town.clerks.items()}
            controller = town.controller
            own_zookeeper.kill()
            await until(lambda: not controller.plane.session.connected.is_set())
            asking = asyncio.create_task(town.ask(creation("t", assignments=[[1, 2]])))
            await asyncio.sleep(0.2)
            assert not asking.done()
            assert controller.plane.is_controller  # it has no reason to believe otherwise
            own_zookeeper.start()
            assert (await asking).topics[0].error_code == 0
            await until(lambda: all(("t", 0) in one.states for one in town.clerks.values()))
            assert controller.plane.is_controller
            assert epochs == {number: one.plane.broker_epoch for number, one in town.clerks.items()}

    run(story())


def test_a_zookeeper_that_stood_still_for_longer_than_the_sessions(own_zookeeper):
    async def story():
        connect = own_zookeeper.address
        async with town_at(connect, 1, 2, 3, session_timeout_ms=2000) as town:
            await town.ask(creation("t", 5, 3))
            loop = asyncio.get_running_loop()
            own_zookeeper.pause()
            began = loop.time()
            await until(lambda: loop.time() - began > 4)
            own_zookeeper.resume()
            await until(lambda: all(is_connected(one) for one in town.clerks.values()))
            await town.ask(creation("after", 1, 3))
            await town.until_controlled()
            await until(lambda: set(town.context.members) == {1, 2, 3})
            await until(lambda: town.context.leaderless(town.context.keys()) == [])
            await until(lambda: all(len(one.metadata) == 6 for one in town.clerks.values()))

    run(story())


def test_servers_of_an_ensemble_die_one_after_the_other(ensemble):
    async def story():
        connect = ensemble.addresses + "/kafka"
        async with town_at(connect, 1, 2, session_timeout_ms=20_000) as town:
            epochs = {number: one.plane.broker_epoch for number, one in town.clerks.items()}
            for turn in range(2):
                dying = ensemble.leader
                dying.kill()
                response = await town.ask(creation(f"t{turn}", assignments=[[1, 2]]))
                assert response.topics[0].error_code == 0
                dying.start()
                dying.wait()
            assert epochs == {number: one.plane.broker_epoch for number, one in town.clerks.items()}
            await until(lambda: all(len(one.states) == 2 for one in town.clerks.values()))

    run(story())


def test_without_a_quorum_brokers_wait_and_nothing_is_lost(ensemble):
    """Two of three servers are gone: the third serves nobody who wants to write."""

    async def story():
        connect = ensemble.addresses
        async with town_at(connect, 1, 2, session_timeout_ms=10_000) as town:
            await town.ask(creation("t", assignments=[[1, 2]]))
            gone = ensemble.servers[:2]
            for server in gone:
                server.kill()
            asking = asyncio.create_task(town.ask(creation("later", assignments=[[1, 2]])))
            await until(lambda: not town.clerks[1].plane.session.connected.is_set())
            assert not asking.done()
            for server in gone:
                server.start()
            assert (await asking).topics[0].error_code == 0
            await until(lambda: all(len(one.metadata) == 2 for one in town.clerks.values()))

    run(story())


def test_a_server_that_is_read_only_is_not_used(ensemble, caplog):
    """Cut off from the others, with read-only mode on, it would answer whoever does not write."""

    async def story():
        last = ensemble.servers[2]
        last.kill()
        last.extra = ["-Dreadonlymode.enabled=true"]
        last.start()
        last.wait()
        async with session_at(last.address, session_timeout_ms=5000) as session:
            for server in ensemble.servers[:2]:
                server.kill()
            await until(lambda: "read-only" in last.ask("srvr"))
            asking = asyncio.create_task(session.ask(Create("/x", b"")))
            await until(lambda: "read-only" in caplog.text)
            for server in ensemble.servers[:2]:
                server.start()
            try:
                assert await asking == "/x"
            except Exception as error:
                assert "expired" in str(error)

    run(story())


def test_nonsense_in_znodes_is_said_and_passed_over(connect, caplog):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("good", assignments=[[1, 2]]))
            await town.ask(creation("odd", assignments=[[1, 2]]))
            with kazoo_at(connect) as client:
                client.create("/brokers/topics/bad", b"{nonsense")
                client.set("/brokers/topics/odd/partitions/0/state", b"nonsense")
                client.create("/brokers/ids/9", b"[]")
                client.create("/config/topics/bad", b"nonsense")
                client.create("/config/changes/config_change_", b"nonsense", sequence=True)
                client.create(
                    "/config/changes/config_change_", b'{"version":2,"entity_path":"a/b/c"}', sequence=True
                )
                client.create("/isr_change_notification/isr_change_", b"nonsense", sequence=True)
                client.create("/log_dir_event_notification/log_dir_event_", b"nonsense", sequence=True)
                client.create("/admin/reassign_partitions", b"nonsense")
                client.create("/admin/preferred_replica_election", b"nonsense")
                client.create("/admin/delete_topics/nothing", b"")
                await until(lambda: not client.exists("/admin/reassign_partitions"))
                await until(lambda: not client.exists("/admin/preferred_replica_election"))
                await until(lambda: not client.exists("/admin/delete_topics/nothing"))
                await until(lambda: not client.get_children("/isr_change_notification"))
                await until(lambda: not client.get_children("/log_dir_event_notification"))
                for path in ("/brokers/topics/bad", "/brokers/ids/9", "/config/changes/"):
                    await until(lambda path=path: f"{path}" in caplog.text)
            # Another controller begins with all of it.
            epoch = town.controller.plane.controller_epoch
            await expire(connect, town.controller.plane.session)
            await until(lambda: any(one.plane.controller_epoch > epoch for one in town.clerks.values()))
            await town.until_controlled()
            await until(lambda: set(town.context.members) == {1, 2})
            assert "bad" not in town.context.topics
            assert ("odd", 0) not in town.context.states
            assert (await town.ask(creation("after", assignments=[[2, 1]]))).topics[0].error_code == 0
            # What was repaired is taken up.
            with kazoo_at(connect) as client:
                client.set("/brokers/topics/bad", b'{"version":1,"partitions":{"0":[1,2]}}')
                client.create("/brokers/topics/other", b'{"version":1,"partitions":{"0":[1,2]}}')
                await until(lambda: ("other", 0) in town.clerks[1].metadata)
                named = json.loads(client.get("/brokers/topics/other")[0])
                assert named["version"] == 3  # it has an id now
                assert len(named["topic_id"]) == 22

    run(story())


def test_requests_of_old_times_are_made_by_znodes(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            await town.ask(creation("t", assignments=[[1, 2], [1, 2]]))
            with kazoo_at(connect) as client:
                client.create(
                    "/admin/reassign_partitions",
                    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]},'
                    b'{"topic":"t","partition":1,"replicas":[9]}]}',
                )
                await until(lambda: not client.exists("/admin/reassign_partitions"))
                assert json.loads(client.get("/brokers/topics/t")[0])["partitions"]["0"] == [2, 1]
                assert town.context.states["t", 0].leader == 1
                client.create(
                    "/admin/preferred_replica_election",
                    b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
                )
                await until(lambda: town.context.states["t", 0].leader == 2)
                await until(lambda: not client.exists("/admin/preferred_replica_election"))
                client.create("/admin/delete_topics/t", b"")
                await until(lambda: not client.exists("/brokers/topics/t"))

    run(story())


def test_a_disk_that_fails_moves_leaders_away(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", assignments=[[1, 2], [2, 1]]))
            failing = town.clerks[1]
            failing.lost.add(("t", 0))
            await failing.plane.log_directory_failed()
            await until(lambda: town.context.states["t", 0].leader == 2)
            assert town.context.states["t", 0].isr == (2,)
            assert set(town.context.states["t", 1].isr) == {1, 2}
            await until(lambda: town.clerks[2].metadata["t", 0].offline_replicas == [1])

    run(story())


def test_records_are_given_up_only_where_the_topic_allows_it(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            keeper = town.controller.plane.broker_id
            first, second = (one for one in (1, 2, 3) if one != keeper)
            replicas = [[first, second]]
            await town.ask(creation("careful", assignments=replicas), via=keeper)
            await town.ask(
                creation("careless", assignments=replicas, unclean_leader_election_enable="true"), via=keeper
            )
            for leaving in (second, first):
                await town.clerks.pop(leaving).stop()
                await until(lambda leaving=leaving: leaving not in town.context.members)
            await until(lambda: town.context.states["careful", 0].leader == -1)
            assert town.context.states["careful", 0].isr == (first,)
            await town.add(second)
            await until(lambda: town.context.states["careless", 0].leader == second)
            assert town.context.states["careless", 0].is_recovering
            assert town.context.states["careful", 0].leader == -1
            request = ElectLeadersRequest(
                election_type=1,
                topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="careful", partitions=[0])],
                timeout_ms=30_000,
            )
            await town.ask(request, via=keeper)
            assert town.context.states["careful", 0].leader == second
            async with session_at(connect) as session:
                found = await session.ask(Get("/brokers/topics/careful/partitions/0/state"))
                assert json.loads(found.data)["leader_recovery_state"] == 1
                assert set(await read_members(session)) == {keeper, second}

    run(story())
