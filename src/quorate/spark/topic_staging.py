"""The place where a micro-batch waits until all of it is there: what makes the sink exactly once.

Without transactions a topic takes records one batch at a time, and whoever dies in between leaves half of a
micro-batch behind. So a micro-batch is first put down whole, and only then published:

1. Tasks write their encoded batches to files. Files of tasks that failed, or that ran twice, are nobody's.
2. When all tasks are done, the driver writes the *plan*: which pieces of which files go to which partition,
   in which order, under which producer id, epoch and sequence numbers, and how far each partition reached
   before. From then on the content of this micro-batch is fixed, whatever a repetition would compute.
3. The driver publishes what the plan says.
4. It writes that the micro-batch is done, and which sequence numbers come next.

| it dies         | what is there          | what happens next                                          |
|-----------------|------------------------|------------------------------------------------------------|
| before 2        | files                  | Spark repeats the micro-batch, and the files are not used  |
| between 2 and 4 | the plan, some records | the repetition finds the plan, looks into the partitions   |
|                 |                        | how far its producer came, and publishes the rest          |
| after 4         | all records            | the repetition finds that it is done, and does nothing     |

Somebody who was thought dead and still publishes does no harm: he sends the same bytes under the same
numbers, and a partition takes them once.

The directory must be one that the driver and all executors see: a path, or what `pyarrow.fs` has a URI for.
A query has one of its own in it, by the id that its checkpoint gives it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import fs

from quorate.client.metadata import TopicPartition
from quorate.spark.topic_publish import Identity

__all__ = ["Done", "Piece", "Plan", "Staging", "Target"]

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch in a file."""

    file: str
    position: int
    length: int
    count: int


@dataclass(frozen=True, slots=True)
class Target:
    """What a partition gets, and where it and its producer were before."""

    topic_id: str
    start_offset: int
    sequence: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A micro-batch that is to be published, come what may."""

    identity: Identity
    targets: dict[TopicPartition, Target]


@dataclass(frozen=True, slots=True)
class Done:
    """What the next micro-batch needs to know of those before it."""

    identity: Identity
    sequences: dict[TopicPartition, int]


class Staging:
    """The directory of one query."""

    def __init__(self, location: str, query_id: str) -> None:
        self._files, root = file_system(location)
        self._root = f"{root}/{query_id}"

    def open(self, batch_id: int, name: str) -> tuple[str, Any]:
        """A new file of a task: its name, and where to write."""
        directory = f"{self._root}/{batch_id}"
        self._files.create_dir(directory, recursive=True)
        return f"{batch_id}/{name}", self._files.open_output_stream(f"{directory}/{name}")

    def read(self, file: str) -> Any:
        return self._files.open_input_file(f"{self._root}/{file}")

    def plan(self, batch_id: int) -> Plan | None:
        said = self._load(f"{batch_id}.plan.json")
        if said is None:
            return None
        targets = {
            TopicPartition(one["topic"], one["partition"]): Target(
                one["topic_id"],
                one["start_offset"],
                one["sequence"],
                tuple(Piece(*piece) for piece in one["pieces"]),
            )
            for one in said["targets"]
        }
        return Plan(Identity(*said["producer"]), targets)

    def write_plan(self, batch_id: int, plan: Plan) -> None:
        targets = [
            {
                "topic": at.topic,
                "partition": at.partition,
                "topic_id": one.topic_id,
                "start_offset": one.start_offset,
                "sequence": one.sequence,
                "pieces": [[piece.file, piece.position, piece.length, piece.count] for piece in one.pieces],
            }
            for at, one in plan.targets.items()
        ]
        self._store(f"{batch_id}.plan.json", {"producer": list(plan.identity), "targets": targets})

    def done(self, batch_id: int) -> Done | None:
        said = self._load(f"{batch_id}.done.json")
        if said is None:
            return None
        return Done(
            Identity(*said["producer"]),
            {TopicPartition(topic, partition): number for topic, partition, number in said["sequences"]},
        )

    def write_done(self, batch_id: int, done: Done) -> None:
        sequences = [[at.topic, at.partition, number] for at, number in sorted(done.sequences.items())]
        self._store(f"{batch_id}.done.json", {"producer": list(done.identity), "sequences": sequences})

    def last_done(self, before_batch_id: int) -> Done | None:
        """Of the newest micro-batch before this one. A micro-batch without rows leaves nothing behind."""
        numbers = [number for number, kind in self._entries() if kind == "done" and number < before_batch_id]
        return self.done(max(numbers)) if numbers else None

    def forget(self, before_batch_id: int) -> None:
        """Removes what only micro-batches before this one needed; of the last of them, what it left."""
        entries = self._entries()
        kept = max((one for one, kind in entries if kind == "done" and one < before_batch_id), default=-1)
        for number, kind in entries:
            if number >= before_batch_id or (number == kept and kind == "done"):
                continue
            path = f"{self._root}/{number}"
            if kind == "files":
                self._files.delete_dir(path)
            else:
                self._files.delete_file(f"{path}.{kind}.json")

    # How

    def _entries(self) -> list[tuple[int, str]]:
        """The numbers of micro-batches, and what there is of each: files, plan or done."""
        found = self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        entries = []
        for one in found:
            number, _, rest = one.base_name.partition(".")
            if number.isdecimal() and rest in ("", "plan.json", "done.json"):
                entries.append((int(number), rest.partition(".")[0] or "files"))
        return entries

    def _load(self, name: str) -> dict[str, Any] | None:
        path = f"{self._root}/{name}"
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as file:
            content = file.read()
        try:
            said = json.loads(content)
        except ValueError:
            said = None
        if not isinstance(said, dict) or said.get("format") != _FORMAT:
            raise ValueError(f"{path} is damaged, or was written by another version: {content[:100]!r}")
        return said

    def _store(self, name: str, content: dict[str, Any]) -> None:
        """Under another name first: nobody ever reads half of it."""
        path = f"{self._root}/{name}"
        self._files.create_dir(self._root, recursive=True)
        with self._files.open_output_stream(f"{path}.part") as file:
            file.write(json.dumps({"format": _FORMAT, **content}).encode())
        self._files.move(f"{path}.part", path)


def file_system(location: str) -> tuple[Any, str]:
    """Of a path or a URI: who keeps the files, and what the path is called there."""
    if "://" in location or location.startswith("file:"):
        files, root = fs.FileSystem.from_uri(location)
        return files, str(root).rstrip("/")
    return fs.LocalFileSystem(), location.rstrip("/") or "/"
