"""`quorate metadata`: the log of a cluster, record by record, and the cluster that it says, at any offset.

Where from is said by an option: a directory, a segment or a snapshot, of Quorate or of Apache Kafka, or a
quorum that runs. Files are only read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from quorate.cli.asking import BOOTSTRAP_SERVER, NOT_ASKED, fail, nobody_answered, print_json, run, time_text
from quorate.cli.image_tree import everything, matching, tree_of
from quorate.cli.metadata_records import record_lines
from quorate.cli.metadata_shell import Shell, ShellError, converse
from quorate.cli.tables import table
from quorate.client.controllers import Controllers
from quorate.client.errors import Unavailable
from quorate.client.metadata import parse_addresses
from quorate.metadata.errors import ImageError
from quorate.metadata.history import History, Moment, moment_at
from quorate.protocol.batch import read_header
from quorate.protocol.errors import ApiError
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.metadata_files import history_of_directory, history_of_segment, history_of_snapshot

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The metadata log, and what it says of the cluster."
)

DirectoryOption = Annotated[
    str, typer.Option("--directory", metavar="DIR", help="Of a node, or of its metadata log.")
]
SegmentOption = Annotated[str, typer.Option("--segment", metavar="FILE", help="One segment of the log.")]
SnapshotOption = Annotated[str, typer.Option("--snapshot", metavar="FILE", help="One snapshot.")]
ControllerOption = Annotated[
    str, typer.Option("--bootstrap-controller", metavar="HOST:PORT,...", help="Controllers that run.")
]
ServerOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"Brokers that know them; {BOOTSTRAP_SERVER} if nothing is said.",
    ),
]
OffsetOption = Annotated[
    int | None,
    typer.Option("--offset", metavar="N", min=0, help="With the record at this offset, and none after it."),
]


@app.command("dump")
def dump(
    directory: DirectoryOption = "",
    segment: SegmentOption = "",
    snapshot: SnapshotOption = "",
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
    from_offset: Annotated[int, typer.Option(metavar="N", min=0, help="From this offset on.")] = 0,
    to_offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="Up to this offset.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", metavar="NAME", help="Only such records, as TopicRecord.")
    ] = None,
) -> None:
    """Every record, a line of JSON each. A log that begins with a snapshot has its records first."""
    source = _Source(directory, segment, snapshot, bootstrap_controller, bootstrap_server)

    def lines(history: History) -> Iterator[dict[str, Any]]:
        if snapshot or (source.is_live and from_offset < history.snapshot_end_offset):
            for batch in history.snapshot:
                for line in record_lines(batch, read_header(batch)):
                    yield {"snapshot": history.snapshot_end_offset, **line}
        for batch in history.log:
            header = read_header(batch)
            if to_offset is not None and header.base_offset > to_offset:
                return
            if header.last_offset >= from_offset:
                for line in record_lines(batch, header):
                    if line["offset"] >= from_offset and (to_offset is None or line["offset"] <= to_offset):
                        yield line

    def show() -> None:
        for line in lines(source.history(None)):
            if not kind or line["type"] in kind:
                print(json.dumps(line))

    _in_one_line(show)


@app.command("at")
def at(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="What of it, as /topics/orders.")] = "",
    offset: OffsetOption = None,
    directory: DirectoryOption = "",
    segment: SegmentOption = "",
    snapshot: SnapshotOption = "",
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """The cluster at an offset: a summary, or all of it, or what is at a path in it."""
    source = _Source(directory, segment, snapshot, bootstrap_controller, bootstrap_server)

    def show() -> None:
        moment = moment_at(source.history(offset), offset)
        if not path and not as_json:
            print("\n".join(table(_summary(moment))))
            return
        found = list(matching(tree_of(moment), path or "/"))
        if not found:
            fail(f"{path}: there is nothing of that name at offset {moment.offset}")
        for _, node in found:
            print_json(everything(node))

    _in_one_line(show)


@app.command("shell", context_settings={"allow_interspersed_args": False})
def shell(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="What to do, as: ls /topics.")
    ] = None,
    offset: OffsetOption = None,
    directory: DirectoryOption = "",
    segment: SegmentOption = "",
    snapshot: SnapshotOption = "",
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
) -> None:
    """Walks the cluster like directories: ls, cd, cat, find. Options come before the command."""
    source = _Source(directory, segment, snapshot, bootstrap_controller, bootstrap_server)

    def show() -> None:
        walker = Shell(tree_of(moment_at(source.history(offset), offset)))
        if not command:
            converse(walker)
            return
        for line in walker.run(command):
            print(line)

    _in_one_line(show)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the log comes from, of which one is said."""

    directory: str
    segment: str
    snapshot: str
    bootstrap_controller: str
    bootstrap_server: str

    def __post_init__(self) -> None:
        said = [self.directory, self.segment, self.snapshot, self.bootstrap_controller, self.bootstrap_server]
        if sum(map(bool, said)) > 1:
            fail("say one of " + ", ".join(_OPTIONS))

    @property
    def is_live(self) -> bool:
        return not (self.segment or self.snapshot or self.directory)

    def history(self, offset: int | None) -> History:
        files = ReadOnlyFiles()
        if self.directory:
            return history_of_directory(files, self.directory, offset)
        if self.segment:
            return history_of_segment(files, self.segment)
        if self.snapshot:
            return history_of_snapshot(files, self.snapshot)
        return run(self._live())

    async def _live(self) -> History:
        asked = self.bootstrap_controller or self.bootstrap_server or BOOTSTRAP_SERVER
        whom = "controller" if self.bootstrap_controller else "broker"
        async with Controllers(parse_addresses(asked)) as controllers:
            try:
                return await controllers.read_log()
            except Unavailable as error:
                raise nobody_answered(whom, asked, str(error)) from None


_OPTIONS: Final = (
    "--directory",
    "--segment",
    "--snapshot",
    "--bootstrap-controller",
    "--bootstrap-server",
)


def _summary(moment: Moment) -> list[tuple[str, object]]:
    image = moment.image
    fenced = sorted(one.id for one in image.brokers.values() if one.is_fenced)
    partitions = [one for topic in image.topics for _, one in image.partitions_of(topic.id)]
    return [
        ("offset", moment.offset),
        ("epoch", moment.epoch),
        ("time", None if moment.timestamp_ms < 0 else time_text(moment.timestamp_ms)),
        ("metadata.version", image.metadata_version),
        ("controllers", ", ".join(map(str, sorted(image.controllers)))),
        ("brokers", ", ".join(map(str, sorted(image.brokers)))),
        ("fenced", ", ".join(map(str, fenced))),
        ("topics", len(image.topics)),
        ("partitions", len(partitions)),
        ("without leader", sum(one.leader < 0 for one in partitions)),
        ("under-replicated", sum(len(one.isr) < len(one.replicas) for one in partitions)),
        ("unknown records", len(image.unknown)),
    ]


def _in_one_line(show: Callable[[], None]) -> None:
    try:
        show()
    except ApiError as error:
        fail(error.message or error.code.name)
    except (ImageError, ShellError) as error:
        fail(str(error))
    except StorageError as error:
        fail(str(error), NOT_ASKED)
