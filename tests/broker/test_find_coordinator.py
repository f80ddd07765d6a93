"""Who coordinates a group: whoever leads the partition that its name belongs to."""

import struct

import pytest

from broker.serving import BROKER_ID, Serving, in_loop
from quorate.broker.groups import OFFSETS_TOPIC, Groups
from quorate.broker.handlers.find_coordinator import FindCoordinatorHandler
from quorate.broker.handlers.producer_ids import NO_TRANSACTIONS
from quorate.coordinator.group_places import java_hash
from quorate.metadata import records as r
from quorate.protocol.api.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.errors import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Creation:
    """Remembers which topics were asked for."""

    def __init__(self):
        self.asked = []

    def begin(self, names, _context):
        self.asked += names


@pytest.fixture
def serving(tmp_path):
    serving = Serving(tmp_path)
    serving.groups = Groups(serving.broker, lambda _: None)
    serving.creation = Creation()
    serving.handlers[FindCoordinatorRequest] = FindCoordinatorHandler(
        serving.broker, serving.groups, serving.creation
    )
    return serving


async def ask(serving, version, kind, *keys):
    request = FindCoordinatorRequest(key_type=kind)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        (request.key,) = keys
    return await serving.ask(request, version)


def codes(response: FindCoordinatorResponse, version: int) -> list[int]:
    return [one.error_code for one in response.coordinators] if version >= 4 else [response.error_code]


def nodes(response: FindCoordinatorResponse, version: int) -> list[tuple[int, str, int]]:
    found = response.coordinators if version >= 4 else [response]
    return [(one.node_id, one.host, one.port) for one in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("test", 3556498), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)],
)
def test_names_have_the_hash_that_java_gives_them(text, value):
    assert java_hash(text) == value


@pytest.mark.parametrize("length", [254, 255, 256, 257, 511, 512, 513, 32_767])
def test_long_names_have_it_too(length):
    text = ("\U0001f600group-\uffff" * length)[:length]
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) % (1 << 32)
    assert java_hash(text) == (value ^ 1 << 31) - (1 << 31)


@pytest.mark.parametrize(("group", "partition"), [("test", 48), ("polygenelubricants", 0)])
def test_groups_are_spread_as_kafka_spreads_them(serving, group, partition):
    assert serving.groups.partition_of(group) == partition


@pytest.mark.parametrize("version", FindCoordinatorRequest.__served__)
@in_loop
async def test_the_topic_is_made_when_it_is_needed(serving, version):
    keys = ("orders", "payments") if version >= 4 else ("orders",)
    found = await ask(serving, version, GROUP, *keys)
    assert codes(found, version) == [LATER] * len(keys)
    assert nodes(found, version) == [(-1, "", -1)] * len(keys)
    assert serving.creation.asked == [OFFSETS_TOPIC] * len(keys)


@pytest.mark.parametrize("version", FindCoordinatorRequest.__served__)
@in_loop
async def test_a_group_is_found_where_its_partition_is_led(serving, version):
    await serving.topic(OFFSETS_TOPIC, partitions=2, leader=2, replicas=(BROKER_ID, 2))
    found = await ask(serving, version, GROUP, "orders")
    assert codes(found, version) == [ErrorCode.NONE]
    assert nodes(found, version) == [(2, "host-2", 9002)]
    assert serving.creation.asked == []
    await serving.close()


@in_loop
async def test_nobody_coordinates_while_nobody_leads(serving):
    await serving.topic(OFFSETS_TOPIC, leader=-1)
    assert codes(await ask(serving, 4, GROUP, "orders"), 4) == [LATER]
    await serving.assign(OFFSETS_TOPIC, leader=2, replicas=(2,), leader_epoch=1)
    serving.apply(r.FenceBrokerRecord(id=2, epoch=102))
    assert codes(await ask(serving, 4, GROUP, "orders"), 4) == [LATER]
    await serving.close()


@in_loop
async def test_nobody_coordinates_transactions_and_nobody_is_told_to_ask_again(serving):
    for version in range(1, 7):
        found = await ask(serving, version, TRANSACTION, "t")
        assert codes(found, version) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        (told,) = found.coordinators if version >= 4 else [found]
        assert told.error_message == NO_TRANSACTIONS


@in_loop
async def test_what_does_not_exist_has_no_coordinator(serving):
    assert codes(await ask(serving, 5, SHARE, "group:id:0"), 5) == [ErrorCode.INVALID_REQUEST]
    assert codes(await ask(serving, 6, SHARE, "group:id:0"), 6) == [LATER]
    assert codes(await ask(serving, 6, 7, "orders"), 6) == [ErrorCode.INVALID_REQUEST]


@in_loop
async def test_only_those_who_may_describe_something_look_for_its_coordinator(serving):
    serving.denied |= {(8, "orders"), (8, "t")}
    assert codes(await ask(serving, 4, GROUP, "orders"), 4) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    found = await ask(serving, 4, TRANSACTION, "t")
    assert codes(found, 4) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert found.coordinators[0].error_message == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
