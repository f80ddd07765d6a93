"""What formatting writes, compared with what Apache Kafka 4.3.1 wrote (kafka-storage format --standalone)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stored_batches import FILES

from quorate.protocol.batch import BatchHeader, Record, batches, records
from quorate.protocol.types import Uuid
from quorate.raft.records import VotersRecord
from quorate.storage.bootstrap import (
    BOOTSTRAP_NAME,
    FIRST_SNAPSHOT,
    read_bootstrap,
    write_bootstrap,
    write_first_voters,
)
from quorate.storage.errors import StorageError
from quorate.storage.snapshots import SnapshotReader, list_snapshots, snapshot_path

APACHE_BOOTSTRAP = bytes.fromhex(
    "000000000000000000000047000000000274f588bf002000000000000001a1de6a8f57000001a1de6a8f57ffffffffff"
    "ffffffffffffffffff000000012a0000000800000003160000000000000000000000000000000000000001000000f100"
    "00000002d69a818f000000000005000001a1de6a8f6b000001a1de6a8f6bffffffffffffffffffffffffffff00000006"
    "3a000000012e010c00116d657461646174612e76657273696f6e001e00005a000002014e010c0021656c696769626c65"
    "2e6c65616465722e7265706c696361732e76657273696f6e00010000340000040128010c000e67726f75702e76657273"
    "696f6e00010000340000060128010c000e73686172652e76657273696f6e0001000038000008012c010c001073747265"
    "616d732e76657273696f6e000100004000000a0134010c00147472616e73616374696f6e2e76657273696f6e00020000"
    "00000000000000070000003f00000000028475a5fc002000000000000001a1de6a8f6c000001a1de6a8f6cffffffffff"
    "ffffffffffffffffff000000011a00000008000000040600000000"
)
APACHE_FIRST_SNAPSHOT = bytes.fromhex(
    "00000000000000000000009a00000000023ee279c6002000000002000001a1de6a8f7e000001a1de6a8f7effffffffff"
    "ffffffffffffffffff000000032a0000000800000003160000000001a1de6a8f7600001e00000208000000050a000000"
    "010000820100000408000000066e00000200000001d78543184a5f453cbc173796baad9f6d020b434f4e54524f4c4c45"
    "520a6c6f63616c686f737498b500000000010000000000000000000000030000003f0000000002d75098e70020000000"
    "00000001a1de6a8f84000001a1de6a8f84ffffffffffffffffffffffffffff000000011a000000080000000406000000"
    "00"
)
FORMAT_TIME = 1794732887926

VOTERS = VotersRecord(
    version=0,
    voters=[
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=Uuid.parse("14VDGEpfRTy8FzeWuq2fbQ"),
            endpoints=[VotersRecord.Voter.Endpoint(name="CONTROLLER", host="localhost", port=39093)],
            kraft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        )
    ],
)


def without_times(data: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    """What is in a file apart from the moments at which its batches were made, and so their checksums."""
    return [
        (
            header._replace(crc=0, base_timestamp=0, max_timestamp=0),
            [record._replace(timestamp=0) for record in records(data, header)],
        )
        for header in batches(data)
    ]


def test_apache_wrote_the_same_bootstrap_records(tmp_path: Path) -> None:
    (tmp_path / BOOTSTRAP_NAME).write_bytes(APACHE_BOOTSTRAP)
    values = read_bootstrap(FILES, str(tmp_path))
    assert values[0] == b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00"
    assert len(values) == 6
    asyncio.run(write_bootstrap(FILES, str(tmp_path), values, timestamp_ms=FORMAT_TIME))
    ours = (tmp_path / BOOTSTRAP_NAME).read_bytes()
    assert without_times(ours) == without_times(APACHE_BOOTSTRAP)
    assert len(ours) == len(APACHE_BOOTSTRAP)
    assert read_bootstrap(FILES, str(tmp_path)) == values


def test_apache_wrote_the_same_first_voters(tmp_path: Path) -> None:
    directory = str(tmp_path / "__cluster_metadata-0")
    asyncio.run(write_first_voters(FILES, directory, VOTERS, timestamp_ms=FORMAT_TIME))
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    assert without_times(path.read_bytes()) == without_times(APACHE_FIRST_SNAPSHOT)
    assert list_snapshots(FILES, directory) == [FIRST_SNAPSHOT]
    for content in (path.read_bytes(), APACHE_FIRST_SNAPSHOT):
        path.write_bytes(content)
        with SnapshotReader(FILES, snapshot_path(directory, FIRST_SNAPSHOT), 0) as reader:
            head = reader.head()
            assert list(reader.values()) == []
        assert (head.last_contained_log_timestamp_ms, head.kraft_version) == (FORMAT_TIME, 1)
        assert head.voters == VOTERS


def test_a_directory_that_was_not_formatted_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"bootstrap\.checkpoint: missing: the directory was not formatted"
    ):
        read_bootstrap(FILES, str(tmp_path))


def test_a_bad_bootstrap_is_refused(tmp_path: Path) -> None:
    (tmp_path / BOOTSTRAP_NAME).write_bytes(APACHE_BOOTSTRAP[:-1])
    with pytest.raises(StorageError, match="not a whole snapshot"):
        read_bootstrap(FILES, str(tmp_path))
