"""Topics: which there are, how they are doing, new ones, more partitions, other settings, no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from quorate.cli.asking import (
    BOOTSTRAP_SERVER,
    BootstrapOption,
    JsonOption,
    ask,
    fail,
    listed,
    pairs,
    print_json,
    print_table,
)
from quorate.cli.configs import SOURCES, UNSAID, config_text
from quorate.client.admin import Admin, ConfigEntry, NewTopic, Resource, ResourceKind
from quorate.client.cluster import Cluster
from quorate.client.metadata import Partition, Topic, TopicPartition
from quorate.client.offsets import EARLIEST, LATEST, list_offsets
from quorate.one_line import one_line
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Topics and their partitions.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of a topic.")]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]
ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A setting; as often as needed.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only says whether it would be possible.")]


@app.command("list")
def list_topics(
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only those with partitions that lack a leader or replicas.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """All topics, and how their partitions are doing."""
    found = ask(bootstrap_server, lambda cluster: Admin(cluster).list_topics())
    shown = [one for _, one in sorted(found.items()) if not unhealthy or _is_unhealthy(one)]
    if as_json:
        print_json([_summary(one) for one in shown])
        return
    head = ("TOPIC", "PARTITIONS", "REPLICAS", "LEADERLESS", "UNDER-REPLICATED", "KIND")
    rows = [
        (
            one.name,
            len(one.partitions),
            _replication_factor(one),
            len(_leaderless(one)),
            len(_under_replicated(one)),
            "internal" if one.is_internal else "",
        )
        for one in shown
    ]
    print_table(head, rows, "all partitions are well" if unhealthy and found else "there are no topics")


@app.command("create")
def create(
    names: TopicsArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    partitions: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many; as the brokers are set, if not said.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Replicas of each; as the brokers are set, if not said."),
    ] = None,
    assignment: Annotated[
        str, typer.Option(metavar="1:2,2:3,...", help="Brokers of each partition, the preferred first.")
    ] = "",
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="One that is there already is no failure.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Creates topics."""
    if assignment and (partitions or replication_factor):
        fail("--assignment says how many partitions and replicas there are: leave those options out")
    settings = pairs(config or (), "--config")
    topics = [
        NewTopic(name, partitions or -1, replication_factor or -1, _assignments(assignment), settings)
        for name in dict.fromkeys(names)
    ]

    async def create_each(cluster: Cluster) -> list[str]:
        """Each on its own, so that what is refused keeps nobody else from being created. What failed."""
        failures = []
        for topic in topics:
            try:
                await Admin(cluster).create_topics(topic, validate_only=dry_run)
                print(f"topic {topic.name} {'could be' if dry_run else 'is'} created")
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    failures.append(error.message or error.code.name)
                elif if_not_exists:
                    print(f"topic {topic.name} is there already")
                else:
                    failures.append(f"topic {topic.name} exists already")
        return failures

    failures = ask(bootstrap_server, create_each)
    if failures:
        fail("; ".join(failures))


