"""The groups of one partition of `__consumer_offsets`, of both protocols, and their offsets.

One `GroupShard` lives as long as a broker leads the partition. Its host

    loads it      `apply` for every record of the log up to its end, `commit_transaction` or
                  `abort_transaction` for every marker, then once `loaded`
    asks it       one method for each request; `tick` whenever `next_deadline_ms` has come
    carries out   what comes back (see `effects`): append, `apply` each record with its offset, answer once
                  it is committed; or `append_refused`, if it could not be appended
    drops it      `unload`, whose answers leave at once

Nothing else may be called between a step and its `apply` or `append_refused`. Requests that the shard must not
see (while it loads, or when this broker does not lead the partition) are answered with `refusals.refuse`.

`apply` alone writes what the log keeps: the stored groups and the offsets. What the log does not keep (who
waits, when a session ends, a rebalance that is under way) is lost with the shard, and may be: members find out
from the answers of the next coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorate.coordinator.effects import Caller, Effects, LogRecord, Moment, Ticket
from quorate.coordinator.settings import GroupSettings
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ErrorCode

__all__ = ["GroupShard"]


class GroupShard:
    """`new_id` returns the text of a new random UUID at each call: member ids are made of it."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        raise NotImplementedError

    # The log

    def apply(self, record: LogRecord, offset: int, producer_id: int = -1) -> None:
        """Takes over what the log says at an offset: when loading, and live after an append.

        A record of a transactional batch comes with its producer's id, and counts once its transaction is
        committed. Records of kinds that are not known must not be given (`log_format.decode` returns None).
        """
        raise NotImplementedError

    def commit_transaction(self, producer_id: int) -> None:
        """The log has a COMMIT marker of this producer."""
        raise NotImplementedError

    def abort_transaction(self, producer_id: int) -> None:
        """The log has an ABORT marker of this producer."""
        raise NotImplementedError

    def loaded(self, moment: Moment) -> Effects:
        """The whole log was applied: sessions begin, each with its full time-out. Before this no request."""
        raise NotImplementedError

    def append_refused(self, effects: Effects, code: ErrorCode, moment: Moment) -> Effects:
        """Nothing of a step was applied, because the log refused its records: what to do instead.

        `code` is the log's own (NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, ...); members are told what it means
        to them (`refusals.storage_error`). The same is to be called, with REQUEST_TIMED_OUT, when the records
        were appended and applied but not committed within `offsets.commit.timeout.ms`.
        """
        raise NotImplementedError

    def unload(self) -> Effects:
        """This broker leads the partition no more: everyone who waits is answered NOT_COORDINATOR."""
        raise NotImplementedError

    # Time

    @property
    def next_deadline_ms(self) -> float:
        """When `tick` has something to do, on the clock of `Moment.now_ms`; infinity if nothing waits."""
        raise NotImplementedError

    def tick(self, moment: Moment) -> Effects:
        """Does one thing that is due. Call it again, after its effects, while `next_deadline_ms` has passed.

        One at a time, because what is due next may be answered by what comes of the first.
        """
        raise NotImplementedError

    # Classic groups. Members of consumer groups that speak the classic protocol are answered as well.

    def join(self, ticket: Ticket, request: JoinGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """May be answered by a later step, of any kind."""
        raise NotImplementedError

    def sync(self, ticket: Ticket, request: SyncGroupRequest, caller: Caller, moment: Moment) -> Effects:
        """May be answered by a later step, of any kind."""
        raise NotImplementedError

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, caller: Caller, moment: Moment) -> Effects:
        raise NotImplementedError

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, caller: Caller, moment: Moment) -> Effects:
        raise NotImplementedError

    # Consumer groups

    def consumer_group_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, caller: Caller, moment: Moment
    ) -> Effects:
        raise NotImplementedError

    # Offsets. Topics are names here: whoever calls has put the names of v10's topic ids into the requests,
    # has left out topics and partitions that do not exist or are not allowed, and adds them to the answer.

    def offset_commit(
        self, ticket: Ticket, request: OffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        raise NotImplementedError

    def txn_offset_commit(
        self, ticket: Ticket, request: TxnOffsetCommitRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """`Effects.producer` says whose transaction the records belong to."""
        raise NotImplementedError

    def offset_fetch(
        self, ticket: Ticket, request: OffsetFetchRequest, caller: Caller, moment: Moment
    ) -> Effects:
        """Of one group below v8, of those in `request.groups` from there on: only those of this partition."""
        raise NotImplementedError

    def offset_delete(
        self, ticket: Ticket, request: OffsetDeleteRequest, caller: Caller, moment: Moment
    ) -> Effects:
        raise NotImplementedError

    # Administration. A request names groups of many partitions: give each shard its own, and join the answers.

    def list_groups(self, request: ListGroupsRequest, caller: Caller) -> list[ListGroupsResponse.ListedGroup]:
        raise NotImplementedError

    def describe(
        self, request: DescribeGroupsRequest, caller: Caller
    ) -> list[DescribeGroupsResponse.DescribedGroup]:
        raise NotImplementedError

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, caller: Caller
    ) -> list[ConsumerGroupDescribeResponse.DescribedGroup]:
        raise NotImplementedError

    def delete_groups(
        self, ticket: Ticket, request: DeleteGroupsRequest, caller: Caller, moment: Moment
    ) -> Effects:
        raise NotImplementedError

    # The cluster's metadata

    def topics_deleted(self, names: Iterable[str], moment: Moment) -> Effects:
        """These topics are gone, and with them what groups have committed for them."""
        raise NotImplementedError
