"""What Apache's metadata shell shows of a log or a snapshot, and the same of an image of ours.

Both come as a flat mapping, path to content: `cluster/brokers/1` or `topics/byId/<id>/0`. What differs but
means the same is made equal:

- Subsets of the replicas are sorted, since our table keeps them in the order of the replicas.
- Apache's controllers leave those in ELR that a reassignment has removed from the replicas. Nobody could be
  elected there; our image has only replicas in it.
- No cordoned directories are an empty list or none at all.
- Quotas of a default user, client or address are left out: the shell does not show them.
"""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from apache_programs import ApachePrograms

from quorate.metadata.brokers import Listener, SecurityProtocol
from quorate.metadata.image import ClusterImage
from quorate.metadata.partition import Partition
from quorate.protocol import batch as batches
from quorate.protocol.types import Uuid

SHELL = "org.apache.kafka.shell.MetadataShell"
DEADLINE_SECONDS = 60

RESOURCES = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
PATTERNS = {3: "LITERAL", 4: "PREFIXED"}
OPERATIONS = {2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE"}
PERMISSIONS = {2: "DENY", 3: "ALLOW"}
CONFIGURED = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
RELEASES = {30: "4.3-IV0"}


def shown_by_shell(programs: ApachePrograms, file: Path) -> dict[str, str]:
    """What the shell makes of a log or a snapshot.

    It may show what it has read so far, which may be nothing, so it is asked until that is everything.
    """
    last_offset = _last_offset(file)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = _tree(programs.run(SHELL, "--snapshot", str(file), "tree", "/image"))
        provenance = found.pop("provenance", "")
        if provenance.startswith(f"offset {last_offset},"):
            return {path: text for path, text in found.items() if not path.startswith("topics/byName/")}
        assert time.monotonic() < deadline, f"the shell has not read up to {last_offset}, but {provenance}"


def _last_offset(file: Path) -> int:
    """The offset of the last record of a file that is no control record."""
    headers = [one for one in batches.batches(file.read_bytes()) if not one.is_control]
    return headers[-1].next_offset - 1


def _tree(printed: str) -> dict[str, str]:
    found: dict[str, str] = {}
    path: list[str] = []
    for line in printed.splitlines():
        if re.match(r"\d{4}-\d\d-\d\d .*Ignoring control record", line):
            continue  # it says so of every one
        text = line.lstrip(" ")
        del path[(len(line) - len(text)) // 2 :]
        if text.endswith(":"):
            path.append(text[:-1])
        else:
            found["/".join(path)] = _normal(text)
    return found


def shown_by_us(image: ClusterImage) -> dict[str, str]:
    """What the shell should make of what this image was made of."""
    return dict(_shown(image))


def _shown(image: ClusterImage) -> Iterator[tuple[str, str]]:
    for acl_id, acl in image.acls.items():
        yield (
            f"acls/byId/{acl_id}",
            f"StandardAcl[resourceType={RESOURCES[acl.resource_type]}, resourceName={acl.resource_name},"
            f" patternType={PATTERNS[acl.pattern_type]}, principal={acl.principal}, host={acl.host},"
            f" operation={OPERATIONS[acl.operation]}, permissionType={PERMISSIONS[acl.permission_type]}]",
        )
    for entity, quotas in image.quotas.items():
        if any(name is None for _, name in entity):
            continue
        parts = {kind.replace("client-id", "clientId"): name for kind, name in entity}
        names = [f"{kind}({name})" for kind, name in sorted(parts.items())]
        for key, value in quotas.items():
            yield f"clientQuotas/{'_'.join(names)}/{key}", str(value)
    for broker in image.brokers.values():
        yield (
            f"cluster/brokers/{broker.id}",
            f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, incarnationId={broker.incarnation_id},"
            f" listeners={_endpoints(broker.listeners)}, supportedFeatures={_features(broker.features)},"
            f" rack={'Optional.empty' if broker.rack is None else f'Optional[{broker.rack}]'},"
            f" fenced={_flag(broker.is_fenced)}, inControlledShutdown={_flag(broker.is_shutting_down)},"
            f" isMigratingZkBroker={_flag(broker.is_migrating)}, directories={_listed(broker.directories)},"
            f" cordonedDirectories={_listed(broker.cordoned)})",
        )
    for controller in image.controllers.values():
        yield (
            f"cluster/controllers/{controller.id}",
            f"ControllerRegistration(id={controller.id}, incarnationId={controller.incarnation_id},"
            f" zkMigrationReady=false, listeners={_endpoints(controller.listeners)},"
            f" supportedFeatures={_features(controller.features)})",
        )
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield f"configs/{CONFIGURED[kind]}{f':{name}' if name else ''}/{key}", value
    for name, level in image.features.items():
        if name != "metadata.version":
            yield f"features/finalized_{name}", str(level)
    yield "features/metadataVersion", f"Optional[{RELEASES[image.metadata_version]}]"
    yield "producerIds/nextProducerId", str(image.next_producer_id)
    for (user, mechanism), one in image.scram.items():
        yield (
            f"scram/{MECHANISMS[mechanism]}/{user}",
            f"ScramCredentialData(salt={bytes(one.salt).hex()}, storedKey={bytes(one.stored_key).hex()},"
            f" serverKey={bytes(one.server_key).hex()}, iterations={one.iterations})",
        )
    for topic in image.topics:
        yield f"topics/byId/{topic.id}/id", str(topic.id)
        yield f"topics/byId/{topic.id}/name", topic.name
        for partition_id, partition in image.partitions_of(topic.id):
            yield f"topics/byId/{topic.id}/{partition_id}", _partition(partition)


def _partition(one: Partition) -> str:
    last_known = [] if one.last_known_leader < 0 else [one.last_known_leader]
    return _normal(
        f"PartitionRegistration(replicas={_listed(one.replicas)}, directories={_listed(one.directories)},"
        f" isr={_listed(one.isr)}, removingReplicas={_listed(one.removing)},"
        f" addingReplicas={_listed(one.adding)}, elr={_listed(one.elr)}, lastKnownElr={last_known},"
        f" leader={one.leader}, leaderRecoveryState={'RECOVERING' if one.is_recovering else 'RECOVERED'},"
        f" leaderEpoch={one.leader_epoch}, partitionEpoch={one.partition_epoch})"
    )


def _normal(text: str) -> str:
    replicas = re.search(r"\breplicas=\[([\d, ]*)\]", text)

    def in_order(match: re.Match[str]) -> str:
        some = [one for one in match[2].split(", ") if replicas and one in replicas[1].split(", ")]
        return f"{match[1]}=[{', '.join(sorted(some, key=int))}]"

    text = text.replace("cordonedDirectories=null", "cordonedDirectories=[]")
    return re.sub(r"\b(isr|elr|removingReplicas|addingReplicas)=\[([\d, ]+)\]", in_order, text)


def _endpoints(listeners: Sequence[Listener]) -> str:
    found = [
        f"Endpoint(listenerName='{one.name}',"
        f" securityProtocol={SecurityProtocol.NAMES[one.security_protocol]},"
        f" host='{one.host}', port={one.port})"
        for one in listeners
    ]
    return f"[{', '.join(found)}]"


def _features(features: dict[str, tuple[int, int]]) -> str:
    return "{" + ", ".join(f"{name}: {low}-{high}" for name, (low, high) in sorted(features.items())) + "}"


def _listed(some: Sequence[int | Uuid]) -> str:
    return f"[{', '.join(str(one) for one in some)}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"
