"""The metrics of a controller, as a scraper reads them."""

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller_cluster import Cluster, directory
from node.views import WALL_MS, View, small_cluster
from quorate.controller.events import (
    BrokerFenced,
    ControllerRegistered,
    DecisionFailed,
    HeartbeatTimedOut,
    LeadershipMoved,
    RequestTimedOut,
)
from quorate.metadata.partitions import NO_LEADER, Partition
from quorate.metadata.records import RemoveTopicRecord
from quorate.node.metrics import BOUNDS_MS, Durations, NodeMetrics, PartitionCounts, count_partitions
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.api.quorum import VoteRequest
from quorate.protocol.types import Uuid

CONTROLLER = "kafka_controller_kafkacontroller_"


def scraped(metrics: NodeMetrics, view: View) -> dict[tuple[str, ...], float]:
    """Samples by name and values of labels."""
    body, content_type = metrics.scrape(view)
    assert content_type.startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def of_controller(samples) -> dict[str, float]:
    return {
        key[0].removeprefix(CONTROLLER): value
        for key, value in samples.items()
        if key[0].startswith(CONTROLLER) and len(key) == 1
    }


def test_everything_is_there_on_the_active_controller():
    view = View(small_cluster())
    metrics = NodeMetrics()
    metrics.new_active_controllers = 2
    samples = scraped(metrics, view)
    assert of_controller(samples) == {
        "activecontrollercount": 1,
        "fencedbrokercount": 1,
        "activebrokercount": 2,
        "globaltopiccount": 1,
        "globalpartitioncount": 3,
        "offlinepartitionscount": 0,
        "preferredreplicaimbalancecount": 0,
        "metadataerrorcount": 0,
        "lastappliedrecordoffset": view.applied_offset,
        "lastappliedrecordtimestamp": WALL_MS - 250,
        "lastappliedrecordlagms": 0,
        "lastcommittedrecordoffset": view.applied_offset,
        "timedoutbrokerheartbeatcount": 0,
        "eventqueueoperationsstartedcount": 0,
        "eventqueueoperationstimedoutcount": 0,
        "newactivecontrollerscount": 2,
    }
    silences = {key[1]: value for key, value in samples.items() if key[0].endswith("receivedms")}
    assert silences == {"1": 1000, "2": 1000, "3": 400}


def test_a_standby_knows_the_cluster_but_no_heartbeats():
    view = View(small_cluster())
    view.is_active = False
    samples = scraped(NodeMetrics(), view)
    found = of_controller(samples)
    assert (found["activecontrollercount"], found["lastappliedrecordlagms"]) == (0, 250)
    assert (found["fencedbrokercount"], found["globalpartitioncount"]) == (1, 3)
    assert not [key for key in samples if key[0].endswith("receivedms")]


def test_a_clock_that_went_back_makes_no_negative_lag():
    view = View(small_cluster())
    view.is_active = False
    view.applied_timestamp_ms = WALL_MS + 5
    assert of_controller(scraped(NodeMetrics(), view))["lastappliedrecordlagms"] == 0


def test_the_image_is_read_when_one_asks():
    view, metrics = View(small_cluster()), NodeMetrics()
    scraped(metrics, view)
    view.cluster.create(2, [(1,)] * 10)
    view.cluster.fence(2)
    found = of_controller(scraped(metrics, view))
    assert (found["globaltopiccount"], found["globalpartitioncount"], found["fencedbrokercount"]) == (
        2,
        13,
        2,
    )


def test_partitions_are_counted_by_who_leads_them():
    cluster = Cluster([1, 2, 3, 4])

    def led(replicas, leader):
        return Partition(replicas, tuple(map(directory, replicas)), replicas, leader)

    cluster.create(1, [led((1, 2), 1), led((1, 2), 2), led((1, 2), NO_LEADER)])
    cluster.create(2, [led((1,), 1), led((2,), NO_LEADER)])
    gone = cluster.create(3, [led((1, 2, 3, 4), 2)] * 5)
    assert count_partitions(cluster.image) == PartitionCounts(10, 2, 8)
    cluster.apply(RemoveTopicRecord(topic_id=gone))
    assert count_partitions(cluster.image) == PartitionCounts(5, 2, 3)
    assert count_partitions(Cluster().image) == PartitionCounts()


