"""Settings for clusters on one machine, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DEVELOPMENT", "PRIVATE_ZOOKEEPER", "PROFILES", "TESTING"]

DEVELOPMENT: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.retry.backoff.ms": "20",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "reconnect.backoff.ms": "20",
    "replica.fetch.backoff.ms": "100",
    "quorate.events.settle.ms": "2000",
    "quorate.lab.enabled": "true",
}
"""The development profile: a cluster on one machine need not wait as long as one in a data centre, and may be
broken on purpose."""

PROFILES: Final[Mapping[str, Mapping[str, str]]] = {"development": DEVELOPMENT, "default": {}}

PRIVATE_ZOOKEEPER: Final[Mapping[str, str]] = {
    "zookeeper.session.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "200",
}
"""Of brokers whose ZooKeeper was started beside them."""

TESTING: Final[Mapping[str, str]] = {
    **DEVELOPMENT,
    "offsets.topic.num.partitions": "4",
    "quorate.events.publish": "false",  # clusters of tests have the topics that tests give them
}
"""What clusters of tests have: small and quick."""
