"""Entity paths and records, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.metadata.image import BROKER, TOPIC, ClusterImage
from quorate.metadata.records import ClientQuotaRecord, ConfigRecord, UserScramCredentialRecord
from quorate.zookeeper.config_entities import changes_by_path, records_between
from quorate.zookeeper.errors import MalformedZnode

VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]))


@pytest.mark.parametrize(
    ("path", "resource"),
    [("topics/t", (TOPIC, "t")), ("brokers/3", (BROKER, "3")), ("brokers/<default>", (BROKER, ""))],
)
def test_configurations_are_records_of_what_is_different(path, resource):
    records = records_between(path, {"a": "1", "b": "2"}, {"b": "3", "c": "4"})
    found = {(one.resource_type, one.resource_name, one.name): one.value for one in records}
    assert found == {(*resource, "a"): None, (*resource, "b"): "3", (*resource, "c"): "4"}
    assert changes_by_path(records) == {path: {"a": None, "b": "3", "c": "4"}}


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("clients/c", (("client-id", "c"),)),
        ("users/<default>", (("user", None),)),
        ("users/CN%3Dx/clients/<default>", (("client-id", None), ("user", "CN=x"))),
        ("ips/1.2.3.4", (("ip", "1.2.3.4"),)),
    ],
)
def test_quotas_belong_to_entities(path, entity):
    (record,) = records_between(path, {}, {"producer_byte_rate": "1024.0"})
    assert isinstance(record, ClientQuotaRecord)
    image = ClusterImage()
    image.apply(record, 0)
    assert image.quotas == {entity: {"producer_byte_rate": 1024.0}}
    assert changes_by_path([record]) == {path: {"producer_byte_rate": "1024.0"}}
    for gone in records_between(path, {"producer_byte_rate": "1024.0"}, {}):
        image.apply(gone, 0)
    assert image.quotas == {}


def test_credentials_are_among_the_quotas_of_a_user():
    value = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    (record,) = records_between("users/alice", {}, {"SCRAM-SHA-256": value})
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.name, record.mechanism, record.salt, record.iterations) == ("alice", 1, b"salt", 4096)
    assert changes_by_path([record]) == {"users/alice": {"SCRAM-SHA-256": value}}


@given(VALUES, VALUES)
def test_records_make_of_one_the_other(before, after):
    image = ClusterImage()
    for record in records_between("topics/t", {}, before):
        image.apply(record, 0)
    for record in records_between("topics/t", before, after):
        image.apply(record, 0)
    assert image.configs.get((TOPIC, "t"), {}) == after


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("nothing/t", {"a": "1"}),
        ("topics", {"a": "1"}),
        ("users/u/topics/t", {"a": "1"}),
        ("clients/c", {"producer_byte_rate": "much"}),
        ("users/u", {"SCRAM-SHA-256": "salt=,"}),
    ],
)
def test_what_makes_no_sense_is_refused(path, values):
    with pytest.raises(MalformedZnode):
        records_between(path, {}, values)


def test_what_zookeeper_has_no_place_for_is_left_out():
    record = ConfigRecord(resource_type=16, resource_name="metrics", name="a", value="1")
    assert changes_by_path([record]) == {}
