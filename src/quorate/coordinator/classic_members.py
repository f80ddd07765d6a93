"""Who is in a classic group: members, the ids that were given out, who leads, and which protocol all speak.

A *protocol* is a way to assign partitions (`range`, `cooperative-sticky`), with what the member says about
itself under it. All members must speak one in common; the group takes the one that most of them like best.

A *static* member has a name of its own, its instance id. It keeps its place while it is away, and whoever
comes under that name takes the place over: the member id of the one before is *fenced*.

Members are kept in the order in which they came; a static one that was replaced keeps its place. So nothing
that is chosen here (a leader, a protocol in a tie) depends on chance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from quorate.coordinator.effects import Ticket
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.values import dataclass

__all__ = ["MEMBER_BYTES", "NAME_BYTES", "NOBODY", "Member", "Members", "Protocols", "Waiting"]

NOBODY: Final = ""
"""The member id of whoever has none yet."""

MEMBER_BYTES: Final = 1024
NAME_BYTES: Final = 128
"""About how much memory a member takes, and each protocol or topic that it names, beside what it says."""

Protocols = Sequence[tuple[str, bytes]]
"""Names and what the member says about itself, the best liked one first."""


class Waiting(NamedTuple):
    """A request that is not answered yet."""

    ticket: Ticket
    version: int


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not been in a generation yet, and does not know its id: it cannot send heartbeats."""
    joining: Waiting | None = None
    syncing: Waiting | None = None

    @property
    def said_bytes(self) -> int:
        """About how much memory all takes that the member has said."""
        size_bytes = MEMBER_BYTES + len(self.client_id) + len(self.instance_id or "")
        for name, metadata in self.protocols:
            size_bytes += NAME_BYTES + len(name) + len(metadata)
        return size_bytes

    @property
    def is_excused(self) -> bool:
        """A member whose request waits here need not send heartbeats: we owe it an answer."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that it likes best among these."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class Members:
    by_id: dict[str, Member] = field(default_factory=dict)
    by_instance: dict[str, str] = field(default_factory=dict)
    """The member ids of static members."""
    pending: dict[str, None] = field(default_factory=dict)
    """Ids that were given out, for a dynamic member to join with, the oldest one first."""
    leader: str = NOBODY
    joining: int = 0
    """How many wait for the answer to their join."""
    said_bytes: int = 0
    """Of all members together."""
    _speakers: dict[str, int] = field(default_factory=dict)
    """How many members speak a protocol."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    def __getitem__(self, member_id: str) -> Member:
        return self.by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self.by_id.get(member_id)

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks. Raises FENCED_INSTANCE_ID if its name was taken over by another."""
        if instance_id is not None:
            known_id = self.by_instance.get(instance_id)
            if known_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
            if known_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now member {known_id}")
        member = self.by_id.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {member_id}")
        return member

    # Coming and going

    def add(self, member: Member) -> None:
        """The first one leads."""
        assert member.member_id not in self.by_id
        if member.instance_id is not None:
            assert member.instance_id not in self.by_instance
            self.by_instance[member.instance_id] = member.member_id
        self.by_id[member.member_id] = member
        self.pending.pop(member.member_id, None)
        self.said_bytes += member.said_bytes
        self._count(member, 1)
        self.leader = self.leader or member.member_id

    def remove(self, member: Member) -> None:
        """Another one leads if it did. What it waits for must have been answered."""
        assert member.joining is None, member
        assert member.syncing is None, member
        del self.by_id[member.member_id]
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        self.said_bytes -= member.said_bytes
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), NOBODY)

    def replace(self, old: Member, new: Member) -> None:
        """A static member has come back, under a new id: it takes the place of the one before."""
        assert new.instance_id is not None
        assert new.instance_id == old.instance_id
        assert old.joining is None, old
        assert old.syncing is None, old
        self.by_id = {
            new.member_id if member is old else member.member_id: new if member is old else member
            for member in self.by_id.values()
        }
        self.by_instance[new.instance_id] = new.member_id
        self.said_bytes += new.said_bytes - old.said_bytes
        self._count(old, -1)
        self._count(new, 1)
        if self.leader == old.member_id:
            self.leader = new.member_id

    def update(
        self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """A member says anew what it is."""
        speaks_others = [name for name, _ in protocols] != [name for name, _ in member.protocols]
        if speaks_others:
            self._count(member, -1)
        self.said_bytes -= member.said_bytes
        member.protocols = protocols
        self.said_bytes += member.said_bytes
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if speaks_others:
            self._count(member, 1)

    # Who waits

    def await_join(self, member: Member, waiting: Waiting) -> Waiting | None:
        """From now on the member waits. Returns the request that it has waited with before."""
        before, member.joining = member.joining, waiting
        self.joining += before is None
        return before

    def take_join(self, member: Member) -> Waiting | None:
        """The member no longer waits: whoever calls answers."""
        waiting, member.joining = member.joining, None
        self.joining -= waiting is not None
        return waiting

    @property
    def all_joined(self) -> bool:
        """Whether nobody has to be waited for any more."""
        return self.joining == len(self.by_id) and not self.pending

    def elect_joined(self) -> bool:
        """Whether somebody who waits leads, after another was chosen where the leader did not come back."""
        leader = self.by_id.get(self.leader)
        if leader is None:
            return False
        if leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    # What all have in common

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest may take to come back."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def can_speak(self, names: Iterable[str]) -> bool:
        """Whether one of these protocols is spoken by every member."""
        speakers, number = self._speakers, len(self.by_id)
        for name in names:  # noqa: SIM110  # every join asks, and a generator costs more than that
            if speakers.get(name, 0) == number:
                return True
        return False

    def choose_protocol(self) -> str:
        """Of those that all speak, the one that most like best; in a tie the one that was named first."""
        common = {name for name, speakers in self._speakers.items() if speakers == len(self.by_id)}
        if len(common) == 1:
            return next(iter(common))  # all must vote for it
        votes: dict[str, int] = {}
        for member in self:
            vote = member.vote(common)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, member: Member, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            speakers = self._speakers.get(name, 0) + change
            if speakers:
                self._speakers[name] = speakers
            else:
                del self._speakers[name]
