"""Where things are, as Apache Kafka arranged them. All paths are below the chroot of the session."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BASE_PATHS",
    "broker",
    "config",
    "config_change_name",
    "partition",
    "partitions",
    "sequence_of",
    "state",
    "topic",
    "topic_deletion",
]

CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"

CONFIG_TOPICS: Final = "topics"
CONFIG_BROKERS: Final = "brokers"
CONFIG_CLIENTS: Final = "clients"
CONFIG_USERS: Final = "users"
CONFIG_IPS: Final = "ips"
DEFAULT_ENTITY: Final = "<default>"

# Made at every start, if they are missing; parents first.
BASE_PATHS: Final = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CONFIG,
    CONFIG_CHANGES,
    ADMIN,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{one}" for one in (CONFIG_TOPICS, CONFIG_CLIENTS, CONFIG_USERS, CONFIG_BROKERS, CONFIG_IPS)),
)

# What only its creator may read, where ACLs are set.
SECRET_PREFIXES: Final = (
    f"{CONFIG}/{CONFIG_USERS}",
    f"{CONFIG}/{CONFIG_BROKERS}",
    "/delegation_token/tokens",
)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, partition_id: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition_id}"


def state(name: str, partition_id: int) -> str:
    """
    >>> state("t", 3)
    '/brokers/topics/t/partitions/3/state'
    """
    return f"{TOPICS}/{name}/partitions/{partition_id}/state"


def topic_deletion(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def config(entity_path: str) -> str:
    """Of an entity path such as `topics/t` or `users/<default>/clients/c`."""
    return f"{CONFIG}/{entity_path}"


def config_change_name(sequence: int) -> str:
    return f"config_change_{sequence:010d}"


def sequence_of(name: str) -> int:
    """The number at the end of the name of a sequential node; -1 if there is none.

    >>> sequence_of("config_change_0000000012"), sequence_of("others")
    (12, -1)
    """
    digits = name[-10:]
    return int(digits) if len(digits) == 10 and digits.isdigit() else -1
