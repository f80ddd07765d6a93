"""What a controller of ZooKeeper mode knows, in the form that KRaft's decisions read.

Whether a topic may be created, where its replicas go and what a configuration may be are the same rules in
both modes. They read an image of the cluster, so one is made of the context: all brokers and the names of all
topics, and the partitions of those topics that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from quorate.controller.decision import Asker, Situation
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.image import ClusterImage
from quorate.metadata.partition import MIGRATING, Partition
from quorate.metadata.versions import METADATA_VERSION
from quorate.protocol.types import ZERO_UUID
from quorate.zookeeper.context import Context
from quorate.zookeeper.office import Office
from quorate.zookeeper.registration_json import Member

__all__ = ["image_of", "registration_of", "situation_of"]

LEVEL: Final = 14  # of metadata.version: 3.5, before directories had ids


def image_of(office: Office, topics: Iterable[str]) -> ClusterImage:
    """With the partitions of some topics."""
    context = office.context
    image = ClusterImage()
    image.features[METADATA_VERSION] = LEVEL
    for member in context.members.values():
        is_leaving = member.id in context.shutting_down
        image.brokers[member.id] = registration_of(member, is_shutting_down=is_leaving)
    for topic in context.topics.values():
        if topic.id != ZERO_UUID:
            image.topics.add(topic.name, topic.id)
    for name in dict.fromkeys(topics):
        _put_partitions(image, context, name)
    return image


def _put_partitions(image: ClusterImage, context: Context, name: str) -> None:
    topic, known = context.topics.get(name), image.topics.by_name.get(name)
    if topic is None or known is None:
        return
    for number, assignment in topic.partitions.items():
        state = context.states.get((name, number))
        isr = () if state is None else tuple(one for one in state.isr if one in assignment.replicas)
        partition = Partition(
            replicas=assignment.replicas,
            directories=(MIGRATING,) * len(assignment.replicas),
            isr=isr,
            leader=-1 if state is None else state.leader,
            leader_epoch=0 if state is None else state.leader_epoch,
            partition_epoch=0 if state is None else state.partition_epoch,
            adding=tuple(one for one in assignment.adding if one in assignment.replicas),
            removing=tuple(one for one in assignment.removing if one in assignment.replicas),
            is_recovering=state is not None and state.is_recovering,
        )
        image.partitions.put(known.slot, number, partition)


def registration_of(member: Member, *, is_shutting_down: bool = False) -> BrokerRegistration:
    """A member as an image has it. Nobody is fenced in ZooKeeper mode: one is a member, or is not there."""
    return BrokerRegistration(
        id=member.id,
        epoch=member.epoch,
        incarnation_id=ZERO_UUID,
        listeners=member.listeners,
        features=member.features,
        rack=member.rack,
        is_fenced=False,
        is_shutting_down=is_shutting_down,
        is_migrating=False,
        directories=(),
        cordoned=(),
        registration_offset=0,
    )


def situation_of(
    image: ClusterImage, settings: ControllerSettings, random: Random, wall_ms: int, asker: Asker
) -> Situation:
    return Situation(
        image=image,
        sessions=Sessions(settings.broker_session_timeout_ms),
        settings=settings,
        random=random,
        now_ms=0.0,
        wall_ms=wall_ms,
        next_offset=0,
        asker=asker,
    )
