"""What brokers say of the cluster, and what is believed."""

import pytest

from quorate.client.metadata import Broker, Metadata, parse_addresses
from quorate.protocol.api.topics import MetadataResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid

ONE, TWO = Uuid(b"1" * 16), Uuid(b"2" * 16)


def said(leader: int, epoch: int, topic_id: Uuid = ONE, error_code: int = 0) -> MetadataResponse:
    partition = MetadataResponse.Topic.Partition(
        error_code=0,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )
    topic = MetadataResponse.Topic(error_code=error_code, name="t", topic_id=topic_id, partitions=[partition])
    brokers = [MetadataResponse.Broker(node_id=number, host="h", port=number) for number in (1, 2)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=2, topics=[topic])


def learned(*responses: MetadataResponse) -> Metadata:
    metadata = Metadata()
    for response in responses:
        metadata.learn(response)
    return metadata


@pytest.mark.parametrize(
    ("responses", "leader"),
    [
        ([said(1, 5)], 1),
        ([said(1, 5), said(2, 6)], 2),
        ([said(2, 6), said(1, 5)], 2),  # the second broker was slow
        ([said(2, 6), said(1, 6)], 1),
        ([said(2, 6), said(1, 0, TWO)], 1),  # another topic of the same name
        ([said(2, 6), said(-1, 7)], None),
    ],
)
def test_a_lower_epoch_is_not_believed(responses, leader):
    found = learned(*responses).leader(("t", 0))
    assert (found.id if found else None) == leader


def test_a_topic_that_is_gone_is_forgotten_and_the_reason_is_known():
    metadata = learned(said(1, 5), said(1, 5, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert metadata.topics == {}
    assert metadata.name_of(ONE) is None
    assert metadata.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata.learn(said(1, 0, TWO))
    assert metadata.errors == {}
    assert metadata.name_of(TWO) == "t"


def test_the_words_of_a_former_leader():
    metadata = learned(said(1, 5))
    assert not metadata.learn_leader(("t", 0), 2, 5)
    assert not metadata.learn_leader(("t", 0), 3, 6)  # nobody knows where that is
    assert metadata.learn_leader(("t", 0), 3, 6, [Broker(3, "h", 3)])
    assert metadata.leader(("t", 0)).address == ("h", 3)
    assert not metadata.learn_leader(("u", 0), 1, 9)


def test_addresses():
    assert parse_addresses("a:1,b:2") == (("a", 1), ("b", 2))
    assert parse_addresses(" [::1]:9092 ") == (("::1", 9092),)


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:1,b"])
def test_addresses_that_are_none(text):
    with pytest.raises(ValueError, match="expected host:port, as in localhost:9092"):
        parse_addresses(text)
