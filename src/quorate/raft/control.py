"""Control records of the metadata log: what the quorum writes for itself."""

from __future__ import annotations

from collections.abc import Sequence

from quorate.protocol import batch as batches
from quorate.protocol.batch import BatchHeader, ControlType
from quorate.protocol.codec import decode, encode
from quorate.protocol.types import Buffer
from quorate.raft.records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from quorate.raft.voters import Voter, VoterHistory, VoterSet
from quorate.values import dataclass

__all__ = ["ControlRecords", "control_records_in", "leader_change_batch", "voters_batch"]


@dataclass(frozen=True, slots=True)
class ControlRecords:
    """What control records say about voters, each with its offset."""

    voters: Sequence[tuple[int, VoterSet]] = ()
    versions: Sequence[tuple[int, int]] = ()


_NOTHING = ControlRecords()


def control_records_in(buffer: Buffer, header: BatchHeader) -> ControlRecords:
    """What a batch says about voters; nothing, if it is a batch of data."""
    if not header.is_control:
        return _NOTHING
    voters: list[tuple[int, VoterSet]] = []
    versions: list[tuple[int, int]] = []
    for record in batches.records(buffer, header):
        kind = batches.control_type(record)
        if kind is ControlType.KRAFT_VOTERS:
            voters.append((record.offset, VoterSet.from_record(decode(VotersRecord, 0, record.value or b""))))
        elif kind is ControlType.KRAFT_VERSION:
            versions.append((record.offset, decode(KRaftVersionRecord, 0, record.value or b"").kraft_version))
    return ControlRecords(voters, versions)


def leader_change_batch(
    history: VoterHistory, me: Voter, granting: Sequence[int], offset: int, epoch: int, wall_ms: int
) -> bytearray:
    """The first batch of an epoch: who leads it.

    If voters can change, the batch also brings the voter set into the log when that has only a checkpoint of
    it, or when our own entry is out of date; all in one batch, so that there is no epoch without it.
    """
    change = LeaderChangeMessage(
        version=0,
        leader_id=me.key.id,
        voters=[LeaderChangeMessage.Voter(voter_id=voter.key.id) for voter in history.latest],
        granting_voters=[LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in granting],
    )
    controls = [(ControlType.LEADER_CHANGE, bytes(encode(change, 0)))]
    voters = history.latest
    is_outdated = voters.contains(me.key) and me not in voters.voters
    if history.kraft_version >= 1 and (history.latest_offset == -1 or is_outdated):
        controls += _voters_controls(voters.updated(me), history.kraft_version)
    return batches.build_control(controls, timestamp=wall_ms, base_offset=offset, leader_epoch=epoch)


def voters_batch(voters: VoterSet, offset: int, epoch: int, wall_ms: int) -> bytearray:
    """A batch that changes the voters."""
    controls = [(ControlType.KRAFT_VOTERS, bytes(encode(voters.to_record(), 0)))]
    return batches.build_control(controls, timestamp=wall_ms, base_offset=offset, leader_epoch=epoch)


def _voters_controls(voters: VoterSet, kraft_version: int) -> list[tuple[ControlType, bytes]]:
    version = KRaftVersionRecord(version=0, kraft_version=kraft_version)
    return [
        (ControlType.KRAFT_VERSION, bytes(encode(version, 0))),
        (ControlType.KRAFT_VOTERS, bytes(encode(voters.to_record(), 0))),
    ]
