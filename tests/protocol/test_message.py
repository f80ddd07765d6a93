"""What a declaration makes of a class."""

import pickle

import pytest

from quorate.coordinator.group_records import ConsumerGroupMemberMetadataValue
from quorate.protocol import codec
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.layout import layout
from quorate.protocol.message import Message, Struct, field, version_range
from quorate.protocol.types import Array, Int32, String


class Outer(Message, versions="0-3", flexible="2+"):
    class Inner(Struct):
        number: Int32
        note: String | None = field(default=None, since=1)

    name: String | None = field(nullable="1+")
    inners: Array[Inner] = field(default=(), since=1, until=2)


def test_fields_are_keywords_and_those_without_default_are_required():
    with pytest.raises(TypeError, match="positional"):
        Outer("x")
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        Outer()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmae'"):
        Outer(name="x", nmae="y")


def test_messages_are_mutable_equal_by_value_and_unhashable():
    one, other = Outer(name="x"), Outer(name="x")
    assert one == other
    other.inners.append(Outer.Inner(number=1))
    assert one != other
    assert one.inners == []
    assert one != "x"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_instances_have_slots_only():
    one = Outer(name="x")
    assert not hasattr(one, "__dict__")
    with pytest.raises(AttributeError):
        one.nmae = "y"


def test_repr_names_every_field():
    assert repr(Outer(name=None, inners=[Outer.Inner(number=1)])) == (
        "Outer(name=None, inners=[Outer.Inner(number=1, note=None)])"
    )


def test_a_message_can_be_pickled():
    beat = BrokerHeartbeatRequest(
        broker_id=1, current_metadata_offset=2, want_fence=False, want_shut_down=False
    )
    assert pickle.loads(pickle.dumps(beat)) == beat


def test_versions_decide_what_is_on_the_wire():
    names = {version: [each.name for each in layout(Outer, version).fields] for version in range(4)}
    assert names == {0: ["name"], 1: ["name", "inners"], 2: ["name", "inners"], 3: ["name"]}
    assert [layout(Outer, version).fields[0].nullable for version in range(4)] == [False, True, True, True]
    assert [layout(Outer, version).flexible for version in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "versions"),
    [("0", [0]), ("3-5", [3, 4, 5]), ("none", []), ("32766+", [32766, 32767])],
)
def test_version_ranges(text, versions):
    assert list(version_range(text)) == versions


def test_what_a_request_says_about_itself():
    assert FetchRequest.__key__ == FetchResponse.__key__ == 1
    assert FetchRequest.__versions__ == range(19)
    assert FetchRequest.__served__ == range(4, 19)
    assert FetchRequest.__flexible__[0] == 12
    assert FetchRequest.__listeners__ == ("broker", "controller")


def test_an_absent_tagged_struct_is_none_or_a_new_one():
    partition = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None
    )
    assert partition.diverging_epoch is None
    values = {"instance_id": None, "rack_id": None, "client_id": "", "client_host": ""}
    values |= {"subscribed_topic_names": [], "subscribed_topic_regex": None, "server_assignor": None}
    member = ConsumerGroupMemberMetadataValue(**values)
    assert member.classic_member_metadata == ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
    assert codec.encode(member, 0).endswith(b"\xff\xff\xff\xff\0\0")
    member.classic_member_metadata = None
    assert codec.encode(member, 0).endswith(b"\x01\x00\x01\x00")
    assert codec.decode(ConsumerGroupMemberMetadataValue, 0, codec.encode(member, 0)) == member
