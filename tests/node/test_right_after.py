"""What a node has just told, it goes by: nobody has to ask twice."""

from pathlib import Path

from broker.serving import a_batch, in_loop, produce
from node.one_node import OneNode
from quorate.client.cluster import Cluster
from quorate.protocol.api.produce_fetch import ProduceResponse
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse
from quorate.protocol.errors import ErrorCode

TIMES = 20


async def described_on_demand(cluster: Cluster, name: str) -> MetadataResponse.Topic:
    """A topic that is created because it is asked for, as soon as it is shown."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=True)
    while True:
        response = await cluster.request(1, request)
        assert isinstance(response, MetadataResponse)
        (topic,) = response.topics
        if topic.error_code == ErrorCode.NONE:
            return topic
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_topic_made_on_demand_can_be_written_to_as_soon_as_it_is_shown(tmp_path: Path):
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        codes = []
        for number in range(TIMES):
            topic = await described_on_demand(cluster, f"t{number}")
            request = produce((topic.name, 0, a_batch()))
            request.topic_data[0].topic_id = topic.topic_id
            response = await cluster.request(1, request)
            assert isinstance(response, ProduceResponse)
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [ErrorCode.NONE] * TIMES
