"""The settings of a topic that the controller itself goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "allows_unclean", "effective", "min_isr"]

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
_BUILT_IN: Final[Mapping[str, str]] = {MIN_ISR: "1", UNCLEAN: "false"}


def effective(image: ClusterImage, settings: ControllerSettings, topic: str, key: str) -> str:
    """The value that counts: the topic's own, this node's dynamic one, the cluster's, this node's file's."""
    for resource in ((TOPIC, topic), (BROKER, str(settings.node_id)), CLUSTER_DEFAULT):
        value = image.configs.get(resource, {}).get(key)
        if value is not None:
            return value
    return settings.topic_defaults.get(key, _BUILT_IN[key])


def allows_unclean(image: ClusterImage, settings: ControllerSettings, topic: str) -> bool:
    """Whether a replica that may lack records can be made the leader if there is no other."""
    return effective(image, settings, topic, UNCLEAN).lower() == "true"


def min_isr(image: ClusterImage, settings: ControllerSettings, topic: str) -> int:
    """How many replicas must be in sync: what is configured, but never more than partition 0 has replicas."""
    slot = image.topics.by_name[topic].slot
    first = image.partitions.get(slot, 0)
    wanted = int(effective(image, settings, topic, MIN_ISR))
    return wanted if first is None else min(wanted, len(first.replicas))
