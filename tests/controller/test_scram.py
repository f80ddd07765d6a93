"""SCRAM credentials."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Sequence

import pytest

from controller_cluster import Cluster
from quorate.controller.decision import Decision
from quorate.controller.scram import decide_alter_user_scram_credentials, describe_user_scram_credentials
from quorate.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from quorate.protocol.api.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ErrorCode

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

SHA_256, SHA_512 = 1, 2
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def put(
    name: str = "ann",
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salted_password: bytes = b"salted",
) -> Upsertion:
    return Upsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted_password
    )


def drop(name: str = "ann", mechanism: int = SHA_256) -> Deletion:
    return Deletion(name=name, mechanism=mechanism)


def ask(cluster: Cluster, *changes: Upsertion | Deletion) -> Decision:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, Deletion)],
        upsertions=[one for one in changes if isinstance(one, Upsertion)],
    )
    sent = decode(AlterUserScramCredentialsRequest, 0, encode(request, 0))
    return cluster.decide(decide_alter_user_scram_credentials, sent)


def alter(cluster: Cluster, *changes: Upsertion | Deletion) -> dict[str, ErrorCode]:
    reply = ask(cluster, *changes).reply
    assert isinstance(reply, AlterUserScramCredentialsResponse)
    encode(reply, 0)
    for one in reply.results:
        assert (one.error_message is None) == (one.error_code == ErrorCode.NONE)
    users = [one.user for one in reply.results]
    assert len(users) == len(set(users))
    return {one.user: ErrorCode(one.error_code) for one in reply.results}


def test_the_log_keeps_the_keys_of_the_rfc() -> None:
    # RFC 7677, section 3: password "pencil".
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    cluster = Cluster()
    assert alter(cluster, put(salted_password=salted)) == {"ann": ErrorCode.NONE}
    credential = cluster.image.scram["ann", SHA_256]
    assert bytes(credential.stored_key) == b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert bytes(credential.server_key) == b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
    assert bytes(credential.salt) == SALT
    assert credential.iterations == 4096


@pytest.mark.parametrize(("mechanism", "size"), [(SHA_256, 32), (SHA_512, 64)])
def test_the_keys_are_as_long_as_the_hash(mechanism: int, size: int) -> None:
    (record,) = ask(Cluster(), put(mechanism=mechanism)).records
    assert isinstance(record, UserScramCredentialRecord)
    assert len(record.stored_key) == len(record.server_key) == size
    assert record.mechanism == mechanism


def test_the_password_is_nowhere_in_the_log() -> None:
    (record,) = ask(Cluster(), put(salted_password=b"very secret")).records
    assert isinstance(record, UserScramCredentialRecord)
    assert b"very secret" not in encode(record, 0)


def test_records_own_their_bytes() -> None:
    (record,) = ask(Cluster(), put()).records
    assert isinstance(record, UserScramCredentialRecord)
    assert isinstance(record.salt, bytes)


def test_a_credential_is_replaced_and_deleted() -> None:
    cluster = Cluster()
    alter(cluster, put(iterations=4096))
    alter(cluster, put(iterations=8192))
    assert cluster.image.scram["ann", SHA_256].iterations == 8192
    decision = ask(cluster, drop())
    assert list(decision.records) == [RemoveUserScramCredentialRecord(name="ann", mechanism=SHA_256)]
    assert cluster.image.scram == {}


def test_mechanisms_are_apart() -> None:
    cluster = Cluster()
    alter(cluster, put(mechanism=SHA_256))
    alter(cluster, put(mechanism=SHA_512))
    alter(cluster, drop(mechanism=SHA_256))
    assert list(cluster.image.scram) == [("ann", SHA_512)]


def test_several_users_at_once_in_one_batch() -> None:
    cluster = Cluster()
    alter(cluster, put("ann"))
    decision = ask(cluster, drop("ann"), put("bob"), put("", SHA_256))
    assert decision.is_atomic
    assert len(decision.records) == 2
    assert list(cluster.image.scram) == [("bob", SHA_256)]


def test_nothing_asked_for() -> None:
    assert alter(Cluster()) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (drop(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (put(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (drop(mechanism=-1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (put(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (put(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (drop("bob"), ErrorCode.RESOURCE_NOT_FOUND),
        (drop("ann", SHA_512), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_is_refused(change: Upsertion | Deletion, code: ErrorCode) -> None:
    cluster = Cluster()
    alter(cluster, put())
    before = cluster.next_offset
    assert alter(cluster, change) == {change.name: code}
    assert cluster.next_offset == before


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_iterations_that_are_possible(iterations: int) -> None:
    assert alter(Cluster(), put(iterations=iterations)) == {"ann": ErrorCode.NONE}


@pytest.mark.parametrize(
    "changes",
    [
        (put(), put()),
        (put(mechanism=SHA_256), put(mechanism=SHA_512)),
        (drop(), put()),
        (drop(), drop()),
        (drop(), put(), put()),
    ],
)
def test_a_user_can_be_changed_once_in_a_request(changes: Sequence[Upsertion | Deletion]) -> None:
    cluster = Cluster()
    alter(cluster, put())
    before = cluster.next_offset
    assert alter(cluster, *changes, drop("bob")) == {
        "ann": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert cluster.next_offset == before


def test_there_is_nothing_to_delete_however_often_it_is_asked() -> None:
    assert alter(Cluster(), drop(), drop()) == {"ann": ErrorCode.RESOURCE_NOT_FOUND}


def test_an_old_level_knows_no_scram() -> None:
    cluster = Cluster(metadata_version=10)
    assert alter(cluster, put("ann"), drop("bob")) == {
        "ann": ErrorCode.UNSUPPORTED_VERSION,
        "bob": ErrorCode.UNSUPPORTED_VERSION,
    }
    assert alter(Cluster(metadata_version=11), put()) == {"ann": ErrorCode.NONE}


# Looking up


def describe(cluster: Cluster, users: list[str] | None) -> DescribeUserScramCredentialsResponse:
    names = None
    if users is not None:
        names = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in users]
    reply = describe_user_scram_credentials(cluster.image, DescribeUserScramCredentialsRequest(users=names))
    encode(reply, 0)
    return reply


def infos(reply: DescribeUserScramCredentialsResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in reply.results
    }


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    alter(cluster, put("bob", SHA_512, 5000))
    alter(cluster, put("ann", SHA_512, 4096))
    alter(cluster, put("ann", SHA_256, 8192))
    return cluster


@pytest.mark.parametrize("users", [None, []])
def test_everyone_if_nobody_is_named(cluster: Cluster, users: list[str] | None) -> None:
    assert infos(describe(cluster, users)) == {"ann": [(1, 8192), (2, 4096)], "bob": [(2, 5000)]}


def test_those_who_are_named(cluster: Cluster) -> None:
    assert infos(describe(cluster, ["bob"])) == {"bob": [(2, 5000)]}


def test_those_who_are_unknown_or_named_twice(cluster: Cluster) -> None:
    reply = describe(cluster, ["zoe", "ann", "ann", "bob"])
    assert [(one.user, one.error_code) for one in reply.results] == [
        ("zoe", ErrorCode.RESOURCE_NOT_FOUND),
        ("ann", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.NONE),
    ]
    assert infos(reply) == {"zoe": [], "ann": [], "bob": [(2, 5000)]}


def test_nobody_has_credentials() -> None:
    assert describe(Cluster(), None).results == []
