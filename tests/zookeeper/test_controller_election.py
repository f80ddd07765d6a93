"""Elections, and controllers that do not know that they have been deposed; on a real ZooKeeper."""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plane_town import Clerk, town_at
from sessions import DEADLINE_S, kazoo_at, open_session, session_at, until

from quorate.controller.decision import Asker
from quorate.net.connections import Connections
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.zookeeper import paths
from quorate.zookeeper.admin_requests import answer
from quorate.zookeeper.controller import Controller
from quorate.zookeeper.election import current_controller, elect, resign
from quorate.zookeeper.errors import ControllerMoved, Fatal, NoNode
from quorate.zookeeper.jute import Create, Delete, Exists, Get, Set
from quorate.zookeeper.membership import ensure_base_paths
from quorate.zookeeper.settings import ZooKeeperSettings

pytestmark = pytest.mark.zookeeper


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def test_the_first_controller_has_epoch_1_and_each_next_one_the_next(connect):
    async def story():
        async with session_at(connect) as session:
            for expected in range(1, 5):
                fence = await elect(session, 7, 123)
                assert fence.epoch == expected
                with kazoo_at(connect) as client:
                    assert client.get("/controller_epoch")[0] == b"%d" % expected
                    assert client.get("/controller")[1].ephemeralOwner == session.session_id
                assert await current_controller(session) == 7
                await resign(fence)
                assert await current_controller(session) == -1

    run(story())


def test_of_many_who_try_one_is_elected(connect):
    async def story():
        sessions = [await open_session(connect) for _ in range(8)]
        try:
            for expected in range(1, 6):
                fences = await asyncio.gather(
                    *(elect(session, number, 0) for number, session in enumerate(sessions))
                )
                (won,) = [one for one in fences if one is not None]
                assert won.epoch == expected
                await resign(won)
        finally:
            for session in sessions:
                await session.close()

    run(story())


def test_an_election_whose_answer_was_lost_is_recognised(connect):
    async def story():
        async with session_at(connect) as session:
            fence = await elect(session, 3, 0)
            # The same once more, as when the question is asked again: the nodes are there, and ours.
            from quorate.zookeeper.election import _own_attempt

            again = await _own_attempt(session, 3, fence.epoch)
            assert (again.epoch, again.epoch_version) == (fence.epoch, fence.epoch_version)
            assert await _own_attempt(session, 4, fence.epoch) is None
            async with session_at(connect) as other:
                assert await elect(other, 4, 0) is None

    run(story())


def test_an_epoch_that_is_no_number_is_not_guessed(connect):
    async def story():
        async with session_at(connect) as session:
            await session.ask(Create(paths.CONTROLLER_EPOCH, b"many"))
            with pytest.raises(Fatal, match="no controller can be elected"):
                await elect(session, 1, 0)

    run(story())


def test_what_a_deposed_controller_writes_is_refused(connect):
    async def story():
        async with session_at(connect) as old, session_at(connect) as new:
            fence = await elect(old, 1, 0)
            await fence.write(Create("/node", b"1"))
            await new.ask(Delete(paths.CONTROLLER))  # as if the session had been over for a moment
            successor = await elect(new, 2, 0)
            assert successor.epoch == fence.epoch + 1
            for operation in (
                Create("/other", b""),
                Set("/node", b"2"),
                Delete("/node"),
                Delete(paths.CONTROLLER),
            ):
                with pytest.raises(ControllerMoved):
                    await fence.write(operation)
            with pytest.raises(ControllerMoved):
                await fence.write_together([Create("/other", b"")])
            assert (await new.ask(Get("/node"))).data == b"1"
            with pytest.raises(NoNode):
                await new.ask(Exists("/other"))
            await successor.write(Set("/node", b"3"))

    run(story())


