"""SCRAM credentials of users.

A client sends the salted password, never the password. The log keeps what is needed to check whoever logs in
(StoredKey) and to prove that we are who we are (ServerKey), as RFC 5802 has it: neither lets anybody log in.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from typing import Final

from quorate.controller.decision import Decision, Situation, check_count
from quorate.controller.wording import shown
from quorate.metadata.image import ClusterImage
from quorate.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from quorate.metadata.versions import SCRAM
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record

__all__ = ["MECHANISMS", "decide_alter_user_scram_credentials", "describe_user_scram_credentials"]

# The mechanisms by their numbers, with the names of their hashes.
MECHANISMS: Final[Mapping[int, str]] = {1: "sha256", 2: "sha512"}
_ITERATIONS_MIN: Final = 4096
_ITERATIONS_MAX: Final = 16384

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Altered = AlterUserScramCredentialsResponse.Result
_Described = DescribeUserScramCredentialsResponse.Result


def decide_alter_user_scram_credentials(
    situation: Situation, request: AlterUserScramCredentialsRequest
) -> Decision:
    """One change for each user; whoever stands there twice gets none. That there is nothing to delete is said
    first."""
    asked: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    repeated = Counter(one.name for one in asked)
    results: list[_Altered] = []
    records: list[Record] = []
    for name, one in {one.name: one for one in asked}.items():
        result = _Altered(user=name, error_code=ErrorCode.NONE, error_message=None)
        try:
            if repeated[name] > 1 and (isinstance(one, _Upsertion) or _has(situation.image, one)):
                reason = f"user {shown(name)} stands in the request more than once"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, reason)
            records.append(_alter(situation.image, one))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    check_count(records)
    reply = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
    return Decision(reply=reply, records=records, is_atomic=True)


def _alter(image: ClusterImage, asked: _Deletion | _Upsertion) -> Record:
    if image.metadata_version < SCRAM:
        reason = f"SCRAM needs metadata.version {SCRAM}, and this cluster is at {image.metadata_version}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
    if not asked.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user needs a name; this one is empty")
    if asked.mechanism not in MECHANISMS:
        reason = f"unknown mechanism {asked.mechanism}: there are SCRAM-SHA-256 (1) and SCRAM-SHA-512 (2)"
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, reason)
    if isinstance(asked, _Upsertion):
        return _credential(asked)
    if not _has(image, asked):
        reason = f"user {shown(asked.name)} has no such credential"
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, reason)
    return RemoveUserScramCredentialRecord(name=asked.name, mechanism=asked.mechanism)


def _has(image: ClusterImage, asked: _Deletion) -> bool:
    return (asked.name, asked.mechanism) in image.scram


def _credential(asked: _Upsertion) -> UserScramCredentialRecord:
    if not _ITERATIONS_MIN <= asked.iterations <= _ITERATIONS_MAX:
        reason = f"{asked.iterations} iterations: there must be {_ITERATIONS_MIN} to {_ITERATIONS_MAX}"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    salted_password = bytes(asked.salted_password)
    if not salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password is empty")
    algorithm = MECHANISMS[asked.mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=asked.name,
        mechanism=asked.mechanism,
        salt=bytes(asked.salt),
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", algorithm),
        iterations=asked.iterations,
    )


# Looking them up


def describe_user_scram_credentials(
    image: ClusterImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Who has credentials, and of which kind; everyone's if nobody is named."""
    credentials: dict[str, list[_Described.CredentialInfo]] = {}
    for (name, mechanism), one in sorted(image.scram.items(), key=lambda item: item[0]):
        info = _Described.CredentialInfo(mechanism=mechanism, iterations=one.iterations)
        credentials.setdefault(name, []).append(info)
    users = Counter(user.name for user in request.users or ()) or Counter(credentials.keys())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_describe(name, times, credentials.get(name, [])) for name, times in users.items()],
    )


def _describe(name: str, times: int, infos: list[_Described.CredentialInfo]) -> _Described:
    code, message = ErrorCode.NONE, None
    if times > 1:
        code, message = (
            ErrorCode.DUPLICATE_RESOURCE,
            f"user {shown(name)} stands in the request {times} times",
        )
    elif not infos:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {shown(name)} has no credentials"
    return _Described(
        user=name, error_code=code, error_message=message, credential_infos=[] if code else infos
    )
