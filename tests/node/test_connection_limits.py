"""What the keys of a node say of its connections, and what becomes of it when they change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from node.one_node import OneNode
from quorate.broker.connection_rates import NO_LIMIT
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.quotas_rates import CLIENT_WINDOW
from quorate.client.admin import Admin, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.metadata.image import BROKER, ClusterImage
from quorate.metadata.records import ConfigRecord
from quorate.node.config import ConfigError, parse_config
from quorate.node.connection_limits import ConnectionGuard
from quorate.protocol.errors import ApiError, ErrorCode

ME = Resource(ResourceKind.BROKER, "1")
PER_ADDRESS = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
RATE = "max.connection.creation.rate"


class Settings:
    """Keys of a broker that change, and its connections."""

    def __init__(self, file: dict[str, str], connections_max: int = NO_LIMIT, **about: str) -> None:
        self._image = ClusterImage()
        self.configs = DynamicConfig(1, file)
        self._offset = 0
        self.guard = ConnectionGuard(
            self.configs,
            ["CLIENTS", "INTERNAL"],
            CLIENT_WINDOW,
            logging.getLogger("quorate.test"),
            connections_max=connections_max,
            **about,
        )

    def put(self, key: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=BROKER, resource_name="1", name=key, value=value)
        self._image.apply(record, self._offset)
        self._offset += 1
        self.configs.update(self._image)


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


@in_loop
async def test_the_numbers_of_a_file_count_and_those_that_are_set_count_before_them() -> None:
    settings = Settings({"max.connections": "70", "listener.name.internal.max.connections": "30", RATE: "9"})
    limits = settings.guard.admitted.limits
    assert (limits.connections_max, limits.of_listener) == (70, {"INTERNAL": 30})
    assert settings.guard.rates.limits.of_all == 9
    settings.put("listener.name.clients.max.connections", "20")
    settings.put("listener.name.internal.max.connection.creation.rate", "5")
    settings.put("max.connections", "80")
    limits = settings.guard.admitted.limits
    assert (limits.connections_max, limits.of_listener) == (80, {"CLIENTS": 20, "INTERNAL": 30})
    assert settings.guard.rates.limits.of_listener == {"INTERNAL": 5}
    settings.put("listener.name.clients.max.connections", None)
    assert settings.guard.admitted.limits.of_listener == {"INTERNAL": 30}


@in_loop
async def test_a_listener_is_protected_if_clients_have_another() -> None:
    assert Settings({}, protected="INTERNAL").guard.admitted.limits.protected == "INTERNAL"
    alone = ConnectionGuard(
        DynamicConfig(1, {}),
        ["INTERNAL"],
        CLIENT_WINDOW,
        logging.getLogger("quorate.test"),
        protected="INTERNAL",
        connections_max=10,
    )
    assert alone.admitted.limits.protected == ""


@in_loop
async def test_there_are_no_more_connections_than_files_for_them() -> None:
    limits = Settings({"listener.name.internal.max.connections": "30"}, 20).guard.admitted.limits
    assert (limits.connections_max, limits.of_listener) == (20, {"INTERNAL": 20})


@in_loop
async def test_nobody_can_be_locked_out_who_could_change_that() -> None:
    settings = Settings({})
    settings.put("max.connections", "0")
    settings.put(PER_ADDRESS, "0")
    limits = settings.guard.admitted.limits
    assert (limits.connections_max, limits.per_address_max) == (1, 1)
    settings.put(OVERRIDES, "127.0.0.1:5")
    limits = settings.guard.admitted.limits
    assert (limits.per_address_max, limits.of_address) == (0, {"127.0.0.1": 5})


@in_loop
async def test_hosts_that_have_a_name_are_looked_up() -> None:
    settings = Settings({OVERRIDES: "localhost:3, 10.0.0.7:4,::1:5"})
    assert settings.guard.admitted.limits.of_address == {"10.0.0.7": 4, "::1": 5}
    while settings.guard.admitted.limits.of_address.get("127.0.0.1") != 3:
        await asyncio.sleep(0.001)
    settings.put(OVERRIDES, "localhost:6")
    assert settings.guard.admitted.limits.of_address["127.0.0.1"] == 6


@pytest.mark.parametrize("host", ["no..host", "a" * 64])
def test_a_host_that_nobody_knows_is_told_of_and_the_others_are_looked_up(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What can be no name at all: no server of names has to be asked for that."""

    async def scenario() -> None:
        settings = Settings({OVERRIDES: f"{host}:3,10.0.0.7:4,localhost:5"})
        while "127.0.0.1" not in settings.guard.admitted.limits.of_address:
            await asyncio.sleep(0.001)
        assert f"{host} is not known" in caplog.text
        assert settings.guard.admitted.limits.of_address["10.0.0.7"] == 4
        await settings.guard.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (OVERRIDES, "10.0.0.7"),
        (OVERRIDES, "10.0.0.7:"),
        (OVERRIDES, "10.0.0.7:many"),
        (OVERRIDES, "10.0.0.7:-1"),
        (OVERRIDES, "10.0.0.7:2147483648"),
        (OVERRIDES, ":5"),
        (OVERRIDES, "a host:5"),
        (PER_ADDRESS, "-1"),
        (PER_ADDRESS, "0"),  # with no address that has another number
        (RATE, "-1"),
        ("max.connections", "0"),
        ("listener.name.internal.max.connections", "-1"),
        ("listener.name.internal.max.connection.creation.rate", "fast"),
    ],
)
def test_what_a_file_must_not_say(key: str, text: str) -> None:
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": "2@127.0.0.1:9",
        "log.dirs": "/nowhere",
        key: text,
    }
    with pytest.raises(ConfigError, match=f"node.properties: {key}={text}: allowed is"):
        parse_config("node.properties", properties)
    del properties[key]
    assert not parse_config("node.properties", properties).warnings


def test_numbers_of_one_broker_and_of_one_listener_change_while_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
            (server,) = node.node.broker.listeners()
            admin = Admin(cluster)
            of_listener = "listener.name.plaintext.max.connections"
            await admin.alter_configs(ME, put={of_listener: "7", OVERRIDES: "10.0.0.7:3"})
            await node.until(lambda: server.admitted.limits.of_listener == {"PLAINTEXT": 7})
            assert server.admitted.limits.of_address == {"10.0.0.7": 3}
            for key, text in ((OVERRIDES, "10.0.0.7"), (of_listener, "-1"), (RATE, "many")):
                with pytest.raises(ApiError) as refused:
                    await admin.alter_configs(ME, put={key: text})
                assert refused.value.code == ErrorCode.INVALID_REQUEST
                assert f"{key}={text}: allowed is" in refused.value.message

    asyncio.run(asyncio.wait_for(scenario(), 60))
