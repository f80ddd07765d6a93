"""The commands that look at the protocol, as a user sees them."""

import pytest
from typer.testing import CliRunner

from quorate.cli.main import app

BROKER_HEARTBEAT = "003f0001000000010004746f757200000000010000000000000007000000000000002a000000"


def run(*arguments: str, standard_input: str = ""):
    return CliRunner().invoke(app, arguments, input=standard_input)


def test_apis_lists_every_key():
    lines = run("apis").stdout.splitlines()
    assert len(lines) == 94
    assert lines[2].split() == ["1", "Fetch", "0-18", "12+", "4-18", "broker", "controller"]


def test_show_tells_the_history_of_a_field():
    result = run("show", "FetchRequest")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["replica_id", "int32", "0-14", "-1"] in lines
    assert ["high_watermark", "int64", "18", "1", "9223372036854775807"] in lines


@pytest.mark.parametrize(
    "name", ["RegisterBrokerRecord", "LeaderChangeMessage", "OffsetCommitKey", "ProducerSnapshot"]
)
def test_show_finds_records_too(name):
    assert run("show", name).stdout.startswith(f"{name}, versions ")


@pytest.mark.parametrize("prefix", ["", "00000026"])
def test_decode_reads_a_request_with_or_without_its_size(prefix):
    result = run("decode", prefix + BROKER_HEARTBEAT)
    assert "BrokerHeartbeatRequest(broker_id=1, broker_epoch=7, current_metadata_offset=42" in result.stdout


def test_decode_reads_standard_input_and_single_messages():
    result = run("decode", "-", "--message", "OffsetCommitKey", standard_input="0001 67 0001 74 00000003\n")
    assert result.stdout == "OffsetCommitKey(group='g', topic='t', partition=3)\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["decode", "xyz"], "quorate: not hex: "),
        (["decode", "00"], "quorate: RequestHeader, field request_api_key, position 1: a request of 1 bytes"),
        (
            ["decode", "7fff0000"],
            "quorate: RequestHeader, field request_api_key: there is no request with key 32767",
        ),
        (["decode", "--message", "Nothing", "00"], "quorate: Nothing: there is no such message"),
        (
            ["decode", "--message", "OffsetCommitKey", "--version", "9", "00"],
            "quorate: OffsetCommitKey v9: there is no",
        ),
        (["show", "Struct"], "quorate: Struct: there is no such message"),
    ],
)
def test_bad_input_is_one_line(arguments, problem):
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(problem)
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_version():
    assert run("--version").stdout == "quorate 0.1.0\n"
