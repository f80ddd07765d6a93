"""Apache's own definitions of configurations and features: ours are the same, and accept the same values."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from apache_oracle import BUILD, PINNED, built, missing, run
from apache_programs import ApachePrograms

from controller_cluster import CLUSTER_ID
from quorate.controller.config_definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    CLUSTER_CONFIGS,
    GROUP_CONFIGS,
    STATIC,
    TOPIC_CONFIGS,
    UNITS_MS,
    group_synonym,
)
from quorate.controller.config_of_brokers import BROKER_KEYS, LISTED
from quorate.controller.config_types import ConfigType, Definition
from quorate.controller.config_unused import UNUSED_CONFIGS
from quorate.controller.config_validation import (
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_configs,
)
from quorate.controller.features import DEPENDENCIES, METADATA_CHANGES, default_features
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import FeatureLevelRecord
from quorate.metadata.versions import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LATEST
from quorate.node.format import FEATURES
from quorate.protocol.errors import ApiError
from quorate.storage.bootstrap import read_bootstrap
from quorate.storage.files import RealFiles

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "apache" / "Configs.java"
TIMEOUT_SECONDS = 60

# Not among Apache's definitions of brokers' keys, but among those that can be changed while a broker runs.
QUOTAS = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# What Apache has in a later release than the pinned one.
NEWER = {"max.decompressed.message.bytes"}
# Apache's definition takes any text, and its brokers parse it when they make a whole configuration of it.
PARSED_BY_BROKERS = {"max.connections.per.ip.overrides"}
# What we refuse and Apache accepts: a list of empty items.
STRICTER = {
    ("topic", "follower.replication.throttled.replicas", ","),
    ("topic", "leader.replication.throttled.replicas", ","),
}
VALIDATE = {
    "topic": (TOPIC_CONFIGS, validate_topic_configs),
    "broker": ({**CLUSTER_CONFIGS, **BROKER_CONFIGS}, validate_broker_configs),
    "group": (GROUP_CONFIGS, validate_group_configs),
    "client-metrics": (CLIENT_METRICS_CONFIGS, validate_client_metrics_configs),
}
NUMBERS = (
    *(
        "-131073",
        "-131072",
        "-3",
        "-2",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "9",
        "10",
        "11",
        "17",
        "18",
        "22",
        "23",
    ),
    *("99", "100", "101", "999", "1000", "4000", "4001", "4999", "5000", "14999", "15000", "15001", "44999"),
    *("45000", "60000", "60001", "524287", "524288", "1048575", "1048576", "3600000", "3600001"),
    *("32767", "32768", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 400),
    *(
        "0.5",
        "1.0",
        "1.1",
        "-0.1",
        ".5",
        "5.",
        "1e3",
        "1e",
        "e3",
        "0x10",
        "1_000",
        " 7 ",
        "+7",
        "",
        "x",
        "true",
    ),
)
WORDS = (
    *("", "true", "TRUE", " false ", "yes", "compact", "Compact", "compact,delete", "delete , compact"),
    *(
        "compact,compact",
        "compact,",
        ",",
        "a",
        "a,b",
        "a,,b",
        "gzip",
        "GZIP",
        "none",
        "uncompressed",
        "producer",
    ),
    *("CreateTime", "LogAppendTime", "createtime", "required", "requested", "REQUIRED"),
    *("*", "*,1:2", "0:1", "0:1,1:2", "0:1:2", ":1", "0:", "-1:2", "0 : 1"),
    *("latest", "earliest", "Latest", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT"),
    *(
        "by_duration:PT1H",
        "by_duration:P1D",
        "by_duration:P1DT2H3M4.5S",
        "by_duration:PT1.S",
        "by_duration:P1Y",
    ),
    *(
        "by_duration:PT.5S",
        "by_duration:-PT1S",
        "by_duration:PT-1S",
        "by_duration:pt1s",
        "by_duration:PT1M1H",
    ),
    *("read_committed", "read_uncommitted", "READ_COMMITTED"),
    *("client_id=a.*", "client_id = a", "client_id=a,client_source_port=1", "client_id=[a", "client_id=a=b"),
    *("client_id=", "=a", "nobody=a", "client_id"),
)


class ApacheConfigs:
    """The program that says what Apache knows, and judges values."""

    def __init__(self) -> None:
        programs = ApachePrograms()

        def compile_it(directory: Path) -> None:
            class_path = _class_path(programs.command("Configs"))
            run(["javac", "--release", "17", "-cp", class_path, "-d", str(directory), str(SOURCE)])

        self._classes = built(BUILD / f"{PINNED}-configs", SOURCE, compile_it)
        self.programs = programs
        self.rows = [line.split("\t") for line in self._run("", ()).splitlines()]

    def of(self, kind: str) -> list[list[str]]:
        return [row[1:] for row in self.rows if row[0] == kind]

    def judge(self, values: Iterable[tuple[str, str, str]]) -> list[bool]:
        """Whether each value of a table's key is accepted."""
        answers = self._run("".join("\t".join(one) + "\n" for one in values), ("judge",)).split()
        return [answer == "yes" for answer in answers]

    def _run(self, questions: str, arguments: Iterable[str]) -> str:
        command = self.programs.command("Configs", *arguments)
        class_path = _class_path(command)
        command[command.index(class_path)] = f"{class_path}{os.pathsep}{self._classes}"
        return subprocess.run(
            command, input=questions, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
        ).stdout


