"""What a broker itself says to a change of configurations, and what it leaves to the controller."""

import asyncio
import logging

import pytest

from broker.test_forwarding import Forwarder, header
from broker.test_metadata import ANN, Asked
from controller_cluster import Cluster
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.handlers import alter_configs
from quorate.broker.handlers.alter_configs import AlteringConfigs
from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.own_view import OwnView
from quorate.broker.serving import Operation as Right
from quorate.broker.serving import ResourceKind
from quorate.controller.config_of_brokers import BROKER_KEYS, Change
from quorate.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from quorate.metadata.records import ConfigRecord
from quorate.protocol.api.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ApiError, ErrorCode

BOTH = pytest.mark.parametrize("kind", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "quorate.alter.test"
REFUSED = ErrorCode.INVALID_REQUEST


def agreed(request):
    """A controller that has nothing against anything."""
    response, made = {
        AlterConfigsRequest: (AlterConfigsResponse, "ResourceResponse"),
        IncrementalAlterConfigsRequest: (IncrementalAlterConfigsResponse, "AlterConfigsResourceResponse"),
    }[type(request)]
    return response(
        throttle_time_ms=7,
        responses=[
            getattr(response, made)(
                error_code=0,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in reversed(request.resources)  # in any order
        ],
    )


def changing(kind, *resources, validate_only=False):
    """A request of (type, name, {key: value or (operation, value)})."""
    made = {AlterConfigsRequest: "Resource", IncrementalAlterConfigsRequest: "AlterConfigsResource"}[kind]
    resource = getattr(kind, made)

    def config(key, wanted):
        operation, value = wanted if isinstance(wanted, tuple) else (SET, wanted)
        about = {"config_operation": operation} if kind is IncrementalAlterConfigsRequest else {}
        return resource.AlterableConfig(name=key, value=value, **about)

    return kind(
        resources=[
            resource(
                resource_type=of_kind,
                resource_name=name,
                configs=[config(*one) for one in (configs.items() if isinstance(configs, dict) else configs)],
            )
            for of_kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


class Altered:
    """A broker 1, and what it was asked."""

    def __init__(self, answer=agreed, own_view=None):
        self.broker = Asked(Cluster([1, 2]), log_directories=("/d", "/e")).broker
        self.forwarder = Forwarder(answer)
        own_view = own_view or OwnView(self.broker.current_image)
        handling = AlteringConfigs(self.broker, Forwarding(self.forwarder), own_view)
        self._handlers = {route.request: route.handler for route in handling.routes()}

    def ask(self, kind, *resources, validate_only=False, version=1):
        request = changing(kind, *resources, validate_only=validate_only)
        answer = asyncio.run(self._handlers[kind](ANN, header(request, version), request))
        return decode(type(answer), version, bytes(encode(answer, version)))

    def codes(self, kind, *resources, **about):
        response = self.ask(kind, *resources, **about)
        asked = [(of_kind, name) for of_kind, name, _ in resources]
        assert [(one.resource_type, one.resource_name) for one in response.responses] == asked
        return [ErrorCode(one.error_code) for one in response.responses]

    @property
    def passed_on(self):
        return [
            (one.resource_type, one.resource_name)
            for request, *_ in self.forwarder.asked
            for one in request.resources
        ]


@pytest.fixture(autouse=True)
def nothing_is_shown(monkeypatch):
    """The controller of these tests agrees, and writes nothing."""
    monkeypatch.setattr(alter_configs, "SHOWN_MS_MAX", 0)


@pytest.fixture
def altered():
    return Altered()


@pytest.fixture
def logger():
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)


@BOTH
def test_what_was_changed_is_told_once_the_broker_goes_by_it(kind, monkeypatch):
    monkeypatch.setattr(alter_configs, "SHOWN_MS_MAX", 60_000)

    async def scenario():
        cluster, carried_out = Cluster([1, 2]), 4
        view = OwnView(lambda: cluster.image, lambda: 5, lambda: carried_out)
        altered = Altered(own_view=view)
        handler = altered._handlers[kind]
        asked = (BROKER, "1", {"max.connections": "9"})
        tried = changing(kind, asked, validate_only=True)
        assert (await handler(ANN, header(tried, 1), tried)).responses[0].error_code == 0
        request = changing(kind, asked)
        waiting = asyncio.ensure_future(handler(ANN, header(request, 1), request))
        await asyncio.sleep(0)
        record = ConfigRecord(resource_type=BROKER, resource_name="1", name="max.connections", value="9")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        cluster.apply(record)
        view.applied()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        carried_out = 5
        view.applied()
        assert (await waiting).responses[0].error_code == 0

    asyncio.run(scenario())


@BOTH
def test_what_others_decide_is_passed_on(altered, kind):
    resources = [
        (TOPIC, "t", {}),
        (GROUP, "g", {}),
        (CLIENT_METRICS, "m", {}),
        (BROKER, "", {}),
        (BROKER, "1", {}),
    ]
    for version in kind.__served__:
        response = altered.ask(kind, *resources, version=version)
        assert response.throttle_time_ms == 7
        assert [one.resource_name for one in response.responses] == ["t", "g", "m", "", "1"]
    assert altered.passed_on[:5] == [(of_kind, name) for of_kind, name, _ in resources]


@BOTH
def test_one_that_is_refused_does_not_keep_others_from_changing(altered, kind):
    codes = altered.codes(kind, (TOPIC, "t", {}), (BROKER, "2", {}), (99, "x", {}), (BROKER, "1", {}))
    assert codes == [0, REFUSED, REFUSED, 0]
    assert altered.passed_on == [(TOPIC, "t"), (BROKER, "1")]


@BOTH
def test_if_nothing_is_left_nobody_is_asked(altered, kind):
    assert altered.codes(kind, (BROKER, "2", {}), (BROKER, "x", {})) == [REFUSED, REFUSED]
    assert altered.codes(kind) == []
    assert altered.forwarder.asked == []


@BOTH
def test_a_resource_twice_is_refused_twice(altered, kind):
    codes = altered.codes(kind, (TOPIC, "t", {}), (TOPIC, "u", {}), (TOPIC, "t", {"retention.ms": "1"}))
    assert codes == [REFUSED, 0, REFUSED]
    assert altered.passed_on == [(TOPIC, "u")]


@BOTH
def test_a_key_twice_or_without_a_value_is_refused(altered, kind):
    twice = [("retention.ms", "1"), ("retention.ms", "2")]
    assert altered.codes(kind, (TOPIC, "t", twice), (TOPIC, "u", {"retention.ms": None})) == [
        REFUSED,
        REFUSED,
    ]
    assert altered.forwarder.asked == []


def test_a_key_that_is_deleted_needs_no_value(altered):
    change = {"retention.ms": (DELETE, None)}
    assert altered.codes(IncrementalAlterConfigsRequest, (TOPIC, "t", change)) == [0]


@BOTH
@pytest.mark.parametrize("key", [name for name, key in BROKER_KEYS.items() if not key.is_dynamic])
def test_what_takes_a_restart_is_refused(altered, kind, key):
    response = altered.ask(kind, (BROKER, "1", {key: "1"}))
    (answer,) = response.responses
    assert answer.error_code == REFUSED
    assert answer.error_message.startswith(f"Cannot update these configs dynamically: [{key}]")
    assert "restart" in answer.error_message


def test_what_takes_a_restart_can_be_deleted_where_it_should_not_be(altered):
    change = {"node.id": (DELETE, None)}
    assert altered.codes(IncrementalAlterConfigsRequest, (BROKER, "1", change)) == [0]


@BOTH
@pytest.mark.parametrize("name", ["1", ""])
def test_keys_of_kafkas_files_that_change_nothing_here_are_not_taken_either(altered, kind, name):
    keys = {"security.inter.broker.protocol": "SSL", "queued.max.requests": "5", "somebody.elses.key": "x"}
    (answer,) = altered.ask(kind, (BROKER, name, keys)).responses
    assert answer.error_code == REFUSED
    refused = "queued.max.requests, security.inter.broker.protocol"
    assert answer.error_message.startswith(f"Cannot update these configs dynamically: [{refused}]")
    assert altered.passed_on == []


@BOTH
@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("sasl.kerberos.min.time.before.relogin", 0),
        ("listener.name.plaintext.sasl.login.refresh.min.period.seconds", 0),
        ("ssl.truststore.location", REFUSED),
        ("listener.name.ssl.ssl.truststore.location", REFUSED),
        ("listener.name.secured.ssl.truststore.location", REFUSED),
        ("listener.name.plaintext.ssl.truststore.location", 0),
        ("listener.name.internal.ssl.truststore.location", 0),  # a listener that this broker does not have
    ],
)
def test_what_is_of_sasl_or_of_a_listener_without_tls_is_taken(altered, kind, key, code):
    altered.broker.configs = DynamicConfig(
        1,
        {
            "listeners": "PLAINTEXT://:1, SSL://:2, SECURED://:3",
            "listener.security.protocol.map": "SECURED:SSL, PLAINTEXT:PLAINTEXT",
        },
    )
    assert altered.codes(kind, (BROKER, "1", {key: "5"}), (BROKER, "", {key: "5"})) == [code, REFUSED]


@BOTH
def test_what_is_of_one_broker_is_not_the_default_of_all(altered, kind):
    single = [name for name, key in BROKER_KEYS.items() if key.change is Change.BROKER]
    assert "cordoned.log.dirs" in single
    values = {name: "" if name == "cordoned.log.dirs" else "1" for name in single}
    (of_all, of_one) = altered.ask(kind, (BROKER, "", values), (BROKER, "1", values)).responses
    assert (of_all.error_code, of_one.error_code) == (REFUSED, 0)
    assert of_all.error_message == (
        "Cannot update these configs at default cluster level, broker id must be specified:"
        f" [{', '.join(single)}]"
    )


@BOTH
def test_a_broker_is_named_by_its_number(altered, kind):
    other, none = altered.ask(kind, (BROKER, "2", {}), (BROKER, "x", {})).responses
    assert other.error_message == "Unexpected broker id, expected 1, but received 2"
    assert none.error_message == "Node id must be an integer, but it is: x"


@BOTH
@pytest.mark.parametrize(
    ("value", "code"),
    [("", 0), ("/d", 0), ("/e/, /d", 0), ("*", 0), ("/d,*", REFUSED), ("/d,/f", REFUSED), ("d", REFUSED)],
)
def test_only_our_own_directories_can_be_cordoned(altered, kind, value, code):
    assert altered.codes(kind, (BROKER, "1", {"cordoned.log.dirs": value})) == [code]


@pytest.mark.parametrize(("operation", "code"), [(APPEND, REFUSED), (SUBTRACT, 0), (DELETE, 0)])
def test_what_is_no_directory_of_ours_can_be_taken_off_the_cordoned(altered, operation, code):
    change = {"cordoned.log.dirs": (operation, "/f")}
    assert altered.codes(IncrementalAlterConfigsRequest, (BROKER, "1", change)) == [code]


@BOTH
@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("log.cleaner.threads", "2", 0),
        ("log.cleaner.threads", "-1", REFUSED),
        ("log.cleaner.threads", "many", REFUSED),
        ("message.max.bytes", str(2**31), REFUSED),
        ("compression.type", "rar", REFUSED),
        ("somebody.elses.key", "anything", 0),
    ],
)
def test_values_of_a_broker_are_judged_here(altered, kind, key, value, code):
    assert altered.codes(kind, (BROKER, "1", {key: value}), (BROKER, "", {key: value})) == [code, code]


