"""Asks and answers survive the way over the protocol, in every version that can carry them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol import codec
from quorate.protocol.api import request_class, response_class
from quorate.protocol.api.connection import ApiVersionsResponse
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, VoteRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.raft import messages, wire
from quorate.raft.messages import Answer, FetchAnswer, ProbeAnswer, SnapshotAnswer, VoteAnswer
from quorate.raft.positions import Position
from quorate.raft.voters import Endpoint, ReplicaKey, Voter

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
IDS = st.integers(0, 1000)
EPOCHS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)
KEYS = st.builds(ReplicaKey, IDS, st.binary(min_size=16, max_size=16).map(Uuid))
POSITIONS = st.builds(Position, OFFSETS, EPOCHS)
ENDPOINTS = st.builds(
    Endpoint, st.just("CONTROLLER"), st.sampled_from(["a", "h.example"]), st.integers(1, 65535)
)
VOTERS = st.builds(Voter, KEYS, st.lists(ENDPOINTS, min_size=1, max_size=2).map(tuple), st.just((0, 1)))
ASKS = st.one_of(
    st.builds(messages.Vote, EPOCHS, KEYS, POSITIONS, st.booleans(), KEYS),
    st.builds(messages.BeginEpoch, EPOCHS, IDS, st.lists(ENDPOINTS, max_size=2).map(tuple), KEYS),
    st.builds(messages.EndEpoch, EPOCHS, IDS, st.lists(KEYS, max_size=3).map(tuple)),
    st.builds(messages.Fetch, EPOCHS, KEYS, OFFSETS, EPOCHS, st.integers(0, 500), st.just(8 << 20), OFFSETS),
    st.builds(messages.FetchSnapshot, EPOCHS, KEYS, POSITIONS, OFFSETS),
    st.builds(messages.UpdateVoter, EPOCHS, VOTERS),
)


def travelled(message, version):
    return codec.decode(type(message), version, bytes(codec.encode(message, version)))


@given(ASKS)
def test_asks_survive_the_newest_version(ask):
    version = wire.request_class_of(ask).__versions__[-1]
    request = travelled(wire.to_request(ask, CLUSTER, version), version)
    assert wire.from_request(request, CLUSTER) == ask


@pytest.mark.parametrize("version", range(13, 19))
def test_a_fetch_names_its_replica_in_every_version(version):
    ask = messages.Fetch(3, ReplicaKey(7), 10, 2, 500)
    request = travelled(wire.to_request(ask, CLUSTER, version), version)
    assert wire.from_request(request, CLUSTER) == ask


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_without_a_topic_id_is_refused_in_words_of_its_version(version):
    topic = FetchRequest.Topic(
        topic=wire.METADATA_TOPIC,
        partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=0)],
    )
    request = FetchRequest(replica_id=7, max_wait_ms=0, min_bytes=0, max_bytes=0, topics=[topic])
    with pytest.raises(ApiError) as refused:
        wire.from_request(travelled(request, version), CLUSTER)
    response = travelled(wire.refusal(request, refused.value), version)
    assert response.responses == []
    assert response.error_code == (ErrorCode.INVALID_REQUEST if version >= 7 else 0)


def test_old_versions_know_successors_by_id():
    ask = messages.EndEpoch(3, 1, (ReplicaKey(2, Uuid(b"2" * 16)), ReplicaKey(3, Uuid(b"3" * 16))))
    request = travelled(wire.to_request(ask, CLUSTER, 0), 0)
    assert wire.from_request(request, CLUSTER).successors == (ReplicaKey(2), ReplicaKey(3))


def test_voters_are_added_and_removed():
    listener = AddRaftVoterRequest.Listener(name="C", host="h", port=1)
    directory = Uuid(b"d" * 16)
    add = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=4, voter_directory_id=directory, listeners=[listener]
    )
    voter = Voter(ReplicaKey(4, directory), (Endpoint("C", "h", 1),))
    assert wire.from_request(add, CLUSTER) == messages.AddVoter(voter, True)
    remove = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=4, voter_directory_id=directory)
    assert wire.from_request(remove, CLUSTER) == messages.RemoveVoter(voter.key)
    for request in (add, remove):
        response = wire.to_response(request, Answer(ErrorCode.REQUEST_TIMED_OUT, message="busy"), 0)
        assert (response.error_code, response.error_message) == (7, "busy")


LEADER = 7, 3, Endpoint("", "leader", 9)
ANSWERS = [
    (messages.Vote(7, ReplicaKey(1), Position(0, 0), False), VoteAnswer(ErrorCode.NONE, *LEADER, "", True)),
    (messages.BeginEpoch(7, 1), Answer(ErrorCode.FENCED_LEADER_EPOCH, *LEADER)),
    (messages.EndEpoch(7, 1), Answer(ErrorCode.NONE, *LEADER)),
    (
        messages.Fetch(7, ReplicaKey(1), 5, 6),
        FetchAnswer(ErrorCode.NONE, *LEADER, "", 12, 4, Position(9, 6), None, b"records"),
    ),
    (
        messages.Fetch(7, ReplicaKey(1), 5, 6),
        FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, *LEADER, "", -1, -1, None, Position(9, 6)),
    ),
    (
        messages.FetchSnapshot(7, ReplicaKey(1), Position(9, 6), 3),
        SnapshotAnswer(ErrorCode.NONE, *LEADER, "", Position(9, 6), 10, 3, b"bytes"),
    ),
    (
        messages.UpdateVoter(7, Voter(ReplicaKey(1), (Endpoint("C", "h", 1),))),
        Answer(ErrorCode.NONE, *LEADER),
    ),
]


@pytest.mark.parametrize(("ask", "answer"), ANSWERS)
def test_answers_survive_the_newest_version(ask, answer):
    version = wire.request_class_of(ask).__versions__[-1]
    request = wire.to_request(ask, CLUSTER, version)
    assert wire.from_response(ask, travelled(wire.to_response(request, answer, version), version)) == answer


@pytest.mark.parametrize(("ask", "answer"), ANSWERS[:-1])
def test_older_versions_say_who_leads_but_not_where(ask, answer):
    whereabouts_since = 16 if isinstance(ask, messages.Fetch) else 1
    for version in range(13 if isinstance(ask, messages.Fetch) else 0, whereabouts_since):
        request = wire.to_request(ask, CLUSTER, version)
        read = wire.from_response(ask, travelled(wire.to_response(request, answer, version), version))
        assert read == replace(answer, leader_endpoint=None)


@pytest.mark.parametrize(("ask", "answer"), ANSWERS)
def test_a_refusal_is_an_answer_without_an_epoch(ask, answer):
    version = wire.request_class_of(ask).__versions__[-1]
    request = wire.to_request(ask, CLUSTER, version)
    refused = wire.refusal(request, ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, "no"))
    read = wire.from_response(ask, travelled(refused, version))
    assert (type(read), read.error, read.epoch) == (type(answer), ErrorCode.INCONSISTENT_CLUSTER_ID, -1)


def test_another_cluster_is_refused_and_none_is_not():
    ask = messages.Vote(1, ReplicaKey(1), Position(0, 0), False, ReplicaKey(2))
    request = wire.to_request(ask, "another", 2)
    with pytest.raises(ApiError, match=f"INCONSISTENT_CLUSTER_ID: this is cluster {CLUSTER}, not another"):
        wire.from_request(request, CLUSTER)
    request.cluster_id = None
    assert wire.from_request(request, CLUSTER) == ask


def change_topic(request):
    request.topics[0].topic_name = "another"


def change_partition(request):
    request.topics[0].partitions[0].partition_index = 1


def double_partition(request):
    request.topics[0].partitions *= 2


def drop_topics(request):
    request.topics = []


@pytest.mark.parametrize("damage", [change_topic, change_partition, double_partition, drop_topics])
def test_only_the_one_partition_is_spoken_of(damage):
    request = wire.to_request(messages.Vote(1, ReplicaKey(1), Position(0, 0), False), CLUSTER, 2)
    assert isinstance(request, VoteRequest)
    damage(request)
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        wire.from_request(request, CLUSTER)


def test_a_probe_reads_the_levels_of_kraft_version():
    feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
    response = ApiVersionsResponse(error_code=0, api_keys=[], supported_features=[feature])
    assert wire.from_response(messages.Probe(), response) == ProbeAnswer(kraft_versions=(0, 1))
    assert wire.from_response(messages.Probe(), ApiVersionsResponse(error_code=35, api_keys=[])).error == 35


def test_an_error_code_of_the_future_is_an_error():
    request = wire.to_request(messages.Vote(1, ReplicaKey(1), Position(0, 0), False), CLUSTER, 2)
    response = wire.to_response(request, VoteAnswer(ErrorCode.NONE, 1), 2)
    response.topics[0].partitions[0].error_code = 9999
    read = wire.from_response(messages.Vote(1, ReplicaKey(1), Position(0, 0), False), response)
    assert read.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_topic_id_is_kafkas():
    assert str(wire.METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert wire.METADATA_TOPIC_ID != ZERO_UUID
    assert {request_class(key).__name__ for key in (52, 53, 54, 59)} == {
        response_class(key).__name__.replace("Response", "Request") for key in (52, 53, 54, 59)
    }
