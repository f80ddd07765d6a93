"""Apache's own PartitionChangeBuilder and our `build_change`, asked the same questions.

The cases are drawn from a fixed seed: partitions of all shapes on brokers of all states, and everything that
can be wanted of them. Order does not count among in-sync, eligible, adding and removing replicas, so a record
that only puts these in another order is none. The two differences that are on purpose (see
`quorate.controller.partition_change`) are evened out in `as_ours`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from apache_oracle import BUILD, JVM_OPTIONS, PINNED, _jars, built, missing, run

from controller_cluster import Cluster, directory
from quorate.controller.partition_change import Candidates, Election, Wanted, build_change
from quorate.metadata.log_format import decode_record
from quorate.metadata.partitions import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition
from quorate.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from quorate.metadata.versions import DIRECTORIES, ELR
from quorate.protocol.types import Uuid

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "apache" / "PartitionChanges.java"
TOPIC = Uuid((1).to_bytes(8) + (1).to_bytes(8))
LEVELS = (7, 11, 12, 16, 17, 20, 23, 25, 30)
CLUSTERS = 60
CASES_PER_CLUSTER = 100


@dataclass(frozen=True)
class Case:
    cluster: Cluster
    partition: Partition
    wanted: Wanted
    leaving: int
    returning: int
    min_isr: int

    @property
    def candidates(self) -> Candidates:
        return Candidates(self.cluster.image, without=self.leaving, unfencing=self.returning)


def test_the_same_records_as_apache() -> None:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    random = Random(20_241_025)
    cases = [case for _ in range(CLUSTERS) for case in draw_cases(random)]
    answers = ask_apache([question(case) for case in cases])
    differences = [
        f"{case.partition}\n{case.wanted}\nlevel {case.cluster.image.metadata_version}"
        f" elr {case.cluster.image.is_elr_enabled} min isr {case.min_isr}\nours   {ours}\nApache {theirs}"
        for case, answer in zip(cases, answers, strict=True)
        if (ours := our_answer(case)) != (theirs := as_ours(case.partition, answer))
    ]
    assert not differences, f"{len(differences)} of {len(cases)} differ, first\n{differences[0]}"
    built_records = sum(answer is not None for answer in answers)
    assert built_records > len(cases) / 3


# The cases


def draw_cases(random: Random) -> Iterable[Case]:
    cluster = draw_cluster(random)
    for _ in range(CASES_PER_CLUSTER):
        partition = draw_partition(random, cluster)
        leaving, returning = draw_trigger(random, partition)
        yield Case(
            cluster=cluster,
            partition=partition,
            wanted=draw_wanted(random, cluster, partition, leaving),
            leaving=leaving,
            returning=returning,
            min_isr=random.randint(1, 3),
        )


def draw_cluster(random: Random) -> Cluster:
    level = random.choice(LEVELS)
    cluster = Cluster(metadata_version=level, elr=level >= ELR and random.random() < 0.7)
    for broker_id in range(8):
        if random.random() < 0.9:
            cluster.register(broker_id, fenced=random.random() < 0.3, directories=random.choice((0, 1, 1, 2)))
            if random.random() < 0.1:
                epoch = cluster.image.brokers[broker_id].epoch
                change = BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1
                )
                cluster.apply(change)
    return cluster


def draw_partition(random: Random, cluster: Cluster) -> Partition:
    replicas = tuple(random.sample(range(8), random.randint(1, 5)))
    isr = some_of(random, replicas, 0.5)
    elr = some_of(random, [one for one in replicas if one not in isr], 0.4)
    is_reassigning = len(replicas) > 1 and random.random() < 0.3
    adding = some_of(random, replicas[1:], 0.4) if is_reassigning else ()
    rest = [one for one in replicas[1:] if one not in adding]
    known = random.choice((NO_LEADER, NO_LEADER, random.choice(replicas), random.randrange(8)))
    has_elr = cluster.image.metadata_version >= ELR
    return Partition(
        replicas=replicas,
        directories=tuple(draw_directory(random, cluster, one) for one in replicas),
        isr=isr,
        leader=random.choice((NO_LEADER, *isr, *isr, *isr, random.choice(replicas))),
        removing=some_of(random, rest, 0.5) if is_reassigning else (),
        adding=adding,
        elr=elr if has_elr and random.random() < 0.6 else (),
        last_known_leader=known if has_elr else NO_LEADER,
        is_recovering=random.random() < 0.1,
    )


def draw_directory(random: Random, cluster: Cluster, broker_id: int) -> Uuid:
    if cluster.image.metadata_version < DIRECTORIES:
        return MIGRATING
    own = directory(broker_id), directory(broker_id, 1)
    return random.choice((*own, own[0], own[0], own[0], UNASSIGNED, MIGRATING, LOST))


def draw_trigger(random: Random, partition: Partition) -> tuple[int, int]:
    """Who leaves and who comes back: somebody or nobody."""
    drawn = random.random()
    if drawn < 0.4:
        return random.choice(partition.replicas), -1
    return (-1, random.choice(partition.replicas)) if drawn < 0.6 else (-1, -1)


def draw_wanted(random: Random, cluster: Cluster, partition: Partition, leaving: int) -> Wanted:
    wanted = Wanted(election=random.choice(tuple(Election)))
    if leaving >= 0:
        isr = [one for one in partition.isr if one != leaving]
        unclean = (leaving,) if random.random() < 0.3 else ()
        return replace(wanted, isr=isr, unclean_shutdown=unclean)
    drawn = random.random()
    if drawn < 0.3:
        is_recovering = random.choice((None, True, False))
        isr = list(some_of(random, partition.replicas, 0.6))
        random.shuffle(isr)
        return replace(wanted, isr=isr, is_recovering=is_recovering)
    if drawn < 0.5:
        return reassigned(random, partition, wanted)
    if drawn < 0.6 and partition.adding:
        return cancelled(partition, wanted)
    if drawn < 0.7 and cluster.image.metadata_version >= DIRECTORIES:
        one = random.choice(partition.replicas)
        return replace(wanted, directories={one: random.choice((directory(one), directory(one, 1), LOST))})
    return wanted


def reassigned(random: Random, partition: Partition, wanted: Wanted) -> Wanted:
    target = random.sample(range(8), random.randint(1, 5))
    removing = [one for one in partition.replicas if one not in target]
    adding = [one for one in target if one not in partition.replicas]
    return replace(wanted, replicas=[*target, *removing], removing=removing, adding=adding)


def cancelled(partition: Partition, wanted: Wanted) -> Wanted:
    staying = [one for one in partition.replicas if one not in partition.adding]
    isr = [one for one in partition.isr if one in staying] or staying[:1]
    return replace(wanted, replicas=staying, isr=isr, removing=(), adding=())


def some_of(random: Random, among: Sequence[int], probability: float) -> tuple[int, ...]:
    return tuple(one for one in among if random.random() < probability)


# Asking both


def our_answer(case: Case) -> PartitionChangeRecord | None:
    image = case.cluster.image
    record = build_change(image, TOPIC, 0, case.partition, case.wanted, case.candidates, case.min_isr)
    return comparable(case.partition, record)


def as_ours(partition: Partition, record: PartitionChangeRecord | None) -> PartitionChangeRecord | None:
    """Apache's record without what we leave out on purpose: an eligible replica that is no replica any more,
    and a last known leader where there was none."""
    if record is None:
        return None
    replicas = partition.replicas if record.replicas is None else record.replicas
    eligible = record.eligible_leader_replicas
    eligible = list(partition.elr) if eligible is None else eligible
    record.eligible_leader_replicas = [one for one in eligible if one in replicas]
    if record.last_known_elr == [NO_LEADER]:
        record.last_known_elr = None
    return comparable(partition, record)


def comparable(partition: Partition, record: PartitionChangeRecord | None) -> PartitionChangeRecord | None:
    """A record in which order does not count, without what would not change anything."""
    if record is None:
        return None
    for field, now in (
        ("isr", partition.isr),
        ("eligible_leader_replicas", partition.elr),
        ("removing_replicas", partition.removing),
        ("adding_replicas", partition.adding),
    ):
        value = getattr(record, field)
        setattr(record, field, None if value is None or set(value) == set(now) else sorted(value))
    nothing = PartitionChangeRecord(partition_id=0, topic_id=TOPIC)
    return None if record == nothing else record


def question(case: Case) -> str:
    image, partition, wanted = case.cluster.image, case.partition, case.wanted
    pairs = [
        f"level={image.metadata_version}",
        f"elr={text(image.is_elr_enabled)}",
        f"minIsr={case.min_isr}",
        f"election={wanted.election.name}",
        f"replicas={listed(partition.replicas)}",
        f"directories={','.join(one.hex() for one in partition.directories)}",
        f"isr={listed(partition.isr)}",
        f"removing={listed(partition.removing)}",
        f"adding={listed(partition.adding)}",
        f"elrs={listed(partition.elr)}",
        f"lastKnown={listed([one for one in [partition.last_known_leader] if one >= 0])}",
        f"leader={partition.leader}",
        f"recovering={text(partition.is_recovering)}",
    ]
    for broker in image.brokers.values():
        is_active = (broker.is_active or broker.id == case.returning) and broker.id != case.leaving
        online = "+".join(one.hex() for one in broker.directories)
        pairs.append(f"broker={broker.id}:{text(is_active)}:{online}")
    lists = {
        "toIsr": wanted.isr,
        "toReplicas": wanted.replicas,
        "toRemoving": wanted.removing,
        "toAdding": wanted.adding,
    }
    pairs += [f"{name}={listed(value)}" for name, value in lists.items() if value is not None]
    if wanted.is_recovering is not None:
        pairs.append(f"toRecovering={text(wanted.is_recovering)}")
    if wanted.unclean_shutdown:
        pairs.append(f"unclean={listed(wanted.unclean_shutdown)}")
    if wanted.directories:
        assignments = (f"{one}:{where.hex()}" for one, where in wanted.directories.items())
        pairs.append(f"toDirectories={','.join(assignments)}")
    return " ".join(pairs)


def text(value: bool) -> str:
    return str(value).lower()


def listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def ask_apache(questions: Sequence[str]) -> list[PartitionChangeRecord | None]:
    jars = _jars(PINNED)

    def compile_program(target: Path) -> None:
        run(["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(target), str(SOURCE)])

    classes = built(BUILD / f"{PINNED}-partition-changes", SOURCE, compile_program)
    done = subprocess.run(
        ["java", *JVM_OPTIONS, "-cp", f"{jars}/*{os.pathsep}{classes}", "PartitionChanges"],
        input="".join(f"{one}\n" for one in questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [None if line == "none" else decoded(line) for line in done.stdout.splitlines()]


def decoded(line: str) -> PartitionChangeRecord:
    record, _ = decode_record(bytes.fromhex(line))
    assert isinstance(record, PartitionChangeRecord)
    return record
