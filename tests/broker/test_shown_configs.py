"""A change of configurations is shown when what was asked is there, or something else came of it."""

import pytest

from broker.test_alter_configs import changing
from controller_cluster import Cluster
from quorate.broker.handlers.shown_configs import change_of
from quorate.controller.configs import Operation
from quorate.metadata.image import BROKER, TOPIC
from quorate.metadata.records import ConfigRecord
from quorate.protocol.api.admin import AlterConfigsRequest, IncrementalAlterConfigsRequest

T = (TOPIC, "t")


def configured(cluster, key, value, resource=T):
    kind, name = resource
    cluster.apply(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))


@pytest.fixture
def cluster():
    cluster = Cluster([1])
    cluster.create(1, [[1]], "t")
    configured(cluster, "a", "1")
    configured(cluster, "list", "x,y")
    return cluster


def shown(cluster, kind, *configs, changed=(T,)):
    named = [(key, (operation[0], value) if operation else value) for key, value, *operation in configs]
    resources = changing(kind, (*T, named)).resources
    return change_of(resources, cluster.image)(set(changed))


@pytest.mark.parametrize(
    ("config", "after"),
    [
        (("a", "2", Operation.SET), ("a", "2")),
        (("b", "2", Operation.SET), ("b", "2")),
        (("a", None, Operation.DELETE), ("a", None)),
        (("list", "z", Operation.APPEND), ("list", "x,y,z")),
        (("list", "x", Operation.SUBTRACT), ("list", "y")),
        (("a", "2", Operation.SET), ("a", "3")),  # somebody else was faster
    ],
)
def test_it_is_shown_once_it_is_there(cluster, config, after):
    shows = shown(cluster, IncrementalAlterConfigsRequest, config)
    assert not shows(cluster.image)
    configured(cluster, "a", "1", (BROKER, "1"))
    assert not shows(cluster.image)
    configured(cluster, *after)
    assert shows(cluster.image)


@pytest.mark.parametrize(
    "config",
    [
        ("a", "1", Operation.SET),
        ("b", None, Operation.DELETE),
        ("list", "y,x", Operation.APPEND),
        ("list", "z", Operation.SUBTRACT),
        ("b", "z", Operation.SUBTRACT),
    ],
)
def test_what_changes_nothing_is_shown_already(cluster, config):
    assert shown(cluster, IncrementalAlterConfigsRequest, config)(cluster.image)


def test_all_keys_of_a_resource(cluster):
    assert shown(cluster, AlterConfigsRequest, ("a", "1"), ("list", "x,y"))(cluster.image)
    shows = shown(cluster, AlterConfigsRequest, ("a", "1"))
    assert not shows(cluster.image)
    configured(cluster, "list", None)
    assert shows(cluster.image)


def test_what_was_refused_is_not_looked_for(cluster):
    shows = shown(cluster, IncrementalAlterConfigsRequest, ("a", "2", Operation.SET), changed=())
    assert shows(cluster.image)
