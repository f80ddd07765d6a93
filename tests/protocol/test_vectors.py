"""The committed vectors: what Apache's classes confirmed, checked without Java."""

import vectors
from quorate.protocol import codec
from samples import MESSAGES, VERSIONS

CLASSES = {cls.__name__: cls for cls in MESSAGES}
VECTORS = vectors.load()


def test_every_vector_is_read_and_written_as_apache_did():
    for one in VECTORS:
        message = codec.decode(CLASSES[one.name], one.version, one.data)
        assert codec.encode(message, one.version) == one.data, str(one)
        vectors.assert_same_fields(message, one.version, one.fields)


def test_every_version_has_a_vector():
    assert {(one.name, one.version) for one in VECTORS} == {
        (cls.__name__, version) for cls, version in VERSIONS
    }
