"""Delegation tokens."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller_cluster import Cluster
from quorate.controller.decision import Asker, Decision, Situation
from quorate.controller.tokens import (
    decide_create_token,
    decide_expire_token,
    decide_renew_token,
    describe_tokens,
    sweep_tokens,
)
from quorate.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
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
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request

ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"
SECRET = b"a secret that all nodes know"
HOUR_MS = 3_600_000
RENEWAL_MS = 24 * HOUR_MS  # the defaults of delegation.token.expiry.time.ms
LIFETIME_MS_MAX = 7 * RENEWAL_MS  # and of delegation.token.max.lifetime.ms


class Tokens:
    """A cluster with tokens, and a clock on the wall that tests can move."""

    def __init__(self, *, secret: bytes = SECRET, metadata_version: int = 30, **settings: Any) -> None:
        self.cluster = Cluster(delegation_token_secret=secret, metadata_version=metadata_version, **settings)

    @property
    def now_ms(self) -> int:
        return self.cluster.situation().wall_ms

    def sleep(self, ms: int) -> None:
        self.cluster.now_ms += ms

    def situation(self, principal: str, version: int) -> Situation:
        return replace(self.cluster.situation(), asker=Asker(api_version=version, principal=principal))

    def ask(self, decide: Callable[..., Decision], request: Request, principal: str, version: int) -> Any:
        def as_principal(_: Situation, request: Request) -> Decision:
            return decide(self.situation(principal, version), request)

        reply = self.cluster.decide(as_principal, request).reply
        assert reply is not None
        encode(reply, version)
        return reply

    def create(
        self,
        principal: str = ANN,
        *,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = -1,
        owner: str | None = None,
        version: int = 3,
    ) -> CreateDelegationTokenResponse:
        kind, _, name = (owner or ":").partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind or None,
            owner_principal_name=name or None,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in (one.partition(":") for one in renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        return self.ask(decide_create_token, request, principal, version)

    def renew(self, hmac: bytes, period_ms: int = -1, principal: str = ANN) -> RenewDelegationTokenResponse:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.ask(decide_renew_token, request, principal, 2)

    def expire(self, hmac: bytes, period_ms: int = -1, principal: str = ANN) -> ExpireDelegationTokenResponse:
        request = ExpireDelegationTokenRequest(hmac=memoryview(hmac), expiry_time_period_ms=period_ms)
        return self.ask(decide_expire_token, request, principal, 2)

    def describe(
        self,
        principal: str = ANN,
        owners: Sequence[str] | None = None,
        may_describe: Callable[[DelegationTokenRecord], bool] = lambda _: False,
        version: int = 3,
    ) -> DescribeDelegationTokenResponse:
        asked = None
        if owners is not None:
            asked = [
                DescribeDelegationTokenRequest.Owner(principal_type=kind, principal_name=name)
                for kind, _, name in (one.partition(":") for one in owners)
            ]
        request = DescribeDelegationTokenRequest(owners=asked)
        reply = describe_tokens(self.situation(principal, version), request, may_describe)
        encode(reply, version)
        return reply

    def kept(self, token_id: str) -> DelegationTokenRecord:
        return self.cluster.image.tokens[token_id]


def fails(code: ErrorCode, ask: Callable[..., object], *args: Any, **how: Any) -> None:
    with pytest.raises(ApiError) as caught:
        ask(*args, **how)
    assert caught.value.code == code
    assert caught.value.message


# Creating


def test_a_token_for_oneself() -> None:
    tokens = Tokens()
    reply = tokens.create(renewers=[BOB])
    assert (reply.principal_type, reply.principal_name) == ("User", "ann")
    assert (reply.token_requester_principal_type, reply.token_requester_principal_name) == ("User", "ann")
    assert reply.issue_timestamp_ms == tokens.now_ms
    assert reply.expiry_timestamp_ms == tokens.now_ms + RENEWAL_MS
    assert reply.max_timestamp_ms == tokens.now_ms + LIFETIME_MS_MAX
    assert reply.hmac == hmac.digest(SECRET, reply.token_id.encode(), "sha512")
    assert tokens.kept(reply.token_id) == DelegationTokenRecord(
        owner=ANN,
        requester=ANN,
        renewers=[BOB],
        issue_timestamp=reply.issue_timestamp_ms,
        max_timestamp=reply.max_timestamp_ms,
        expiration_timestamp=reply.expiry_timestamp_ms,
        token_id=reply.token_id,
    )


def test_a_token_for_somebody_else() -> None:
    tokens = Tokens()
    reply = tokens.create(BOB, owner=ANN)
    assert (reply.principal_name, reply.token_requester_principal_name) == ("ann", "bob")
    assert tokens.kept(reply.token_id).owner == ANN
    assert tokens.kept(reply.token_id).requester == BOB


def test_older_versions_do_not_tell_who_asked() -> None:
    for version in (1, 2):
        reply = Tokens().create(version=version)
        assert (reply.principal_name, reply.token_requester_principal_name) == ("ann", "")


def test_each_token_is_another() -> None:
    tokens = Tokens()
    assert tokens.create().token_id != tokens.create().token_id
    assert len(tokens.cluster.image.tokens) == 2


@pytest.mark.parametrize(
    ("asked_ms", "given_ms", "expiry_ms"),
    [
        (-1, LIFETIME_MS_MAX, RENEWAL_MS),
        (0, LIFETIME_MS_MAX, RENEWAL_MS),
        (HOUR_MS, HOUR_MS, HOUR_MS),
        (2 * RENEWAL_MS, 2 * RENEWAL_MS, RENEWAL_MS),
        ((1 << 63) - 1, LIFETIME_MS_MAX, RENEWAL_MS),
    ],
)
def test_how_long_a_token_lives(asked_ms: int, given_ms: int, expiry_ms: int) -> None:
    tokens = Tokens()
    reply = tokens.create(max_lifetime_ms=asked_ms)
    assert reply.max_timestamp_ms == tokens.now_ms + given_ms
    assert reply.expiry_timestamp_ms == tokens.now_ms + expiry_ms


def test_how_long_is_configured():
    tokens = Tokens(delegation_token_max_lifetime_ms=3 * HOUR_MS, delegation_token_expiry_time_ms=HOUR_MS)
    reply = tokens.create(ANN)
    assert reply.expiry_timestamp_ms == tokens.now_ms + HOUR_MS
    assert reply.max_timestamp_ms == tokens.now_ms + 3 * HOUR_MS


def test_only_users_renew() -> None:
    fails(ErrorCode.INVALID_PRINCIPAL_TYPE, Tokens().create, renewers=[BOB, "Group:admins"])


# Where there are none


def all_requests(tokens: Tokens, principal: str = ANN) -> list[Callable[[], object]]:
    return [
        lambda: tokens.create(principal),
        lambda: tokens.renew(b"x", principal=principal),
        lambda: tokens.expire(b"x", principal=principal),
    ]


def test_without_a_secret_there_are_no_tokens() -> None:
    tokens = Tokens(secret=b"")
    for ask in all_requests(tokens):
        fails(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ask)
    assert tokens.describe().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_an_old_level_knows_no_tokens() -> None:
    tokens = Tokens(metadata_version=13)
    for ask in all_requests(tokens):
        fails(ErrorCode.UNSUPPORTED_VERSION, ask)
    assert tokens.describe().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert Tokens(metadata_version=14).create().error_code == ErrorCode.NONE


def test_nobody_who_has_not_said_who_they_are_gets_a_token() -> None:
    tokens = Tokens()
    for ask in all_requests(tokens, "User:ANONYMOUS"):
        fails(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ask)
    assert tokens.describe("User:ANONYMOUS").error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# Renewing


@pytest.mark.parametrize("principal", [ANN, BOB])
def test_owners_and_renewers_renew(principal: str) -> None:
    tokens = Tokens()
    token = tokens.create(renewers=[BOB])
    tokens.sleep(HOUR_MS)
    reply = tokens.renew(bytes(token.hmac), principal=principal)
    assert reply.expiry_timestamp_ms == tokens.now_ms + RENEWAL_MS
    kept = tokens.kept(token.token_id)
    assert kept.expiration_timestamp == reply.expiry_timestamp_ms
    assert (kept.owner, kept.renewers, kept.max_timestamp) == (ANN, [BOB], token.max_timestamp_ms)


@pytest.mark.parametrize(
    ("period_ms", "expected_ms"), [(HOUR_MS, HOUR_MS), (0, RENEWAL_MS), ((1 << 63) - 1, RENEWAL_MS)]
)
def test_for_how_long_a_token_is_renewed(period_ms: int, expected_ms: int) -> None:
    tokens = Tokens()
    token = tokens.create()
    assert tokens.renew(bytes(token.hmac), period_ms).expiry_timestamp_ms == tokens.now_ms + expected_ms


def test_a_token_is_not_renewed_beyond_its_life() -> None:
    tokens = Tokens()
    token = tokens.create(max_lifetime_ms=HOUR_MS)
    assert tokens.renew(bytes(token.hmac)).expiry_timestamp_ms == token.max_timestamp_ms


def test_others_do_not_renew() -> None:
    tokens = Tokens()
    token = tokens.create(EVE, owner=ANN, renewers=[BOB])
    fails(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, tokens.renew, bytes(token.hmac), principal=EVE)


@pytest.mark.parametrize("shown", [b"", b"x" * 64])
def test_a_token_that_is_not_there(shown: bytes) -> None:
    tokens = Tokens()
    tokens.create()
    fails(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.renew, shown)
    fails(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.expire, shown)


def test_a_token_that_has_ended_is_not_renewed() -> None:
    tokens = Tokens()
    token = tokens.create(max_lifetime_ms=HOUR_MS)
    tokens.sleep(HOUR_MS)
    tokens.renew(bytes(token.hmac))
    tokens.sleep(1)
    fails(ErrorCode.DELEGATION_TOKEN_EXPIRED, tokens.renew, bytes(token.hmac))
    fails(ErrorCode.DELEGATION_TOKEN_EXPIRED, tokens.expire, bytes(token.hmac), 5)


# Ending


def test_a_token_ends_at_once() -> None:
    tokens = Tokens()
    token = tokens.create()
    assert tokens.expire(bytes(token.hmac)).expiry_timestamp_ms == tokens.now_ms
    assert tokens.cluster.image.tokens == {}
    assert tokens.cluster.records[-1] == RemoveDelegationTokenRecord(token_id=token.token_id)


def test_a_token_that_has_ended_can_be_removed() -> None:
    tokens = Tokens()
    token = tokens.create(max_lifetime_ms=HOUR_MS)
    tokens.sleep(2 * HOUR_MS)
    tokens.expire(bytes(token.hmac))
    assert tokens.cluster.image.tokens == {}


@pytest.mark.parametrize(
    ("period_ms", "expected_ms"), [(0, 0), (HOUR_MS, HOUR_MS), ((1 << 63) - 1, LIFETIME_MS_MAX)]
)
def test_a_token_ends_later(period_ms: int, expected_ms: int) -> None:
    tokens = Tokens()
    token = tokens.create()
    reply = tokens.expire(bytes(token.hmac), period_ms)
    assert reply.expiry_timestamp_ms == tokens.now_ms + expected_ms
    assert tokens.kept(token.token_id).expiration_timestamp == reply.expiry_timestamp_ms


def test_others_do_not_end_it() -> None:
    tokens = Tokens()
    token = tokens.create()
    fails(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, tokens.expire, bytes(token.hmac), principal=BOB)


# Sweeping


def test_the_sweep_forgets_what_has_ended() -> None:
    tokens = Tokens()
    short = tokens.create(max_lifetime_ms=HOUR_MS)
    unrenewed = tokens.create()
    renewed = tokens.create()
    tokens.sleep(HOUR_MS)
    assert sweep_tokens(tokens.cluster.situation()) is None
    tokens.renew(bytes(renewed.hmac))
    tokens.sleep(1)
    decision = sweep_tokens(tokens.cluster.situation())
    assert decision is not None
    assert list(decision.records) == [RemoveDelegationTokenRecord(token_id=short.token_id)]
    tokens.sleep(RENEWAL_MS - HOUR_MS)
    decision = sweep_tokens(tokens.cluster.situation())
    assert decision is not None
    assert {one.token_id for one in decision.records if isinstance(one, RemoveDelegationTokenRecord)} == {
        short.token_id,
        unrenewed.token_id,
    }


# Looking up


def owners_of(reply: DescribeDelegationTokenResponse) -> list[str]:
    assert reply.error_code == ErrorCode.NONE
    return [one.principal_name for one in reply.tokens]


@pytest.fixture
def tokens() -> Tokens:
    tokens = Tokens()
    tokens.create(ANN, renewers=[BOB])
    tokens.create(BOB)
    tokens.create(EVE)
    return tokens


def test_one_sees_what_one_owns_or_renews(tokens: Tokens) -> None:
    assert owners_of(tokens.describe(ANN)) == ["ann"]
    assert owners_of(tokens.describe(BOB)) == ["ann", "bob"]
    assert owners_of(tokens.describe("User:zoe")) == []


def test_some_may_see_more(tokens: Tokens) -> None:
    assert owners_of(tokens.describe(ANN, may_describe=lambda token: token.owner == EVE)) == ["ann", "eve"]


def test_owners_can_be_chosen(tokens: Tokens) -> None:
    assert owners_of(tokens.describe(BOB, owners=[ANN])) == ["ann"]
    assert owners_of(tokens.describe(BOB, owners=[EVE])) == []
    assert owners_of(tokens.describe(BOB, owners=[])) == []


def test_what_is_told_of_a_token() -> None:
    tokens = Tokens()
    created = tokens.create(BOB, owner=ANN, renewers=[EVE])
    (told,) = tokens.describe(ANN).tokens
    assert (told.token_id, told.hmac) == (created.token_id, created.hmac)
    assert (told.issue_timestamp, told.expiry_timestamp, told.max_timestamp) == (
        created.issue_timestamp_ms,
        created.expiry_timestamp_ms,
        created.max_timestamp_ms,
    )
    assert told.token_requester_principal_name == "bob"
    assert [(one.principal_type, one.principal_name) for one in told.renewers] == [("User", "eve")]
    (older,) = tokens.describe(ANN, version=2).tokens
    assert older.token_requester_principal_name == ""
