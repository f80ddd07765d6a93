"""Replicas that move between log directories while processes are killed or the power fails, at every step."""

from __future__ import annotations

import asyncio
import random

import pytest

from node.moving_replicas import Life, Metadata, a_batch, content, format_disks
from quorate.lab.world import SECOND, World
from quorate.node.host import Host

PATHS = ["/d0", "/d1"]


class Story:
    """What was written, what was synced, and how often the replica has moved."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.written: dict[int, bytes] = {}
        self.synced_to = 0
        self.moved = 0
        self.is_over = False

    def check(self, life: Life, *, has_power: bool) -> None:
        """Exactly one log is the replica, and it has what it must have."""
        names = [one for one in life.names() if one.endswith("t-0")]
        assert len(names) == 1, life.names()
        found = content(life.log)
        assert len(found) >= (len(self.written) - 1 if has_power else self.synced_to)
        assert found == {at: self.written[at] for at in range(len(found))}
        self.written = found

    async def live(self, host: Host, *, has_power: bool) -> None:
        """Moves the replica there and back, and writes to it all the time."""
        life = Life(host, PATHS, self.metadata)
        await life.begin()
        self.check(life, has_power=has_power)
        goal = 1 if life.home == life.target(0) else 0
        for number in range(12):
            self._write(life)
            if number == 4:
                await life.moves.move(life.partition, life.target(goal))
            if number % 3 == 0:
                self.synced_to = max(self.synced_to, await life.log.flush())
        number = 0
        while life.home != life.target(goal) or len(life.moves):
            number += 1
            self._write(life)
            if number % 4 == 0:
                log = life.log  # which may be replaced meanwhile
                flushed = await log.flush()
                if life.log is log:
                    self.synced_to = max(self.synced_to, flushed)
            else:
                await asyncio.sleep(0.001)
        self.moved += 1
        for _ in range(3):
            self._write(life)
        self.synced_to = max(self.synced_to, await life.log.flush())
        self.check(life, has_power=True)
        if self.metadata.is_kept:
            assert self.metadata.directory_id == life.futures.id_of(life.home)
        await life.end()
        self.is_over = True

    def _write(self, life: Life) -> None:
        if life.log.end_offset < 150:
            offset = life.log.end_offset
            self.written[offset] = a_batch(offset, 1, 100)  # of which a part may be written
            life.append(1, 100)


def run(seed: int, operation: int, *, has_power: bool) -> int:
    """A story whose process ends at an operation; how often the replica has moved before that."""
    story = Story()
    story.metadata.is_kept = seed % 3 > 0
    with World(seed) as world:
        world.add_machine("n1")
        world.start("n1", lambda host: format_disks(host, PATHS))
        world.run_for(5 * SECOND)
        world.start("n1", lambda host: story.live(host, has_power=True))
        world.crash_at_operation("n1", operation, with_power=has_power)
        world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 100 * SECOND)
        moved, was_over = story.moved, story.is_over
        story.is_over = False
        world.machines["n1"].disk.no_crash()
        world.check()
        assert not world.is_running("n1")
        if was_over:
            return -1
        world.start("n1", lambda host: story.live(host, has_power=has_power))
        world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 100 * SECOND)
        world.check()
        assert story.is_over
    return moved


@pytest.mark.parametrize("has_power", [True, False], ids=["killed", "power"])
@pytest.mark.parametrize("part", range(10))
def test_a_process_ends_at_every_operation_of_a_move(part: int, has_power: bool) -> None:
    """After that there is one log, which has everything, and the move goes on or can be made again."""
    operation = part
    while run(random.Random(operation).randrange(1 << 30), operation, has_power=has_power) >= 0:
        operation += 10
    assert operation > 120, "the story is long enough to have all steps in it"
