"""The settings of a topic that a broker goes by: the topic's own, else what the cluster or the file says."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quorate.broker.throttled_replication import NO_REPLICAS, throttled_partitions
from quorate.controller.config_definitions import TOPIC_CONFIGS
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage
from quorate.storage.limits import LogConfig
from quorate.values import dataclass

__all__ = ["TopicConfig", "topic_config"]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Everything that appending, reading and keeping depend on."""

    log: LogConfig
    max_message_bytes: int
    max_decompressed_message_bytes: int  # a record of a compressed batch
    compression_type: str
    has_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_compacted: bool
    is_deleted: bool  # what is too old or too much goes
    min_isr: int
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int = 86_400_000  # how long compaction keeps what says that a key is deleted
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    throttled_as_leader: Collection[int] = NO_REPLICAS  # partitions whose replica on this broker is listed
    throttled_as_follower: Collection[int] = NO_REPLICAS


def topic_config(image: ClusterImage, topic: str, broker_id: int, file: Mapping[str, str]) -> TopicConfig:
    """`file` holds the defaults for topics that the node's own file has, by the topic's keys."""
    layers = [
        image.configs.get((TOPIC, topic), {}),
        _synonyms(image.configs.get((BROKER, str(broker_id)), {})),
        _synonyms(image.configs.get(CLUSTER_DEFAULT, {})),
        file,
    ]

    def value(key: str) -> str:
        for layer in layers:
            if key in layer:
                return layer[key]
        default = TOPIC_CONFIGS[key].default
        assert default is not None, f"{key} has a default"
        return default

    policies = {one.strip() for one in value("cleanup.policy").split(",")}
    is_compacted = "compact" in policies
    max_compaction_lag_ms = int(value("max.compaction.lag.ms"))
    segment_ms = int(value("segment.ms"))
    if is_compacted:
        segment_ms = min(segment_ms, max_compaction_lag_ms)  # the segment that is written to stays dirty
    return TopicConfig(
        log=LogConfig(
            segment_bytes=int(value("segment.bytes")),
            segment_ms=segment_ms,
            index_interval_bytes=int(value("index.interval.bytes")),
            index_bytes=int(value("segment.index.bytes")),
            is_compacted=is_compacted,
        ),
        max_message_bytes=int(value("max.message.bytes")),
        max_decompressed_message_bytes=int(value("max.decompressed.message.bytes")),
        compression_type=value("compression.type"),
        has_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
        is_compacted=is_compacted,
        is_deleted="delete" in policies,
        min_isr=int(value("min.insync.replicas")),
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
        delete_retention_ms=int(value("delete.retention.ms")),
        min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
        max_compaction_lag_ms=max_compaction_lag_ms,
        min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),
        throttled_as_leader=throttled_partitions(value("leader.replication.throttled.replicas"), broker_id),
        throttled_as_follower=throttled_partitions(
            value("follower.replication.throttled.replicas"), broker_id
        ),
    )


def _synonyms(values: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker by the topic's key that they are the default of; the strongest synonym wins."""
    found = {}
    for key, definition in TOPIC_CONFIGS.items():
        for synonym in definition.synonyms:
            if synonym in values:
                found[key] = values[synonym]
                break
    return found
