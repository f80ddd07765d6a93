"""The settings of a topic that the controller itself goes by."""

from __future__ import annotations

from typing import Final

from quorate.controller.config_definitions import TOPIC_CONFIGS
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "allows_unclean", "effective", "min_isr"]

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


def effective(image: ClusterImage, settings: ControllerSettings, topic: str, key: str) -> str:
    """The value that counts: the topic's own, this node's dynamic one, the cluster's, this node's file's.

    One that makes no sense does not count. Those of brokers can be anything (`${file:...}` stands for what is
    in a file of theirs), and no fencing may fail because of it.
    """
    for resource in ((TOPIC, topic), (BROKER, str(settings.node_id)), CLUSTER_DEFAULT):
        value = image.configs.get(resource, {}).get(key)
        if value is not None and _makes_sense(key, value):
            return value
    default = TOPIC_CONFIGS[key].default
    assert default is not None
    return settings.topic_defaults.get(key, default)


def _makes_sense(key: str, value: str) -> bool:
    try:
        TOPIC_CONFIGS[key].read(value)
    except ValueError:
        return False
    return True


def allows_unclean(image: ClusterImage, settings: ControllerSettings, topic: str) -> bool:
    """Whether a replica that may lack records can be made the leader if there is no other."""
    return effective(image, settings, topic, UNCLEAN).strip().lower() == "true"


def min_isr(image: ClusterImage, settings: ControllerSettings, topic: str) -> int:
    """How many replicas must be in sync: what is configured, but never more than partition 0 has replicas."""
    slot = image.topics.by_name[topic].slot
    first = image.partitions.get(slot, 0)
    wanted = int(effective(image, settings, topic, MIN_ISR))
    return wanted if first is None else min(wanted, len(first.replicas))
