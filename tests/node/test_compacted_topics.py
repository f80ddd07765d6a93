"""A compacted topic that is written while its broker is stopped and killed, again and again.

`QUORATE_COMPACTION_SECONDS` is for how long: some seconds, or minutes.
"""

import os
import random
import re
import time
from pathlib import Path

import pytest

from node.broker_processes import BrokerProcesses
from node.compacted_topics import CONFIGS, SETTINGS, KeyedLoad, read_keyed

pytestmark = pytest.mark.processes

SECONDS = float(os.environ.get("QUORATE_COMPACTION_SECONDS", "15"))


def runs_of(cluster: BrokerProcesses, broker_id: int) -> int:
    return len(re.findall(r"compacted partition=profiles-0", cluster.logged(broker_id)))


def test_every_key_has_its_last_value_whatever_happens_to_the_broker(tmp_path: Path):
    with BrokerProcesses(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster:
        (broker,) = cluster.running_brokers
        cluster.create_topic("profiles", (broker,), **CONFIGS)
        ends = time.monotonic() + SECONDS
        restarts, chance = 0, random.Random(1)
        with KeyedLoad(cluster, "profiles") as load:
            while time.monotonic() < ends or not restarts:
                load.wait_for_more(chance.randrange(200, 4000))
                if restarts % 3 == 0:  # else it is stopped wherever it happens to be
                    before = runs_of(cluster, broker)
                    cluster.wait("the cleaner works", lambda before=before: runs_of(cluster, broker) > before)  # type: ignore[misc]
                if restarts % 2:
                    assert cluster.terminate(broker) == 0
                else:
                    cluster.kill(broker)
                restarts += 1
                cluster.start(broker)
                cluster.wait_until_unfenced(broker)
            load.wait_for_more(1000)
        load.check()
        said = cluster.logged(broker)
        assert "uncleanable" not in said
        assert "Traceback" not in said
        found = read_keyed(cluster.bootstrap, "profiles")
        assert len(found) < load.count, "nothing was compacted"
        print(f"{load.count} records acknowledged, {len(found)} kept, {restarts} restarts")


def test_replicas_are_compacted_each_by_itself_and_a_new_leader_has_it_all(tmp_path: Path):
    with BrokerProcesses(tmp_path, controllers=1, brokers=2, **SETTINGS) as cluster:
        first, second = cluster.running_brokers
        cluster.create_topic("profiles", (first, second), min_insync_replicas=1, **CONFIGS)
        with KeyedLoad(cluster, "profiles") as load:
            load.wait_for_more(4000)
            for broker in (first, second):
                cluster.wait("both have compacted", lambda broker=broker: runs_of(cluster, broker))  # type: ignore[misc]
            cluster.wait_until_in_sync("profiles")
            cluster.kill(first)
            cluster.wait_for_leader_of("profiles", other_than=first)
            load.wait_for_more(2000)
            cluster.start(first)
            cluster.wait_until_unfenced(first)
            cluster.wait_until_in_sync("profiles")
        load.check()
