"""The static configuration of a controller, as far as its decisions depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from quorate.values import dataclass

__all__ = ["GROUP_BOUNDS", "SUPPORTED_FEATURES", "Bounds", "ControllerSettings", "bound_keys"]

# The features that we know, and their levels. `kraft.version` is the quorum's.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a number of a group may be, as a node's file says, and what it is if the group does not say."""

    lowest: int
    highest: int
    default: int


GROUP_BOUNDS: Final[Mapping[str, Bounds]] = {
    "consumer.assignment.interval.ms": Bounds(0, 15_000, 1_000),
    "consumer.heartbeat.interval.ms": Bounds(5_000, 15_000, 5_000),
    "consumer.session.timeout.ms": Bounds(45_000, 60_000, 45_000),
}
"""By the group's keys, what holds if the file does not say. Coordinators, which this layer cannot ask, have
the same keys and numbers (`GROUP_KEYS`, `GroupSettings`); `tests/node/test_group_config.py` compares them."""


def bound_keys(key: str) -> tuple[str, str]:
    """The keys of a node's file for the lowest and the highest that a group's key may be.

    >>> bound_keys("consumer.session.timeout.ms")
    ('group.consumer.min.session.timeout.ms', 'group.consumer.max.session.timeout.ms')
    """
    kind, _, rest = key.partition(".")
    rest = rest.removeprefix("num.")  # group.streams.max.standby.replicas
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Names and defaults are those of Kafka's configuration, see docs/controller.md."""

    node_id: int = 0
    cluster_id: str = ""
    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    metadata_max_idle_interval_ms: int = 500
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_s: int = 300
    unclean_leader_election_interval_ms: int = 300_000
    default_replication_factor: int = 1
    num_partitions: int = 1
    delete_topic_enable: bool = True
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """What this node's file says about topics, by the name of the topic's key: `min.insync.replicas` and
    others that the controller itself must know."""
    group_bounds: Mapping[str, Bounds] = field(default_factory=lambda: GROUP_BOUNDS)
    """What groups may be given. Those of the node that decides count, as with Apache."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """This node's file, text by key, for whoever asks what stands in it."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_FEATURES)
    kraft_version: int = 1
    """The level of `kraft.version`, which the quorum keeps in control records of its own."""
    has_authorizer: bool = False
    """Whether somebody in the cluster goes by access control entries: otherwise none are taken, and whoever
    writes one does not believe that something is protected now."""
    delegation_token_secret: bytes = b""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    """How long a token lives that is not renewed, and by how much a renewal extends that."""
    delegation_token_expiry_check_interval_ms: int = 3_600_000
