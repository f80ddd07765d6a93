"""The image of a cluster as a tree of names, to be walked like directories.

    /offset                          up to where, in which epoch, when
    /brokers/1   /controllers/1      registrations
    /features/metadata.version       finalized levels
    /topics/orders/id                /topics/orders/partitions/0     /topics/orders/configs/retention.ms
    /topic-ids/<id>                  the name of a topic
    /configs/broker/1/...            of brokers (the default of all is called `default`), groups, ...
    /quotas/user=alice/producer_byte_rate
    /acls/<id>   /scram/alice/SCRAM-SHA-256   /tokens/<id>   /producer-ids   /unknown/0

A node is made when somebody looks at it: an image may have a million partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from quorate.cli.metadata_records import as_json
from quorate.metadata.history import Moment
from quorate.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, ClusterImage, Entity
from quorate.metadata.topics import Topic
from quorate.protocol.types import Uuid

__all__ = ["Folder", "Leaf", "Node", "everything", "matching", "tree_of", "walk"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """Something with a content."""

    content: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Folder:
    """Something with names in it. `get` is asked only for what `names` has."""

    names: Callable[[], Sequence[str]]
    get: Callable[[str], Node]


Node = Leaf | Folder

_KINDS: Final = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: "client-metrics", GROUP: "group"}
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_DEFAULT: Final = "default"


def tree_of(moment: Moment) -> Folder:
    image = moment.image
    return _folder(
        {
            "offset": Leaf(
                lambda: {
                    "offset": moment.offset,
                    "epoch": moment.epoch,
                    "timestamp_ms": None if moment.timestamp_ms < 0 else moment.timestamp_ms,
                }
            ),
            "brokers": _folder({str(key): _value(one) for key, one in sorted(image.brokers.items())}),
            "controllers": _folder({str(key): _value(one) for key, one in sorted(image.controllers.items())}),
            "features": _values(image.features),
            "topics": Folder(
                lambda: sorted(image.topics.by_name), lambda name: _topic(image, image.topics.by_name[name])
            ),
            "topic-ids": Folder(
                lambda: sorted(map(str, image.topics.by_id)),
                lambda name: Leaf(lambda: image.topics.by_id[Uuid.parse(name)].name),
            ),
            "configs": _configs(image),
            "quotas": _folder(
                {_entity(key): _values(one) for key, one in sorted(image.quotas.items(), key=repr)}
            ),
            "acls": _folder({str(key): _value(one) for key, one in image.acls.items()}),
            "scram": _scram(image),
            "tokens": _folder({key: _value(one) for key, one in sorted(image.tokens.items())}),
            "producer-ids": Leaf(lambda: {"next": image.next_producer_id}),
            "unknown": _folder({str(at): Leaf(one.hex) for at, one in enumerate(image.unknown)}),
        }
    )


def everything(node: Node) -> Any:
    """All of a node, as JSON has it."""
    if isinstance(node, Leaf):
        return node.content()
    return {name: everything(node.get(name)) for name in node.names()}


def matching(root: Folder, path: str) -> Iterator[tuple[str, Node]]:
    """What a path means, in which `*`, `?` and `[...]` stand for names.

    >>> root = _folder({"a": _values({"b1": 1, "b2": 2}), "c": _values({})})
    >>> [path for path, _ in matching(root, "/a/b*")], [path for path, _ in matching(root, "/x")]
    (['/a/b1', '/a/b2'], [])
    """
    found: list[tuple[str, Node]] = [("", root)]
    for part in filter(None, path.split("/")):
        found = [
            (f"{above}/{name}", node.get(name))
            for above, node in found
            if isinstance(node, Folder)
            for name in _named(node, part)
        ]
    return ((path or "/", node) for path, node in found)


def walk(path: str, node: Node) -> Iterator[tuple[str, Node]]:
    """A node and all that is in it."""
    yield path, node
    if isinstance(node, Folder):
        for name in node.names():
            yield from walk(f"{path.rstrip('/')}/{name}", node.get(name))


def _named(node: Folder, pattern: str) -> list[str]:
    names = node.names()
    if not any(mark in pattern for mark in "*?["):
        return [pattern] if pattern in names else []
    return [name for name in names if fnmatchcase(name, pattern)]


def _topic(image: ClusterImage, topic: Topic) -> Folder:
    partitions = Folder(
        lambda: [str(index) for index, _ in image.partitions_of(topic.id)],
        lambda name: _value(image.partition(topic.id, int(name))),
    )
    return _folder(
        {
            "id": Leaf(lambda: str(topic.id)),
            "partitions": partitions,
            "configs": _values(image.configs.get((TOPIC, topic.name), {})),
        }
    )


def _configs(image: ClusterImage) -> Folder:
    kinds: dict[str, dict[str, Node]] = {}
    for (kind, name), values in sorted(image.configs.items()):
        kinds.setdefault(_KINDS.get(kind, str(kind)), {})[name or _DEFAULT] = _values(values)
    return _folder({kind: _folder(some) for kind, some in kinds.items()})


def _scram(image: ClusterImage) -> Folder:
    """Who has credentials; these themselves are nobody's business."""
    users: dict[str, dict[str, Node]] = {}
    for (user, mechanism), one in sorted(image.scram.items()):
        name = _MECHANISMS.get(mechanism, str(mechanism))
        users.setdefault(user, {})[name] = _contents({"iterations": one.iterations})
    return _folder({user: _folder(some) for user, some in users.items()})


def _entity(entity: Entity) -> str:
    """
    >>> _entity((("client-id", None), ("user", "alice")))
    'client-id=default,user=alice'
    """
    return ",".join(f"{kind}={_DEFAULT if name is None else name}" for kind, name in entity)


def _folder(nodes: Mapping[str, Node]) -> Folder:
    return Folder(lambda: list(nodes), nodes.__getitem__)


def _values(values: Mapping[str, Any]) -> Folder:
    return _folder({key: _contents(one) for key, one in sorted(values.items())})


def _contents(value: Any) -> Leaf:
    return Leaf(lambda: value)


def _value(value: Any) -> Leaf:
    """A registration, a partition, or a record."""
    return Leaf(lambda: _plain(asdict(value)) if hasattr(value, "__dataclass_fields__") else as_json(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return as_json(value)
