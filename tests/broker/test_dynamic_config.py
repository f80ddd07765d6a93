"""What a broker's keys are worth, and who is told when they become worth something else."""

import pytest

from quorate.broker.dynamic_config import DynamicConfig
from quorate.controller.config_descriptions import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    STATIC_BROKER,
    given_to_node,
)
from quorate.controller.config_of_brokers import BROKER_KEYS
from quorate.metadata.image import BROKER, ClusterImage
from quorate.metadata.records import ConfigRecord

ME, OTHER, ALL = "1", "2", ""
KEY = "max.connections"


class Cluster:
    def __init__(self, **file: str) -> None:
        self.image = ClusterImage()
        self.configs = DynamicConfig(1, {key.replace("_", "."): value for key, value in file.items()})
        self._offset = 0

    def put(self, broker: str, key: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=BROKER, resource_name=broker, name=key, value=value)
        self.image.apply(record, self._offset)
        self._offset += 1
        self.configs.update(self.image)


@pytest.mark.parametrize(
    ("own", "of_all", "file", "expected"),
    [
        (None, None, None, 10_000),
        (None, None, "7", 7),
        (None, "8", "7", 8),
        ("9", "8", "7", 9),
        ("9", None, None, 9),
        ("many", "8", "7", 8),  # the log of somebody less strict
        ("many", "-1", "7", 7),
    ],
)
def test_what_is_nearest_counts(own, of_all, file, expected):
    cluster = Cluster(**({} if file is None else {"max_connections": file}))
    for broker, value in ((ME, own), (ALL, of_all)):
        if value is not None:
            cluster.put(broker, KEY, value)
    assert cluster.configs[KEY] == expected


def test_what_is_deleted_counts_no_more():
    cluster = Cluster()
    cluster.put(ALL, KEY, "8")
    cluster.put(ME, KEY, "9")
    cluster.put(ME, KEY, None)
    assert cluster.configs[KEY] == 8
    cluster.put(ALL, KEY, None)
    assert cluster.configs[KEY] == 10_000


def test_another_brokers_settings_are_its_own():
    cluster = Cluster()
    cluster.put(OTHER, KEY, "9")
    assert cluster.configs[KEY] == 10_000


def test_a_listener_is_told_of_other_values_and_of_nothing_else():
    cluster = Cluster(max_connections="7")
    seen: list[tuple[int, int]] = []
    rate = "leader.replication.throttled.rate"
    cluster.configs.when_changed(
        lambda: seen.append((cluster.configs[KEY], cluster.configs[rate])), KEY, rate
    )
    unlimited = 2**63 - 1
    cluster.put(ALL, KEY, "7")  # as in the file
    cluster.put(OTHER, KEY, "3")
    cluster.put(ME, "log.cleaner.threads", "2")
    assert seen == []
    cluster.put(ME, KEY, "9")
    cluster.put(ALL, KEY, "8")  # which does not count
    cluster.put(ALL, rate, "1000")
    cluster.put(ME, KEY, None)
    assert seen == [(9, unlimited), (9, 1000), (8, 1000)]


def test_a_listener_is_told_once_of_what_changed_together():
    cluster = Cluster()
    seen: list[int] = []
    cluster.configs.when_changed(lambda: seen.append(cluster.configs[KEY]), KEY, "message.max.bytes")
    for key in (KEY, "message.max.bytes"):
        cluster.image.apply(
            ConfigRecord(resource_type=BROKER, resource_name=ME, name=key, value="5"), cluster._offset
        )
        cluster._offset += 1
    cluster.configs.update(cluster.image)
    assert seen == [5]


def test_a_snapshot_that_takes_the_place_of_the_image_counts():
    cluster = Cluster()
    cluster.put(ME, KEY, "9")
    cluster.configs.update(ClusterImage())
    assert cluster.configs[KEY] == 10_000


def test_what_takes_a_restart_comes_from_the_file():
    cluster = Cluster(num_partitions="4")
    cluster.put(ME, "num.partitions", "5")
    assert cluster.configs["num.partitions"] == 4


def test_all_that_is_given_for_a_key():
    own, of_all, file = {"log.retention.ms": "6"}, {"log.retention.ms": "5"}, {"log.retention.hours": "2"}
    assert given_to_node("log.retention.ms", own, of_all, file) == [
        ("log.retention.ms", "6", DYNAMIC_BROKER),
        ("log.retention.ms", "5", DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "2", STATIC_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert given_to_node("log.retention.ms", {}, {}, file) == []
    assert given_to_node("log.retention.hours", own, of_all, file) == [
        ("log.retention.hours", "2", STATIC_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]


@pytest.mark.parametrize("key", BROKER_KEYS)
def test_every_key_has_a_value_of_its_type(key):
    default = BROKER_KEYS[key].definition.default
    value = Cluster().configs[key]
    assert (value is None) == (default is None)
