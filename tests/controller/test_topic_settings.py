"""Which value of a topic's setting the controller goes by."""

import pytest

from controller_cluster import Cluster, topic_id
from quorate.controller import fencing
from quorate.controller.preflight import preflight_stop
from quorate.controller.topic_settings import MIN_ISR, UNCLEAN, allows_unclean, min_isr
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC
from quorate.metadata.records import ConfigRecord

OF_TOPIC, OF_NODE = (TOPIC, "a"), (BROKER, "3000")


def cluster_with(configs, key, **settings):
    cluster = Cluster([1, 2, 3], elr=True, **settings)
    cluster.create(1, [[1, 2, 3]], name="a")
    for (kind, name), value in configs.items():
        cluster.apply(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
    return cluster


@pytest.mark.parametrize(
    ("configs", "file", "expected"),
    [
        ({}, None, 1),
        ({}, "2", 2),
        ({CLUSTER_DEFAULT: "3"}, "2", 3),
        ({CLUSTER_DEFAULT: "3", OF_NODE: "2"}, None, 2),
        ({(BROKER, "3001"): "3"}, "2", 2),  # of another controller
        ({CLUSTER_DEFAULT: "3", OF_NODE: "3", OF_TOPIC: "2"}, None, 2),
        ({OF_TOPIC: "9"}, None, 3),  # no more than there are replicas
        ({CLUSTER_DEFAULT: "${file:here:there}"}, "2", 2),
        ({CLUSTER_DEFAULT: "${file:here:there}"}, None, 1),
        ({OF_TOPIC: "many", OF_NODE: "0", CLUSTER_DEFAULT: " 2 "}, None, 2),
        ({OF_TOPIC: "9" * 30}, None, 1),
    ],
)
def test_how_many_must_be_in_sync(configs, file, expected):
    cluster = cluster_with(configs, MIN_ISR, topic_defaults={} if file is None else {MIN_ISR: file})
    assert min_isr(cluster.image, cluster.settings, "a") == expected


@pytest.mark.parametrize(
    ("configs", "file", "expected"),
    [
        ({}, None, False),
        ({}, "TRUE", True),
        ({CLUSTER_DEFAULT: "false"}, "true", False),
        ({OF_TOPIC: "true", CLUSTER_DEFAULT: "false"}, None, True),
        ({OF_TOPIC: "perhaps", CLUSTER_DEFAULT: "true "}, None, True),
    ],
)
def test_whether_anyone_may_lead(configs, file, expected):
    cluster = cluster_with(configs, UNCLEAN, topic_defaults={} if file is None else {UNCLEAN: file})
    assert allows_unclean(cluster.image, cluster.settings, "a") is expected


def test_a_setting_that_makes_no_sense_does_not_keep_a_broker_from_being_fenced():
    cluster = cluster_with({CLUSTER_DEFAULT: "${file:here:there}"}, MIN_ISR)
    assert fencing.fence(cluster.situation(), 1).leaderships == 1
    assert preflight_stop(cluster.image, cluster.settings, [1], voters=[], caught_up=[]).leaderless.count == 0
    assert cluster.image.partition(topic_id(1), 0).leader == 1
