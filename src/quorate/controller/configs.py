"""Changing configurations of topics, brokers, groups and client metrics.

Each resource of a request succeeds or fails as a whole, and none because of another. What does not change is
not written, except for brokers: a record makes them read again what stands in files.

With eligible leader replicas on, who is eligible depends on `min.insync.replicas`. Whoever changes it makes
everyone forget whom it concerns, a broker cannot have its own, and that of all brokers cannot be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from quorate.controller.config_definitions import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    broker_definition,
)
from quorate.controller.config_descriptions import (
    BROKER_LOGGER,
    topic_config_entries,
)
from quorate.controller.config_types import ConfigType, Definition
from quorate.controller.config_validation import (
    check_length,
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_cluster_configs,
    validate_group_configs,
    validate_topic_configs,
)
from quorate.controller.decision import Decision, Situation, check_count
from quorate.controller.topic_names import check_name
from quorate.controller.topic_settings import MIN_ISR
from quorate.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    CLUSTER_DEFAULT,
    GROUP,
    TOPIC,
    ClusterImage,
    Resource,
)
from quorate.metadata.records import ClearElrRecord, ConfigRecord
from quorate.metadata.versions import CORDONED
from quorate.protocol.api.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record

__all__ = [
    "Operation",
    "clear_elr_records",
    "decide_alter_configs",
    "decide_incremental_alter_configs",
    "topic_config_entries",
    "validate_topic_configs",
]

Changes = dict[str, str | None]  # new values by key; None deletes
Verdict = tuple[Resource, ErrorCode, str | None]

_CORDONED_DIRECTORIES: Final = "cordoned.log.dirs"
_CORDONED_SINCE: Final = "4.3-IV0"  # which is CORDONED


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def decide_incremental_alter_configs(
    situation: Situation, request: IncrementalAlterConfigsRequest
) -> Decision:
    """Single keys of each resource."""
    records, verdicts = _decide(situation, request.resources, _operated)
    return _decision(
        records,
        request.validate_only,
        IncrementalAlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
                for (kind, name), code, message in verdicts
            ],
        ),
    )


def decide_alter_configs(situation: Situation, request: AlterConfigsRequest) -> Decision:
    """All keys of each resource: those that are not mentioned are deleted."""
    records, verdicts = _decide(situation, request.resources, _replaced)
    return _decision(
        records,
        request.validate_only,
        AlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                AlterConfigsResponse.ResourceResponse(
                    error_code=code, error_message=message, resource_type=kind, resource_name=name
                )
                for (kind, name), code, message in verdicts
            ],
        ),
    )


def clear_elr_records(image: ClusterImage, records: Iterable[ConfigRecord]) -> list[ClearElrRecord]:
    """What must follow these records, because the eligible leader replicas would no longer be right."""
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC else "")
        for record in records
        if image.is_elr_enabled and record.name == MIN_ISR
    ]


def _decision(
    records: Sequence[Record],
    validate_only: bool,
    reply: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Decision:
    return Decision(reply, () if validate_only else records, is_atomic=True)


def _decide(
    situation: Situation,
    asked: Sequence[Any],
    changes_of: Callable[[ClusterImage, Resource, Sequence[Any]], Changes],
) -> tuple[list[Record], list[Verdict]]:
    """Records for all resources that can be changed as asked, and what there is to say about each."""
    image = situation.image
    records: list[ConfigRecord] = []
    verdicts: list[Verdict] = []
    for resource, configs in _once(asked):
        try:
            if configs is None:
                raise _refused("the resource stands more than once in the request")
            _check_resource(resource)
            changes = changes_of(image, resource, configs)
            written = [
                ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)
                for name, value in changes.items()
                if resource[0] == BROKER or image.configs.get(resource, {}).get(name) != value
            ]
            if written:
                _check_written(situation, written)
                _check_values(situation, resource, {one.name: one.value for one in written})
            _check_existence(situation, resource)
        except ApiError as refusal:
            verdicts.append((resource, refusal.code, refusal.message))
            continue
        records += written
        verdicts.append((resource, ErrorCode.NONE, None))
    everything: list[Record] = [*records, *clear_elr_records(image, records)]
    check_count(everything)
    return everything, verdicts


def _once(asked: Sequence[Any]) -> Iterator[tuple[Resource, Sequence[Any] | None]]:
    """Each resource once, with what is asked for it: None if it stands there more than once."""
    found: dict[Resource, Sequence[Any] | None] = {}
    for one in asked:
        resource = one.resource_type, one.resource_name
        found[resource] = None if resource in found else one.configs
    return iter(found.items())


# What shall change


def _operated(image: ClusterImage, resource: Resource, configs: Sequence[Any]) -> Changes:
    before = image.configs.get(resource, {})
    changes: Changes = {}
    for one in configs:
        _check_key(one.name, changes)
        operation = _operation(one.config_operation)
        if operation is Operation.DELETE:
            changes[one.name] = None
            continue
        if one.value is None:
            raise _refused(f"{one.name}: allowed is a value, not null, for {operation.name}")
        if operation is Operation.SET:
            changes[one.name] = one.value
            continue
        changes[one.name] = _list_after(resource, before, one.name, operation, one.value)
    return changes


def _list_after(
    resource: Resource, before: Mapping[str, str], name: str, operation: Operation, value: str
) -> str:
    """A list with items added, unless it has them, or taken away; it begins with the default."""
    definition = _definition(resource[0], name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: allowed is SET or DELETE, it is not a list")
    items = [item for item in before.get(name, definition.default or "").split(",") if item]
    asked = Counter(item for item in value.split(",") if item)
    if operation is Operation.APPEND:
        known = set(items)
        return ",".join([*items, *(item for item in asked if item not in known)])
    left = []
    for item in items:  # each time that an item is named takes one of it away
        if asked[item]:
            asked[item] -= 1
        else:
            left.append(item)
    return ",".join(left)


def _replaced(image: ClusterImage, resource: Resource, configs: Sequence[Any]) -> Changes:
    changes: Changes = {}
    for one in configs:
        _check_key(one.name, changes)
        if one.value is None:
            raise _refused(f"{one.name}: allowed is a value, not null; leave it out to delete it")
        changes[one.name] = one.value
    gone = [name for name in image.configs.get(resource, {}) if name not in changes]
    return changes | dict.fromkeys(gone)


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise _refused(f"operation {number}: allowed are SET 0, DELETE 1, APPEND 2, SUBTRACT 3") from None


def _check_key(name: str, changes: Changes) -> None:
    if not name:
        raise _refused("a configuration without a name")
    if name in changes:
        raise _refused(f"{name} stands more than once in the request")


def _definition(kind: int, name: str) -> Definition | None:
    if kind == BROKER:
        return broker_definition(name)
    return {TOPIC: TOPIC_CONFIGS, GROUP: GROUP_CONFIGS, CLIENT_METRICS: CLIENT_METRICS_CONFIGS}[kind].get(
        name
    )


# Whether it may


def _check_resource(resource: Resource) -> None:
    """What can be said about a resource by its type and its name alone."""
    kind, name = resource
    if kind == BROKER_LOGGER:
        raise _refused("loggers are each node's own: ask the node itself")
    if kind not in (TOPIC, BROKER, GROUP, CLIENT_METRICS):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no resource type {kind}")
    if not name and kind != BROKER:
        raise _refused("a resource without a name: only brokers have a default of all")
    if kind == TOPIC:
        check_name(name)
    elif kind == BROKER and name:
        _broker_id_of(name)


def _check_written(situation: Situation, records: Sequence[ConfigRecord]) -> None:
    """Configurations that other parts of the cluster's state depend on."""
    image = situation.image
    for record in records:
        if record.resource_type != BROKER:
            continue
        if record.name == MIN_ISR and image.is_elr_enabled:
            if record.resource_name:
                raise _invalid(f"{MIN_ISR} of a single broker: not with eligible leader replicas")
            if record.value is None:
                raise _invalid(f"{MIN_ISR} of all brokers is needed: eligible leader replicas are on")
        if record.name == _CORDONED_DIRECTORIES:
            _check_cordoned(situation, record)


