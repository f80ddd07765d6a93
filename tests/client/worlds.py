"""Runs a client and the brokers of a model cluster in a simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from model_cluster import ModelCluster

from quorate.client.cluster import Cluster, ClusterSettings
from quorate.lab.guard import guard
from quorate.lab.world import SECOND, World
from quorate.net.connections import Backoff
from quorate.node.host import Host

SETTINGS = ClusterSettings(request_timeout_ms=3000, metadata_timeout_ms=1000, connect_timeout_ms=1000)
BACKOFF = Backoff(first_ms=20, max_ms=200)


def run(
    model: ModelCluster,
    main: Callable[[Host], Awaitable[None]],
    seed: int = 0,
    disturb: Callable[[World], None] = lambda _world: None,
) -> str:
    """Runs a client until it ends. The digest of the run."""
    with World(seed) as world, guard(world):

        def mute(number: int, healed: Callable[[], None]) -> None:
            world.network.cut(model.names[number], "client")
            world.call_at(world.now_ns + 4 * SECOND, healed)
            world.call_at(world.now_ns + 4 * SECOND, world.network.heal, model.names[number], "client")

        model.mute = mute
        for number, name in model.names.items():

            async def broker(_host: Host, number: int = number) -> None:
                await model.serve(number)
                await asyncio.Event().wait()

            world.add_machine(name)
            world.start(name, broker)
        world.add_machine("client")
        world.start("client", main)
        disturb(world)
        ended = world.run_until_condition(lambda: bool(world.exits), 3600 * SECOND)
        world.check()
        assert ended, "the client did not come to an end"
        world.run_for(120 * SECOND)  # for what comes late
        world.check()
        return str(world.trace.digest())


def run_client(
    model: ModelCluster,
    main: Callable[[Cluster, Host], Awaitable[None]],
    settings: ClusterSettings = SETTINGS,
    **options,
) -> None:
    """Runs something that is given a cluster."""

    async def whole(host: Host) -> None:
        async with Cluster("b1:9092", random=host.random, settings=settings) as cluster:
            await main(cluster, host)

    run(model, whole, **options)
