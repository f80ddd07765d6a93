"""Access rights at a controller that is asked directly."""

import asyncio
import random

import pytest

from node.processes import HOST
from node.test_controller import formatted_voters, until
from quorate.net.connections import Connections
from quorate.node.config import parse_config
from quorate.node.host import real_host
from quorate.node.node import Node
from quorate.protocol.api.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from quorate.protocol.errors import ErrorCode

ENTRY = CreateAclsRequest.AclCreation(
    resource_type=2,
    resource_name="orders",
    resource_pattern_type=3,
    principal="User:ann",
    host="*",
    operation=3,
    permission_type=3,
)
EVERY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
QUESTIONS = (
    CreateAclsRequest(creations=[ENTRY]),
    DescribeAclsRequest(**EVERY),
    DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**EVERY)]),
)


def answered(directory, **settings):
    """What a controller answers to the three questions, and how many entries were written in the end."""

    async def scenario():
        (config,) = await formatted_voters(directory, 1, **settings)
        node = Node(real_host("1"), config)
        running = asyncio.create_task(node.run())
        await until(lambda: node.state.leadership.leader_id == 1)
        connections = Connections(rng=random.Random(7), client_id="quorate-tests")
        address = HOST, config.controller_listener.port
        try:
            return [await connections.request(address, one, timeout_ms=30_000) for one in QUESTIONS]
        finally:
            await connections.close()
            node.stop()
            await running

    return asyncio.run(scenario())


def test_a_controller_without_an_authorizer_keeps_no_rights(tmp_path):
    created, described, deleted = answered(tmp_path)
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED]
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


def test_a_controller_keeps_rights_for_brokers_that_go_by_them(tmp_path):
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    created, described, deleted = answered(tmp_path, **{"authorizer.class.name": name})
    assert [one.error_code for one in created.results] == [ErrorCode.NONE]
    assert [one.resource_name for one in described.resources] == ["orders"]
    (found,) = deleted.filter_results
    assert [one.resource_name for one in found.matching_acls] == ["orders"]


@pytest.mark.parametrize("name", ["", "StandardAuthorizer"])
def test_an_operator_is_told_that_nothing_is_protected(name):
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://{HOST}:9093",
        "controller.quorum.voters": f"1@{HOST}:9093",
        "metadata.log.dir": "data",
        "authorizer.class.name": name,
    }
    warnings = parse_config("f.properties", properties).warnings
    assert [("allows everything" in one) for one in warnings] == [True] * bool(name)
