"""Apache Kafka's own message classes, as an oracle that Python can ask.

`ApacheOracle.start(release)` fetches the jars of a release with Maven, compiles `apache/Oracle.java` against
them, and starts it. Jars and classes are kept in `build/apache/`, so only the first start is slow.

    with ApacheOracle.start(PINNED) as apache:
        assert apache.roundtrip("RequestHeader", 2, data).data == data
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, Self

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "apache"
POM = HERE / "apache" / "pom.xml"
SOURCE = HERE / "apache" / "Oracle.java"

PINNED = (HERE / "kafka-version").read_text().strip()
"""The release that Quorate is measured against."""

ZOOKEEPER_ERA = "3.9.2"
"""The last line of releases with the ZooKeeper messages, and with the versions that 4.0 dropped."""

JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
STOP_TIMEOUT_SECONDS = 10


class OracleError(Exception):
    """Apache's classes refuse: these are not the bytes of that message, or it does not exist."""


class OracleDiedError(Exception):
    """There is no answer, because the process that should give it could not start or has ended."""


class ErrorConstant(NamedTuple):
    """One constant of Apache's `Errors`."""

    code: int
    name: str
    retriable: bool


class Confirmed(NamedTuple):
    """What Apache's class wrote after it had read a message, and the fields that it saw, as JSON."""

    data: bytes
    fields: str


class Api(NamedTuple):
    """One constant of Apache's `ApiKeys`.

    `highest` counts unstable versions, `highest_stable` does not. A retired API has no versions: its highest
    is -1. `listeners` are those that serve it: `broker`, `controller`, and before 4.0 `zk_broker`.
    """

    key: int
    name: str
    lowest: int
    highest: int
    highest_stable: int
    listeners: frozenset[str]
    forwardable: bool


class HeaderVersions(NamedTuple):
    request: int
    response: int


def missing() -> str | None:
    """What this machine lacks to run the oracle, or None when it lacks nothing."""
    absent = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if not absent:
        return None
    return f"Apache's message classes need a JDK and Maven; not on PATH: {', '.join(absent)}"