def test_events_are_counted_by_what_decided():
    metrics = NodeMetrics()
    fenced = BrokerFenced(3, 133, "missed heartbeats", 9002, 9000, 10, 4, 1, unclean=2)
    for event in (
        fenced,
        fenced,
        HeartbeatTimedOut(3, 133, 5000),
        RequestTimedOut("CreateTopicsRequest", 501, 500),
        DecisionFailed("CreateTopicsRequest", "ZeroDivisionError()", ""),
        LeadershipMoved("unclean election", 9, 0, 7),
        ControllerRegistered(1, Uuid(bytes(16))),
    ):
        metrics.saw(event)
    samples = scraped(metrics, View(small_cluster()))
    assert {key[1:]: value for key, value in samples.items() if key[0] == "quorate_events_total"} == {
        ("missed heartbeats", "BrokerFenced"): 2,
        ("", "HeartbeatTimedOut"): 1,
        ("", "RequestTimedOut"): 1,
        ("", "DecisionFailed"): 1,
        ("unclean election", "LeadershipMoved"): 1,
        ("", "ControllerRegistered"): 1,
    }
    assert samples["kafka_controller_controllerstats_uncleanleaderelectionspersec_total",] == 11
    found = of_controller(samples)
    assert found["timedoutbrokerheartbeatcount"] == 1
    assert found["eventqueueoperationstimedoutcount"] == 2
    assert found["metadataerrorcount"] == 1


def test_checks_without_number_do_not_grow_without_bound():
    metrics = NodeMetrics()
    for number in range(2000):
        metrics.saw(LeadershipMoved(f"check {number}", 1, 0, 0))
    assert len(metrics.events) == 501
    assert sum(metrics.events.values()) == 2000


def test_requests_are_counted_by_name():
    metrics = NodeMetrics()
    for request in (VoteRequest, BrokerHeartbeatRequest, BrokerHeartbeatRequest):
        metrics.requested(request)
    samples = scraped(metrics, View(small_cluster()))
    name = "kafka_network_requestmetrics_requestspersec_total"
    assert (samples[name, "BrokerHeartbeat"], samples[name, "Vote"]) == (2, 1)


def test_durations_are_histograms():
    metrics = NodeMetrics()
    for waited_ms, took_ms in ((0.05, 3.0), (150.0, 3.5), (20_000.0, 1.0)):
        metrics.handled(waited_ms, took_ms)
    samples = scraped(metrics, View(small_cluster()))
    name = "kafka_controller_controllereventmanager_eventqueuetimems"
    assert samples[name + "_bucket", "0.1"] == 1
    assert samples[name + "_bucket", "100"] == 1
    assert samples[name + "_bucket", "200"] == 2
    assert samples[name + "_bucket", "10000"] == 2
    assert samples[name + "_bucket", "+Inf"] == samples[name + "_count",] == 3
    assert samples[name + "_sum",] == pytest.approx(20_150.05)
    took = "kafka_controller_controllereventmanager_eventqueueprocessingtimems"
    assert samples[took + "_bucket", "1"] == 1
    assert samples[took + "_bucket", "5"] == 3
    assert of_controller(samples)["eventqueueoperationsstartedcount"] == 3


def test_a_duration_of_a_bound_is_within_it():
    durations = Durations()
    for bound in BOUNDS_MS:
        durations.observe(bound)
    assert [count for _, count in durations.buckets()] == [*range(1, len(BOUNDS_MS) + 1), len(BOUNDS_MS)]


def test_nodes_in_one_process_do_not_share_metrics():
    first, second = NodeMetrics(), NodeMetrics()
    view = View(small_cluster())
    first.requested(VoteRequest)
    name = "kafka_network_requestmetrics_requestspersec_total"
    assert (name, "Vote") in scraped(first, view)
    assert (name, "Vote") not in scraped(second, view)


def test_a_node_that_nobody_scrapes_does_not_import_the_library():
    code = "import sys, quorate.node.admin; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
