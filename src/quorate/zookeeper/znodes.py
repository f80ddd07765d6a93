"""What stands in the nodes: Apache Kafka's JSON, written exactly and read tolerantly.

Pure. Writers give the newest version of each format. Readers take all that there were, ignore keys that they
do not know, and raise `MalformedZnode` for what they cannot make sense of. Broker registrations have a module
of their own (`registration_json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple

from quorate.protocol.types import Uuid
from quorate.values import dataclass
from quorate.zookeeper.errors import MalformedZnode

__all__ = [
    "NO_CONTROLLER",
    "ControllerNode",
    "PartitionAssignment",
    "PartitionState",
    "ProducerIdBlock",
    "TopicNode",
    "cluster_id",
    "cluster_id_in",
    "config",
    "config_change",
    "config_in",
    "controller_epoch_in",
    "encoded",
    "entity_path_in",
    "feature",
    "json_in",
    "log_dir_event_broker_in",
    "partitions_in",
    "reassignment",
    "reassignments_in",
]

NO_CONTROLLER: Final = -1
NO_LEADER: Final = -1
_RECOVERING: Final = 1


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_in(path: str, data: bytes) -> dict[str, Any]:
    """The object in a node."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedZnode(path, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedZnode(path, f"an object was expected, not {type(value).__name__}")
    return value


