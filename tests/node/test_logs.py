"""How log lines look, and how levels are changed while a node runs."""

import asyncio
import io
import json
import logging

import pytest

from broker.serving import in_loop
from node.one_node import OneNode
from node.processes import Processes
from quorate.net.http import HttpResponse, HttpServer, _HttpConnection
from quorate.node.config import ConfigError, parse_config
from quorate.node.logs import JsonFormatter, UnknownLoggerError, levels, set_level, set_up
from quorate.one_line import is_one_line

NAME = "quorate.test_logs.1"
CONFIG = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/data",
}


@pytest.fixture(autouse=True)
def as_before():
    """Loggers are those of the process: every test leaves them as they were."""
    root, ours = logging.getLogger(), logging.getLogger("quorate")
    kept = list(root.handlers), root.level, ours.level
    logging.getLogger(NAME)
    yield
    root.handlers[:], root.level, ours.level = kept
    root.setLevel(kept[1])
    ours.setLevel(kept[2])
    logging.getLogger(NAME).setLevel(logging.NOTSET)
    logging.getLogger("quorate.test_logs").setLevel(logging.NOTSET)


def test_lines_are_plain_if_nothing_else_is_said():
    stream = io.StringIO()
    set_up(stream)
    logging.getLogger(NAME).info("listening port=%d", 9092)
    logging.getLogger(NAME).debug("not said")
    assert stream.getvalue().endswith(f" INFO {NAME} listening port=9092\n")
    assert stream.getvalue().count("\n") == 1


def test_nobody_can_begin_a_line_of_a_plain_log():
    stream = io.StringIO()
    set_up(stream)
    logger = logging.getLogger(NAME)
    logger.warning("topic not created topic=%s", "x\n2026-01-01 ERROR all is lost\x1b[2J\x9b1m\u2028\u202e")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r" topic=x\n2026-01-01 ERROR all is lost\x1b[2J\x9b1m\u2028\u202e")


def test_no_line_of_a_trace_looks_like_a_line_of_the_log():
    stream = io.StringIO()
    set_up(stream)
    try:
        raise ZeroDivisionError("no\n2026-01-01 00:00:00,000 ERROR all is lost\x1b[2J\r\u2028x")
    except ZeroDivisionError:
        logging.getLogger(NAME).exception("failed", stack_info=True)
    first, *trace = stream.getvalue().split("\n")[:-1]
    assert first.endswith(" failed")
    assert trace[0] == "  Traceback (most recent call last):"
    assert "  ZeroDivisionError: no" in trace
    assert r"  2026-01-01 00:00:00,000 ERROR all is lost\x1b[2J\r\u2028x" in trace
    assert all(line.startswith("  ") and is_one_line(line) for line in trace)


def test_nothing_in_a_json_line_ends_it_and_the_message_is_exact():
    stream = io.StringIO()
    set_up(stream, "json")
    said = "x\n\x85\u2028\x9b1m\udc00 ünïcode"
    logging.getLogger(NAME).warning("%s", said)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == said


def test_json_lines_are_one_object_each_whatever_is_in_them():
    stream = io.StringIO()
    set_up(stream, "json", "DEBUG")
    logger = logging.getLogger(NAME)
    logger.debug('two\nlines and a "quote" and ünïcode')
    try:
        raise ZeroDivisionError("a test")
    except ZeroDivisionError:
        logger.exception("failed %s", 7)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == 'two\nlines and a "quote" and ünïcode'
    assert (first["level"], first["logger"]) == ("DEBUG", NAME)
    assert second["message"] == "failed 7"
    assert "ZeroDivisionError: a test" in second["exception"]


def test_the_time_of_a_json_line_is_utc():
    record = logging.LogRecord(NAME, logging.INFO, "", 0, "x", None, None)
    record.created = 1_700_000_000.25
    assert json.loads(JsonFormatter().format(record))["time"] == "2023-11-14T22:13:20.250Z"


def test_what_is_not_ours_stays_quiet():
    set_up(io.StringIO(), level="DEBUG")
    assert logging.getLogger("asyncio").getEffectiveLevel() == logging.INFO
    assert logging.getLogger(NAME).getEffectiveLevel() == logging.DEBUG
    set_up(io.StringIO(), level="ERROR")
    assert logging.getLogger("asyncio").getEffectiveLevel() == logging.ERROR


