"""What is different when a follower fetches: it tells us how far it is, may be held up by a throttle, and may
have to hear of a high watermark as soon as that moves."""

from __future__ import annotations

from collections.abc import Iterable

from quorate.broker.fetch_sessions import Wanted
from quorate.broker.handlers.fetch_answers import Found
from quorate.broker.leadership import Follower, Leadership
from quorate.broker.partition import Partition
from quorate.broker.replica_selection import RACK_AWARE
from quorate.broker.serving import Broker
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Following"]


class Following:
    """The follower that asks. `broker_epoch` is -1 if it does not say."""

    __slots__ = ("_broker", "_broker_epoch", "_has_listed", "_replica_id", "is_replaced", "tells_at_once")

    def __init__(self, broker: Broker, replica_id: int, broker_epoch: int) -> None:
        self._broker = broker
        self._replica_id = replica_id
        self._broker_epoch = broker_epoch
        # Without a selector nobody waits at a follower, and it hears of all with the next records.
        self.tells_at_once = broker.settings.replica_selector_class == RACK_AWARE
        self._has_listed = False  # a throttle is for some of what it asks for
        # Whether its broker had registered again when it asked: then it is not what it was, and does not
        # count.
        registration = broker.image.brokers.get(replica_id)
        self.is_replaced = registration is not None and -1 < broker_epoch < registration.epoch

    def check(self, leading: Leadership, partition: Partition, wanted: Wanted) -> None:
        """A broker without a replica gets nothing. If it says which epoch it speaks of, that may be one to
        come."""
        if self._replica_id not in leading.followers:
            reason = f"broker {self._replica_id} has no replica of {partition.key}"
            is_of_epoch = wanted.leader_epoch >= 0
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if is_of_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER, reason
            )

    def hear(self, partition: Partition, wanted: Wanted) -> None:
        """It has everything before what it asks for."""
        broker, broker_epoch = self._broker, self._broker_epoch
        if self.is_replaced:
            reason = f"broker {self._replica_id} is registered with a later epoch than {broker_epoch} by now"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        proposal = partition.fetched_by(
            self._replica_id, wanted.offset, wanted.log_start_offset, broker_epoch
        )
        if proposal is not None:
            broker.proposals.add(partition, proposal)

    def at_rest(self, partition: Partition, wanted: Wanted) -> Follower | None:
        """Itself as the leader knows it, if to hear it again would change nothing until the partition stirs:
        when it is in sync, has everything, and everything is committed."""
        leading = partition.leading
        if leading is None or self._replica_id not in leading.isr or not partition.is_settled:
            return None
        follower = leading.followers.get(self._replica_id)
        if follower is None or follower.broker_epoch != self._broker_epoch:
            return None
        return follower if follower.end_offset == wanted.offset == partition.log.end_offset else None

    def is_throttled(self, partition: Partition) -> bool:
        """Whether it gets nothing for now; those in sync always get what there is."""
        listed, leading = partition.config.throttled_as_leader, partition.leading
        if not listed or partition.key.partition_id not in listed or leading is None:
            return False
        self._has_listed = True
        if self._replica_id in leading.isr:
            return False
        return self._broker.leader_throttle.is_exceeded(self._broker.now_ms())

    def has_news(self, partition: Partition) -> bool:
        """Whether it is to hear at once of a high watermark that has moved: consumers may wait there."""
        if not self.tells_at_once or partition.leading is None:
            return False
        follower = partition.leading.followers.get(self._replica_id)
        return follower is not None and follower.told_high_watermark < partition.leading.high_watermark

    def note(self, all_found: Iterable[Found]) -> None:
        """This will be answered."""
        if not self.tells_at_once and not self._has_listed:
            return
        throttled_bytes = 0
        for found in all_found:
            partition, records = found.partition, found.records
            if partition is None or partition.leading is None or found.error is not None:
                continue
            follower = partition.leading.followers.get(self._replica_id)
            if follower is not None:
                follower.told_high_watermark = found.high_watermark
            if records is not None and partition.key.partition_id in partition.config.throttled_as_leader:
                throttled_bytes += records.size_bytes
        if throttled_bytes:
            self._broker.leader_throttle.record(throttled_bytes, self._broker.now_ms())
