"""Which value of a configuration counts, where it comes from, and what else there is: for replies.

Topics, groups and client metrics are described by every node. What stands in the file of a node is known to
that node alone, so it describes itself and no other.

A topic's configuration is the topic's own; if it has none, what was set for this node, then what was set for
all nodes, then what this node's file says, then the default. All but the first stand under the names that the
broker has for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.controller import config_documentation
from quorate.controller.config_definitions import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    INTERNAL,
    TOPIC_CONFIGS,
    UNITS_MS,
    group_synonym,
)
from quorate.controller.config_of_brokers import BROKER_KEYS, LISTED, broker_key, synonyms_of
from quorate.controller.config_types import ConfigType, Definition
from quorate.controller.settings import ControllerSettings
from quorate.controller.topic_names import check_name
from quorate.metadata.image import BROKER, CLIENT_METRICS, CLUSTER_DEFAULT, GROUP, TOPIC, ClusterImage
from quorate.protocol.api.admin import DescribeConfigsRequest, DescribeConfigsResponse
from quorate.protocol.api.topics import CreateTopicsResponse
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "BROKER_LOGGER",
    "Found",
    "describe_resource",
    "given_to_node",
    "topic_config_entries",
    "what_is_asked",
]

BROKER_LOGGER: Final = 8

# Where a value comes from; the numbers stand in replies.
DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5
DYNAMIC_LOGGER: Final = 6
DYNAMIC_CLIENT_METRICS: Final = 7
DYNAMIC_GROUP: Final = 8

CreatedConfig = CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs
Result = DescribeConfigsResponse.Result
Described = DescribeConfigsResponse.Result.ResourceResult

_OF_LOGGER: Final = Definition(ConfigType.UNKNOWN)


class Found(NamedTuple):
    """A value that is given somewhere, under the name that it has there."""

    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """A configuration of a resource: its value, and everything that is given for it, what counts first."""

    name: str
    value: str | None
    found: Sequence[Found]
    definition: Definition | None
    documentation: str | None
    is_read_only: bool = False

    @property
    def source(self) -> int:
        return self.found[0].source if self.found else DEFAULT

    @property
    def is_sensitive(self) -> bool:
        """What we do not know may well be secret."""
        return self.definition is None or self.definition.is_sensitive


def topic_config_entries(
    image: ClusterImage, settings: ControllerSettings, configs: Mapping[str, str]
) -> list[CreatedConfig]:
    """Every configuration of a topic that has these of its own, for the reply to its creation."""
    return [
        CreatedConfig(
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            read_only=False,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in _topic_entries(image, settings, configs)
    ]


def what_is_asked(asked: DescribeConfigsRequest.Resource) -> Hashable:
    """The same for what is answered the same."""
    keys = asked.configuration_keys
    return asked.resource_type, asked.resource_name, None if keys is None else tuple(keys)


def given_to_node(
    key: str, own: Mapping[str, str], of_all: Mapping[str, str], file: Mapping[str, str]
) -> list[Found]:
    """Everything that is given for a key of a node and for those that stand in for it, what counts first:
    what was set for it while it ran, what was set for all, what stands in its file, the default. If nothing
    gives the key itself, nothing is told of the others: Apache does so."""
    known = broker_key(key, file)
    names = synonyms_of(key)
    layers = [(file, STATIC_BROKER)]
    if known is None or known.is_dynamic:
        layers = [(own, DYNAMIC_BROKER), (of_all, DYNAMIC_DEFAULT_BROKER), *layers]
    found = [
        Found(name, values[name], source) for values, source in layers for name in names if name in values
    ]
    defaults = [(name, BROKER_KEYS[name].definition.default) for name in names if name in BROKER_KEYS]
    found += [Found(name, text, DEFAULT) for name, text in defaults if text is not None]
    return found if any(one.name == key for one in found) else []


def describe_resource(
    image: ClusterImage,
    settings: ControllerSettings,
    asked: DescribeConfigsRequest.Resource,
    request: DescribeConfigsRequest,
    levels: Callable[[], Mapping[str, str]],
) -> Result:
    """The configurations of a resource. `levels` are those of the loggers of this node."""
    error, message, configs = ErrorCode.NONE, None, []
    try:
        if asked.resource_type == BROKER_LOGGER:
            entries: Iterable[Entry] = _logger_entries(settings, asked.resource_name, levels)
        else:
            entries = _entries(image, settings, asked.resource_type, asked.resource_name)
        wanted = frozenset(asked.configuration_keys or ())
        configs = [_described(entry, request) for entry in entries if not wanted or entry.name in wanted]
    except ApiError as refusal:
        error, message = refusal.code, refusal.message
    return Result(
        error_code=error,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=configs,
    )


def _described(entry: Entry, request: DescribeConfigsRequest) -> Described:
    def shown(value: str | None) -> str | None:
        return None if entry.is_sensitive else value

    synonyms = [
        Described.Synonym(name=one.name, value=shown(one.value), source=one.source)
        for one in entry.found
        if one.source != DYNAMIC_LOGGER
    ]
    return Described(
        name=entry.name,
        value=shown(entry.value),
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=entry.definition.type if entry.definition else ConfigType.UNKNOWN,
        documentation=entry.documentation if request.include_documentation else None,
    )


# What is given for each configuration of a resource


def _entries(image: ClusterImage, settings: ControllerSettings, kind: int, name: str) -> Iterable[Entry]:
    own = image.configs.get((kind, name), {})
    if kind == TOPIC:
        check_name(name)
        if name not in image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return _topic_entries(image, settings, own)
    if kind == BROKER:
        return _node_entries(image, settings, name) if name else _cluster_entries(image)
    if kind not in (GROUP, CLIENT_METRICS):
        raise _refused(f"there is no resource type {kind}")
    if not name:
        raise _refused("a resource without a name: only brokers have a default of all")
    return _group_entries(image, settings, own) if kind == GROUP else _client_metrics_entries(own)


def _topic_entries(
    image: ClusterImage, settings: ControllerSettings, own: Mapping[str, str]
) -> Iterator[Entry]:
    for name, definition in TOPIC_CONFIGS.items():
        if name in INTERNAL and name not in own:
            continue
        found = [Found(name, own[name], DYNAMIC_TOPIC)] if name in own else []
        found += _of_node(image, settings, definition.synonyms)
        found += _of_file(settings, name, definition)
        # The others have no default of their own: what they would be stands in the weakest one.
        if len(definition.synonyms) == 1:
            found.append(Found(definition.synonyms[0], definition.default, DEFAULT))
        value = _in_ms(found[0].name, found[0].value) if found else definition.default
        yield Entry(name, value, found, definition, config_documentation.TOPICS[name])


def _cluster_entries(image: ClusterImage) -> Iterator[Entry]:
    """The configurations that were set for all nodes."""
    for key, text in sorted(image.configs.get(CLUSTER_DEFAULT, {}).items()):
        yield _node_entry(key, [Found(key, text, DYNAMIC_DEFAULT_BROKER)])


def _node_entries(image: ClusterImage, settings: ControllerSettings, name: str) -> Iterator[Entry]:
    if not name.isascii() or not name.isdecimal():
        raise _refused(f"Broker id must be an integer, but it is: {name}")
    me = str(settings.node_id)
    if name != me:
        raise _refused(f"Unexpected broker id, expected {me} or empty string, but received {name}")
    file = settings.properties
    own, of_all = (image.configs.get(one, {}) for one in ((BROKER, me), CLUSTER_DEFAULT))
    for key in sorted({*LISTED, *file, *own, *of_all}):
        yield _node_entry(key, given_to_node(key, own, of_all, file))


def _node_entry(key: str, found: Sequence[Found]) -> Entry:
    """What stands in for a key is no value of it. What we do not know may be a plugin's."""
    known = broker_key(key)
    value = next((one.value for one in found if one.name == key), None)
    definition = None if known is None else known.definition
    is_read_only = known is None or not known.is_dynamic
    return Entry(key, value, found, definition, config_documentation.of_broker(key), is_read_only)


