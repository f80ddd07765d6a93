"""Registers kept in a real cluster, and the histories of those who use them.

`use_registers` keeps them in a topic: whoever writes appends, and whoever reads appends a mark and reads up
to it, since a leader that has been deposed may not know it yet, and could tell old news. `change_settings`
writes settings of groups into the metadata log, whose order is then compared with real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from quorate.client.admin import Admin, NewTopic, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.fetcher import Fetcher
from quorate.client.producer import Producer, ProducerSettings
from quorate.lab.linearizability import Operation
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["SETTING", "Histories", "change_settings", "use_registers"]

KEYS: Final = ("a", "b", "c")
SETTING: Final = "consumer.session.timeout.ms"
SETTING_FIRST: Final = 45_000  # values that a group may have, each used once
SETTINGS_MAX: Final = 15_000
_PATIENCE_MS: Final = 20_000
_TRIES_S: Final = 0.1


@dataclass(slots=True)
class Histories:
    """What all clients did, by register."""

    registers: dict[str, list[Operation]] = field(default_factory=lambda: {key: [] for key in KEYS})
    settings: list[tuple[float, float, int]] = field(default_factory=list)
    """When a setting was asked for, when that was acknowledged (never: infinity), and its value."""
    next_value: int = 0


async def use_registers(
    cluster: Cluster, topic: str, histories: Histories, chance: Random, is_over: Callable[[], bool]
) -> None:
    """One client: reads and writes registers at random."""
    while True:
        try:
            configs = {"min.insync.replicas": "2"}
            one = NewTopic(topic, partitions=1, replication_factor=3, configs=configs)
            await Admin(cluster).create_topics(one)
            break
        except (ApiError, Unavailable) as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                break
            await asyncio.sleep(0.5)
    settings = ProducerSettings(request_timeout_ms=3000, delivery_timeout_ms=_PATIENCE_MS)
    async with Producer(cluster, settings) as producer, Fetcher(cluster) as fetcher:
        fetcher.assign({(topic, 0): 0})
        known: dict[str, str] = {}
        while not is_over():
            await asyncio.sleep(chance.expovariate(1 / _TRIES_S))
            key = chance.choice(KEYS)
            try:
                if chance.random() < 0.5:
                    await _write(producer, topic, key, histories)
                else:
                    await _read(producer, fetcher, topic, key, known, histories)
            except (ApiError, Unavailable):
                continue


async def _write(producer: Producer, topic: str, key: str, histories: Histories) -> None:
    loop = asyncio.get_running_loop()
    histories.next_value += 1
    value, begun, ended = str(histories.next_value), loop.time(), inf
    try:
        receipt = await producer.send(topic, value.encode(), key=key.encode(), partition=0)
        await receipt
        ended = loop.time()
    finally:
        histories.registers[key].append(Operation(True, value, begun, ended))


async def _read(
    producer: Producer, fetcher: Fetcher, topic: str, key: str, known: dict[str, str], histories: Histories
) -> None:
    """`known` is what this client has read so far; it does not read anything twice."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    receipt = await producer.send(topic, b"", partition=0)
    mark = (await receipt).offset
    if mark < 0:
        return  # a repetition, whose place nobody remembers
    async with asyncio.timeout(_PATIENCE_MS / 1000):
        while (fetcher.position((topic, 0)) or 0) <= mark:
            for part in await fetcher.fetch(timeout_ms=1000):
                for record in part.records():
                    if record.key is not None:
                        known[f"{record.key.decode()}@{record.offset}"] = (record.value or b"").decode()
    offsets = [int(place.partition("@")[2]) for place in known if place.startswith(f"{key}@")]
    before = max((offset for offset in offsets if offset < mark), default=None)
    value = None if before is None else known[f"{key}@{before}"]
    histories.registers[key].append(Operation(False, value, begun, loop.time()))


async def change_settings(
    cluster: Cluster, group: str, histories: Histories, chance: Random, is_over: Callable[[], bool]
) -> None:
    """One client: changes the setting of a group again and again, to a value that it never had."""
    admin, loop = Admin(cluster), asyncio.get_running_loop()
    resource = Resource(ResourceKind.GROUP, group)
    while not is_over() and len(histories.settings) < SETTINGS_MAX:
        await asyncio.sleep(chance.expovariate(1 / _TRIES_S))
        value, begun, ended = SETTING_FIRST + len(histories.settings), loop.time(), inf
        place = len(histories.settings)
        histories.settings.append((begun, ended, value))
        try:
            await admin.alter_configs(resource, put={SETTING: str(value)})
        except (ApiError, Unavailable):
            continue
        histories.settings[place] = begun, loop.time(), value
