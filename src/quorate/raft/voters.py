"""Who votes: replica keys, voter sets, and the history of voter sets along the log.

A voter set applies from the moment it is *written*, not from when it is committed, and is undone when its
record is truncated. So the history keeps sets by offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.raft.records import VotersRecord
from quorate.values import dataclass

__all__ = ["Endpoint", "ReplicaKey", "Voter", "VoterHistory", "VoterSet", "majority_of"]


class ReplicaKey(NamedTuple):
    """A node id, and the id of the directory that holds its log: a wiped disk makes another replica."""

    id: int
    directory: Uuid = ZERO_UUID

    def __str__(self) -> str:
        return f"{self.id}" if self.directory == ZERO_UUID else f"{self.id}:{self.directory}"


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: tuple[int, int] = (0, 0)

    def matches(self, key: ReplicaKey) -> bool:
        """A static voter has no directory, and is whoever has its id."""
        return self.key.id == key.id and self.key.directory in (ZERO_UUID, key.directory)


def majority_of(count: int) -> int:
    return count // 2 + 1


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters in order of their ids."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.id))
        assert len({voter.key.id for voter in ordered}) == len(ordered), "a voter id stands once in a set"
        return cls(ordered)

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def get(self, voter_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def contains(self, key: ReplicaKey) -> bool:
        voter = self.get(key.id)
        return voter is not None and voter.matches(key)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.contains(key)

    @property
    def majority(self) -> int:
        return majority_of(len(self.voters))

    def plus(self, voter: Voter) -> VoterSet:
        return VoterSet.of([*self.voters, voter])

    def minus(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def updated(self, voter: Voter) -> VoterSet:
        return VoterSet(tuple(voter if one.key.id == voter.key.id else one for one in self.voters))

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory,
                    endpoints=[
                        VotersRecord.Voter.Endpoint(name=one.name, host=one.host, port=one.port)
                        for one in voter.endpoints
                    ],
                    kraft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0],
                        max_supported_version=voter.kraft_versions[1],
                    ),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            Voter(
                ReplicaKey(one.voter_id, one.voter_directory_id),
                tuple(Endpoint(each.name, each.host, each.port) for each in one.endpoints),
                (
                    one.kraft_version_feature.min_supported_version,
                    one.kraft_version_feature.max_supported_version,
                ),
            )
            for one in record.voters
        )


class VoterHistory:
    """Voter sets and levels of `kraft.version`, by the offset of their record; -1 is the 0-0 checkpoint.

    `static` are the voters of the configuration. They count only while there is no record of voters.
    """

    __slots__ = ("_sets", "_versions", "static")

    def __init__(self, static: VoterSet | None = None) -> None:
        self.static = static or VoterSet()
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"VoterHistory(static={self.static}, sets={self._sets}, versions={self._versions})"

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self.static

    @property
    def latest_offset(self) -> int | None:
        """Where the latest set was written; None for the static one."""
        return self._sets[-1][0] if self._sets else None

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    def undecided(self, high_watermark: int) -> list[VoterSet]:
        """The sets of which one will turn out to count: the last that is committed, and all after it."""
        committed = bisect_left(self._sets, high_watermark, key=lambda entry: entry[0])
        sets = [voters for _, voters in self._sets[max(0, committed - 1) :]]
        return sets if committed else [self.static, *sets]

    def at(self, end_offset: int) -> tuple[VoterSet | None, int]:
        """The written voter set and the version just before an offset: what a snapshot there contains."""
        sets = [voters for offset, voters in self._sets if offset < end_offset]
        versions = [version for offset, version in self._versions if offset < end_offset]
        return (sets[-1] if sets else None), (versions[-1] if versions else 0)

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        assert not self._sets or offset > self._sets[-1][0], "voter sets come in the order of the log"
        self._sets.append((offset, voters))

    def add_version(self, offset: int, version: int) -> None:
        assert not self._versions or offset > self._versions[-1][0], "versions come in the order of the log"
        self._versions.append((offset, version))

    def truncate(self, end_offset: int) -> None:
        """Forgets what was written at or after an offset."""
        del self._sets[bisect_left(self._sets, end_offset, key=lambda entry: entry[0]) :]
        del self._versions[bisect_left(self._versions, end_offset, key=lambda entry: entry[0]) :]

    def trim(self, start_offset: int) -> None:
        """Forgets what a snapshot up to an offset covers, but for the newest."""
        for entries in (self._sets, self._versions):
            covered = bisect_right(entries, start_offset - 1, key=lambda entry: entry[0])
            del entries[: max(0, covered - 1)]

    def reset(self, voters: VoterSet | None, version: int, end_offset: int) -> None:
        """Starts again from a snapshot that ends at an offset."""
        self._sets = [] if voters is None else [(end_offset - 1, voters)]
        self._versions = [(end_offset - 1, version)] if version else []
