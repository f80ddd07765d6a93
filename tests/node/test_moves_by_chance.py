"""Whatever happens to a replica that moves, and in whichever order: it is one log, and the right one.

Records are appended, synced, cut off and deleted, epochs begin, moves begin, change their mind and are given
up, the controller is slow, the process is killed and the power fails. A model knows what must be there.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from node.moving_replicas import Life, Metadata, a_batch, content, format_disks
from quorate.broker import directory_moves_copying
from quorate.lab.world import SECOND, World
from quorate.node.host import Host

PATHS = ["/d0", "/d1", "/d2"]
STEPS = 60


class Model:
    """Every state that the log may be found in, and what was promised to be there."""

    def __init__(self) -> None:
        self.states: list[dict[int, bytes]] = [{}]
        self.promised: dict[int, bytes] = {}
        self.start_offset = 0
        self.epoch = 1
        self.moves = 0

    @property
    def now(self) -> dict[int, bytes]:
        return self.states[-1]

    def becomes(self, state: dict[int, bytes]) -> None:
        self.states.append(state)
        self.promised = {at: batch for at, batch in self.promised.items() if state.get(at) == batch}

    def check(self, found: dict[int, bytes], start_offset: int) -> None:
        missing = {at for at in self.promised if at >= max(start_offset, self.start_offset)} - found.keys()
        assert not missing, f"synced batches are gone: {sorted(missing)}"
        assert any(_begins(found, state, start_offset) for state in self.states), "a log that never was"
        self.states = [found]
        self.promised = dict(found)
        self.start_offset = start_offset


def _begins(found: dict[int, bytes], state: dict[int, bytes], start_offset: int) -> bool:
    expected = [(at, batch) for at, batch in sorted(state.items()) if at >= start_offset]
    return sorted(found.items()) == expected[: len(found)]


async def live(host: Host, model: Model, metadata: Metadata, source: random.Random) -> None:
    life = Life(host, PATHS, metadata)
    await life.begin()
    assert len([one for one in life.names() if one.endswith("t-0")]) == 1, life.names()
    model.check(content(life.log), life.log.start_offset)
    model.epoch += 1  # whoever comes back is elected anew
    metadata.delay_s = source.choice([0.001, 0.01, 0.2])
    for _ in range(STEPS):
        await _step(life, model, source)
    # In the end, everything comes to rest where it was last asked to be.
    goal = source.randrange(len(PATHS))
    await life.moves.move(life.partition, life.target(goal))
    await life.until_moved(goal)
    assert content(life.log) == {at: one for at, one in model.now.items() if at >= life.log.start_offset}
    assert [one for one in life.names() if not one.endswith("-delete")] == [f"{goal}/t-0"]
    if metadata.is_kept:
        await life.until(lambda: metadata.directory_id == life.futures.id_of(life.home))
    await life.end()


async def _step(life: Life, model: Model, source: random.Random) -> None:
    log = life.log
    assert len([one for one in life.names() if one.endswith("t-0")]) <= 1, life.names()
    match source.choice(
        ["append"] * 8
        + ["flush", "flush", "pause", "pause", "long pause", "cut", "delete", "epoch", "move", "move", "save"]
        + ["restart"] * (source.random() < 0.1)
    ):
        case "append":
            for _ in range(source.choice([1, 1, 5])):
                _append(life, model, source)
        case "flush":
            state = model.now
            flushed = await log.flush()
            if model.now is state and life.log is log:
                model.promised = {at: one for at, one in state.items() if at < flushed}
        case "pause":
            await asyncio.sleep(0.001)
        case "long pause":
            await asyncio.sleep(0.3)
        case "cut":  # as a follower, whose new leader does not have it
            offset = source.choice([*[at for at in model.now if at >= log.start_offset], log.end_offset])
            model.becomes({at: one for at, one in model.now.items() if at < offset})
            end_offset = log.end_offset
            await life.partition.truncate_to(offset)
            model.epoch += 1
            while source.random() < 0.8 and life.log.end_offset < end_offset:
                _append(life, model, source)
        case "delete":
            offset = source.choice([*[at for at in model.now if at >= log.start_offset], log.end_offset])
            model.start_offset = offset
            await life.partition.start_at(offset)
        case "restart":
            model.becomes({})
            model.epoch += 1
            offset = source.choice([log.end_offset + 5, log.start_offset])
            model.start_offset = min(model.start_offset, offset)
            await life.partition.restart_at(offset)
        case "epoch":
            model.epoch += 1
            life.log.assign_epoch(model.epoch)
        case "save":
            await life.shelf.save([life.partition])
        case "move":
            model.moves += 1
            await life.moves.move(life.partition, life.target(source.randrange(len(PATHS))))


def _append(life: Life, model: Model, source: random.Random) -> None:
    offset = life.log.end_offset
    batch = a_batch(offset, model.epoch, source.choice([10, 300]))
    model.becomes({**model.now, offset: batch})
    life.log.append_replicated(batch, 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_replica_that_moves_is_one_log_and_the_right_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    monkeypatch.setattr(directory_moves_copying, "PIECE_BYTES", source.choice([200, 1000, 256 << 10]))
    monkeypatch.setattr(directory_moves_copying, "REST_BYTES_MAX", source.choice([400, 1 << 20]))
    model, metadata = Model(), Metadata()
    metadata.is_kept = seed % 5 > 0
    with World(seed) as world:
        world.add_machine("n1")
        world.start("n1", lambda host: format_disks(host, PATHS))
        world.run_for(5 * SECOND)
        for _ in range(5):
            world.start("n1", lambda host: live(host, model, metadata, source))
            world.crash_at_operation("n1", source.randint(1, 500), with_power=source.random() < 0.5)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
            world.check()
            assert not world.is_running("n1")
        world.machines["n1"].disk.no_crash()
        world.start("n1", lambda host: live(host, model, metadata, source))
        world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
        world.check()
        assert not world.is_running("n1")
