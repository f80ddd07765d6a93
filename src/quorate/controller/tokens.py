"""Delegation tokens: what a user gives to its workers, so that they can log in without its password.

A token is an id and its HMAC under a secret that all nodes share. The log keeps the ids only; whoever shows
the right HMAC for one has the token. It ends when it is not renewed in time, and at the latest when its life
is over. Without a secret there are no tokens, and nobody who has not said who they are gets any.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from quorate.controller.decision import Decision, Situation
from quorate.controller.ids import new_id
from quorate.controller.wording import shown
from quorate.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from quorate.metadata.versions import TOKENS
from quorate.protocol.api.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer

__all__ = [
    "decide_create_token",
    "decide_expire_token",
    "decide_renew_token",
    "describe_tokens",
    "sweep_tokens",
    "token_hmac",
]

_NEVER_MS: Final = (1 << 63) - 1
_ANONYMOUS: Final = "User:ANONYMOUS"
_USER: Final = "User"


def decide_create_token(situation: Situation, request: CreateDelegationTokenRequest) -> Decision:
    """A token for whoever asks, or for somebody else whom the request names."""
    _check_enabled(situation)
    requester = situation.asker.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or _USER}:{request.owner_principal_name}"
    for renewer in request.renewers:
        if renewer.principal_type != _USER:
            reason = f"a token is renewed by principals of type {_USER}, not {shown(renewer.principal_type)}"
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, reason)
    now_ms, settings = situation.wall_ms, situation.settings
    lifetime_ms = settings.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token_id = str(new_id(situation.random))
    token = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{one.principal_type}:{one.principal_name}" for one in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=now_ms + min(lifetime_ms, settings.delegation_token_expiry_time_ms),
        token_id=token_id,
    )
    owner_type, owner_name = _parts(owner)
    requester_type, requester_name = _parts(requester)
    is_told = situation.asker.api_version >= 3
    reply = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if is_told else "",
        token_requester_principal_name=requester_name if is_told else "",
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token_id,
        hmac=token_hmac(settings.delegation_token_secret, token_id),
        throttle_time_ms=0,
    )
    return Decision(reply=reply, records=[token])


def decide_renew_token(situation: Situation, request: RenewDelegationTokenRequest) -> Decision:
    """A token lives longer, but not beyond its life."""
    token = _held(situation, request.hmac)
    _check_alive(situation, token)
    period_ms = situation.settings.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    renewed = _ending(token, situation.wall_ms + period_ms)
    reply = RenewDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=renewed.expiration_timestamp, throttle_time_ms=0
    )
    return Decision(reply=reply, records=[renewed])


def decide_expire_token(situation: Situation, request: ExpireDelegationTokenRequest) -> Decision:
    """A token ends after a period; at once if that is negative."""
    token = _held(situation, request.hmac)
    reply = ExpireDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=situation.wall_ms, throttle_time_ms=0
    )
    if request.expiry_time_period_ms < 0:
        return Decision(reply=reply, records=[RemoveDelegationTokenRecord(token_id=token.token_id)])
    _check_alive(situation, token)
    ending = _ending(token, min(situation.wall_ms + request.expiry_time_period_ms, _NEVER_MS))
    reply.expiry_timestamp_ms = ending.expiration_timestamp
    return Decision(reply=reply, records=[ending])


def sweep_tokens(situation: Situation) -> Decision | None:
    """Forgets the tokens that have ended."""
    ended = [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in situation.image.tokens.values()
        if _has_ended(token, situation.wall_ms)
    ]
    return Decision(records=ended) if ended else None


def describe_tokens(
    situation: Situation,
    request: DescribeDelegationTokenRequest,
    may_describe: Callable[[DelegationTokenRecord], bool],
) -> DescribeDelegationTokenResponse:
    """The tokens of some owners, or of all. A reply with a token is a token: besides owners and renewers only
    those see it who `may_describe` it."""
    reply = DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=[], throttle_time_ms=0)
    try:
        _check_enabled(situation)
    except ApiError as error:
        reply.error_code = error.code
        return reply
    owners = None
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
    for token in situation.image.tokens.values():
        if owners is not None and token.owner not in owners:
            continue
        if _may_renew(token, situation.asker.principal) or may_describe(token):
            reply.tokens.append(_describe(situation, token))
    return reply


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """What proves that somebody has a token."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def _check_enabled(situation: Situation) -> None:
    if not situation.settings.delegation_token_secret:
        reason = "there are no delegation tokens here: delegation.token.secret.key is not set"
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, reason)
    level = situation.image.metadata_version
    if level < TOKENS:
        reason = f"delegation tokens need metadata.version {TOKENS}, and this cluster is at {level}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
    if situation.asker.principal == _ANONYMOUS:
        reason = "delegation tokens are for those who have said who they are"
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, reason)


def _held(situation: Situation, shown_hmac: Buffer) -> DelegationTokenRecord:
    """The token that somebody shows, if they may change it."""
    _check_enabled(situation)
    secret = situation.settings.delegation_token_secret
    for token in situation.image.tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.token_id), bytes(shown_hmac)):
            break
    else:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
    if not _may_renew(token, situation.asker.principal):
        reason = f"{situation.asker.principal} neither owns token {token.token_id} nor may renew it"
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, reason)
    return token


def _may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _has_ended(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _check_alive(situation: Situation, token: DelegationTokenRecord) -> None:
    if _has_ended(token, situation.wall_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.token_id} has ended")


def _ending(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, end_ms),
        token_id=token.token_id,
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _describe(
    situation: Situation, token: DelegationTokenRecord
) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    described = DescribeDelegationTokenResponse.DescribedDelegationToken
    owner_type, owner_name = _parts(token.owner)
    requester_type, requester_name = _parts(token.requester)
    is_told = situation.asker.api_version >= 3
    return described(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if is_told else "",
        token_requester_principal_name=requester_name if is_told else "",
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(situation.settings.delegation_token_secret, token.token_id),
        renewers=[
            described.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(_parts, token.renewers)
        ],
    )
