"""Offset checkpoints, and the sign that a directory was left in order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from failing_files import FailingFiles
from hypothesis import given
from hypothesis import strategies as st

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.storage.checkpoints import (
    RECOVERY_POINTS_NAME,
    PartitionName,
    delete_clean_shutdown,
    format_checkpoint,
    has_clean_shutdown,
    load_checkpoint,
    load_clean_shutdown,
    parse_checkpoint,
    store_checkpoint,
    store_clean_shutdown,
)
from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles

FILES = RealFiles()
OFFSETS = {PartitionName("orders", 0): 17, PartitionName("a.b_c-d", 12): 1 << 40}


def test_a_checkpoint_is_what_kafka_writes(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert load_checkpoint(FILES, directory, RECOVERY_POINTS_NAME) == {}
    asyncio.run(store_checkpoint(FILES, directory, RECOVERY_POINTS_NAME, OFFSETS))
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == (
        "0\n2\norders 0 17\na.b_c-d 12 1099511627776\n"
    )
    assert load_checkpoint(FILES, directory, RECOVERY_POINTS_NAME) == OFFSETS
    assert str(PartitionName("a-b", 3)) == "a-b-3"


NAMES = st.builds(PartitionName, st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 9999))


@given(st.dictionaries(NAMES, st.integers(0, (1 << 63) - 1)))
def test_what_is_written_is_read(offsets: dict[PartitionName, int]) -> None:
    assert parse_checkpoint(format_checkpoint(offsets)) == offsets


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\n0\n", "version '1', not 0"),
        ("0\n", "how many entries"),
        ("0\nx\n", "how many entries"),
        ("0\n2\nt 0 1\n", "2 entries announced, and 1 found"),
        ("0\n0\nt 0 1\n", "0 entries announced, and 1 found"),
        ("0\n1\nt 0\n", "line 3: 't 0' is no topic, partition and offset"),
        ("0\n1\nt 0 -1\n", "line 3"),
        ("0\n1\nt x 1\n", "line 3"),
        ("0\n1\nt 0 1 2\n", "line 3"),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / RECOVERY_POINTS_NAME).write_text(text)
    with pytest.raises(StorageError, match=reason):
        load_checkpoint(FILES, str(tmp_path), RECOVERY_POINTS_NAME)


def test_a_failing_disk_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        files.broken = {("fsync", ".tmp")}
        with pytest.raises(StorageError, match="broken"):
            await store_checkpoint(files, str(tmp_path), RECOVERY_POINTS_NAME, OFFSETS)
        files.broken = set()
        await store_checkpoint(files, str(tmp_path), RECOVERY_POINTS_NAME, OFFSETS)
        files.broken = {("read", RECOVERY_POINTS_NAME)}
        with pytest.raises(StorageError, match="broken"):
            load_checkpoint(files, str(tmp_path), RECOVERY_POINTS_NAME)

    asyncio.run(scenario())


def test_the_sign_of_an_orderly_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory = str(tmp_path)
        assert not has_clean_shutdown(FILES, directory)
        assert load_clean_shutdown(FILES, directory) is None
        await store_clean_shutdown(FILES, directory, 42)
        assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":42}'
        assert has_clean_shutdown(FILES, directory)
        assert load_clean_shutdown(FILES, directory) == 42
        await delete_clean_shutdown(FILES, directory)
        await delete_clean_shutdown(FILES, directory)
        assert not has_clean_shutdown(FILES, directory)

    asyncio.run(scenario())


@pytest.mark.parametrize("content", ["", "{}", "[]", "5", '{"version":0,"brokerEpoch":"5"}', "{"])
def test_a_sign_without_an_epoch_is_a_sign(tmp_path: Path, content: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(content)
    assert has_clean_shutdown(FILES, str(tmp_path))
    assert load_clean_shutdown(FILES, str(tmp_path)) is None


@pytest.mark.parametrize("seed", range(10))
def test_after_a_power_failure_it_is_the_old_checkpoint_or_the_new_one(seed: int) -> None:
    source = random.Random(seed)
    promised = [0]
    attempted = [0]

    async def live(host: Host) -> None:
        host.files.make_directory("d")
        found = load_checkpoint(host.files, "d", RECOVERY_POINTS_NAME)
        number = found.get(PartitionName("t", 0), 0)
        assert promised[0] <= number <= attempted[0]
        while True:
            attempted[0] += 1
            offsets = {PartitionName("t", 0): attempted[0]} | {
                PartitionName("u", at): attempted[0] for at in range(50)
            }
            await store_checkpoint(host.files, "d", RECOVERY_POINTS_NAME, offsets)
            promised[0] = attempted[0]

    with World(seed) as world:
        world.add_machine("n1")
        for _ in range(6):
            world.start("n1", live)
            world.crash_at_operation("n1", source.randint(1, 40))
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 100 * SECOND)
            world.check()


def test_an_empty_checkpoint_says_nothing(tmp_path: Path) -> None:
    """Kafka makes one when it starts."""
    (tmp_path / RECOVERY_POINTS_NAME).write_bytes(b"")
    assert load_checkpoint(FILES, str(tmp_path), RECOVERY_POINTS_NAME) == {}
