"""The same server and client, unchanged, in a simulated world."""

import asyncio

import pytest
from nodes import answer_beat, beat

from quorate.lab.world import MS, SECOND, World
from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.node.host import Host
from quorate.protocol.api.groups import HeartbeatRequest

PORT = 9092
CALLERS = 5
BEATS = 40


async def serve(host: Host) -> None:
    async def answer_later(context, header, request):
        await asyncio.sleep(host.random.uniform(0, 0.01))
        return answer_beat(context, header, request)

    server = Server("SIM", RouteTable([Route(HeartbeatRequest, answer_later)]))
    await server.start(host.name, PORT)
    await asyncio.Event().wait()


class Client:
    """Callers that each send heartbeats, one after the other, and ask again when the connection was lost."""

    def __init__(self) -> None:
        self.answered: list[list[int]] = [[] for _ in range(CALLERS)]
        self.losses = 0

    @property
    def is_done(self) -> bool:
        return all(len(beats) == BEATS for beats in self.answered)

    async def run(self, host: Host) -> None:
        pool = Connections(rng=host.random)
        await asyncio.gather(*(self.ask(pool, beats) for beats in self.answered))
        await pool.close()

    async def ask(self, pool: Connections, beats: list[int]) -> None:
        for generation in range(BEATS):
            while len(beats) == generation:
                try:
                    response = await pool.request(("server", PORT), beat(generation), timeout_ms=500)
                except ConnectionLost:
                    self.losses += 1
                else:
                    assert response.throttle_time_ms == generation
                    beats.append(generation)


def run(seed: int, disturb) -> tuple[Client, str]:
    client = Client()
    with World(seed) as world:
        world.add_machine("server")
        world.add_machine("client")
        world.start("server", serve)
        world.start("client", client.run)
        disturb(world)
        assert world.run_until_condition(lambda: client.is_done, 300 * SECOND)
        world.run_for(SECOND)
        world.check()
        return client, str(world.trace.digest())


def nothing(_world: World) -> None:
    pass


def kills(world: World) -> None:
    for i in range(3):
        world.call_at(world.now_ns + (100 + 700 * i) * MS, world.kill, "server")
        world.call_at(world.now_ns + (400 + 700 * i) * MS, world.restart, "server")


def power_losses(world: World) -> None:
    world.call_at(world.now_ns + 100 * MS, world.power_loss, "server")
    world.call_at(world.now_ns + 1500 * MS, world.restart, "server")


def pauses(world: World) -> None:
    for i in range(3):
        world.call_at(world.now_ns + (50 + 900 * i) * MS, world.pause, "server", 700 * MS)


@pytest.mark.parametrize("disturb", [nothing, kills, power_losses, pauses])
@pytest.mark.parametrize("seed", range(8))
def test_every_caller_gets_every_answer_and_the_same_seed_the_same_run(seed, disturb):
    client, digest = run(seed, disturb)
    assert client.answered == [list(range(BEATS))] * CALLERS
    assert bool(client.losses) == (disturb is not nothing)
    assert run(seed, disturb)[1] == digest
