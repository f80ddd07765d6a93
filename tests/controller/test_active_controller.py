"""The active controller: what is decided, in which order, and when it is told."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_cluster import CLUSTER_ID, Cluster, directory, incarnation, topic_id
from quorate.controller import controller as module
from quorate.controller.controller import ActiveController, Moment
from quorate.controller.decision import RECORDS_MAX, Asker, Decision
from quorate.controller.events import (
    BrokerFenced,
    ControllerActivated,
    DecisionFailed,
    HeartbeatRefused,
    HeartbeatTimedOut,
    LeadershipMoved,
    QueueFilled,
    RegistrationRefused,
    RequestTimedOut,
)
from quorate.controller.refusal import Refusal
from quorate.controller.refusals import refusal
from quorate.controller.settings import SUPPORTED_FEATURES, ControllerSettings
from quorate.metadata.errors import ImageError
from quorate.metadata.image import GROUP, TOPIC, ClusterImage
from quorate.metadata.log_format import decode_record
from quorate.metadata.partitions import NO_LEADER, Partition
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from quorate.protocol import batch as batches
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest, UpdateFeaturesRequest
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
)
from quorate.protocol.api.topics import CreateTopicsRequest, DeleteTopicsRequest
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode
from samples import messages


class Log:
    """A controller with a log under it: what it appends is kept, and committed when a test says so."""

    def __init__(self, image=None, *, epoch=5, next_offset=100, **settings):
        self.image = ClusterImage(is_strict=True) if image is None else image  # the committed one
        self.now_ms = 1_000_000.0
        self.end_offset = next_offset
        self.committed_offset = next_offset
        self.batches = []
        self.events = []
        self.replies = {}
        self.voters = (3000,)
        self._tokens = 0
        given = {"metadata_max_idle_interval_ms": 0, "node_id": 3000, "cluster_id": CLUSTER_ID, **settings}
        self.settings = ControllerSettings(**given)
        self.active = ActiveController(self.image, epoch, self.settings, Random(1), self.moment())

    def moment(self):
        return Moment(self.now_ms, 1_700_000_000_000 + int(self.now_ms), self.end_offset, self.voters)

    def ask(self, request, *, arrived_ms=None, api_version=0):
        """Hands a request in; its token finds the reply in `replies` once there is one."""
        self._tokens += 1
        arrived_ms = self.now_ms if arrived_ms is None else arrived_ms
        asker = Asker(api_version=api_version)
        self.take(self.active.handle(self._tokens, request, asker, arrived_ms, self.moment()))
        return self._tokens

    def tick(self):
        self.take(self.active.tick(self.moment()))

    def take(self, work):
        for count, data in work.sections:
            batch = batches.build_encoded(
                data, count, base_offset=self.end_offset, leader_epoch=5, timestamp=1_700_000_000_000
            )
            self.batches.append(batch)
            self.end_offset += count
        self.events += work.events
        self.replies.update(work.replies)

    def commit(self):
        """Everything that was appended is committed and applied."""
        for batch in self.batches:
            header = batches.read_header(batch)
            if header.base_offset >= self.committed_offset:
                self.image.apply_batch(batch)
                self.committed_offset = header.next_offset
        self.replies.update(self.active.committed(self.committed_offset))

    def records(self):
        return [
            decode_record(record.value)[0]
            for batch in self.batches
            for record in batches.records(batch, batches.read_header(batch))
        ]

    def events_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def cluster_log(brokers=(), **settings):
    cluster = Cluster(brokers)
    return Log(cluster.image, next_offset=cluster.next_offset, **settings)


def registration(broker_id, run=0):
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation(broker_id, run),
        listeners=[
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="here", port=9092, security_protocol=0)
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[directory(broker_id)],
    )


def heartbeat(broker_id, epoch, offset=10**9, **wishes):
    wanted = {"want_fence": False, "want_shut_down": False, **wishes}
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset, **wanted
    )


def configure(name, *, kind=GROUP, key="consumer.session.timeout.ms", value="45000"):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=key, config_operation=0, value=value)
    resources = [resource(resource_type=kind, resource_name=name, configs=[config])]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def keep_alive(log, *broker_ids):
    """Heartbeats of these for as long as anyone cares."""
    for one in broker_ids:
        log.active.heard(heartbeat(one, log.active.image.brokers[one].epoch), log.now_ms + 1e9)


def token_that_ends(end_ms):
    return DelegationTokenRecord(
        owner="User:ann",
        requester="User:ann",
        renewers=[],
        issue_timestamp=0,
        max_timestamp=end_ms,
        expiration_timestamp=end_ms,
        token_id="token",
    )


def creation(name, partitions=1, timeout_ms=1000):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


# What decisions are told


def test_decisions_know_who_votes(monkeypatch):
    seen = []

    def decide(situation, _request):
        seen.append(situation.voters)
        return Decision(reply="reply")

    monkeypatch.setitem(module.DECISIONS, AllocateProducerIdsRequest, decide)
    log = cluster_log()
    log.voters = (3000, 3001)
    log.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    log.voters = (3000,)
    log.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    assert seen == [(3000, 3001), (3000,)]


def test_a_feature_waits_for_every_voter_to_register():
    log = cluster_log()
    log.voters = (3000, 3001)
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="group.version", max_version_level=1, upgrade_type=1
    )
    token = log.ask(UpdateFeaturesRequest(feature_updates=[update]), api_version=2)
    assert log.replies[token].error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "controller 3001 has not registered" in log.replies[token].error_message


# Replies and commits


def test_a_reply_waits_until_its_records_are_committed():
    log = cluster_log()
    token = log.ask(configure("a"))
    assert token not in log.replies
    assert (GROUP, "a") in log.active.image.configs
    assert (GROUP, "a") not in log.image.configs
    log.commit()
    assert log.replies[token].responses[0].error_code == ErrorCode.NONE
    assert (GROUP, "a") in log.image.configs


def test_a_reply_without_records_waits_for_what_it_may_have_read():
    log = cluster_log()
    log.ask(configure("a"))
    unchanged = log.ask(configure("a"))
    assert unchanged not in log.replies
    log.commit()
    assert unchanged in log.replies


def test_a_refusal_waits_for_what_it_may_have_read():
    log = cluster_log([1])
    log.ask(creation("a"))
    exists = log.ask(creation("a"))
    assert exists not in log.replies
    log.commit()
    assert log.replies[exists].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_reply_without_records_comes_at_once_if_nothing_is_pending():
    log = cluster_log()
    log.ask(configure("a"))
    log.commit()
    assert log.ask(configure("a")) in log.replies


def test_replies_come_in_the_order_of_their_offsets():
    log = cluster_log()
    tokens = [log.ask(configure(name)) for name in "abc"]
    assert [held.token for held in log.active.committed(log.end_offset - 1)] == tokens[:2]
    assert [held.token for held in log.active.committed(log.end_offset)] == tokens[2:]


def test_who_waits_when_leadership_is_lost_is_told_and_nothing_remains():
    log = cluster_log()
    before = log.image.copy()
    token = log.ask(configure("a"))
    waiting, event = log.active.resign()
    assert waiting == [token]
    assert event.discarded == 1
    assert log.image.equals(before), "the committed image never saw what was discarded"


# What fails


def test_an_unexpected_exception_fails_its_request_and_nothing_else(monkeypatch):
    log = cluster_log()

    def fail(_situation, _request):
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(module.DECISIONS, CreateTopicsRequest, fail)
    before = log.active.image.copy()
    token = log.ask(creation("a"))
    assert log.replies[token].topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    [event] = log.events_of(DecisionFailed)
    assert "a bug" in event.error
    assert "name='a'" in event.content
    assert "fail:" in event.where
    assert log.active.image.equals(before)
    assert log.batches == []
    token = log.ask(registration(1))
    log.commit()
    assert log.replies[token].error_code == ErrorCode.NONE


def test_what_fails_is_logged_without_secrets(monkeypatch):
    from quorate.protocol.api.security import AlterUserScramCredentialsRequest

    def fail(_situation, request):
        raise ValueError(request.upsertions[0].salted_password)

    monkeypatch.setitem(module.DECISIONS, AlterUserScramCredentialsRequest, fail)
    log = cluster_log()
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="me", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"my secret"
    )
    log.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
    [event] = log.events_of(DecisionFailed)
    assert "my secret" not in event.line()
    assert "ValueError" in event.line()
    assert "fail:" in event.line()


def test_a_refused_registration_is_an_event():
    log = cluster_log()
    request = registration(1)
    request.cluster_id = "another"
    token = log.ask(request)
    assert log.replies[token].error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert len(log.events_of(RegistrationRefused)) == 1


def test_a_request_that_waited_longer_than_it_may_is_not_begun():
    log = cluster_log([1])
    token = log.ask(creation("late", timeout_ms=500), arrived_ms=log.now_ms - 501)
    assert log.replies[token].topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert log.batches == []
    [event] = log.events_of(RequestTimedOut)
    assert (event.request, event.waited_ms, event.timeout_ms) == ("CreateTopicsRequest", 501, 500)


def test_a_late_heartbeat_is_a_sign_of_life_and_no_more():
    log = cluster_log([1])
    epoch = log.image.brokers[1].epoch
    token = log.ask(heartbeat(1, epoch, want_fence=True), arrived_ms=log.now_ms - 1001)
    assert log.replies[token].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(log.events_of(HeartbeatTimedOut)) == 1
    assert not log.active.image.brokers[1].is_fenced


FENCING = BrokerRegistrationChangeRecord(broker_id=9, broker_epoch=9, fenced=1)  # of nobody


@pytest.mark.parametrize(
    ("raised", "seen", "events"),
    [
        (ApiError(ErrorCode.INVALID_CONFIG, "no"), ErrorCode.INVALID_CONFIG, []),
        (
            Refusal(ErrorCode.STALE_BROKER_EPOCH, "no", QueueFilled(1)),
            ErrorCode.STALE_BROKER_EPOCH,
            [QueueFilled],
        ),
        (ApiError(ErrorCode.POLICY_VIOLATION, "too much"), ErrorCode.POLICY_VIOLATION, []),
        (RecursionError(), ErrorCode.UNKNOWN_SERVER_ERROR, [DecisionFailed]),
        (MemoryError(), ErrorCode.UNKNOWN_SERVER_ERROR, [DecisionFailed]),
        (ImageError("in a decision"), ErrorCode.UNKNOWN_SERVER_ERROR, [DecisionFailed]),
        (AssertionError(), ErrorCode.UNKNOWN_SERVER_ERROR, [DecisionFailed]),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_what_is_raised_in_a_decision_is_told_and_the_controller_stays(monkeypatch, raised, seen, events):
    def fail(_situation, _request):
        raise raised

    log = cluster_log([1])
    monkeypatch.setitem(module.DECISIONS, AllocateProducerIdsRequest, fail)
    token = log.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    assert log.replies[token].error_code == seen
    assert [type(event) for event in log.events] == events
    token = log.ask(configure("a"))
    log.commit()
    assert log.replies[token].responses[0].error_code == ErrorCode.NONE


def test_a_record_that_cannot_be_applied_is_fatal_and_never_appended(monkeypatch):
    log = cluster_log()
    decision = Decision(reply=AllocateProducerIdsRequest, records=[FENCING])
    monkeypatch.setitem(module.DECISIONS, AllocateProducerIdsRequest, lambda *_: decision)
    with pytest.raises(ImageError):
        log.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    assert log.batches == []


def test_a_stale_broker_is_told_each_time_and_we_once():
    log = cluster_log([1])
    epoch = log.image.brokers[1].epoch

    def tell(broker_id, stale_epoch):
        token = log.ask(heartbeat(broker_id, stale_epoch))
        assert log.replies[token].error_code == ErrorCode.STALE_BROKER_EPOCH
        return len(log.events_of(HeartbeatRefused))

    assert [tell(1, epoch - 1) for _ in range(3)] == [1, 1, 1]
    assert [tell(1, epoch - 2) for _ in range(2)] == [2, 2], "another process of the past"
    assert [tell(2, 5) for _ in range(2)] == [3, 3]
    log.now_ms += log.settings.broker_session_timeout_ms + 1
    log.ask(registration(1, run=1))
    log.commit()
    assert [tell(1, epoch - 1) for _ in range(2)] == [4, 4], "another epoch is registered now"


def test_of_stale_brokers_only_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "_STALE_MAX", 3)
    log = cluster_log()
    for epoch in range(10):
        log.ask(heartbeat(1, epoch))
    assert len(log.events_of(HeartbeatRefused)) == 10
    assert len(log.active._stale) == 3
    log.ask(heartbeat(1, 9))
    assert len(log.events_of(HeartbeatRefused)) == 10


def test_events_have_whole_milliseconds():
    log = cluster_log([1, 2])
    log.now_ms += 0.4
    log.ask(registration(1, run=1))
    log.ask(heartbeat(2, log.image.brokers[2].epoch), arrived_ms=log.now_ms - 1234.56)
    log.now_ms += log.settings.broker_session_timeout_ms + 1.7
    log.tick()
    durations = [
        value
        for event in log.events
        for name, value in event.to_json().items()
        if name in ("ms_since_heartbeat", "waited_ms")
    ]
    assert durations == [0, 1235, 9002]
    assert all(isinstance(one, int) for one in durations)


# Limits


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_record_that_no_batch_can_hold_is_refused(monkeypatch, is_atomic):
    """The quorum would not append it, and every controller after this one would be asked the same."""
    log = cluster_log()
    record = token_that_ends(1)
    record.renewers = ["User:somebody"] * 1_000_000
    decision = Decision(records=[record], is_atomic=is_atomic)
    monkeypatch.setitem(module.DECISIONS, IncrementalAlterConfigsRequest, lambda *_: decision)
    token = log.ask(configure("a"))
    assert log.replies[token].responses[0].error_code == ErrorCode.POLICY_VIOLATION
    assert log.batches == []
    assert log.active.image.tokens == {}


def test_what_is_too_large_is_refused_and_nothing_happens():
    log = cluster_log([1])
    token = log.ask(creation("large", partitions=RECORDS_MAX))
    assert log.replies[token].topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert log.batches == []
    assert len(log.active.image.topics) == 0


def test_an_atomic_decision_that_is_too_large_is_refused(monkeypatch):
    log = cluster_log()
    records = [
        ConfigRecord(resource_type=GROUP, resource_name=str(i), name="a", value="b") for i in range(10_001)
    ]
    decision = Decision(records=records, is_atomic=True)
    monkeypatch.setitem(module.DECISIONS, IncrementalAlterConfigsRequest, lambda *_: decision)
    token = log.ask(configure("a"))
    assert log.replies[token].responses[0].error_code == ErrorCode.POLICY_VIOLATION
    assert log.batches == []


def test_a_decision_that_is_not_atomic_spans_batches():
    cluster = Cluster([1, 2])
    for number in range(3):
        cluster.create(number, [[1, 2]] * 4000)
    log = Log(cluster.image, next_offset=cluster.next_offset)
    log.now_ms += log.settings.broker_session_timeout_ms + 1
    log.active.sessions.touch(2, cluster.image.brokers[2].epoch, log.now_ms, 10**9)
    log.tick()
    assert [batches.read_header(batch).record_count for batch in log.batches] == [10_000, 2001]
    log.commit()
    assert not log.image.partitions.is_leading(1)
    assert log.image.brokers[1].is_fenced
    assert log.image.equals(log.active.image)


# What is due


def test_silent_brokers_are_fenced_one_at_a_time_the_oldest_first():
    log = cluster_log([1, 2, 3])
    epochs = {one.id: one.epoch for one in log.image.brokers.values()}
    log.now_ms += 100
    log.active.heard(heartbeat(1, epochs[1]), log.now_ms)
    log.now_ms += 100
    log.active.heard(heartbeat(2, epochs[2]), log.now_ms)
    log.now_ms += log.settings.broker_session_timeout_ms + 1
    for expected in ([3], [3, 1], [3, 1, 2], [3, 1, 2]):
        log.tick()
        assert [event.broker_id for event in log.events_of(BrokerFenced)] == expected
    assert {event.check for event in log.events_of(BrokerFenced)} == {"missed heartbeats"}


def test_a_new_controller_gives_everyone_a_full_session():
    log = cluster_log([1])
    assert log.active.deadline_ms > log.now_ms + log.settings.broker_session_timeout_ms - 1
    log.now_ms += log.settings.broker_session_timeout_ms - 1
    log.tick()
    assert log.events_of(BrokerFenced) == []
    log.now_ms += 2
    log.tick()
    assert len(log.events_of(BrokerFenced)) == 1


def test_who_has_fallen_silent_is_fenced_before_its_successor_registers():
    log = cluster_log([1])
    log.now_ms += log.settings.broker_session_timeout_ms + 1
    token = log.ask(registration(1, run=1))
    assert len(log.events_of(BrokerFenced)) == 1
    log.commit()
    assert log.replies[token].error_code == ErrorCode.NONE
    assert log.image.brokers[1].incarnation_id == incarnation(1, 1)


def test_nothing_is_written_at_every_idle_interval():
    log = cluster_log(metadata_max_idle_interval_ms=500)
    for _ in range(4):
        log.now_ms += 500
        log.tick()
    assert [type(record) for record in log.records()] == [NoOpRecord] * 4


def test_periodic_work_that_fails_rests_and_leaves_the_rest_alone(monkeypatch):
    log = cluster_log([1], metadata_max_idle_interval_ms=500)

    def fail(_situation):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(module.heartbeats, "decide_expiry", fail)
    log.now_ms += log.settings.broker_session_timeout_ms + 1
    log.tick()
    log.tick()
    assert len(log.events_of(DecisionFailed)) == 1
    assert [type(record) for record in log.records()] == [NoOpRecord]
    assert log.active.deadline_ms > log.now_ms
    monkeypatch.undo()
    log.now_ms += 60_001
    log.tick()
    assert len(log.events_of(BrokerFenced)) == 1


def drifted(partitions):
    """Partitions that the second replica leads, with both in sync."""
    both = (directory(1), directory(2))
    return [Partition((1, 2), both, (1, 2), 2) for _ in range(partitions)]


def test_leaders_return_to_the_preferred_replica_some_at_a_time():
    cluster = Cluster([1, 2])
    cluster.create(1, drifted(module.ELECTIONS_MAX + 1))
    log = Log(cluster.image, next_offset=cluster.next_offset, leader_imbalance_check_interval_s=5)
    keep_alive(log, 1, 2)
    log.now_ms += 4999
    log.tick()
    assert log.batches == []
    log.now_ms += 1
    log.tick()
    assert len(log.records()) == module.ELECTIONS_MAX
    assert log.active.deadline_ms <= log.now_ms + 10, "what is left does not wait for the next interval"
    log.now_ms += 10
    log.tick()
    assert len(log.records()) == module.ELECTIONS_MAX + 1
    assert not log.active.image.partitions.is_leading(2)
    assert [event.partitions for event in log.events_of(LeadershipMoved)] == [module.ELECTIONS_MAX, 1]


def test_leaders_stay_where_they_are_if_nobody_wants_them_to_return():
    cluster = Cluster([1, 2])
    cluster.create(1, drifted(1))
    log = Log(cluster.image, next_offset=cluster.next_offset, auto_leader_rebalance_enable=False)
    log.now_ms += 10 * log.settings.leader_imbalance_check_interval_s * 1000
    keep_alive(log, 1, 2)
    log.tick()
    assert log.active.image.partition(topic_id(1), 0).leader == 2


def test_an_unclean_leader_is_elected_at_the_next_sweep_after_it_is_allowed():
    cluster = Cluster([2])
    cluster.register(1, fenced=True)
    cluster.create(1, [Partition((1, 2), (directory(1), directory(2)), (1,), NO_LEADER)], name="a")
    log = Log(cluster.image, next_offset=cluster.next_offset, unclean_leader_election_interval_ms=1000)
    for _ in range(2):
        log.now_ms += 1000
        log.tick()
    assert log.active.image.partition(topic_id(1), 0).leader == NO_LEADER
    log.ask(configure("a", kind=TOPIC, key="unclean.leader.election.enable", value="true"))
    log.now_ms += 1000
    log.tick()
    partition = log.active.image.partition(topic_id(1), 0)
    assert (partition.leader, partition.is_recovering) == (2, True)
    assert log.events_of(LeadershipMoved)[-1].unclean == 1


def test_tokens_that_have_ended_are_swept():
    log = cluster_log(delegation_token_secret=b"secret", delegation_token_expiry_check_interval_ms=1000)
    log.active.image.apply(token_that_ends(log.moment().wall_ms + 500), 1)
    for expected in (1, 0):
        log.now_ms += 500
        log.tick()
        log.now_ms += 1
        assert len(log.active.image.tokens) == expected


def test_work_of_whole_batches_leaves_no_empty_one():
    cluster = Cluster([1, 2])
    for number in range(2):
        cluster.create(number, [[1, 2]] * (RECORDS_MAX - number))
    log = Log(cluster.image, next_offset=cluster.next_offset)
    log.ask(heartbeat(1, cluster.image.brokers[1].epoch, want_fence=True))
    assert [batches.read_header(batch).record_count for batch in log.batches] == [RECORDS_MAX] * 2


# Activation

BOOTSTRAP = [FeatureLevelRecord(name="metadata.version", feature_level=30)]


def test_the_first_controller_writes_the_bootstrap_records_in_a_transaction():
    log = Log()
    log.take(log.active.activate(BOOTSTRAP, log.moment()))
    kinds = [type(record) for record in log.records()]
    assert kinds == [BeginTransactionRecord, FeatureLevelRecord, EndTransactionRecord]
    [event] = log.events_of(ControllerActivated)
    assert (event.epoch, event.next_offset) == (5, 100)
    log.commit()
    assert log.image.metadata_version == 30


def test_the_next_controller_writes_nothing():
    log = cluster_log()
    log.take(log.active.activate(BOOTSTRAP, log.moment()))
    assert log.records() == []


def test_a_transaction_that_was_left_open_is_aborted_and_the_bootstrap_begun_again():
    image = ClusterImage(is_strict=True)
    image.apply(BeginTransactionRecord(name="Bootstrap records"), 0)
    image.apply(BOOTSTRAP[0], 1)
    log = Log(image)
    log.take(log.active.activate(BOOTSTRAP, log.moment()))
    kinds = [type(record) for record in log.records()]
    assert kinds[0] is AbortTransactionRecord
    assert FeatureLevelRecord in kinds
    log.commit()
    assert log.image.metadata_version == 30
    assert not log.image.is_in_transaction


# Laws

_requests = st.one_of(
    st.builds(registration, st.integers(1, 3), st.integers(0, 2)),
    st.builds(
        lambda broker_id, epoch, fence, stop: (broker_id, epoch, fence, stop),
        st.integers(1, 3),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(creation, st.sampled_from("abc"), st.integers(1, 4)),
    st.builds(lambda name: DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), st.sampled_from("abc")),
    st.builds(lambda epoch: AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), st.integers(0, 9)),
    st.builds(configure, st.sampled_from("abc")),
    st.sampled_from(["commit", "wait", "resign"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_requests, max_size=40))
def test_any_requests_give_the_same_image_here_and_in_the_log(requests):
    cluster = Cluster()
    log = Log(cluster.image, next_offset=cluster.next_offset)
    broker_epochs, offered = {}, 0
    for request in requests:
        if request == "commit":
            log.commit()
            assert log.image.equals(log.active.image)
        elif request == "wait":
            log.now_ms += 4000
            log.tick()
        elif request == "resign":
            committed = log.image.copy()
            log.active.resign()
            assert log.image.equals(committed)
            again = Log(log.image, next_offset=log.committed_offset)
            again.now_ms = log.now_ms
            log = again
        elif isinstance(request, tuple):
            broker_id, is_current, fence, stop = request
            known = log.active.image.brokers.get(broker_id)
            epoch = known.epoch if known is not None and is_current else 7
            offered = log.ask(heartbeat(broker_id, epoch, want_fence=fence, want_shut_down=stop))
        else:
            version = 5 if isinstance(request, (CreateTopicsRequest, DeleteTopicsRequest)) else 0
            offered = log.ask(request, api_version=version)
            if log.end_offset > log.committed_offset:
                assert offered not in log.replies, "no reply comes before its commit"
        for broker in log.active.image.brokers.values():
            if broker.is_fenced:
                assert not log.active.image.partitions.is_leading(broker.id)
        for broker in log.image.brokers.values():
            assert broker.epoch >= broker_epochs.get(broker.id, -1)
            broker_epochs[broker.id] = broker.epoch
    log.commit()
    assert log.image.equals(log.active.image)


KINDS = sorted(module.DECISIONS, key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_a_request_says_it_gets_an_answer(kind, data):
    """Never an exception that nobody foresaw: what makes no sense has its error code."""
    version = data.draw(st.sampled_from(list(kind.__served__)))
    request = data.draw(messages(kind, version))
    cluster = Cluster([1, 2, 3], elr=True)
    cluster.create(1, [[1, 2, 3], [2, 3, 1]], name="a")
    log = Log(cluster.image, next_offset=cluster.next_offset)
    token = log.ask(request, api_version=version)
    log.commit()
    assert log.events_of(DecisionFailed) == []
    encode(log.replies[token], version)
    assert log.image.equals(log.active.image)


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.__name__)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_request_can_be_refused_in_every_version(kind, data):
    for version in kind.__served__:
        request = data.draw(messages(kind, version))
        encode(refusal(request, ApiError(ErrorCode.NOT_CONTROLLER, "not here"), version), version)