def _logger_entries(
    settings: ControllerSettings, name: str, levels: Callable[[], Mapping[str, str]]
) -> Iterator[Entry]:
    """Loggers of this process and their levels, as set or as inherited."""
    if name != str(settings.node_id):
        raise _refused(f"Unexpected broker id, expected {settings.node_id} but received {name}")
    for logger, level in levels().items():
        yield Entry(logger, level, [Found(logger, level, DYNAMIC_LOGGER)], _OF_LOGGER, None)


def _group_entries(
    image: ClusterImage, settings: ControllerSettings, own: Mapping[str, str]
) -> Iterator[Entry]:
    for name, definition in GROUP_CONFIGS.items():
        synonym = group_synonym(name)
        found = [Found(name, own[name], DYNAMIC_GROUP)] if name in own else []
        if synonym is not None:
            found += _of_node(image, settings, (synonym,))
            if synonym in settings.properties:
                found.append(Found(synonym, settings.properties[synonym].strip(), STATIC_BROKER))
        found.append(Found(synonym or name, definition.default, DEFAULT))
        yield Entry(name, found[0].value, found, definition, config_documentation.GROUPS[name])


def _client_metrics_entries(own: Mapping[str, str]) -> Iterator[Entry]:
    for name, definition in CLIENT_METRICS_CONFIGS.items():
        found = [Found(name, own[name], DYNAMIC_CLIENT_METRICS)] if name in own else []
        value = own.get(name, definition.default)
        yield Entry(name, value, found, definition, config_documentation.CLIENT_METRICS[name])


def _of_node(image: ClusterImage, settings: ControllerSettings, names: Sequence[str]) -> list[Found]:
    """What was set for this node, then for all, while they ran."""
    sources = (((BROKER, str(settings.node_id)), DYNAMIC_BROKER), (CLUSTER_DEFAULT, DYNAMIC_DEFAULT_BROKER))
    return [
        Found(name, image.configs[resource][name], source)
        for resource, source in sources
        for name in names
        if name in image.configs.get(resource, {})
    ]


def _of_file(settings: ControllerSettings, name: str, definition: Definition) -> list[Found]:
    """What this node's file says under the names that it has for a topic's key."""
    given = settings.properties
    found = [Found(one, given[one], STATIC_BROKER) for one in definition.synonyms if one in given]
    if not found and name in settings.topic_defaults:
        synonym = definition.synonyms[0] if definition.synonyms else name
        found = [Found(synonym, settings.topic_defaults[name], STATIC_BROKER)]
    return found


def _in_ms(name: str, value: str | None) -> str | None:
    return _converted(name, value, lambda number, unit: number * unit)


def _converted(name: str, value: str | None, convert: Callable[[int, int], int]) -> str | None:
    """In another unit, if it has one. A log of someone less strict can hold what is not a number."""
    unit = UNITS_MS.get(name)
    if unit is None or value is None or not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
        return value
    return str(convert(int(value), unit))


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
