"""How many partitions a client may create and delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster
from quorate.controller.decision import Asker, Decision
from quorate.controller.mutation_quota import BURST_S, KEY, Account, MutationQuota, find_rate
from quorate.controller.partitions_of_topics import decide_create_partitions
from quorate.controller.topics import decide_create_topics, decide_delete_topics
from quorate.metadata.image import Entity
from quorate.metadata.records import ClientQuotaRecord
from quorate.protocol.api.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request
from quorate.protocol.types import ZERO_UUID

USER, CLIENT = "user", "client-id"


def entity(**parts: str | None) -> Entity:
    """`entity(user="ann", client=None)`: the quota of ann for any client."""
    names = {"user": USER, "client": CLIENT}
    return tuple(sorted((names[kind], name) for kind, name in parts.items()))


# Which quota counts, from the most specific on, and whose bucket it is

LADDER: list[tuple[Entity, tuple[str, str]]] = [
    (entity(user="ann", client="app"), ("ann", "app")),
    (entity(user="ann", client=None), ("ann", "app")),
    (entity(user="ann"), ("ann", "")),
    (entity(user=None, client="app"), ("ann", "app")),
    (entity(user=None, client=None), ("ann", "app")),
    (entity(user=None), ("ann", "")),
    (entity(client="app"), ("", "app")),
    (entity(client=None), ("", "app")),
]


@pytest.mark.parametrize("step", range(len(LADDER)))
def test_the_most_specific_quota_counts(step: int) -> None:
    quotas = {one: {KEY: float(number + 1)} for number, (one, _) in enumerate(LADDER) if number >= step}
    assert find_rate(quotas, "ann", "app") == (step + 1.0, LADDER[step][1])


def test_quotas_of_others_and_for_other_things_do_not_count() -> None:
    quotas = {
        entity(user="bob"): {KEY: 1.0},
        entity(client="tool"): {KEY: 1.0},
        entity(user="ann"): {"producer_byte_rate": 1.0},
        (("ip", None),): {KEY: 1.0},
    }
    assert find_rate(quotas, "ann", "app") is None


# The bucket

ANN = {entity(user="ann"): {KEY: 2.0}}
BURST = 2 * BURST_S


def account(
    quota: MutationQuota,
    now_s: float = 0.0,
    *,
    quotas: Mapping[Entity, Mapping[str, float]] = ANN,
    user: str = "ann",
    client_id: str = "app",
    strict: bool = True,
) -> Account:
    return quota.open(quotas, f"User:{user}", client_id, now_s * 1000, is_strict=strict)


def refused(account: Account, partitions: int = 1) -> int:
    with pytest.raises(ApiError, match=KEY) as caught:
        account.charge(partitions)
    assert caught.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert account.throttle_time_ms > 0
    return account.throttle_time_ms


def test_without_a_quota_anything_goes() -> None:
    quota = MutationQuota()
    free = account(quota, quotas={})
    free.charge(1_000_000)
    free.charge(1_000_000)
    assert (free.throttle_time_ms, len(quota)) == (0, 0)


def test_the_bucket_begins_full_and_the_burst_is_free() -> None:
    first = account(MutationQuota())
    for _ in range(BURST):
        first.charge(1)
    assert first.throttle_time_ms == 0


def test_one_may_take_more_than_there_is_and_then_waits_until_the_debt_is_paid() -> None:
    quota = MutationQuota()
    first = account(quota)
    first.charge(BURST + 10)
    assert first.throttle_time_ms == 0  # what was granted is not held against it
    assert refused(first) == 5000  # ten partitions at two a second
    assert refused(account(quota, 2)) == 3000
    assert refused(account(quota, 4.5)) == 500
    account(quota, 5).charge(1)


def test_an_empty_bucket_still_grants_one_more() -> None:
    first = account(MutationQuota())
    first.charge(BURST)
    first.charge(1)
    assert refused(first) == 500


def test_whoever_is_refused_is_not_charged() -> None:
    quota = MutationQuota()
    account(quota).charge(BURST + 10)
    for _ in range(100):
        refused(account(quota, 1), 100)
    account(quota, 5).charge(1)


def test_older_clients_are_served_and_then_kept_waiting() -> None:
    quota = MutationQuota()
    first = account(quota, strict=False)
    first.charge(BURST)
    assert first.throttle_time_ms == 0
    first.charge(10)
    assert first.throttle_time_ms == 5000
    first.charge(10)
    assert first.throttle_time_ms == 10_000
    assert refused(account(quota, 4)) == 6000


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    quota = MutationQuota()
    account(quota)
    later = account(quota, 1_000_000)
    later.charge(BURST + 2)
    assert refused(later) == 1000


def test_a_smaller_quota_makes_the_bucket_smaller() -> None:
    quota = MutationQuota()
    account(quota)
    smaller = account(quota, quotas={entity(user="ann"): {KEY: 1.0}})
    smaller.charge(BURST_S + 1)
    assert refused(smaller) == 1000


def test_a_user_shares_a_bucket_between_clients_and_others_have_their_own() -> None:
    quota = MutationQuota()
    default = {entity(user=None): {KEY: 2.0}}
    account(quota, quotas=default, client_id="app").charge(BURST + 10)
    refused(account(quota, quotas=default, client_id="tool"))
    account(quota, quotas=default, user="bob").charge(1)


def test_a_client_id_shares_a_bucket_between_users() -> None:
    quota = MutationQuota()
    clients = {entity(client="app"): {KEY: 2.0}}
    account(quota, quotas=clients).charge(BURST + 10)
    refused(account(quota, quotas=clients, user="bob"))


def test_a_tiny_quota_keeps_waiting_no_longer_than_the_protocol_can_say() -> None:
    tiny = account(MutationQuota(), quotas={entity(user="ann"): {KEY: 1e-9}})
    tiny.charge(1000)
    assert refused(tiny) == (1 << 31) - 1


def test_only_so_many_buckets_are_kept_and_the_longest_unused_goes() -> None:
    quota = MutationQuota(buckets_max=3)
    default = {entity(user=None): {KEY: 2.0}}
    for user in "abc":
        account(quota, quotas=default, user=user).charge(BURST + 10)
    refused(account(quota, quotas=default, user="a"))
    account(quota, quotas=default, user="d")
    assert len(quota) == 3
    refused(account(quota, quotas=default, user="a"))
    account(quota, quotas=default, user="b").charge(1)  # forgotten, and begins anew
    assert len(quota) == 3


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 50)), max_size=50))
def test_over_time_nobody_gets_much_more_than_the_rate(asked: list[tuple[int, int]]) -> None:
    quota = MutationQuota()
    now_ms, granted, largest = 0, 0, 0
    for wait_ms, partitions in asked:
        now_ms += wait_ms
        try:
            account(quota, now_ms / 1000).charge(partitions)
        except ApiError:
            continue
        granted += partitions
        largest = max(largest, partitions)
    assert granted <= BURST + 2 * now_ms / 1000 + largest + 1e-6


# In requests


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            for name in names
        ]
    )


def grow(*names: str, count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsRequest.Topic
    topics = [topic(name=name, count=count, assignments=None) for name in names]
    return CreatePartitionsRequest(topics=topics, timeout_ms=0, validate_only=False)


def delete(*names: str) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(topics=[state(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=0)


class Limited:
    """A cluster with a quota of one partition a second for everyone."""

    def __init__(self) -> None:
        self.cluster = Cluster([1])
        self.mutations = MutationQuota()
        part = ClientQuotaRecord.EntityData(entity_type=USER, entity_name=None)
        self.cluster.apply(ClientQuotaRecord(entity=[part], key=KEY, value=1.0, remove=False))

    def ask(self, decide: Callable[..., Decision], request: Request, version: int) -> tuple[list[int], int]:
        """The errors of the parts, and how long to wait."""

        def limited(situation: object, request: Request) -> Decision:
            asker = Asker(api_version=version, principal="User:ann", client_id="app")
            return decide(replace(situation, mutations=self.mutations, asker=asker), request)  # type: ignore[type-var]

        reply = self.cluster.decide(limited, request).reply
        parts = next(
            getattr(reply, name) for name in ("topics", "responses", "results") if hasattr(reply, name)
        )
        return [one.error_code for one in parts], reply.throttle_time_ms  # type: ignore[union-attr]


OK, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_new_topics_are_refused_one_by_one() -> None:
    limited = Limited()
    codes, throttle_ms = limited.ask(decide_create_topics, create("a", "b", "c", partitions=8), 6)
    assert (codes, throttle_ms) == ([OK, OK, THROTTLED], 5000)
    assert list(limited.cluster.image.topics.by_name) == ["a", "b"]
    limited.cluster.now_ms += 5000
    assert limited.ask(decide_create_topics, create("c"), 7) == ([OK], 0)


def test_new_topics_of_older_clients_are_created() -> None:
    limited = Limited()
    codes, throttle_ms = limited.ask(decide_create_topics, create("a", "b", "c", partitions=8), 5)
    assert (codes, throttle_ms) == ([OK, OK, OK], 13_000)


def test_validating_takes_from_the_quota_too() -> None:
    limited = Limited()
    request = create("a", partitions=20)
    request.validate_only = True
    assert limited.ask(decide_create_topics, request, 7) == ([OK], 0)
    assert limited.ask(decide_create_topics, request, 7) == ([THROTTLED], 9000)


def test_topics_that_fail_cost_nothing() -> None:
    limited = Limited()
    request = create("a", partitions=20)
    request.topics[0].replication_factor = 3
    for _ in range(5):
        assert limited.ask(decide_create_topics, request, 7) == ([ErrorCode.INVALID_REPLICATION_FACTOR], 0)
    assert limited.ask(decide_create_topics, create("b", partitions=8), 7) == ([OK], 0)


def test_deleting_costs_as_much_as_creating() -> None:
    limited = Limited()
    for number, name in enumerate("abc"):
        limited.cluster.create(number, [[1]] * 8, name)
    codes, throttle_ms = limited.ask(decide_delete_topics, delete("a", "b", "c"), 5)
    assert (codes, throttle_ms) == ([OK, OK, THROTTLED], 5000)
    assert list(limited.cluster.image.topics.by_name) == ["c"]
    assert limited.ask(decide_delete_topics, delete("c"), 4) == ([OK], 13_000)


def test_new_partitions_cost_what_is_added() -> None:
    limited = Limited()
    for number, name in enumerate("abc"):
        limited.cluster.create(number, [[1]] * 8, name)
    codes, throttle_ms = limited.ask(decide_create_partitions, grow("a", "b", "c", count=16), 3)
    assert (codes, throttle_ms) == ([OK, OK, THROTTLED], 5000)
    assert limited.ask(decide_create_partitions, grow("c", count=9), 2) == ([OK], 6000)
