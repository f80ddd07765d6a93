"""The page about clients says what is tried: these versions, by these tests, with these tools and members."""

import re
from pathlib import Path

from apache_oracle import PINNED
from apache_tools import CLASSES
from group_members import KINDS
from test_kafka_python_suite import COUNT, EXCEPTIONS, WHOLE_EXCEPTIONS

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "clients.md").read_text()
LOCK = (TESTS.parent / "requirements.lock").read_text()
# Scripts whose names are not those that the tests have for their classes
SCRIPTS = {
    "api_versions": "broker-api-versions",
    "producer_performance": "producer-perf-test",
    "reassign": "reassign-partitions",
}
WITHOUT_SCRIPT = {"compatibility"}
IN_A_MACHINE_OF_ITS_OWN = {"kafka-verifiable-producer"}


def rows_after(head: str) -> list[list[str]]:
    """The rows of the table with this first cell."""
    table = PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_versions_are_those_that_are_installed_for_the_tests() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", LOCK, re.MULTILINE))
    stated = {client.split(" (")[0]: version for client, version, *_ in rows_after("client")}
    for name in ("confluent-kafka", "kafka-python", "aiokafka"):
        assert stated[name] == locked[name]
    assert stated["Apache Kafka's command-line tools"] == PINNED


def test_every_client_names_tests_that_exist() -> None:
    rows = rows_after("client")
    assert len(rows) == 6
    for *_, where in rows:
        named = re.findall(r"`(\w+\.py)`", where)
        assert named
        assert not [name for name in named if not (TESTS / "interop" / name).exists()]


def test_the_tools_are_those_that_are_run() -> None:
    ours = {SCRIPTS.get(name, name.replace("_", "-")) for name in CLASSES.keys() - WITHOUT_SCRIPT}
    stated = re.findall(r"kafka-[a-z-]+[a-z]", PAGE.partition("these were run:\n\n")[2].partition("\n\n")[0])
    assert sorted(stated) == sorted({f"kafka-{one}" for one in ours} | IN_A_MACHINE_OF_ITS_OWN)


def test_of_the_suite_of_kafka_python_is_left_out_what_is_said_to_be() -> None:
    modules = {f"test_{one}_integration.py": why for one, why in WHOLE_EXCEPTIONS.items()}
    assert {left_out.strip("`"): why for left_out, why in rows_after("left out")} == modules | EXCEPTIONS
    assert f"{COUNT} of them" in PAGE


def test_the_members_of_groups_are_those_that_take_part() -> None:
    assert [member for member, *_ in rows_after("member")] == list(KINDS)
