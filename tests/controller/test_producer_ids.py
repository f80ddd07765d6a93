"""Blocks of producer ids."""

from __future__ import annotations

import pytest

from controller_cluster import Cluster
from quorate.controller.producer_ids import BLOCK_SIZE, decide_allocate_producer_ids
from quorate.metadata.records import ProducerIdsRecord
from quorate.protocol.api.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode


def allocate(cluster: Cluster, broker_id: int, epoch: int | None = None) -> range:
    epoch = cluster.image.brokers[broker_id].epoch if epoch is None else epoch
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    reply = cluster.decide(decide_allocate_producer_ids, request).reply
    assert isinstance(reply, AllocateProducerIdsResponse)
    encode(reply, 0)
    assert reply.error_code == ErrorCode.NONE
    return range(reply.producer_id_start, reply.producer_id_start + reply.producer_id_len)


def test_blocks_follow_each_other_whoever_asks() -> None:
    cluster = Cluster([1, 2])
    assert allocate(cluster, 1) == range(1000)
    assert allocate(cluster, 2) == range(1000, 2000)
    assert allocate(cluster, 1) == range(2000, 3000)
    assert cluster.image.next_producer_id == 3000


def test_the_record_says_who_got_it_and_where_the_next_begins() -> None:
    cluster = Cluster([1])
    allocate(cluster, 1)
    epoch = cluster.image.brokers[1].epoch
    assert cluster.records[-1] == ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=1000)


def test_a_fenced_broker_gets_ids_too() -> None:
    cluster = Cluster([1])
    cluster.fence(1)
    assert len(allocate(cluster, 1)) == BLOCK_SIZE


@pytest.mark.parametrize(("broker_id", "off_by"), [(1, -1), (1, 1), (2, 0)])
def test_only_the_registered_incarnation_gets_ids(broker_id: int, off_by: int) -> None:
    cluster = Cluster([1])
    with pytest.raises(ApiError) as caught:
        allocate(cluster, broker_id, cluster.image.brokers[1].epoch + off_by)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.image.next_producer_id == 0


def test_a_restarted_broker_asks_with_its_new_epoch() -> None:
    cluster = Cluster([1])
    old = cluster.image.brokers[1].epoch
    cluster.register(1, run=1)
    with pytest.raises(ApiError):
        allocate(cluster, 1, old)
    assert len(allocate(cluster, 1)) == BLOCK_SIZE


def test_the_ids_run_out_before_they_turn_negative() -> None:
    cluster = Cluster([1])
    last = (1 << 63) - 1 - BLOCK_SIZE
    cluster.apply(ProducerIdsRecord(broker_id=1, next_producer_id=last))
    assert allocate(cluster, 1) == range(last, (1 << 63) - 1)
    with pytest.raises(ApiError, match="used up") as caught:
        allocate(cluster, 1)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
