"""The quorum is described in every version, through a broker too."""

import pytest

from broker.serving import in_loop
from node.one_node import OneNode
from quorate.client.cluster import ANY, Cluster
from quorate.protocol.api.quorum import DescribeQuorumRequest
from quorate.protocol.types import ZERO_UUID


@pytest.mark.parametrize("version", DescribeQuorumRequest.__served__)
@in_loop
async def test_old_clients_are_told_who_leads(tmp_path, version):
    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])]
    )
    async with OneNode(tmp_path) as node, Cluster(node.bootstrap) as cluster:
        answer = await cluster.request(ANY, request, version_cap=version)
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == 1
        (voter,) = partition.current_voters
        assert (voter.replica_directory_id != ZERO_UUID) == (version >= 2)
        assert [one.node_id for one in answer.nodes] == ([1] if version >= 2 else [])