def test_a_controller_that_wakes_up_too_late_can_do_nothing(connect, tmp_path):
    """A process is stopped for longer than its session, and goes on as if nothing had happened."""

    async def story():
        async with session_at(connect) as session:
            with (tmp_path / "errors").open("wb") as errors:
                zombie = subprocess.Popen(
                    [sys.executable, str(Path(__file__).parent / "zombie_program.py"), connect, "1"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            try:
                loop = asyncio.get_running_loop()
                first = await loop.run_in_executor(None, zombie.stdout.readline)
                assert first == b"elected 1\n", (tmp_path / "errors").read_text()
                zombie.send_signal(signal.SIGSTOP)
                gone = asyncio.Event()
                await session.ask(Exists(paths.CONTROLLER, lambda _: gone.set()))
                await gone.wait()  # its session is over
                assert (await elect(session, 2, 0)).epoch == 2
                zombie.stdin.write(b"write\n")
                zombie.stdin.flush()
                zombie.send_signal(signal.SIGCONT)
                said = [(await loop.run_in_executor(None, zombie.stdout.readline)).strip() for _ in range(2)]
                assert said[0] in (b"SessionExpired", b"ControllerMoved")
                assert said[1] == b"ControllerMoved"
            finally:
                zombie.kill()
                zombie.wait()
                zombie.stdin.close()
                zombie.stdout.close()
            with pytest.raises(NoNode):
                await session.ask(Exists("/by-the-zombie"))

    run(story())


def test_brokers_and_zookeeper_refuse_a_deposed_controller(connect):
    """Two controllers at once, and both believe that they are the only one."""

    async def story():
        clerk = Clerk(connect, 5)
        clerk.plane._terms.take_part = _never  # it is no candidate
        await clerk.start()
        async with session_at(connect) as old_session, session_at(connect) as new_session:
            settings = ZooKeeperSettings(connect=connect)

            def controller(fence, broker_id):
                rng = random.Random(1)
                connections = Connections(rng=rng, client_id="test", connect_timeout_ms=1000)
                return Controller(fence, broker_id, settings, connections, rng, lambda: 0)

            await ensure_base_paths(old_session)
            old = controller(await elect(old_session, 1, 0), 1)
            serving = asyncio.create_task(old.run())
            await until(lambda: clerk.controller_epoch == 1)
            await new_session.ask(Delete(paths.CONTROLLER))
            new = controller(await elect(new_session, 2, 0), 2)
            serving_too = asyncio.create_task(new.run())
            await until(lambda: clerk.controller_epoch == 2)
            # What it says to brokers.
            batch = old.office.batch()
            batch.tell_everyone()
            old.office.send(batch)
            await until(lambda: clerk.refused == 1)
            # What it writes.
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
            with pytest.raises(ApiError) as refused:
                await answer(old, request, Asker(7))
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            with pytest.raises(ControllerMoved):
                await serving  # its term is over
            with pytest.raises(NoNode):
                await new_session.ask(Get("/brokers/topics/t"))
            assert (await answer(new, request, Asker(7))).topics[0].error_code == 0
            await until(lambda: ("t", 0) in clerk.states)
            assert clerk.states["t", 0].controller_epoch == 2
            serving_too.cancel()
            await asyncio.wait([serving_too])
        await clerk.stop()

    run(story())


async def _never(*_):
    await asyncio.Event().wait()


def test_another_broker_takes_over_and_knows_everything(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=50, replication_factor=3, assignments=[], configs=[]
            )
            await town.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False))
            states, epoch = dict(town.context.states), town.controller.plane.controller_epoch
            gone = town.controller.plane.broker_id
            await town.clerks.pop(gone).vanish()
            await town.until_controlled()
            assert town.controller.plane.controller_epoch == epoch + 1
            assert set(town.context.states) == set(states)
            assert town.context.leaderless(town.context.keys()) == []
            for key, state in town.context.states.items():
                before = states[key]
                assert state.leader_epoch == before.leader_epoch + 1
                assert set(state.isr) == set(before.isr) - {gone}
                if before.leader != gone:
                    assert state.leader == before.leader
            for clerk in town.clerks.values():
                await until(lambda clerk=clerk: all(one.leader != gone for one in clerk.metadata.values()))

    run(story())


def test_a_controller_whose_node_is_deleted_by_hand_makes_room(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            epoch = town.controller.plane.controller_epoch
            with kazoo_at(connect) as client:
                client.delete("/controller")
            await until(lambda: any(one.plane.controller_epoch > epoch for one in town.clerks.values()))
            await until(lambda: sum(one.plane.is_controller for one in town.clerks.values()) == 1)
            assert {one.plane.controller_id for one in town.clerks.values()} <= {1, 2, -1}

    run(story())
