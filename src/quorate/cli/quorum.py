"""Asking a quorum about itself."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Connections
from quorate.protocol.api.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.raft.wire import METADATA_TOPIC

__all__ = ["describe", "parse_addresses", "shown"]

TIMEOUT_MS = 5000


def parse_addresses(text: str) -> list[Address]:
    """`host:port,host:port` as addresses; a ValueError for anything else."""
    addresses = []
    for part in text.split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part.strip()!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def describe(addresses: Sequence[Address]) -> dict[str, Any]:
    """What the leader says about the quorum; an ApiError if nobody knows a leader, or nobody answers."""
    return asyncio.run(_describe(addresses))


def shown(description: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps(description, indent=2)
    lines = [
        f"leader {description['leader_id']}, epoch {description['leader_epoch']},"
        f" high watermark {description['high_watermark']}"
    ]
    replicas = [("voter", one) for one in description["voters"]]
    replicas += [("observer", one) for one in description["observers"]]
    lines += [
        f"  {kind} {one['id']}: log end {one['log_end_offset']}, lag {one['lag']}" for kind, one in replicas
    ]
    return "\n".join(lines)


async def _describe(addresses: Sequence[Address]) -> dict[str, Any]:
    """Asks one after the other, and those that they name, until the leader itself answers."""
    connections = Connections(rng=random.Random(), client_id="quorate-quorum")
    partition = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    request = DescribeQuorumRequest(topics=[topic])
    queue, asked, problems = list(addresses), set[Address](), list[str]()
    try:
        while queue:
            address = queue.pop(0)
            if address in asked:
                continue
            asked.add(address)
            try:
                response = await connections.request(address, request, timeout_ms=TIMEOUT_MS)
            except (ConnectionLost, ApiError) as error:
                problems.append(f"{address[0]}:{address[1]}: {error}")
                continue
            assert isinstance(response, DescribeQuorumResponse)
            found = response.topics[0].partitions[0]
            if found.error_code == ErrorCode.NONE:
                return _as_dict(found)
            problems.append(
                f"{address[0]}:{address[1]}: {found.error_message or ErrorCode(found.error_code).name}"
            )
            queue += [(one.host, one.port) for node in response.nodes for one in node.listeners]
    finally:
        await connections.close()
    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader answered: " + "; ".join(problems))


def _as_dict(found: DescribeQuorumResponse.TopicData.PartitionData) -> dict[str, Any]:
    leader_end = max((one.log_end_offset for one in found.current_voters + found.observers), default=0)
    for one in found.current_voters + found.observers:
        if one.replica_id == found.leader_id:
            leader_end = one.log_end_offset

    def replica(one: DescribeQuorumResponse.TopicData.PartitionData.ReplicaState) -> dict[str, Any]:
        return {
            "id": one.replica_id,
            "directory_id": str(one.replica_directory_id),
            "log_end_offset": one.log_end_offset,
            "lag": leader_end - max(0, one.log_end_offset),
            "last_fetch_timestamp": one.last_fetch_timestamp,
            "last_caught_up_timestamp": one.last_caught_up_timestamp,
        }

    return {
        "leader_id": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [replica(one) for one in found.current_voters],
        "observers": [replica(one) for one in found.observers],
    }