def test_levels_are_inherited_set_and_given_back():
    set_up(io.StringIO())
    assert levels()[NAME] == {"level": "INFO", "is_own": False}
    set_level("quorate.test_logs", "warn")
    assert levels()[NAME] == {"level": "WARNING", "is_own": False}
    set_level(NAME, "DEBUG")
    assert levels()[NAME] == {"level": "DEBUG", "is_own": True}
    set_level(NAME, "NOTSET")
    assert levels()[NAME] == {"level": "WARNING", "is_own": False}
    set_level("root", "ERROR")
    assert levels()["root"]["level"] == "ERROR"


def test_there_is_no_level_and_no_logger_of_any_name():
    with pytest.raises(ValueError, match="LOUD"):
        set_level(NAME, "LOUD")
    with pytest.raises(ValueError, match="NOTSET"):
        set_level("root", "NOTSET")
    with pytest.raises(UnknownLoggerError):
        set_level("quorate.nobody", "DEBUG")
    assert "quorate.nobody" not in levels()


def test_the_file_says_how_and_how_much():
    config = parse_config("f", CONFIG | {"quorate.log.format": "json", "quorate.log.level": "debug"})
    assert (config["quorate.log.format"], config["quorate.log.level"]) == ("json", "DEBUG")
    for key, value in (
        ("quorate.log.format", "xml"),
        ("quorate.log.level", "LOUD"),
        ("quorate.log.level", "NOTSET"),
    ):
        with pytest.raises(ConfigError, match=f"{key}={value}"):
            parse_config("f", CONFIG | {key: value})


@in_loop
async def test_the_endpoint_lists_levels_and_changes_them(tmp_path):
    async with OneNode(tmp_path) as node:
        status, found = await node.http("/v1/loggers")
        assert status == 200
        assert "quorate.broker.1" in found["loggers"]
        assert await node.http(f"/v1/loggers/{NAME}?level=debug", "POST") == (
            200,
            {"name": NAME, "level": "DEBUG", "is_own": True},
        )
        assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
        assert (await node.http(f"/v1/loggers/{NAME}?level=LOUD", "POST"))[0] == 400
        assert (await node.http("/v1/loggers/quorate.nobody?level=DEBUG", "POST"))[0] == 404
        assert (await node.http("/v1/broker", "POST"))[0] == 405
        assert (await node.http(f"/v1/loggers/{NAME}?level=DEBUG"))[0] == 405
        # A page that somebody looks at on this machine must not do that.
        answer = await node.http(f"/v1/loggers/{NAME}?level=ERROR", "POST", "origin: http://evil\r\n")
        assert answer[0] == 403
        assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        (("127.0.0.1", 4711), 200),
        (("::1", 4711, 0, 0), 200),
        (("::ffff:127.0.0.1", 4711, 0, 0), 200),
        (("10.0.0.7", 4711), 403),
        (("fe80::1%eth0", 4711, 0, 2), 403),
        (None, 403),
    ],
)
def test_only_this_machine_may_change_something(peer, status):
    class Transport(asyncio.Transport):
        written = b""

        def get_extra_info(self, _name, _default=None):
            return peer

        def write(self, data):
            self.written += data

        def set_write_buffer_limits(self, **_):
            pass

        pause_reading = resume_reading = write_eof = close = abort = lambda _self: None

    async def change(_params, _query):
        return HttpResponse.text("done")

    @in_loop
    async def scenario():
        server, transport = HttpServer({"POST /v1/it": change}), Transport()
        connection = _HttpConnection(server, asyncio.get_running_loop())
        connection.connection_made(transport)
        connection.data_received(b"POST /v1/it HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        while not transport.written:
            await asyncio.sleep(0)
        assert int(transport.written.split()[1]) == status
        connection.connection_lost(None)

    scenario()


@pytest.mark.processes
def test_a_process_logs_json_when_told_to(tmp_path):
    with Processes(tmp_path, quorate_log_format="json") as cluster:
        cluster.format_static(1)
        cluster.start(1)
        cluster.wait("a leader", cluster.describe)
        assert cluster.terminate(1) == 0
        lines = [json.loads(line) for line in cluster.logged(1).splitlines()]
        assert any("listening" in line["message"] for line in lines)
        assert {"time", "level", "logger", "message"} <= lines[0].keys()
