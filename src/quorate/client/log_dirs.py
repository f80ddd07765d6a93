"""What brokers have in their log directories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from quorate.client.cluster import Cluster
from quorate.client.errors import code_of
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["LogDirectory", "StoredReplica", "describe_log_dirs"]


class StoredReplica(NamedTuple):
    """How large a replica is, and how far it is behind; a future one is on its way to this directory."""

    size_bytes: int
    lag: int
    is_future: bool


class LogDirectory(NamedTuple):
    """A directory of a broker. One that has failed has an error, and nothing else; -1 is not known."""

    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    replicas: Mapping[TopicPartition, StoredReplica]


async def describe_log_dirs(cluster: Cluster, broker_id: int) -> list[LogDirectory]:
    """The log directories of a broker, as it says itself."""
    request = DescribeLogDirsRequest(topics=None)
    said = cast("DescribeLogDirsResponse", await cluster.request(broker_id, request))
    return [
        LogDirectory(
            one.log_dir,
            code_of(one.error_code),
            one.total_bytes,
            one.usable_bytes,
            one.is_cordoned,
            {
                TopicPartition(topic.name, part.partition_index): StoredReplica(
                    part.partition_size, part.offset_lag, part.is_future_key
                )
                for topic in one.topics
                for part in topic.partitions
            },
        )
        for one in said.results
    ]
