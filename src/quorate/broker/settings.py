"""The static configuration of a broker, as far as serving depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quorate.coordinator.settings import GroupSettings
from quorate.protocol.compression import Codec
from quorate.values import dataclass

__all__ = ["BrokerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Names and defaults are those of Kafka's configuration."""

    broker_id: int
    cluster_id: str
    rack: str | None = None
    inter_broker_listener: str = "PLAINTEXT"
    replica_lag_time_max_ms: int = 30_000
    high_watermark_checkpoint_ms: int = 5_000
    retention_check_ms: int = 300_000
    producer_expiration_check_ms: int = 600_000
    recovery_threads: int = 2  # how many logs of a directory are opened or closed at a time
    auto_create_topics_enable: bool = True
    num_partitions: int = -1  # as the controllers say
    default_replication_factor: int = -1
    fetch_max_bytes: int = 55 << 20
    fetch_sessions_max: int = 1000
    validates_records: bool = True
    replica_selector_class: str = ""
    log_directories: tuple[str, ...] = ()  # as they are configured
    has_authorizer: bool = False  # somebody who says who may do what
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    groups: GroupSettings = field(default_factory=GroupSettings)
    offsets_topic_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 100 << 20
    offsets_commit_timeout_ms: int = 5_000
    offsets_codec: Codec = Codec.NONE
