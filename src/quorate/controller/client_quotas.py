"""Quotas of users, client ids and addresses: how they are set, and how they are looked up.

| whom                                  | what                                             | values        |
|---------------------------------------|--------------------------------------------------|---------------|
| `user`, `client-id`, or both together | `producer_byte_rate`, `consumer_byte_rate`       | whole numbers |
| the same                              | `request_percentage`, `controller_mutation_rate` | any numbers   |
| `ip`, alone                           | `connection_creation_rate`                       | whole numbers |

A name that is null stands for everyone who has no quota of their own. All values are greater than 0.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from quorate.controller.decision import Decision, Situation, check_count
from quorate.controller.wording import cut, shown
from quorate.metadata.image import ClusterImage, Entity
from quorate.metadata.records import ClientQuotaRecord
from quorate.protocol.api.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["CLIENT_ID", "IP", "USER", "decide_alter_client_quotas", "describe_client_quotas"]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

# The keys with the largest value that is a whole number; None is for any number.
_INT32_MAX: Final = float((1 << 31) - 1)
_INT64_MAX: Final = float((1 << 63) - 1)
_CLIENT_KEYS: Final[Mapping[str, float | None]] = {
    "producer_byte_rate": _INT64_MAX,
    "consumer_byte_rate": _INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, float | None]] = {"connection_creation_rate": _INT32_MAX}
_FRACTION_MIN: Final = 1e-6  # less is an error of rounding

# How a filter matches.
_EXACT: Final = 0
_SPECIFIED: Final = 2
_MATCHES: Final = {_EXACT: "MATCH_TYPE_EXACT", 1: "MATCH_TYPE_DEFAULT", _SPECIFIED: "MATCH_TYPE_SPECIFIED"}

_Entry = AlterClientQuotasRequest.EntryData
_Result = AlterClientQuotasResponse.EntryData


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


def decide_alter_client_quotas(situation: Situation, request: AlterClientQuotasRequest) -> Decision:
    """Each entity succeeds or fails by itself, with all that is asked for it."""
    entities = [_entity(entry.entity) for entry in request.entries]
    repeated = Counter(entities)
    entries = dict(zip(entities, request.entries, strict=True))
    results: list[_Result] = []
    records: list[ClientQuotaRecord] = []
    for entity, entry in entries.items():
        result = _Result(
            error_code=ErrorCode.NONE,
            error_message=None,
            entity=[_Result.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        try:
            if repeated[entity] > 1:
                raise _invalid("the same entity stands in the request more than once")
            records += _alter(situation.image.quotas.get(entity, {}), entity, entry)
        except ApiError as error:
            result.error_code, result.error_message = error.code, cut(error.message)
        results.append(result)
    check_count(records)
    reply = AlterClientQuotasResponse(throttle_time_ms=0, entries=results)
    return Decision(reply=reply, records=() if request.validate_only else records, is_atomic=True)


def _entity(parts: Sequence[_Part]) -> Entity:
    return tuple(
        sorted(
            ((part.entity_type, part.entity_name) for part in parts),
            key=lambda part: (part[0], part[1] is not None, part[1] or ""),
        )
    )


def _alter(now: Mapping[str, float], entity: Entity, entry: _Entry) -> list[ClientQuotaRecord]:
    keys = _keys_of(entity)
    repeated = Counter(op.key for op in entry.ops)
    records = []
    for op in entry.ops:
        if repeated[op.key] > 1:
            raise _invalid(f"{shown(op.key)} stands there more than once for the same entity")
        if not op.remove:
            _check_value(keys, op.key, op.value)
        if (op.key not in now) if op.remove else (now.get(op.key) == op.value):
            continue  # nothing changes
        records.append(
            ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                key=op.key,
                value=0.0 if op.remove else op.value,
                remove=op.remove,
            )
        )
    return records


def _keys_of(entity: Entity) -> Mapping[str, float | None]:
    """What can be limited for an entity; raises if there can be no such entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    names = dict(entity)
    if len(names) < len(entity):
        raise _invalid("Invalid client quota entity, it has more than one part of a type")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    _check_address(names[IP])
    return _IP_KEYS


def _check_address(address: str | None) -> None:
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise _invalid(f"{address} is not a valid IP.") from None


def _check_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {cut(key)}: for this entity there are {', '.join(keys)}")
    if not 0 < value < math.inf:
        raise _invalid(f"Quota {key} must be greater than 0, and finite: it is {value}")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        kind = "an INT" if largest == _INT32_MAX else "a LONG"
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if value % 1 > _FRACTION_MIN:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# Looking them up


def describe_client_quotas(
    image: ClusterImage, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas that match all components of a filter; a strict one matches nobody who has more parts."""
    try:
        wanted = _filter(request)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=cut(error.message), entries=None
        )
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            _describe(entity, values)
            for entity, values in image.quotas.items()
            if _matches(dict(entity), wanted, is_strict=request.strict)
        ],
    )


def _filter(request: DescribeClientQuotasRequest) -> dict[str, tuple[bool, str | None]]:
    """For every type whether any name will do, and if not, which."""
    wanted: dict[str, tuple[bool, str | None]] = {}
    for one in request.components:
        kind = one.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if one.match_type not in _MATCHES:
            raise _invalid(f"Unknown match type {one.match_type}")
        if (one.match is None) == (one.match_type == _EXACT):
            wrong = "set match string to null" if one.match is None else "also specified a match string"
            raise _invalid(f"Request specified {_MATCHES[one.match_type]}, but {wrong}.")
        wanted[kind] = one.match_type == _SPECIFIED, one.match
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
    return wanted


def _matches(
    names: Mapping[str, str | None], wanted: Mapping[str, tuple[bool, str | None]], *, is_strict: bool
) -> bool:
    if is_strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (any_name or names[kind] == name) for kind, (any_name, name) in wanted.items()
    )


def _describe(entity: Entity, values: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    entry = DescribeClientQuotasResponse.EntryData
    return entry(
        entity=[entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[entry.ValueData(key=key, value=value) for key, value in values.items()],
    )
