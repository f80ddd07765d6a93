"""How much of a metadata log in files is known to be committed: files have no high watermark.

Three things prove it, and the furthest counts:

- A snapshot: it is only made of what is committed.
- A later epoch. Who leads writes records of the cluster only after its own first record, the `LeaderChange`,
  has been committed, and with that everything before it. So a record of the cluster in an epoch confirms all
  that was there when the epoch began.
- A majority of the voters' directories. What stands in more than half of them, the last of it written in the
  last epoch that any of them knows, is committed. (Records of an earlier epoch are not, however many have
  them: a voter that is not among the copies may know better.)

The rest may still be replaced by a leader that never saw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import ControlType, control_type, records, validate
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError
from quorate.raft.records import LeaderChangeMessage, VotersRecord
from quorate.raft.voters import majority_of
from quorate.spark.log_copies import LogCopy
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.quorum_state import load_quorum_state

__all__ = ["agreed_end", "confirmed_by_epoch", "confirmed_by_majority", "voters_of"]

_CONTROLS_READ_MAX: Final = 64  # the newest ones, in search of the voters


def confirmed_by_epoch(batches: NDArray[Any]) -> int:
    """Up to where a later epoch confirms a log: where the last epoch began in which the cluster changed."""
    changes = np.flatnonzero(~batches["is_control"])
    if not len(changes):
        return 0
    last_epoch = batches["epoch"][changes[-1]]
    first = int(np.flatnonzero(batches["epoch"] == last_epoch)[0])
    if first == 0 and not batches["is_control"][0]:
        return 0  # it began before what is known of the log
    return int(batches["base_offset"][first])


def agreed_end(reference: NDArray[Any], other: NDArray[Any]) -> int:
    """The end of the last batch that stands in both: all before it is the same, as logs of a quorum are."""
    _, at, other_at = np.intersect1d(
        reference["base_offset"], other["base_offset"], assume_unique=True, return_indices=True
    )
    is_same = np.ones(len(at), np.bool_)
    for name in ("epoch", "crc", "next_offset"):
        is_same &= reference[name][at] == other[name][other_at]
    return int(reference["next_offset"][at[is_same][-1]]) if is_same.any() else 0


def confirmed_by_majority(
    reference: NDArray[Any], copies: Sequence[LogCopy], voter_ids: frozenset[int]
) -> int:
    """Up to where a majority of the voters has the log; 0 if there are too few copies to tell."""
    if not voter_ids or not len(reference):
        return 0
    reached: dict[int, int] = {}
    for copy in copies:
        node_id = copy.place.node_id
        if node_id is not None and node_id in voter_ids:
            reached[node_id] = max(reached.get(node_id, 0), agreed_end(reference, copy.batches))
    needed = majority_of(len(voter_ids))
    if len(reached) < needed:
        return 0
    end = sorted(reached.values(), reverse=True)[needed - 1]
    at = int(np.searchsorted(reference["next_offset"], end))
    is_of_last_epoch = at < len(reference) and reference["epoch"][at] == reference["epoch"][-1]
    return end if end and is_of_last_epoch else 0


def voters_of(copy: LogCopy) -> frozenset[int]:
    """Who votes, as the newest record in a log says that says it, or else the file `quorum-state`."""
    controls = np.flatnonzero(copy.batches["is_control"])[::-1][:_CONTROLS_READ_MAX]
    for at in controls.tolist():
        batch = copy.batches[at]
        found = _voters_in(
            _read(copy.files[int(batch["file"])], int(batch["position"]), int(batch["size_bytes"]))
        )
        if found:
            return found
    for snapshot in reversed(copy.snapshots):
        found = _voters_in(_read(snapshot.path, 0, 1 << 20))
        if found:
            return found
    try:
        return frozenset(load_quorum_state(ReadOnlyFiles(), copy.place.directory).voter_ids)
    except StorageError:
        return frozenset()


def _read(path: str, position: int, size_bytes: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(position)
        return file.read(size_bytes)


def _voters_in(data: bytes) -> frozenset[int]:
    """The voters that the first batch of some bytes names."""
    try:
        header = validate(data)
        for record in reversed(records(data, header) if header.is_control else []):
            kind, value = control_type(record), record.value or b""
            version = int.from_bytes(value[:2], "big")
            if kind is ControlType.KRAFT_VOTERS:
                return frozenset(one.voter_id for one in decode(VotersRecord, 0, value).voters)
            if kind is ControlType.LEADER_CHANGE:
                message = decode(LeaderChangeMessage, min(version, 1), value)
                return frozenset(one.voter_id for one in message.voters)
    except ApiError:
        pass
    return frozenset()