@BOTH
@pytest.mark.parametrize(
    ("put", "code"),
    [
        ({"log.cleaner.threads": "127"}, 0),
        ({"log.cleaner.threads": "128"}, REFUSED),
        ({"log.cleaner.dedupe.buffer.size": "1048577"}, 0),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, REFUSED),
        ({"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"}, 0),
        ({"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"}, REFUSED),
        ({"log.cleaner.threads": "${file:/a:b}"}, 0),  # which may be anything
        ({"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.threads": "${file:/a:b}"}, REFUSED),
    ],
)
def test_every_thread_of_the_cleaner_has_more_than_a_mebibyte_for_keys(altered, kind, put, code):
    assert altered.codes(kind, (BROKER, "1", put), (BROKER, "", put)) == [code, code]


def test_a_list_grows_at_the_controller(altered):
    change = {"log.cleanup.policy": (APPEND, "compact"), "message.max.bytes": (SUBTRACT, "1")}
    assert altered.codes(IncrementalAlterConfigsRequest, (BROKER, "1", change)) == [0]


@BOTH
def test_a_controller_that_is_not_reached(kind):
    altered = Altered()
    altered.forwarder.failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody leads")
    codes = altered.codes(kind, (BROKER, "2", {}), (TOPIC, "t", {}))
    assert codes == [REFUSED, ErrorCode.REQUEST_TIMED_OUT]


