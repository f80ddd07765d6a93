"""Java's properties files, and `meta.properties` among them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.meta_properties import (
    META_PROPERTIES_NAME,
    MetaProperties,
    check_meta_properties,
    load_meta_properties,
    new_directory_id,
    store_meta_properties,
)
from quorate.storage.properties import format_properties, parse_properties

# What java.util.Properties makes of these.
UNDERSTOOD = [
    ("", {}),
    ("a=b", {"a": "b"}),
    ("a = b \n", {"a": "b "}),
    ("a:b\r\nc\td\re  =  f", {"a": "b", "c": "d", "e": "f"}),
    ("# comment\n  ! another\n\n \t\na=1", {"a": "1"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    ("a==b", {"a": "=b"}),
    ("a =:b", {"a": ":b"}),
    ("a  b c", {"a": "b c"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b\\\n   c\\\n\td", {"a": "bcd"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\", {"a": "b"}),
    ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    ("a=b\\\n# not a comment", {"a": "b# not a comment"}),
    ("# comment \\\na=b", {"a": "b"}),
    ("\\\n# comment\n\\\n\na=b", {"a": "b"}),
    ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
    ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    ("a=\\u00e4\\uD83D\\uDE00!", {"a": "\u00e4\U0001f600!"}),
    ("\\#a=#b", {"#a": "#b"}),
    ("a=\\ b", {"a": " b"}),
]


@pytest.mark.parametrize(("text", "expected"), UNDERSTOOD)
def test_what_java_understands(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=b\nc=\\u12", "a=b\nc=\\u12x4", "\n\\uzzzz=c", "a\n\\u"])
def test_a_character_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: .* four hexadecimal digits"):
        parse_properties(text)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    " =:#!\\\t\n\r\fab", max_size=12
)


@given(st.dictionaries(TEXTS, TEXTS, max_size=5))
def test_what_is_written_is_read(properties: dict[str, str]) -> None:
    text = format_properties(properties)
    assert text.isascii()
    assert parse_properties(text) == properties


@given(st.text(" =:#!\\\t\n\r\fabu0", max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        found = parse_properties(text)
    except ValueError as error:
        assert "\\u" in text
        assert "line " in str(error)
    else:
        assert parse_properties(format_properties(found)) == found


# meta.properties

META = MetaProperties(
    cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id=Uuid.parse("14VDGEpfRTy8FzeWuq2fbQ")
)
APACHE = (
    "#\n#Sun Nov 15 08:54:47 UTC 2026\nnode.id=1\ndirectory.id=14VDGEpfRTy8FzeWuq2fbQ\nversion=1\n"
    "cluster.id=4L6g3nShT-eMCtK--X86sw\n"
)


def test_what_apache_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / META_PROPERTIES_NAME).write_text(APACHE)
    assert load_meta_properties(FILES, str(tmp_path)) == META


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert load_meta_properties(FILES, directory) is None
    asyncio.run(store_meta_properties(FILES, directory, META))
    assert load_meta_properties(FILES, directory) == META
    assert (tmp_path / META_PROPERTIES_NAME).read_text() == (
        "cluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id=14VDGEpfRTy8FzeWuq2fbQ\nnode.id=1\nversion=1\n"
    )


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        ("version=1\ncluster.id=c\nnode.id=7\n", MetaProperties("c", 7)),
        ("version=0\nbroker.id=7\n", MetaProperties(None, 7, version=0)),
        ("version=0\nbroker.id=7\ncluster.id=c\nnode.id=9\n", MetaProperties("c", 7, version=0)),
        ("version=0\n", MetaProperties(None, None, version=0)),
    ],
)
def test_older_and_shorter_ones_are_read(text: str, meta: MetaProperties) -> None:
    assert MetaProperties.parse(text) == meta


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "version is missing"),
        ("version=2\n", "version is '2', not 0 or 1"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\ncluster.id=c\nbroker.id=1\n", "node.id is missing"),
        ("version=1\ncluster.id=c\nnode.id=one\n", "node.id is 'one', not a number from 0 to 2147483647"),
        ("version=1\ncluster.id=c\nnode.id=-1\n", "node.id is '-1', not a number"),
        ("version=0\nbroker.id=2147483648\n", "broker.id is '2147483648', not a number"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "directory.id is not a uuid in base64: 'x'"),
        (
            "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
            "directory.id is AAAAAAAAAAAAAAAAAAAAAA, which is reserved",
        ),
        ("version=1\ncluster.id=\\u12\n", "line 2"),
    ],
)
def test_a_bad_one_is_refused_with_file_key_and_value(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / META_PROPERTIES_NAME).write_text(text)
    with pytest.raises(StorageError) as refusal:
        load_meta_properties(FILES, str(tmp_path))
    assert str(refusal.value).startswith(f"{tmp_path}/meta.properties: ")
    assert reason in refusal.value.reason


def test_a_directory_of_somebody_else_is_refused() -> None:
    check_meta_properties("d", META, cluster_id=META.cluster_id, node_id=1)
    check_meta_properties("d", META, cluster_id=None, node_id=1)
    check_meta_properties("d", MetaProperties(None, None, version=0), cluster_id="x", node_id=1)
    with pytest.raises(
        StorageError,
        match=r"^d/meta.properties: cluster.id is 4L6g3nShT-eMCtK--X86sw, but this cluster is other$",
    ):
        check_meta_properties("d", META, cluster_id="other", node_id=1)
    with pytest.raises(StorageError, match=r"^d/meta.properties: node.id is 1, but this node is 2$"):
        check_meta_properties("d", META, cluster_id=META.cluster_id, node_id=2)
    with pytest.raises(StorageError, match=r"broker.id is 7, but this node is 2$"):
        check_meta_properties("d", MetaProperties(None, 7, version=0), cluster_id="c", node_id=2)


def test_a_directory_id_is_drawn_until_it_means_nothing_else() -> None:
    good = bytes(8) + (100).to_bytes(8, "big")
    drawn = iter(
        [bytes(16), bytes(8) + (99).to_bytes(8, "big"), b"\xf8" + bytes(15), bytes(8) + b"\xff" * 8, good]
    )
    assert new_directory_id(lambda size: next(drawn)[:size]) == good
