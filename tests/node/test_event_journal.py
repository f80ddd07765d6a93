"""The journal of events: what is in its lines, how it is bounded, and what a bad disk does to it."""

import asyncio
import json
import logging
import random
from dataclasses import replace

import pytest

from lab.running import run_process
from quorate.controller import events
from quorate.controller.events import (
    SHUT_DOWN,
    BrokerFenced,
    DecisionFailed,
    Event,
    RegistrationRefused,
    UnfenceWithheld,
)
from quorate.lab.world import World
from quorate.node.event_journal import POSITION_NAME, EventJournal, JournalLimits
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.files import RealFiles
from storage.failing_files import FailingFiles

INCARNATION = Uuid(b"incarnation 0001")
WALL_MS = 1_700_000_000_000
FENCED = BrokerFenced(3, 133, "missed heartbeats", 9002, 9000, 10, 4, 1)


def host_of(files) -> Host:
    return Host("c1", files, random.Random(1), lambda: WALL_MS, None)


def journal_in(directory, files=None, incarnation=INCARNATION, **limits: int) -> EventJournal:
    host = host_of(RealFiles() if files is None else files)
    return EventJournal(host, str(directory), 1, incarnation, JournalLimits(**limits))


def withheld(number: int) -> UnfenceWithheld:
    return UnfenceWithheld(number, 7, "metadata offset", 120, 133)


def files_of(directory) -> dict[str, list[dict]]:
    found = sorted(directory.glob("events-*"))
    return {file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in found}


def numbers(entries) -> list[int]:
    return [entry["broker_id"] for entry in entries]


# Lines


def test_a_line_says_who_when_and_what(tmp_path):
    journal = journal_in(tmp_path)
    journal.append(FENCED, WALL_MS)
    journal.flush()
    text = (tmp_path / "events-00000000000000000000.jsonl").read_text()
    assert text == (
        '{"version":1,"node":1,"incarnation":"aW5jYXJuYXRpb24gMDAwMQ","sequence":0,"time_ms":1700000000000,'
        '"kind":"BrokerFenced","broker_id":3,"epoch":133,"check":"missed heartbeats",'
        '"ms_since_heartbeat":9002,"session_timeout_ms":9000,"partitions":10,"leaderships":4,"leaderless":1,'
        '"unclean":0}\n'
    )
    journal.close()


def test_an_event_is_logged_once_as_loud_as_it_is(tmp_path, caplog):
    caplog.set_level(logging.INFO, "quorate.controller.c1")
    journal = journal_in(tmp_path)
    journal.append(FENCED, WALL_MS)
    journal.append(withheld(3), WALL_MS)
    journal.append(replace(FENCED, check=SHUT_DOWN), WALL_MS)
    journal.close()
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("quorate.controller.c1", "WARNING", FENCED.line()),
        ("quorate.controller.c1", "INFO", withheld(3).line()),
        ("quorate.controller.c1", "INFO", replace(FENCED, check=SHUT_DOWN).line()),
    ]


@pytest.mark.parametrize("name", [name for name in events.__all__ if name not in ("Event", "SHUT_DOWN")])
def test_no_event_has_a_field_that_a_line_has_already(name):
    fields = getattr(events, name).__dataclass_fields__
    assert not {"version", "node", "incarnation", "sequence", "time_ms", "kind"} & set(fields)
    assert issubclass(getattr(events, name), Event)


def test_what_json_cannot_say_or_nobody_would_read_is_left_out(tmp_path):
    journal = journal_in(tmp_path, text_chars_max=30)
    refused = RegistrationRefused(3, INCARNATION, "c", "E", "because", -1, float("inf"))
    journal.append(refused, WALL_MS)
    journal.append(DecisionFailed("CreateTopics", "KeyError", "x" * 1000), WALL_MS)
    first, second = journal.read()
    assert first["ms_since_heartbeat"] is None
    assert first["incarnation_id"] == str(INCARNATION)
    assert second["content"] == "x" * 30 + "..."
    assert second["request"] == "CreateTopics"
    journal.close()