# Loggers


def set_level(altered, change, **about):
    (code,) = altered.codes(IncrementalAlterConfigsRequest, (LOGGER, "1", change), **about)
    assert altered.forwarder.asked == []
    return code


@pytest.mark.parametrize(
    ("level", "number"),
    [("TRACE", 10), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)],
)
def test_a_level_is_set_here_and_taken_back(altered, logger, level, number):
    assert set_level(altered, {NAME: level}) == 0
    assert logger.level == number
    assert set_level(altered, {NAME: (DELETE, None)}) == 0
    assert logger.level == logging.NOTSET


def test_a_level_that_is_only_tried(altered, logger):
    assert set_level(altered, {NAME: "DEBUG"}, validate_only=True) == 0
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"quorate.nowhere": "INFO"}, ErrorCode.INVALID_CONFIG),
        ({"quorate.nowhere": (DELETE, None)}, ErrorCode.INVALID_CONFIG),
        ({NAME: "LOUD"}, ErrorCode.INVALID_CONFIG),
        ({NAME: "debug"}, ErrorCode.INVALID_CONFIG),
        ({"root": (DELETE, None)}, REFUSED),
        ({NAME: (APPEND, "INFO")}, REFUSED),
        ({NAME: (SUBTRACT, "INFO")}, REFUSED),
        ({NAME: (9, "INFO")}, REFUSED),
        ({NAME: None}, REFUSED),
    ],
)
def test_levels_that_are_refused_change_nothing(altered, logger, change, code):
    other = logging.getLogger(f"{NAME}.other")
    assert set_level(altered, {f"{NAME}.other": "ERROR", **change}) == code
    assert (logger.level, other.level) == (logging.NOTSET, logging.NOTSET)


def test_loggers_of_another_broker_and_of_nobody(altered):
    kind = IncrementalAlterConfigsRequest
    assert altered.codes(kind, (LOGGER, "2", {}), (LOGGER, "", {})) == [REFUSED, REFUSED]
    assert altered.codes(AlterConfigsRequest, (LOGGER, "1", {})) == [REFUSED]


def test_who_may_set_levels(altered, logger):
    altered.broker.forbidden.add((Right.ALTER_CONFIGS, ResourceKind.CLUSTER, "kafka-cluster"))
    assert set_level(altered, {NAME: "DEBUG"}) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert logger.level == logging.NOTSET
