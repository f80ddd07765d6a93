"""The group coordinators of this broker: which partition a group belongs to, and who answers for it here."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from quorate.broker.coordinators import Coordinators, Hosted, State
from quorate.broker.expressions import Expressions
from quorate.broker.group_topics import GroupTopics
from quorate.broker.partition import Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.coordinator.consumer_rules import corrected
from quorate.coordinator.effects import Caller, Moment
from quorate.coordinator.group_places import place_hash
from quorate.coordinator.shard import GroupShard
from quorate.metadata.event import Event
from quorate.metadata.image import GROUP, ClusterImage
from quorate.metadata.touched import Touched
from quorate.net.routes import RequestContext

__all__ = ["ASSIGNMENT_INTERVAL", "OFFSETS_TOPIC", "Groups"]

OFFSETS_TOPIC: Final = "__consumer_offsets"
ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"
_NAMES_MAX: Final = 100_000
"""Of groups that are remembered."""
_NAME_CHARACTERS_MAX: Final = 255
"""Of a name that is remembered. Longer ones, which somebody must have made up to do harm, cost only time."""


class Groups:
    """Where groups are coordinated."""

    def __init__(self, broker: Broker, saw: Callable[[Sequence[Event]], None]) -> None:
        """`saw` is told what has happened to groups, and why."""
        settings = broker.settings
        self._broker = broker
        self._settings = settings.groups
        self._logger = logging.getLogger(f"quorate.groups.{settings.broker_id}")
        self.topics = GroupTopics(broker.image)
        self.has_consumer_protocol = self._has_consumer_protocol(broker.image)
        self.shards: Coordinators[GroupShard] = Coordinators(
            self._make_shard,
            self._now,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            codec=settings.offsets_codec,
            offline=broker.replicas.offline,
            saw=saw,
            logger=self._logger,
            when_loaded=self._loaded,
        )
        self._expressions = Expressions(self.shards.find)
        self._expressions.matches.topics_changed(self.topics, ())
        self._moment = Moment(-math.inf, 0)
        self.recent: dict[str, Hosted[GroupShard]] = {}
        """Who coordinates groups that were asked for. Another one takes its place when that may change, or
        what may be asked of them; while it does not, whoever was found is right as long as it is active."""
        # The groups among them; of a whole new image nothing says which are not there any more.
        self._had_config = [key for key in broker.image.configs if key[0] == GROUP]
        self._known: dict[str, int] = {}  # hashes of groups, which are asked for again and again

    def _now(self) -> Moment:
        """The same for all of one turn of the loop, if that looks at its clock only once, as uvloop does."""
        now_ms = self._broker.now_ms()
        if now_ms != self._moment.now_ms:
            self._moment = Moment(now_ms, self._broker.wall_ms())
        return self._moment

    def _make_shard(self, partition: int) -> GroupShard:
        random = self._broker.random
        shard = GroupShard(
            self._settings,
            lambda: str(UUID(bytes=random.randbytes(16), version=4)),
            partition,
            self._may_describe,
            self._expressions.matches,
            partial(self._expressions.look_soon, partition),
        )
        shard.topics_changed(self.topics, ())
        for group_id, given in self._configured():
            shard.configure(group_id, given)
        return shard

    def _may_describe(self, caller: Caller, topic: str) -> bool:
        context = caller.asker
        assert isinstance(context, RequestContext)
        return self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    def _configured(self) -> list[tuple[str, Mapping[str, str]]]:
        return [(name, given) for (kind, name), given in self._broker.image.configs.items() if kind == GROUP]

    def _configure(self, group_id: str) -> None:
        """Every shard knows the configurations of all groups: with more partitions, groups are elsewhere."""
        given = self._broker.image.configs.get((GROUP, group_id), {})
        for hosted in self.shards:
            if hosted.shard.configure(group_id, given) and hosted.state is State.ACTIVE:
                self._note_corrected(hosted, group_id, given)

    def _has_consumer_protocol(self, image: ClusterImage) -> bool:
        """Both the cluster and the file of this broker may do without it."""
        return image.has_consumer_protocol and self._settings.consumer_protocol

    def set_assignment_interval(self, interval_ms: int) -> None:
        """How often consumer groups are assigned anew at most, but for those that say so themselves. Nobody
        checks what is set while a broker runs against the bounds that its file has."""
        settings = self._settings
        lowest = settings.group_consumer_min_assignment_interval_ms
        highest = settings.group_consumer_max_assignment_interval_ms
        used_ms = max(lowest, min(interval_ms, highest))
        if used_ms != interval_ms:
            self._logger.warning(
                "config key=%s value=%d is out of the bounds of this broker: it counts as %d",
                ASSIGNMENT_INTERVAL,
                interval_ms,
                used_ms,
            )
        self._settings = replace(settings, group_consumer_assignment_interval_ms=used_ms)
        for hosted in self.shards:
            hosted.shard.reconfigure(self._settings)

    def _note_corrected(self, hosted: Hosted[GroupShard], group_id: str, given: Mapping[str, str]) -> None:
        """Whoever decided about the configuration of a group may have had other bounds than this broker. Only
        the group's own coordinator says so."""
        if self.partition_of(group_id) != hosted.partition.key.partition_id:
            return
        for key, value in corrected(self._settings, given).items():
            self._logger.warning(
                "config group=%s key=%s value=%s does not fit the bounds of this broker: it counts as %d",
                group_id,
                key,
                given[key],
                value,
            )

    def _loaded(self, hosted: Hosted[GroupShard]) -> None:
        """Tells what its groups cannot have; and topics may have been deleted while nobody coordinated."""
        for group_id, given in self._configured():
            self._note_corrected(hosted, group_id, given)
        gone = [name for name in hosted.shard.topics_with_offsets() if self.topics.by_name(name) is None]
        if gone:
            hosted.perform(partial(hosted.shard.topics_deleted, sorted(gone)))

    def led(self, partition: Partition) -> None:
        """This broker leads a partition, in a new epoch."""
        if partition.key.topic == OFFSETS_TOPIC:
            self.shards.elected(partition)

    def follow(self, image: ClusterImage, touched: Touched | None) -> None:
        """The cluster has changed in these places; without them, everything may be different."""
        changed = self.topics.replace(image) if touched is None else self.topics.update(touched)
        if touched is None or touched.features:
            self.has_consumer_protocol = self._has_consumer_protocol(image)
        if touched is None or touched.topics_added or touched.has_partitions or touched.features:
            self.recent = {}  # with more partitions, groups are elsewhere
        configured = [*self._had_config, *image.configs] if touched is None else touched.configs
        for group_id in [name for kind, name in configured if kind == GROUP]:
            self._configure(group_id)
        if touched is None or configured:
            self._had_config = [key for key in image.configs if key[0] == GROUP]
        if not changed:
            return
        self._expressions.matches.topics_changed(self.topics, changed)
        gone = [name for name in changed if name not in image.topics.by_name]
        for hosted in self.shards.all_active():
            hosted.shard.topics_changed(self.topics, changed)
            if gone:
                hosted.perform(partial(hosted.shard.topics_deleted, gone))

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's state is in."""
        hashed = self._known.get(group_id)
        if hashed is None:
            hashed = place_hash(group_id)
            if len(group_id) <= _NAME_CHARACTERS_MAX:
                if len(self._known) >= _NAMES_MAX:
                    self._known.clear()
                self._known[group_id] = hashed
        return hashed % self._partition_count()

    def of(self, group_id: str) -> Hosted[GroupShard]:
        """The coordinator of a group. `ApiError` if that is not here, or not yet."""
        return self.active(group_id) or self.shards.active(self.partition_of(group_id))

    def active(self, group_id: str) -> Hosted[GroupShard] | None:
        """The coordinator of a group, if it is here and serves. Heartbeats ask for it again and again."""
        hosted = self.recent.get(group_id)
        if hosted is None or hosted.state is not State.ACTIVE:
            hosted = self.shards.find(self.partition_of(group_id))
            if hosted is not None and len(group_id) <= _NAME_CHARACTERS_MAX:
                if len(self.recent) >= _NAMES_MAX:
                    self.recent.clear()
                self.recent[group_id] = hosted
        return hosted

    def leader_of(self, partition_id: int) -> int | None:
        """The broker that coordinates the groups of a partition; -1 while nobody does; None if the topic does
        not exist."""
        image = self._broker.image
        topic = image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        state = image.partitions.get(topic.slot, partition_id)
        return -1 if state is None else state.leader

    def _partition_count(self) -> int:
        image = self._broker.image
        topic = image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return self._broker.settings.offsets_topic_partitions
        return image.partitions.count_of(topic.slot)
