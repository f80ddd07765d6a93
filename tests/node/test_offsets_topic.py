"""The topic of committed offsets is made when somebody looks for a coordinator: what it is made with and
what is said if it cannot be made."""

import logging

import pytest

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.broker.groups import OFFSETS_TOPIC
from quorate.client.admin import Admin, NewTopic, Resource, ResourceKind
from quorate.client.cluster import ANY, Cluster
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.errors import ApiError, ErrorCode

TOPIC = Resource(ResourceKind.TOPIC, OFFSETS_TOPIC)
GROUP = Resource(ResourceKind.GROUP, "g")
NOT_MADE = f"topic not created topic={OFFSETS_TOPIC}"


async def look(cluster, group="g"):
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    response = await cluster.request(ANY, request)
    assert isinstance(response, FindCoordinatorResponse)
    return response.coordinators[0]


@in_loop
async def test_it_is_made_as_the_file_says(tmp_path):
    settings = {
        "offsets_topic_num_partitions": "7",
        "offsets_topic_replication_factor": "1",
        "offsets_topic_segment_bytes": "2097152",
    }
    async with OneNode(tmp_path, **settings) as node, Cluster(node.bootstrap) as cluster:
        first = await look(cluster)
        assert (first.error_code, first.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert (await cluster.coordinator("g")).id == 1
        partitions = (await cluster.topic(OFFSETS_TOPIC)).partitions
        assert [len(one.replicas) for one in partitions.values()] == [1] * 7
        configs = await Admin(cluster).describe_configs(TOPIC)
        made_with = {key: configs[key].value for key in ("cleanup.policy", "segment.bytes")}
        assert made_with == {"cleanup.policy": "compact", "segment.bytes": "2097152"}


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("offsets_topic_replication_factor", "3", "INVALID_REPLICATION_FACTOR"),
        ("offsets_topic_segment_bytes", "1000", "INVALID_CONFIG"),
    ],
)
@in_loop
async def test_it_cannot_be_made(tmp_path, caplog, key, value, error):
    """For example, for want of brokers: nobody coordinates, and the log says so once."""
    settings = {"offsets_topic_replication_factor": "1", key: value}
    async with OneNode(tmp_path, **settings) as node, Cluster(node.bootstrap) as cluster:
        for number in range(3):
            found = await look(cluster)
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            # The controller answers in turn: when this is made, the other has been refused.
            await Admin(cluster).create_topics(NewTopic(f"t{number}", partitions=1, replication_factor=1))
    lines = [one for one in caplog.records if one.message.startswith(NOT_MADE)]
    assert len(lines) == 1
    assert lines[0].levelno == logging.WARNING
    assert f"error={error} reason=" in lines[0].message


@in_loop
async def test_a_group_is_given_what_the_file_allows(tmp_path):
    settings = {"group_consumer_min_session_timeout_ms": "1000"}
    async with OneNode(tmp_path, **settings) as node, Cluster(node.bootstrap) as cluster:
        admin, key = Admin(cluster), "consumer.session.timeout.ms"
        await admin.alter_configs(GROUP, put={key: "10000"})
        assert (await admin.describe_configs(GROUP, [key]))[key].value == "10000"
        with pytest.raises(ApiError, match="allowed is a number from 1000 to 60000"):
            await admin.alter_configs(GROUP, put={key: "999"})
