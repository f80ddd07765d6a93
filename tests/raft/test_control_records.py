"""What the quorum writes for itself."""

from __future__ import annotations

import pytest
from memory_node import endpoint_of, voter_of

from quorate.protocol import batch as batches
from quorate.protocol.batch import ControlType, Record
from quorate.protocol.codec import decode
from quorate.protocol.types import Uuid
from quorate.raft.control import control_records_in, leader_change_batch, voters_batch
from quorate.raft.records import LeaderChangeMessage
from quorate.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

KEYS = [ReplicaKey(node_id, Uuid(b"a" * 16)) for node_id in (1, 2, 3)]
THREE = VoterSet.of(map(voter_of, KEYS))
ME = voter_of(KEYS[0])
MOVED = Voter(KEYS[0], (endpoint_of(9),), (0, 1))
STRANGER = voter_of(ReplicaKey(9, Uuid(b"a" * 16)))


def history(offset: int, kraft_version: int = 1) -> VoterHistory:
    one = VoterHistory()
    one.reset(THREE, kraft_version, offset + 1)
    return one


def kinds(data: bytearray) -> list[ControlType | None]:
    header = batches.validate(data)
    assert header.is_control
    return [batches.control_type(record) for record in batches.records(data, header)]


L, K, V = ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS


@pytest.mark.parametrize(
    ("voters", "me", "expected"),
    [
        (VoterHistory(THREE), ME, [L]),  # static voters are not written
        (history(-1), ME, [L, K, V]),  # only in the first checkpoint
        (history(5), ME, [L]),
        (history(5), MOVED, [L, K, V]),  # our own entry is out of date
        (history(5), STRANGER, [L]),  # a leader that was removed does not write itself in again
    ],
)
def test_the_first_batch_of_an_epoch(voters: VoterHistory, me: Voter, expected: list[ControlType]) -> None:
    data = leader_change_batch(voters, me, [1, 3], 7, 4, 1234)
    assert kinds(data) == expected
    header = batches.read_header(data)
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (7, 4, 1234)
    change = decode(LeaderChangeMessage, 0, batches.records(data, header)[0].value or b"")
    assert change.leader_id == me.key.id
    assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in change.granting_voters] == [1, 3]


def test_what_a_batch_says_about_voters() -> None:
    data = leader_change_batch(history(-1), MOVED, [1], 7, 4, 0)
    control = control_records_in(data, batches.read_header(data))
    assert control.versions == [(8, 1)]
    assert control.voters == [(9, THREE.updated(MOVED))]


def test_a_change_of_voters() -> None:
    data = voters_batch(THREE.minus(KEYS[1]), 7, 4, 0)
    assert kinds(data) == [V]
    control = control_records_in(data, batches.read_header(data))
    assert control.voters == [(7, THREE.minus(KEYS[1]))]
    assert control.versions == []


def test_data_says_nothing() -> None:
    data = batches.build([Record(7, 0, None, b"a")], base_offset=7, leader_epoch=4)
    control = control_records_in(data, batches.read_header(data))
    assert (control.voters, control.versions) == ((), ())