# Files


def test_files_are_few_and_small_and_the_oldest_goes(tmp_path):
    journal = journal_in(tmp_path, files_max=3, file_bytes_max=1000)
    for number in range(100):
        journal.append(withheld(number), WALL_MS)
        if number % 7 == 0:
            journal.flush()
    journal.close()
    found = files_of(tmp_path)
    assert len(found) == 3
    for name, lines in found.items():
        assert (tmp_path / name).stat().st_size <= 1000
        assert name == f"events-{lines[0]['sequence']:020d}.jsonl"
    kept = [entry for lines in found.values() for entry in lines]
    assert [entry["sequence"] for entry in kept] == list(range(100))[-len(kept) :]
    assert numbers(journal.read(0)) == numbers(kept)


def test_a_line_longer_than_a_file_may_be_gets_one_to_itself(tmp_path):
    journal = journal_in(tmp_path, file_bytes_max=10)
    for number in range(3):
        journal.append(withheld(number), WALL_MS)
    journal.close()
    assert [len(lines) for lines in files_of(tmp_path).values()] == [1, 1, 1]


def test_reading_begins_where_one_asks(tmp_path):
    journal = journal_in(tmp_path, file_bytes_max=1000)
    for number in range(30):
        journal.append(withheld(number), WALL_MS)
    assert numbers(journal.read(0)) == list(range(30))
    assert numbers(journal.read(17)) == list(range(17, 30))
    assert numbers(journal.read(29)) == [29]
    assert numbers(journal.read(30)) == []
    journal.close()


def test_files_that_go_while_one_reads_are_missed_and_no_more(tmp_path):
    journal = journal_in(tmp_path, file_bytes_max=1000)
    for number in range(30):
        journal.append(withheld(number), WALL_MS)
    reading = journal.read(0)
    assert next(reading)["broker_id"] == 0
    for path in sorted(tmp_path.iterdir())[:-1]:
        path.unlink()
    assert numbers(reading)[-1] == 29
    journal.close()


def test_a_file_that_somebody_removed_does_not_hold_up_the_next(tmp_path):
    journal = journal_in(tmp_path, files_max=2, file_bytes_max=300)
    for number in range(4):
        journal.append(withheld(number), WALL_MS)
        journal.flush()
    for path in tmp_path.iterdir():
        path.unlink()
    for number in range(4, 9):
        journal.append(withheld(number), WALL_MS)
    journal.close()
    assert journal.dropped == 0
    assert numbers(journal.read(0))[-1] == 8


# Restarts


def test_the_sequence_goes_on_after_a_restart(tmp_path):
    first = journal_in(tmp_path)
    first.append(withheld(1), WALL_MS)
    first.close()
    second = journal_in(tmp_path, incarnation=Uuid(b"incarnation 0002"))
    assert second.next_sequence == 1
    second.append(withheld(2), WALL_MS)
    second.close()
    entries = list(second.read())
    assert [entry["sequence"] for entry in entries] == [0, 1]
    assert entries[0]["incarnation"] != entries[1]["incarnation"]
    assert len(files_of(tmp_path)) == 1


@pytest.mark.parametrize(
    "tail",
    [
        b'{"version":1,"seq',
        b'{"version":1,"sequence":99}',  # whole, but who knows: it has no end
        b"\x00" * 700,
        b"\x00" * 700 + b"\n",
        b"not json\n[1]\n7\n{}\n" + b'{"sequence":"8"}\n',
        b"\xff\xfe\n",
    ],
)
def test_what_a_crash_left_at_the_end_is_cut_off(tmp_path, tail):
    first = journal_in(tmp_path)
    for number in range(3):
        first.append(withheld(number), WALL_MS)
    first.close()
    path = tmp_path / "events-00000000000000000000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    second = journal_in(tmp_path)
    assert path.read_bytes() == whole
    second.append(withheld(3), WALL_MS)
    assert numbers(second.read()) == [0, 1, 2, 3]
    second.close()