def _ints(path: str, value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise MalformedZnode(path, f"{what} is no list of numbers: {value!r:.100}")
    return tuple(value)


def _int(path: str, value: Any, what: str) -> int:
    if type(value) is not int:
        raise MalformedZnode(path, f"{what} is no number: {value!r:.100}")
    return value


# /cluster/id


def cluster_id(value: str) -> bytes:
    return encoded({"version": "1", "id": value})


def cluster_id_in(path: str, data: bytes) -> str:
    value = json_in(path, data).get("id")
    if not isinstance(value, str) or not value:
        raise MalformedZnode(path, f"the id is {value!r}")
    return value


# /controller and /controller_epoch


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """`kraft_epoch` is not -1 where a quorum has taken over."""

    broker_id: int
    timestamp_ms: int = 0
    kraft_epoch: int = -1

    def encode(self) -> bytes:
        return encoded(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @classmethod
    def read(cls, path: str, data: bytes) -> ControllerNode:
        value = json_in(path, data)
        timestamp = str(value.get("timestamp", "0"))
        return cls(
            _int(path, value.get("brokerid"), "brokerid"),
            int(timestamp) if timestamp.isdigit() else 0,
            _int(path, value.get("kraftControllerEpoch", -1), "kraftControllerEpoch"),
        )


def controller_epoch_in(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise MalformedZnode(path, f"no epoch: {data[:100]!r}") from None


# /brokers/topics/<t>


class PartitionAssignment(NamedTuple):
    """The replicas in their order of preference; those that a reassignment brings and takes away are among
    them. There are many of these and of states: tuples of numbers cost the garbage collector nothing."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Without those that a reassignment brings."""
        return tuple(one for one in self.replicas if one not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Without those that a reassignment takes away."""
        return tuple(one for one in self.replicas if one not in self.removing)

    def moving_to(self, target: Sequence[int]) -> PartitionAssignment:
        """On the way to other replicas: the target first, in its order, then those that will go."""
        original = self.original
        replicas = (*target, *(one for one in original if one not in target))
        return PartitionAssignment(
            replicas,
            tuple(one for one in target if one not in original),
            tuple(one for one in original if one not in target),
        )


@dataclass(slots=True)
class TopicNode:
    """A topic and its partitions. It has no id if it was made before there were any."""

    topic_id: Uuid | None
    partitions: dict[int, PartitionAssignment] = field(default_factory=dict)

    def encode(self) -> bytes:
        moving = {number: one for number, one in self.partitions.items() if one.is_reassigning}
        value: dict[str, Any] = {"version": 2 if self.topic_id is None else 3}
        if self.topic_id is not None:
            value["topic_id"] = str(self.topic_id)
        value["partitions"] = {str(number): list(one.replicas) for number, one in self.partitions.items()}
        value["adding_replicas"] = {
            str(number): list(one.adding) for number, one in moving.items() if one.adding
        }
        value["removing_replicas"] = {
            str(number): list(one.removing) for number, one in moving.items() if one.removing
        }
        return encoded(value)

    @classmethod
    def read(cls, path: str, data: bytes) -> TopicNode:
        value = json_in(path, data)
        named = value.get("topic_id")
        try:
            topic_id = Uuid.parse(named) if named is not None else None
        except (ValueError, TypeError):
            raise MalformedZnode(path, f"topic_id is {named!r}") from None
        replicas = _by_partition(path, value.get("partitions"), "partitions")
        adding = _by_partition(path, value.get("adding_replicas", {}), "adding_replicas")
        removing = _by_partition(path, value.get("removing_replicas", {}), "removing_replicas")
        for number, some in replicas.items():
            if not some or len(set(some)) < len(some) or min(some) < 0:
                raise MalformedZnode(path, f"partition {number} has the replicas {list(some)}")
        return cls(
            topic_id,
            {
                number: PartitionAssignment(some, adding.get(number, ()), removing.get(number, ()))
                for number, some in sorted(replicas.items())
            },
        )


def _by_partition(path: str, value: Any, what: str) -> dict[int, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise MalformedZnode(path, f"{what} is no object")
    found = {}
    for number, replicas in value.items():
        if not number.isdigit():
            raise MalformedZnode(path, f"{what} has a partition {number!r}")
        found[int(number)] = _ints(path, replicas, f"{what} of partition {number}")
    return found


# /brokers/topics/<t>/partitions/<p>/state


class PartitionState(NamedTuple):
    """Who leads, and who is in sync. `partition_epoch` is the version of the node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False
    partition_epoch: int = 0

    def encode(self) -> bytes:
        """Thousands are written at once, so this is not left to the general writer."""
        isr = ",".join(map(str, self.isr))
        recovering = ',"leader_recovery_state":1' if self.is_recovering else ""
        return (
            f'{{"version":1,"leader":{self.leader},"leader_epoch":{self.leader_epoch},'
            f'"controller_epoch":{self.controller_epoch},"isr":[{isr}]{recovering}}}'
        ).encode()

    @classmethod
    def read(cls, path: str, data: bytes, version: int) -> PartitionState:
        value = json_in(path, data)
        return cls(
            _int(path, value.get("leader"), "leader"),
            _int(path, value.get("leader_epoch"), "leader_epoch"),
            _ints(path, value.get("isr"), "isr"),
            _int(path, value.get("controller_epoch"), "controller_epoch"),
            value.get("leader_recovery_state", 0) == _RECOVERING,
            version,
        )

    def is_same(self, other: PartitionState) -> bool:
        """Whether both say the same, whichever version of the node they are."""
        return (
            self.leader == other.leader
            and self.leader_epoch == other.leader_epoch
            and sorted(self.isr) == sorted(other.isr)
            and self.is_recovering == other.is_recovering
        )


# /config


def config(values: Mapping[str, str]) -> bytes:
    return encoded({"version": 1, "config": dict(values)})


def config_in(path: str, data: bytes) -> dict[str, str]:
    """Nothing, if there is nothing: nodes of users exist for what is below them."""
    if not data:
        return {}
    values = json_in(path, data).get("config", {})
    if not isinstance(values, dict):
        raise MalformedZnode(path, "config is no object")
    return {str(key): str(value) for key, value in values.items()}


def config_change(entity_path: str) -> bytes:
    return encoded({"version": 2, "entity_path": entity_path})


def entity_path_in(path: str, data: bytes) -> str:
    """The entity that a notification is about: `topics/t`, `users/u/clients/c`."""
    value = json_in(path, data)
    if value.get("version") == 1:
        kind, name = value.get("entity_type"), value.get("entity_name")
        if kind in ("topics", "clients") and isinstance(name, str):
            return f"{kind}/{name}"
    elif isinstance(value.get("entity_path"), str):
        return str(value["entity_path"])
    raise MalformedZnode(path, "it names no entity")


# Others


class ProducerIdBlock(NamedTuple):
    """The newest block of producer ids, and whose it is."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return encoded(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def read(cls, path: str, data: bytes) -> ProducerIdBlock:
        value = json_in(path, data)
        try:
            return cls(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
        except (KeyError, ValueError, TypeError):
            raise MalformedZnode(path, f"no block of producer ids: {data[:100]!r}") from None


def partitions_in(path: str, data: bytes) -> list[tuple[str, int]]:
    """The partitions that a notification or an election request lists."""
    found = []
    for one in json_in(path, data).get("partitions") or ():
        if not isinstance(one, dict) or not isinstance(one.get("topic"), str):
            raise MalformedZnode(path, f"no partition: {one!r:.100}")
        found.append((one["topic"], _int(path, one.get("partition"), "partition")))
    return found


def reassignment(moves: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    return encoded(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": number, "replicas": list(replicas)}
                for (topic, number), replicas in moves.items()
            ],
        }
    )


def reassignments_in(path: str, data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    value = json_in(path, data)
    moves = {}
    for one in value.get("partitions") or ():
        if not isinstance(one, dict) or not isinstance(one.get("topic"), str):
            raise MalformedZnode(path, f"no partition: {one!r:.100}")
        key = one["topic"], _int(path, one.get("partition"), "partition")
        moves[key] = _ints(path, one.get("replicas"), "replicas")
    return moves


def log_dir_event_broker_in(path: str, data: bytes) -> int:
    """Whose disk has failed."""
    return _int(path, json_in(path, data).get("broker"), "broker")


def feature(levels: Mapping[str, int]) -> bytes:
    return encoded(
        {
            "version": 2,
            "status": 1,
            "features": {name: {"max_version_level": level} for name, level in levels.items()},
        }
    )
