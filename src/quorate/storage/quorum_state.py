"""`quorum-state`: what a voter must not forget, its epoch, its leader and its vote.

One line of JSON, in one of two versions. Version 1 came with `kraft.version` 1 and knows the directory of the
candidate; version 0 forgets it, and has a list of voters that nobody reads any more.

Only a missing file means that nothing happened yet. One that cannot be understood is an error: to begin again
at epoch 0 would be to vote twice.
"""

from __future__ import annotations

import json
from typing import Any, Final

from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.whole_files import read_whole, store_whole
from quorate.values import dataclass

__all__ = ["QUORUM_STATE_NAME", "QuorumState", "load_quorum_state", "store_quorum_state"]

QUORUM_STATE_NAME: Final = "quorum-state"

_NOBODY: Final = -1
_INT32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The election state of a voter. `voter_ids` are only in version 0.

    >>> QuorumState(leader_epoch=3, voted_id=2).text(data_version=1)
    '{"leaderId":-1,"leaderEpoch":3,"votedId":2,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    """

    leader_epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: Uuid = ZERO_UUID
    voter_ids: tuple[int, ...] = ()

    def text(self, data_version: int) -> str:
        """As Kafka writes it. The version is that of the metadata log's `kraft.version`."""
        leader_id = _NOBODY if self.leader_id is None else self.leader_id
        voted_id = _NOBODY if self.voted_id is None else self.voted_id
        fields: dict[str, object]
        match data_version:
            case 0:
                fields = {
                    "clusterId": "",
                    "leaderId": leader_id,
                    "leaderEpoch": self.leader_epoch,
                    "votedId": voted_id,
                    "appliedOffset": 0,
                    "currentVoters": [{"voterId": voter_id} for voter_id in self.voter_ids],
                }
            case 1:
                fields = {
                    "leaderId": leader_id,
                    "leaderEpoch": self.leader_epoch,
                    "votedId": voted_id,
                    "votedDirectoryId": str(self.voted_directory_id),
                }
            case _:
                raise AssertionError(f"no data_version {data_version}")
        return json.dumps({**fields, "data_version": data_version}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> QuorumState:
        """Raises ValueError with the reason."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        if "data_version" not in fields:
            raise ValueError("data_version is missing")
        data_version = fields["data_version"]
        if type(data_version) is not int or data_version not in (0, 1):
            raise ValueError(f"data_version is {data_version!r}, known are 0 and 1")
        state = cls(
            leader_epoch=_integer(fields, "leaderEpoch", 0),
            leader_id=_id(fields, "leaderId"),
            voted_id=_id(fields, "votedId"),
        )
        if data_version == 0:
            return cls(state.leader_epoch, state.leader_id, state.voted_id, voter_ids=_voter_ids(fields))
        return cls(state.leader_epoch, state.leader_id, state.voted_id, _directory_id(fields))


def load_quorum_state(files: Files, directory: str) -> QuorumState:
    """The election state in the directory of the metadata log."""
    path = f"{directory}/{QUORUM_STATE_NAME}"
    data = read_whole(files, path)
    if data is None:
        return QuorumState()
    try:
        return QuorumState.parse(data.decode("utf-8"))
    except ValueError as error:
        raise StorageError(path, f"not an election state: {error}") from None


async def store_quorum_state(files: Files, directory: str, state: QuorumState, *, data_version: int) -> None:
    """Saves the election state, durably."""
    await store_whole(files, f"{directory}/{QUORUM_STATE_NAME}", state.text(data_version).encode("utf-8"))


def _integer(fields: dict[str, Any], name: str, smallest: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not smallest <= value <= _INT32_MAX:
        raise ValueError(f"{name} is {value!r}" if name in fields else f"{name} is missing")
    return value


def _id(fields: dict[str, Any], name: str) -> int | None:
    value = _integer(fields, name, _NOBODY)
    return None if value == _NOBODY else value


def _directory_id(fields: dict[str, Any]) -> Uuid:
    value = fields.get("votedDirectoryId")
    if not isinstance(value, str):
        raise ValueError("votedDirectoryId is missing" if value is None else f"votedDirectoryId is {value!r}")
    return Uuid.parse(value)


def _voter_ids(fields: dict[str, Any]) -> tuple[int, ...]:
    voters = fields.get("currentVoters") or []
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise ValueError(f"currentVoters is {voters!r}")
    return tuple(_integer(voter, "voterId", 0) for voter in voters)