def test_a_file_with_nothing_whole_in_it_is_begun_again(tmp_path):
    (tmp_path / "events-00000000000000000041.jsonl").write_bytes(b'{"version":1,')
    (tmp_path / "events-notes.txt").write_text("of somebody else")
    journal = journal_in(tmp_path)
    journal.append(withheld(1), WALL_MS)
    assert [entry["sequence"] for entry in journal.read()] == [41]
    journal.close()


def test_it_takes_over_what_stands_where_it_was(tmp_path):
    first = journal_in(tmp_path)
    for number in range(3):
        first.append(withheld(number), WALL_MS)
    first.close()
    name, former = "events-00000000000000000000.jsonl", tmp_path / "events"
    former.mkdir()
    (tmp_path / name).rename(former / name)
    (former / "published").write_text("2")
    second = journal_in(tmp_path)
    second.append(withheld(3), WALL_MS)
    assert numbers(second.read()) == [0, 1, 2, 3]
    second.close()
    assert (tmp_path / POSITION_NAME).read_text() == "2"
    assert not former.exists()


def test_taking_over_goes_on_where_it_was_broken_off(tmp_path):
    first = journal_in(tmp_path, files_max=9, file_bytes_max=150)
    for number in range(6):
        first.append(withheld(number), WALL_MS)
    first.close()
    former = tmp_path / "events"
    former.mkdir()
    files = sorted(tmp_path.glob("events-*.jsonl"))
    assert len(files) > 2
    for one in files[1:]:  # one has been brought already
        one.rename(former / one.name)
    (former / "published").write_text("2")
    second = journal_in(tmp_path)
    assert numbers(second.read()) == list(range(6))
    second.close()
    assert (tmp_path / POSITION_NAME).read_text() == "2"
    assert not former.exists()


def test_what_an_older_release_has_written_since_does_not_take_its_place(tmp_path, caplog):
    first = journal_in(tmp_path)
    for number in range(3):
        first.append(withheld(number), WALL_MS)
    first.close()
    (tmp_path / POSITION_NAME).write_text("2")
    former = tmp_path / "events"
    former.mkdir()
    (former / "events-00000000000000000000.jsonl").write_text("anew")
    (former / "published").write_text("0")
    second = journal_in(tmp_path)
    second.append(withheld(3), WALL_MS)
    assert numbers(second.read()) == [0, 1, 2, 3]
    second.close()
    assert (tmp_path / POSITION_NAME).read_text() == "2"
    assert sorted(one.name for one in former.iterdir()) == ["events-00000000000000000000.jsonl", "published"]
    assert str(former) in caplog.text


def test_a_line_in_the_middle_that_is_damaged_is_left_out(tmp_path):
    journal = journal_in(tmp_path)
    for number in range(5):
        journal.append(withheld(number), WALL_MS)
    journal.close()
    path = tmp_path / "events-00000000000000000000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = bytes(len(lines[2]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    assert numbers(journal_in(tmp_path).read()) == [0, 1, 3, 4]


# Bad disks


def test_a_full_disk_costs_events_and_they_are_counted():
    async def scenario(host: Host) -> None:
        disk = world.machines["c1"].disk
        journal = EventJournal(host, "/data", 1, INCARNATION)
        journal.append(withheld(0), WALL_MS)
        journal.flush()
        disk.room_bytes = 300  # of the next three lines, one and a half
        for number in (1, 2, 3):
            journal.append(withheld(number), WALL_MS)
        journal.flush()
        assert (journal.written, journal.dropped) == (1, 3)
        journal.append(withheld(4), WALL_MS)
        disk.room_bytes = 0
        journal.flush()
        assert numbers(journal.read()) == [0]
        disk.repair()
        journal.append(withheld(5), WALL_MS)
        first, said, last = journal.read()
        assert (said["kind"], said["count"], said["sequence"]) == ("EventsDropped", 4, 1)
        assert (first["broker_id"], last["broker_id"], last["sequence"]) == (0, 5, 2)
        journal.append(withheld(6), WALL_MS)
        assert numbers(list(journal.read())[3:]) == [6]  # it is said once
        journal.close()

    with World(1) as world:
        run_process(world, "c1", scenario)
        world.check()