def _class_path(command: list[str]) -> str:
    return command[command.index("-cp") + 1]


@pytest.fixture(scope="module")
def apache_configs() -> ApacheConfigs:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApacheConfigs()


def described(definitions: Mapping[str, Definition]) -> dict[str, tuple[str, str]]:
    return {
        name: (one.type.name.lower(), "(null)" if one.default is None else one.default)
        for name, one in definitions.items()
        if name not in QUOTAS | NEWER
    }


def types_and_defaults(rows: Iterable[list[str]]) -> dict[str, tuple[str, str]]:
    return {name: (kind, default) for name, kind, default, *_ in rows}


@pytest.mark.parametrize(
    ("kind", "definitions"),
    [("topic", TOPIC_CONFIGS), ("group", GROUP_CONFIGS), ("client-metrics", CLIENT_METRICS_CONFIGS)],
)
def test_names_types_and_defaults(apache_configs, kind, definitions):
    assert described(definitions) == types_and_defaults(apache_configs.of(kind))
    assert list(definitions) == sorted(definitions)


def test_names_types_and_defaults_of_what_brokers_can_change(apache_configs):
    modes = dict(apache_configs.of("mode"))
    assert set(CLUSTER_CONFIGS) - NEWER == {name for name, mode in modes.items() if mode == "cluster-wide"}
    assert set(BROKER_CONFIGS) == {name for name, mode in modes.items() if mode == "per-broker"}
    known = types_and_defaults(row for row in apache_configs.of("broker") if row[0] in modes)
    assert described({**CLUSTER_CONFIGS, **BROKER_CONFIGS}) == known


def test_what_brokers_cannot_change(apache_configs):
    assert set(dict(apache_configs.of("mode"))).isdisjoint(STATIC)
    assert {name for name, *_ in apache_configs.of("broker")} >= STATIC


def test_every_key_of_a_file_is_used_or_known_to_change_nothing(apache_configs):
    theirs = {name for name, *_ in apache_configs.of("broker")}
    assert theirs - BROKER_KEYS.keys() == UNUSED_CONFIGS
    assert theirs >= LISTED


def test_the_broker_keys_behind_a_topic_key(apache_configs):
    theirs = {name: synonyms for name, *_, synonyms in apache_configs.of("topic")}
    ours = {
        name: ",".join(f"{synonym}*{UNITS_MS.get(synonym, 1)}" for synonym in one.synonyms)
        for name, one in TOPIC_CONFIGS.items()
        if name not in NEWER
    }
    assert ours == theirs


def test_the_broker_keys_behind_a_group_key(apache_configs):
    theirs = {name: synonym for name, *_, synonym in apache_configs.of("group")}
    assert {name: group_synonym(name) or "" for name in GROUP_CONFIGS} == theirs


def test_the_same_values_are_accepted(apache_configs):
    candidates = [
        (kind, name, value)
        for kind, (definitions, _) in VALIDATE.items()
        for name, one in definitions.items()
        if one.type is not ConfigType.CLASS and name not in QUOTAS | NEWER | PARSED_BY_BROKERS
        for value in (NUMBERS if ConfigType.INT <= one.type <= ConfigType.DOUBLE else WORDS)
    ]
    differing = {
        candidate
        for candidate, accepted in zip(candidates, apache_configs.judge(candidates), strict=True)
        if _accepts(*candidate) != accepted
    }
    assert differing == STRICTER
    assert not any(_accepts(*candidate) for candidate in STRICTER)


def _accepts(kind: str, name: str, value: str) -> bool:
    try:
        VALIDATE[kind][1]({name: value})
    except ApiError:
        return False
    return True


def test_ranges_of_features(apache_configs):
    theirs = {name: (int(lowest), int(highest)) for name, lowest, highest, _ in apache_configs.of("feature")}
    ours = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != METADATA_VERSION}
    assert ours == theirs


def test_default_levels_of_features(apache_configs):
    numbers = [int(number) for number, *_ in apache_configs.of("level")]
    for index, number in enumerate(numbers):
        if number > METADATA_VERSION_LATEST:
            continue
        theirs = {name: int(levels.split(",")[index]) for name, *_, levels in apache_configs.of("feature")}
        theirs.pop(KRAFT_VERSION)
        ours = default_features(number)
        assert ours.pop(METADATA_VERSION) == number
        assert ours == {name: level for name, level in theirs.items() if level}


def test_what_features_need(apache_configs):
    theirs = {
        (name, int(level)): (other, int(needed)) for name, level, other, needed in apache_configs.of("needs")
    }
    assert theirs == DEPENDENCIES


def test_apache_formats_with_the_same_levels(apache_configs, tmp_path):
    properties = tmp_path / "node.properties"
    properties.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://localhost:9093\ncontroller.quorum.voters=1@localhost:9093\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    apache_configs.programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    written = [decode_record(value)[0] for value in read_bootstrap(RealFiles(), str(tmp_path / "data"))]
    assert written == [FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()]


def test_levels_at_which_the_metadata_changed(apache_configs):
    changed = [int(number) for number, _, changes in apache_configs.of("level") if changes == "true"]
    assert list(METADATA_CHANGES) == changed
