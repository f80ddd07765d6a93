"""The bytes that go to ZooKeeper are those that kazoo would send; answers that are cut short are refused."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from quorate.zookeeper import jute
from quorate.zookeeper.errors import BadVersion, MultiFailed, NoNode, ZooKeeperError
from quorate.zookeeper.jute import Check, Create, Delete, Exists, Get, GetChildren, Multi, Set, Sync

PATHS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).map(
    "/{}".format
)
STAT = jute.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = struct.pack(">qqqqiiiqiiq", *STAT)


def watch(_path):
    raise AssertionError


@given(PATHS, st.binary() | st.none(), st.integers(0, 3), st.integers(-1, 100), st.booleans())
def test_operations_are_written_as_kazoo_writes_them(path, data, flags, version, is_watched):
    watching = watch if is_watched else None
    for ours, theirs in (
        (Create(path, data, flags), kazoo.Create(path, data, OPEN_ACL_UNSAFE, flags)),
        (Delete(path, version), kazoo.Delete(path, version)),
        (Set(path, data, version), kazoo.SetData(path, data, version)),
        (Check(path, version), kazoo.CheckVersion(path, version)),
        (Get(path, watching), kazoo.GetData(path, watching)),
        (Exists(path, watching), kazoo.Exists(path, watching)),
        (GetChildren(path, watching), kazoo.GetChildren2(path, watching)),
        (Sync(path), kazoo.Sync(path)),
    ):
        assert ours.body("") == bytes(theirs.serialize())
        assert ours.code == theirs.type


@given(PATHS, st.binary(), st.integers(-1, 100))
def test_transactions_too(path, data, version):
    ours = Multi.of(Check(path, version), Create(path, data), Set(path, data, version), Delete(path, version))
    theirs = kazoo.Transaction(
        [
            kazoo.CheckVersion(path, version),
            kazoo.Create(path, data, OPEN_ACL_UNSAFE, 0),
            kazoo.SetData(path, data, version),
            kazoo.Delete(path, version),
        ]
    )
    assert ours.body("") == bytes(theirs.serialize())


def test_access_rights_are_written_as_kazoo_writes_them():
    owner = make_acl("digest", "u:hash", all=True)
    reader = make_acl("world", "anyone", read=True)
    ours = Create("/a", b"", 0, ((31, "digest", "u:hash"), (1, "world", "anyone")))
    assert ours.body("") == bytes(kazoo.Create("/a", b"", [owner, reader], 0).serialize())


def test_handshakes_credentials_and_watches_are_written_as_kazoo_writes_them():
    ours = jute.Handshake(7, 6000, 99, bytes(range(16)))
    theirs = kazoo.Connect(0, 7, 6000, 99, bytes(range(16)), False)
    assert ours.frame()[4:] == bytes(theirs.serialize())
    assert jute.auth_frame("digest", b"u:p")[12:] == bytes(kazoo.Auth(0, "digest", "u:p").serialize())
    frame = jute.set_watches_frame(5, ["/a"], ["/b"], ["/"], "/root")
    assert frame[12:].count(b"/root") == 3
    assert frame.endswith(b"\0\0\0\5/root")


def test_the_chroot_is_put_before_paths_and_taken_away():
    assert Get("/a").body("/root") == Get("/root/a").body("")
    assert GetChildren("/").body("/root") == GetChildren("/root").body("")
    answer = struct.pack(">i", 7) + b"/root/a"
    assert Create("/a").result(answer, 0, "/root") == "/a"
    told = struct.pack(">iqi", -1, -1, 0) + struct.pack(">iii", 3, 3, 7) + b"/root/a"
    assert jute.event(told, "/root") == (3, "/a")


def test_answers_are_read():
    assert Get("/a").result(struct.pack(">i", 2) + b"xy" + STAT_BYTES, 0, "") == (b"xy", STAT)
    assert Get("/a").result(struct.pack(">i", -1) + STAT_BYTES, 0, "").data == b""
    names = struct.pack(">ii", 2, 1) + b"a" + struct.pack(">i", 1) + b"b"
    assert GetChildren("/").result(names + STAT_BYTES, 0, "").names == ["a", "b"]


def test_of_a_transaction_that_failed_every_part_says_why():
    failed = b"".join(struct.pack(">i?ii", -1, False, code, code) for code in (-103, -2))
    operation = Multi.of(Check("/epoch", 1), Create("/a"))
    with pytest.raises(MultiFailed) as refused:
        operation.result(failed + struct.pack(">i?i", -1, True, -1), 0, "")
    assert isinstance(refused.value.first, BadVersion)
    assert refused.value.first.path == "/epoch"
    done = struct.pack(">i?i", 13, False, 0) + struct.pack(">i?i", 1, False, 0) + struct.pack(">i", 2) + b"/a"
    assert operation.result(done + struct.pack(">i?i", -1, True, -1), 0, "") == [None, "/a"]


def test_codes_have_names_and_unknown_ones_a_number():
    assert isinstance(Get("/a").error(-101), NoNode)
    assert "-999" in str(Get("/a").error(-999))


@given(
    st.sampled_from([Get("/a"), Exists("/a"), GetChildren("/a"), Set("/a", b""), Create("/a")]), st.binary()
)
def test_any_bytes_are_read_or_refused(operation, data):
    with contextlib.suppress(ValueError, struct.error, ZooKeeperError):
        operation.result(data, 0, "")