def test_a_journal_that_cannot_begin_begins_later(tmp_path, caplog):
    class Stubborn(RealFiles):
        is_broken = True

        def make_directory(self, path):
            if self.is_broken:
                raise OSError(28, "No space left on device")
            super().make_directory(path)

    files = Stubborn()
    journal = journal_in(tmp_path, files)
    for number in range(3):
        journal.append(withheld(number), WALL_MS)
        journal.flush()
    assert [one.getMessage() for one in caplog.records].count(
        f"journal not written directory={tmp_path} reason=[Errno 28] No space left on device"
    ) == 1
    files.is_broken = False
    journal.append(withheld(3), WALL_MS)
    said, last = journal.read()
    assert (said["count"], last["broker_id"]) == (3, 3)
    journal.close()


@pytest.mark.parametrize("broken", [{"append"}, {"append", "truncate"}])
def test_what_a_failed_write_left_is_not_read(tmp_path, broken):
    files = FailingFiles()
    journal = journal_in(tmp_path, files)
    journal.append(withheld(0), WALL_MS)
    journal.flush()
    files.broken = {(operation, ".jsonl") for operation in broken}
    for number in (1, 2, 3, 4):
        journal.append(withheld(number), WALL_MS)
    journal.flush()
    files.broken = set()
    journal.append(withheld(5), WALL_MS)
    entries = list(journal.read())
    assert [entry["kind"] for entry in entries] == ["UnfenceWithheld", "EventsDropped", "UnfenceWithheld"]
    assert [entry["sequence"] for entry in entries] == [0, 1, 2]
    assert entries[-1]["broker_id"] == 5
    journal.close()


def test_a_file_that_cannot_be_read_at_the_start_is_left_alone(tmp_path):
    first = journal_in(tmp_path)
    first.append(withheld(0), WALL_MS)
    first.close()
    files = FailingFiles()
    files.broken = {("read", ".jsonl")}
    journal = journal_in(tmp_path, files)
    files.broken = set()
    journal.append(withheld(1), WALL_MS)
    assert numbers(journal.read()) == [0, 1]
    assert len(files_of(tmp_path)) == 2
    journal.close()


def test_more_than_may_wait_is_dropped(tmp_path):
    journal = journal_in(tmp_path, waiting_max=2)
    for number in range(5):
        journal.append(withheld(number), WALL_MS)
    journal.close()
    said, *kept = journal.read()
    assert (said["count"], numbers(kept), journal.dropped) == (3, [0, 1], 3)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_failure_what_is_left_is_whole_and_the_sequence_goes_up(seed):
    sequences = []

    async def scenario(host: Host) -> None:
        journal = EventJournal(host, "/data", 1, INCARNATION, JournalLimits(file_bytes_max=2000))
        sequences.append([entry["sequence"] for entry in journal.read()])
        for number in range(50):
            journal.append(withheld(number), WALL_MS)
            journal.flush()
        assert sorted(sequences[-1]) == sequences[-1]

    with World(seed) as world:
        for _ in range(4):
            run_process(world, "c1", scenario)
            world.power_loss("c1")
        world.check()
    assert all(sorted(set(found)) == found for found in sequences)


def test_it_is_written_a_moment_later_and_when_it_ends():
    async def scenario(host: Host) -> None:
        journal = EventJournal(host, "/data", 1, INCARNATION)
        running = asyncio.create_task(journal.run())
        journal.append(withheld(0), WALL_MS)
        await asyncio.sleep(1)
        assert journal.written == 1
        journal.append(withheld(1), WALL_MS)
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert journal.written == 2

    with World(1) as world:
        run_process(world, "c1", scenario)
        world.check()
