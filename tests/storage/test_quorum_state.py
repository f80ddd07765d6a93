"""`quorum-state`: as Kafka writes it, and never mistaken for a fresh start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from failing_files import FailingFiles
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.quorum_state import QUORUM_STATE_NAME, QuorumState, load_quorum_state, store_quorum_state

DIRECTORY_ID = Uuid.parse("14VDGEpfRTy8FzeWuq2fbQ")
IDS = st.none() | st.integers(0, 2**31 - 1)

# Written by Apache Kafka 4.3.1.
APACHE = (
    '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


def test_version_1_is_as_apache_writes_it() -> None:
    assert QuorumState(leader_epoch=1, leader_id=1).text(1) == APACHE
    assert QuorumState.parse(APACHE) == QuorumState(leader_epoch=1, leader_id=1)


def test_version_0_has_voters_and_no_directory() -> None:
    state = QuorumState(leader_epoch=4, voted_id=2, voted_directory_id=DIRECTORY_ID, voter_ids=(1, 2))
    text = state.text(0)
    assert text == (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":4,"votedId":2,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert QuorumState.parse(text) == QuorumState(leader_epoch=4, voted_id=2, voter_ids=(1, 2))
    assert QuorumState.parse(text.replace('[{"voterId":1},{"voterId":2}]', "null")).voter_ids == ()


@given(
    st.builds(
        QuorumState,
        st.integers(0, 2**31 - 1),
        IDS,
        IDS,
        st.binary(min_size=16, max_size=16).map(Uuid),
    )
)
def test_what_was_stored_is_loaded(state: QuorumState) -> None:
    assert QuorumState.parse(state.text(1)) == state


def test_without_a_file_nothing_has_happened(tmp_path: Path) -> None:
    assert load_quorum_state(FILES, str(tmp_path)) == QuorumState(leader_epoch=0)


def test_it_is_durable_before_it_counts(tmp_path: Path) -> None:
    files = FailingFiles()
    state = QuorumState(leader_epoch=3, voted_id=2, voted_directory_id=DIRECTORY_ID)
    asyncio.run(store_quorum_state(files, str(tmp_path), state, data_version=1))
    assert [operation for operation, _ in files.operations] == [
        "create",
        "append",
        "fsync",
        "rename",
        "fsync_dir",
    ]
    assert load_quorum_state(FILES, str(tmp_path)) == state
    files.broken = {("fsync", ".tmp")}
    with pytest.raises(StorageError, match="quorum-state: the disk is broken"):
        asyncio.run(store_quorum_state(files, str(tmp_path), QuorumState(leader_epoch=9), data_version=1))
    assert load_quorum_state(FILES, str(tmp_path)) == state


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (APACHE[:-1], "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "data_version is missing"),
        (APACHE.replace(',"data_version":1', ""), "data_version is missing"),
        (APACHE.replace('_version":1', '_version":2'), "data_version is 2, known are 0 and 1"),
        (APACHE.replace('_version":1', '_version":"1"'), "data_version is '1', known are 0 and 1"),
        (APACHE.replace('_version":1', '_version":true'), "data_version is True"),
        (APACHE.replace('"leaderEpoch":1', '"leaderEpoch":-1'), "leaderEpoch is -1"),
        (APACHE.replace('"leaderEpoch":1', '"leaderEpoch":1.5'), "leaderEpoch is 1.5"),
        (APACHE.replace('"leaderEpoch":1', '"leaderEpoch":null'), "leaderEpoch is None"),
        (APACHE.replace('"leaderEpoch":1,', ""), "leaderEpoch is missing"),
        (APACHE.replace('"leaderId":1,', ""), "leaderId is missing"),
        (APACHE.replace('"leaderId":1', '"leaderId":-2'), "leaderId is -2"),
        (APACHE.replace('"votedId":-1', '"votedId":2147483648'), "votedId is 2147483648"),
        (APACHE.replace('"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",', ""), "votedDirectoryId is missing"),
        (APACHE.replace('"AAAAAAAAAAAAAAAAAAAAAA"', "7"), "votedDirectoryId is 7"),
        (APACHE.replace('"AAAAAAAAAAAAAAAAAAAAAA"', '"x"'), "not a uuid in base64: 'x'"),
        (
            '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"currentVoters":[1],"data_version":0}',
            "currentVoters is [1]",
        ),
        (
            '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"currentVoters":[{}],"data_version":0}',
            "voterId is missing",
        ),
        ("\udcff", "can't decode"),
    ],
)
def test_what_cannot_be_understood_is_an_error_not_a_fresh_start(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / QUORUM_STATE_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StorageError) as refusal:
        load_quorum_state(FILES, str(tmp_path))
    assert str(refusal.value).startswith(f"{tmp_path}/quorum-state: not an election state: ")
    assert reason in refusal.value.reason


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / QUORUM_STATE_NAME).open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(StorageError, match="1073741824 bytes, more than the limit"):
        load_quorum_state(FILES, str(tmp_path))
