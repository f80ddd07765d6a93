"""What a resource's configurations may be. Everything refused names the key, the value and what is allowed.

The values of keys that are secret, and of those that we do not know, are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from quorate.controller.config_definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    STATIC,
    TOPIC_CONFIGS,
    broker_definition,
)
from quorate.controller.config_types import ConfigType, Definition
from quorate.controller.settings import GROUP_BOUNDS, Bounds, bound_keys
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "VALUE_LENGTH_MAX",
    "check_length",
    "validate_broker_configs",
    "validate_client_metrics_configs",
    "validate_cluster_configs",
    "validate_group_configs",
    "validate_topic_configs",
]

VALUE_LENGTH_MAX: Final = 32_767
_SHOWN_MAX: Final = 100  # characters of a value in a message
_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_ELSEWHERE: Final = re.compile(
    r"\$\{[^}]*:[^}]*\}"
)  # the value stands in a file of the broker's, or the like


def validate_topic_configs(
    configs: Mapping[str, str | None], defaults: Mapping[str, str] | None = None
) -> None:
    """All the configurations that a topic would have of its own; `defaults` is what the broker's file says of
    the others, by the topic's keys."""
    values = _read_known("topic", TOPIC_CONFIGS, configs)
    lowest, highest = (
        values[name] if name in values else _default(name, defaults or {})
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if lowest > highest:
        raise _invalid(
            f"min.compaction.lag.ms={lowest}: allowed is at most max.compaction.lag.ms, which is {highest}"
        )
    if values.get("remote.storage.enable"):
        raise _invalid("remote.storage.enable=true: allowed is false, there is no tiered storage")


def _default(name: str, defaults: Mapping[str, str]) -> Any:
    definition = TOPIC_CONFIGS[name]
    return definition.read(defaults.get(name, definition.default or ""))


def validate_group_configs(
    configs: Mapping[str, str | None], bounds: Mapping[str, Bounds] = GROUP_BOUNDS
) -> None:
    """All the configurations that a group would have of its own, within the bounds that a node's file has for
    them. Members must have time for more than one heartbeat before they are put out."""
    for name, text in configs.items():
        if name in bounds:
            _check_bounds(name, text, bounds[name].lowest, bounds[name].highest)
        elif (allowed := getattr(GROUP_CONFIGS.get(name), "allowed", None)) and allowed.bounds:
            _check_bounds(name, text, *allowed.bounds)
    values = _read_known("group", GROUP_CONFIGS, configs)
    session, heartbeat = (values.get(name, bounds[name].default) for name in (_SESSION, _HEARTBEAT))
    if session <= heartbeat:
        raise _invalid(
            f"{_SESSION} must be greater than {_HEARTBEAT}."
            f" {_SESSION}={session}: allowed is more than {heartbeat}"
        )


def _check_bounds(name: str, text: str | None, lowest: int, highest: int) -> None:
    """Of a number of a group. A node's file may say others for some of them."""
    if not _is_int(text) or lowest <= int(text or "") <= highest:
        return
    too_low, too_high = bound_keys(name)
    wrong = (
        f"less than or equal to {too_high}"
        if int(text or "") > highest
        else f"greater than or equal to {too_low}"
    )
    raise _invalid(f"{name} must be {wrong}. {name}={text}: allowed is a number from {lowest} to {highest}")


def validate_client_metrics_configs(configs: Mapping[str, str | None]) -> None:
    """Apache answers INVALID_REQUEST to a key that there is not, and to a number that is no interval, where
    others are answered INVALID_CONFIG; and so do we."""
    strange = {
        name: text
        for name, text in configs.items()
        if name not in CLIENT_METRICS_CONFIGS or (name == "interval.ms" and _is_int(text))
    }
    try:
        _read_known("client metrics", CLIENT_METRICS_CONFIGS, strange)
    except ApiError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    _read_known("client metrics", CLIENT_METRICS_CONFIGS, configs)


def _is_int(text: str | None) -> bool:
    try:
        Definition(ConfigType.INT).read(text or "")
    except ValueError:
        return False
    return True


def validate_broker_configs(configs: Mapping[str, str | None]) -> None:
    """Of one broker. Keys that we do not know may be those of a broker's plugins: they can be anything."""
    for name, text in configs.items():
        definition = broker_definition(name)
        if text is None:
            continue
        check_length(name, text)
        if name in STATIC:
            raise _invalid(f"{name}: allowed is to set it in the file of a broker, not while it runs")
        if definition is not None and not _ELSEWHERE.search(text):
            _read(name, text, definition)


def validate_cluster_configs(configs: Mapping[str, str | None]) -> None:
    """Of all brokers that have none of their own."""
    for name in configs:
        if name in BROKER_CONFIGS:
            raise _invalid(f"{name}: allowed is to set it for a single broker, not as the default of all")
    validate_broker_configs(configs)


def check_length(name: str, text: str) -> None:
    if len(text) > VALUE_LENGTH_MAX:
        raise _invalid(f"{name}: a value of {len(text)} characters: allowed are at most {VALUE_LENGTH_MAX}")


def _read_known(
    kind: str, definitions: Mapping[str, Definition], configs: Mapping[str, str | None]
) -> dict[str, Any]:
    """The values of configurations, every one of which must be known and set."""
    values = {}
    for name, text in configs.items():
        definition = definitions.get(name)
        if definition is None:
            raise _invalid(f"{name}: there is no such {kind} config")
        if text is None:
            raise _invalid(f"{name}=null: allowed is {definition.wanted}; delete it to have the default")
        check_length(name, text)
        values[name] = _read(name, text, definition)
    return values


def _read(name: str, text: str, definition: Definition) -> Any:
    try:
        return definition.read(text)
    except ValueError:
        shown = "(hidden)" if definition.is_sensitive else _short(text)
        raise _invalid(f"{name}={shown}: allowed is {definition.wanted}") from None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, reason)