class ApacheOracle:
    """A running oracle of one release. It serves one thread at a time."""

    def __init__(self, release: str, process: subprocess.Popen[bytes], stderr: Path) -> None:
        self.release = release
        self._process = process
        self._stderr = stderr

    @classmethod
    def start(cls, release: str) -> Self:
        jars = _jars(release)
        classes = _classes(release, jars)
        descriptor, stderr = tempfile.mkstemp(prefix=f"{release}-", suffix=".stderr", dir=BUILD)
        with os.fdopen(descriptor, "wb") as stderr_file:
            process = subprocess.Popen(
                ["java", *JVM_OPTIONS, "-cp", f"{jars}/*{os.pathsep}{classes}", "Oracle"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
            )
        return cls(release, process, Path(stderr))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process. What it wrote to stderr stays in `build/` if it did not end well."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        if self._process.returncode == 0:
            self._stderr.unlink(missing_ok=True)

    def roundtrip(self, name: str, version: int, data: bytes) -> Confirmed:
        """What Apache's class makes of `data`, all of it."""
        return _confirmed(self._ask(_roundtrip_question(name, version, data)))

    def roundtrip_many(self, messages: Iterable[tuple[str, int, bytes]]) -> list[Confirmed | OracleError]:
        """Many round trips without a wait between them. A refusal is a value, in its message's place."""
        questions = [_roundtrip_question(*message) for message in messages]
        answers: list[Confirmed | OracleError] = []
        with self._writing(questions):
            for _ in questions:
                try:
                    answers.append(_confirmed(self._answer()))
                except OracleError as refusal:
                    answers.append(refusal)
        return answers

    def versions(self, name: str) -> range | None:
        """The versions that the schema has in this release, or None when it has no such schema."""
        if name not in self._known_names:
            return None
        lowest, highest = map(int, self._ask(f"describe {name}").split())
        return range(lowest, highest + 1)

    def names(self) -> list[str]:
        """Every schema of this release that has a message class, in alphabetical order."""
        return sorted(self._known_names)

    def errors(self) -> list[ErrorConstant]:
        constants = (constant.split(":") for constant in self._ask("errors").split())
        return [ErrorConstant(int(code), name, retriable == "true") for code, name, retriable in constants]

    def apis(self) -> list[Api]:
        return [_api(constant) for constant in self._ask("apis").split()]

    def header_versions(self, key: int, version: int) -> HeaderVersions:
        """The versions of the headers that travel with this version of an API."""
        request, response = map(int, self._ask(f"headers {key} {version}").split())
        return HeaderVersions(request, response)

    @cached_property
    def _known_names(self) -> frozenset[str]:
        return frozenset(self._ask("names").split())

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _ask(self, question: str) -> str:
        self._write([question])
        return self._answer()

    def _write(self, questions: Iterable[str]) -> None:
        try:
            self._stdin.writelines(question.encode() + b"\n" for question in questions)
            self._stdin.flush()
        except BrokenPipeError:
            pass  # it died: the read that follows meets the end of its output, and says so

    @contextmanager
    def _writing(self, questions: Sequence[str]) -> Iterator[None]:
        """Write from a thread of its own: when both pipes are full, one side must still be reading."""
        writer = threading.Thread(target=self._write, args=(questions,), daemon=True)
        writer.start()
        try:
            yield
        except BaseException:
            self._process.kill()  # questions and answers are no longer in step
            raise
        finally:
            writer.join()

    def _answer(self) -> str:
        line = self._stdout.readline().decode()
        if not line.endswith("\n"):
            raise self._died()
        status, _, text = line.removesuffix("\n").partition(" ")
        if status == "error":
            raise OracleError(text)
        assert status == "ok", line
        return text

    def _died(self) -> OracleDiedError:
        try:
            ended = f"ended with exit code {self._process.wait(STOP_TIMEOUT_SECONDS)}"
        except subprocess.TimeoutExpired:
            ended = "closed its output"
        stderr = self._stderr.read_text(errors="replace")
        return OracleDiedError(f"Apache {self.release} {ended}; {self._stderr} ends:\n{_tail(stderr)}")


def _confirmed(answer: str) -> Confirmed:
    data, _, fields = answer.partition(" ")
    return Confirmed(bytes.fromhex(data), fields)


def _roundtrip_question(name: str, version: int, data: bytes) -> str:
    if not name.isidentifier():
        raise ValueError(f"not the name of a schema: {name!r}")
    return f"{name} {version} {data.hex()}"


def _api(constant: str) -> Api:
    key, name, lowest, highest, highest_stable, listeners, forwardable = constant.split(":")
    return Api(
        key=int(key),
        name=name,
        lowest=int(lowest),
        highest=int(highest),
        highest_stable=int(highest_stable),
        listeners=frozenset(listeners.split(",")) - {""},
        forwardable=forwardable == "true",
    )


def _jars(release: str) -> Path:
    def copy_dependencies(directory: Path) -> None:
        options = [f"-Dkafka.version={release}", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])

    return built(BUILD / release, POM, copy_dependencies)


def _classes(release: str, jars: Path) -> Path:
    def compile_oracle(directory: Path) -> None:
        run(["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(directory), str(SOURCE)])

    return built(BUILD / f"{release}-classes", SOURCE, compile_oracle)


def built(directory: Path, source: Path, build: Callable[[Path], None]) -> Path:
    """The directory, built anew unless it is complete and of this source.

    The marker is written last, so an interrupted build is no build; the lock is for the other workers.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with _locked(BUILD / f"{directory.name}.lock"):
        marker = directory / "complete"
        if not marker.exists() or marker.read_text() != _fingerprint(directory, source):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            build(directory)
            marker.write_text(_fingerprint(directory, source))
    return directory


def _fingerprint(directory: Path, source: Path) -> str:
    """Changes when the source does, and when a built file goes missing or has been cut short."""
    files = sorted((file.name, file.stat().st_size) for file in directory.glob("*.*"))
    return hashlib.sha256(source.read_bytes() + repr(files).encode()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released with the file, however we leave
        yield


def run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace")
        raise OracleDiedError(f"exit code {done.returncode} from: {' '.join(command)}\n{_tail(output)}")


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])
