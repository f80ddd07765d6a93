"""Access control entries: adding them, and finding and removing them by filters.

Who may do what is decided elsewhere; here is only what is written down. The numbers are Kafka's. An entry
says each of its fields for sure; a filter leaves open what is `ANY` or null, and its pattern type may be
`MATCH`: every entry that would concern a resource of this name, however it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

from quorate.controller.decision import RECORDS_MAX, Decision, Situation, check_count
from quorate.controller.ids import new_id
from quorate.controller.wording import cut, shown
from quorate.metadata.image import ClusterImage
from quorate.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from quorate.protocol.api.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = [
    "Operation",
    "PatternType",
    "PermissionType",
    "ResourceType",
    "decide_create_acls",
    "decide_delete_acls",
    "describe_acls",
]

CLUSTER_NAME: Final = "kafka-cluster"
_WILDCARD: Final = "*"


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


_Enum = TypeVar("_Enum", bound=IntEnum)
_Creation = CreateAclsRequest.AclCreation
_Filter = DeleteAclsRequest.Filter | DescribeAclsRequest
_Key = tuple[int, str, int, str, str, int, int]  # an entry without its id


# Adding


def decide_create_acls(situation: Situation, request: CreateAclsRequest) -> Decision:
    """Each entry succeeds or fails by itself; one that exists already succeeds, and nothing is written."""
    image = situation.image
    known = {_key(one) for one in image.acls.values()}
    ids: set[Uuid] = set()
    results: list[CreateAclsResponse.AclCreationResult] = []
    records: list[AccessControlEntryRecord] = []
    for creation in request.creations:
        result = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
        results.append(result)
        try:
            _check_creation(creation)
        except ApiError as error:
            result.error_code, result.error_message = error.code, cut(error.message)
            continue
        record = AccessControlEntryRecord(
            id=new_id(situation.random, image.acls, ids),
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        if _key(record) not in known:
            known.add(_key(record))
            ids.add(record.id)
            records.append(record)
    check_count(records)
    reply = CreateAclsResponse(throttle_time_ms=0, results=results)
    return Decision(reply=reply, records=records, is_atomic=True)


def _key(entry: AccessControlEntryRecord) -> _Key:
    return (
        entry.resource_type,
        entry.resource_name,
        entry.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def _check_creation(creation: _Creation) -> None:
    resource_type = _read(ResourceType, creation.resource_type)
    pattern_type = _read(PatternType, creation.resource_pattern_type)
    if resource_type is ResourceType.ANY:
        raise _invalid("an entry is for resources of one type, not of any")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"an entry has a literal (3) or a prefixed (4) pattern, not {pattern_type.name}")
    if _read(Operation, creation.operation) is Operation.ANY:
        raise _invalid("an entry is for one operation, or for all (2), not for any")
    if _read(PermissionType, creation.permission_type) is PermissionType.ANY:
        raise _invalid("an entry denies (2) or allows (3)")
    if not creation.resource_name:
        raise _invalid("the name of the resource is empty")
    if resource_type is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise _invalid(f"the cluster is called {CLUSTER_NAME}, not {shown(creation.resource_name)}")
    if ":" not in creation.principal:
        raise _invalid(
            f"a principal has a type and a name, as User:alice, unlike {shown(creation.principal)}"
        )


def _read(kind: type[_Enum], number: int) -> _Enum:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{one.name} ({one.value})" for one in kind)
        raise _invalid(f"unknown {kind.__name__} {number}: there are {known}") from None


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# Removing


def decide_delete_acls(situation: Situation, request: DeleteAclsRequest) -> Decision:
    """Everything that a filter matches. What several match is told for each of them, and removed once."""
    removed: dict[Uuid, None] = {}
    results: list[DeleteAclsResponse.FilterResult] = []
    for one in request.filters:
        result = DeleteAclsResponse.FilterResult(
            error_code=ErrorCode.NONE, error_message=None, matching_acls=[]
        )
        results.append(result)
        try:
            found = _find(situation.image, one)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        result.matching_acls = [_matching(entry) for entry in found]
        removed.update((entry.id, None) for entry in found)
        if len(removed) > RECORDS_MAX:
            reason = f"the filters match more than {RECORDS_MAX} entries: remove fewer at once"
            raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
    reply = DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
    records = [RemoveAccessControlEntryRecord(id=one) for one in removed]
    return Decision(reply=reply, records=records, is_atomic=True)


def _matching(entry: AccessControlEntryRecord) -> DeleteAclsResponse.FilterResult.MatchingAcl:
    return DeleteAclsResponse.FilterResult.MatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


# Looking them up


def describe_acls(image: ClusterImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The entries that match a filter, by what they are for."""
    reply = DescribeAclsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, resources=[]
    )
    try:
        found = _find(image, request)
    except ApiError as error:
        reply.error_code, reply.error_message = error.code, error.message
        return reply
    by_resource: dict[tuple[int, str, int], list[DescribeAclsResponse.Resource.AclDescription]] = {}
    for entry in found:
        described = DescribeAclsResponse.Resource.AclDescription(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        resource = entry.resource_type, entry.resource_name, entry.pattern_type
        by_resource.setdefault(resource, []).append(described)
    reply.resources = [
        DescribeAclsResponse.Resource(
            resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=acls
        )
        for (resource_type, name, pattern_type), acls in by_resource.items()
    ]
    return reply


def _find(image: ClusterImage, wanted: _Filter) -> list[AccessControlEntryRecord]:
    """The entries that a filter matches; raises INVALID_REQUEST for one that nobody can understand."""
    pattern_type = _read(PatternType, wanted.pattern_type_filter)
    is_exact = pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
    fields: dict[str, object] = {
        "resource_type": _unless_any(ResourceType, wanted.resource_type_filter),
        "pattern_type": pattern_type if is_exact else None,
        "principal": wanted.principal_filter,
        "host": wanted.host_filter,
        "operation": _unless_any(Operation, wanted.operation),
        "permission_type": _unless_any(PermissionType, wanted.permission_type),
    }
    given = [(name, value) for name, value in fields.items() if value is not None]
    matches_name = _name_filter(wanted.resource_name_filter, pattern_type)
    return [
        entry
        for entry in image.acls.values()
        if all(getattr(entry, name) == value for name, value in given) and matches_name(entry)
    ]


def _unless_any(kind: type[_Enum], number: int) -> _Enum | None:
    found = _read(kind, number)
    return None if found.name == "ANY" else found


def _name_filter(name: str | None, pattern_type: PatternType) -> Callable[[AccessControlEntryRecord], bool]:
    if name is None:
        return lambda _: True
    if pattern_type is not PatternType.MATCH:
        return lambda entry: entry.resource_name == name
    return lambda entry: (
        name.startswith(entry.resource_name)
        if entry.pattern_type == PatternType.PREFIXED
        else entry.resource_name in (name, _WILDCARD)
    )