@app.command("describe")
def describe(
    names: TopicsArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Topics, partition by partition: who leads, who is in sync, from where to where it reaches."""

    async def look(cluster: Cluster) -> list[dict[str, Any]]:
        admin = Admin(cluster)
        topics = await admin.describe_topics(*names)
        described = []
        for name in dict.fromkeys(names):
            configs = await admin.describe_configs(Resource(ResourceKind.TOPIC, name))
            described.append(_described(topics[name], await _bounds(cluster, topics[name]), configs))
        return described

    found = ask(bootstrap_server, look)
    if as_json:
        print_json(found)
        return
    for index, one in enumerate(found):
        if index:
            print()
        _print_topic(one)


@app.command("alter")
def alter(
    name: TopicArgument,
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    partitions: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="So many in all; never fewer than there are.")
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A setting to take back; as often as needed.")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Gives a topic more partitions, or other settings."""
    put, taken_back = pairs(config or (), "--config"), delete_config or []
    if partitions is None and not put and not taken_back:
        fail("say what: --partitions, --config or --delete-config")

    async def change(cluster: Cluster) -> None:
        admin = Admin(cluster)
        would = "would be " if dry_run else ""
        if put or taken_back:
            resource = Resource(ResourceKind.TOPIC, name)
            await admin.alter_configs(resource, put=put, delete=taken_back, validate_only=dry_run)
            changes = [f"{would}set: {', '.join(put)}"] if put else []
            changes += [f"{would}deleted: {', '.join(taken_back)}"] if taken_back else []
            print("; ".join(changes))
        if partitions is not None:
            await admin.create_partitions({name: partitions}, validate_only=dry_run)
            print(f"topic {name} {'could have' if dry_run else 'has'} {partitions} partitions")

    ask(bootstrap_server, change)


@app.command("delete")
def delete(names: TopicsArgument, bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER) -> None:
    """Deletes topics, and all that is in them."""
    ask(bootstrap_server, lambda cluster: Admin(cluster).delete_topics(*dict.fromkeys(names)))
    for name in dict.fromkeys(names):
        print(f"topic {name} is deleted")


# Looking closer


async def _bounds(cluster: Cluster, topic: Topic) -> dict[int, tuple[int, int]]:
    """Where partitions begin and end, as far as they have leaders that can be asked."""
    places = [TopicPartition(topic.name, one.index) for one in topic.partitions.values() if one.leader >= 0]
    try:
        first = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
        end = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    except ApiError:
        return {}  # a leader has just moved or gone: what is known without it is still worth showing
    return {at.partition: (first[at].offset, end[at].offset) for at in places}


def _assignments(text: str) -> Mapping[int, Sequence[int]]:
    if not text:
        return {}
    try:
        return {
            index: [int(broker) for broker in one.split(":")] for index, one in enumerate(text.split(","))
        }
    except ValueError:
        fail(f"--assignment {text!r}: broker ids as in 1:2,2:3, partitions separated by commas")


def _leaderless(topic: Topic) -> list[int]:
    return [one.index for one in topic.partitions.values() if one.leader < 0]


def _under_replicated(topic: Topic) -> list[int]:
    return [one.index for one in topic.partitions.values() if len(one.in_sync) < len(one.replicas)]


def _is_unhealthy(topic: Topic) -> bool:
    return bool(_leaderless(topic) or _under_replicated(topic))


def _replication_factor(topic: Topic) -> int:
    return max((len(one.replicas) for one in topic.partitions.values()), default=0)


# Showing


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": str(topic.id),
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
        "leaderless": _leaderless(topic),
        "under_replicated": _under_replicated(topic),
        "is_internal": topic.is_internal,
    }


def _described(
    topic: Topic, bounds: Mapping[int, tuple[int, int]], configs: Mapping[str, ConfigEntry]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": str(topic.id),
        "is_internal": topic.is_internal,
        "configs": {
            key: {"value": config_text(one), "set_for": SOURCES.get(one.source, str(one.source))}
            for key, one in sorted(configs.items())
            if one.source not in UNSAID
        },
        "partitions": [_partition(one, bounds.get(one.index)) for one in topic.partitions.values()],
    }


def _partition(one: Partition, bounds: tuple[int, int] | None) -> dict[str, Any]:
    start_offset, end_offset = bounds or (None, None)
    return {
        "partition": one.index,
        "leader": None if one.leader < 0 else one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": list(one.replicas),
        "in_sync": list(one.in_sync),
        "offline": list(one.offline),
        "start_offset": start_offset,
        "end_offset": end_offset,
    }


def _print_topic(found: Mapping[str, Any]) -> None:
    kind = "internal topic" if found["is_internal"] else "topic"
    print(one_line(f"{kind} {found['topic']}, id {found['id']}, {len(found['partitions'])} partitions"))
    for key, one in found["configs"].items():
        print(one_line(f"  {key}={one['value']} (set for: {one['set_for']})"))
    head = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "OFFLINE", "FIRST", "END")
    print_table(head, [_row(one) for one in found["partitions"]], "it has no partitions")


def _row(one: Mapping[str, Any]) -> Sequence[object]:
    leader = "none" if one["leader"] is None else one["leader"]
    members = (listed(one[name]) for name in ("replicas", "in_sync", "offline"))
    return (one["partition"], leader, one["leader_epoch"], *members, one["start_offset"], one["end_offset"])
