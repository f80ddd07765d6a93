"""A log on a simulated disk whose power fails at any operation: what was flushed is there, and nothing is
that never was."""

from __future__ import annotations

import random

import pytest
from stored_batches import a_batch, opened, read_all

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.protocol.batch import read_header
from quorate.storage.limits import LogConfig

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
DIRECTORY = "t-0"
SECTOR_BATCH_VALUE_BYTES = 442


class History:
    """Every state the log was in, as {base offset: batch}, deleted beginnings included, and what was
    promised."""

    def __init__(self) -> None:
        self.states: list[dict[int, bytes]] = [{}]
        self.promised: dict[int, bytes] = {}
        self.start_offset = 0

    def goes_on_with(self, state: dict[int, bytes]) -> None:
        self.states.append(state)

    def loses_from(self, offset: int) -> None:
        self.promised = {at: batch for at, batch in self.promised.items() if at < offset}
        self.goes_on_with({at: batch for at, batch in self.states[-1].items() if at < offset})

    def forgets(self) -> None:
        self.promised = {}
        self.goes_on_with({})

    def check(self, found: dict[int, bytes], start_offset: int) -> None:
        missing = {at for at in self.promised if at >= max(start_offset, self.start_offset)} - found.keys()
        assert not missing, f"flushed batches are gone: {sorted(missing)}"
        assert any(self._is_beginning(found, state, start_offset) for state in self.states), (
            "a log that never was"
        )

    @staticmethod
    def _is_beginning(found: dict[int, bytes], state: dict[int, bytes], start_offset: int) -> bool:
        expected = [(at, batch) for at, batch in sorted(state.items()) if at >= start_offset]
        return sorted(found.items()) == expected[: len(found)]


async def live(host: Host, history: History, source: random.Random) -> None:
    """Does this and that with a log, and writes down what happened, until the power fails."""
    log = await opened(DIRECTORY, CONFIG, files=host.files)
    found = {read_header(batch).base_offset: batch for batch in read_all(log)}
    history.check(found, log.start_offset)
    history.states = [found]
    history.promised = dict(found)
    history.start_offset = log.start_offset
    # Batches of exactly a sector: then a torn file can be made of whole ones that do not belong together.
    value_bytes = source.choice([[10, 10, 480], [SECTOR_BATCH_VALUE_BYTES]])
    epoch = (log.epochs.latest_epoch or 0) + source.randint(1, 3)
    while True:
        match source.choice(
            ["append"] * 6 + ["flush"] * 3 + ["truncate", "delete", "restart", "roll", "epoch"]
        ):
            case "append":
                batch = a_batch(log.end_offset, epoch=epoch, value_bytes=source.choice(value_bytes))
                history.goes_on_with({**history.states[-1], log.end_offset: batch})
                log.append([batch], 0)
            case "flush":
                state = history.states[-1]
                flushed_offset = await log.flush()
                history.promised = {at: batch for at, batch in state.items() if at < flushed_offset}
            case "truncate":
                offset = source.randint(log.start_offset, log.end_offset)
                ends = [at for at in history.states[-1] if at >= log.start_offset] + [log.end_offset]
                offset = min(at for at in ends if at >= offset)
                history.loses_from(offset)
                assert await log.truncate_to(offset) == offset
                # what comes in its place is from a leader of another epoch, possibly an older one
                epoch = max(log.epochs.latest_epoch or 0, epoch + source.randint(-2, 2))
            case "delete":
                state = {at: batch for at, batch in history.states[-1].items() if at >= log.start_offset}
                offset = source.choice([*state, log.end_offset])
                history.start_offset = offset
                await log.delete_until(offset, 0)
            case "restart" if source.random() < 0.2:
                history.forgets()
                await log.restart_at(log.end_offset + source.randint(0, 5), 0)
            case "roll":
                log.roll(0)
            case "epoch":
                epoch += 1
                log.assign_epoch(epoch)


@pytest.mark.parametrize("seed", range(60))
def test_what_was_flushed_survives_and_nothing_is_made_up(seed: int) -> None:
    source = random.Random(seed)
    history = History()
    with World(seed) as world:
        world.add_machine("n1")
        for _ in range(8):
            world.start("n1", lambda host: live(host, history, source))
            world.crash_at_operation("n1", source.randint(1, 120), with_power=source.random() < 0.2)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
            world.check()
            assert not world.is_running("n1")