def _check_cordoned(situation: Situation, record: ConfigRecord) -> None:
    """Which directories a broker has it knows itself: who asks a controller can only take some off."""
    image = situation.image
    if image.metadata_version < CORDONED:
        raise _invalid(
            f"The {record.name} configuration value cannot be set because it requires metadata.version >="
            f" {_CORDONED_SINCE}"
        )
    before = image.configs.get((record.resource_type, record.resource_name), {}).get(record.name)
    if not situation.asker.is_forwarded and not _items(record.value) <= _items(before):
        raise _invalid(
            f"When updating {record.name} via controllers,  the new value must be a subset of the current"
            " configuration value."
        )


def _items(value: str | None) -> set[str]:
    return {item.strip() for item in (value or "").split(",") if item.strip()}


def _check_values(situation: Situation, resource: Resource, changes: Changes) -> None:
    kind, name = resource
    given = {key: value for key, value in changes.items() if value is not None}
    for key, value in given.items():
        check_length(key, value)
    if kind == BROKER:
        # Others may have been set when they meant something else: that is not this request's fault.
        (validate_broker_configs if name else validate_cluster_configs)(given)
        return
    before = situation.image.configs.get(resource, {})
    known = {key: value for key, value in before.items() if _definition(kind, key) is not None}
    after = {key: value for key, value in (known | changes).items() if value is not None}
    if kind == TOPIC:
        validate_topic_configs(after, situation.settings.topic_defaults)
    elif kind == GROUP:
        validate_group_configs(after, situation.settings.group_bounds)
    else:
        validate_client_metrics_configs(after)


def _check_existence(situation: Situation, resource: Resource) -> None:
    """A controller is known as a voter before it has registered."""
    kind, name = resource
    image = situation.image
    if kind == TOPIC and name not in image.topics.by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if kind == BROKER and resource != CLUSTER_DEFAULT:
        node_id = _broker_id_of(name)
        known = node_id in image.brokers or node_id in image.controllers or node_id in situation.voters
        if not known and node_id != situation.settings.node_id:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker or controller {name}")


def _broker_id_of(name: str) -> int:
    """The id in the name of a resource that is a broker."""
    if not name.isascii() or not name.isdecimal() or int(name) > 2**31 - 1:
        raise _refused(f"broker {name!r}: allowed is the id of a broker, or nothing for the default of all")
    return int(name)


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, reason)
