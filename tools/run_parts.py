"""Runs parts of the test suite one after the other, and says how many minutes each took.

All parts run even if one fails; the exit status says whether all passed. What failed is told again at the
end: where only the last lines are kept, they are enough.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

LINES_TOLD_AGAIN = 25  # of each test that failed
REASON_CHARACTERS = 400
WORKERS = ("-n", "2")
RULES = "not interop and not simulation and not processes and not spark and not zookeeper"
SEEDS = "test_seeds_keep_every_promise"
# What a file starts, such as a cluster, it starts once. Files come in the order of tests/conftest.py, the
# longest first, and not in that of how many tests they have.
FILES = (*WORKERS, "--dist", "loadfile", "--no-loadscope-reorder")
# Where tests wait for time-outs and for each other's processes, two workers leave a third of two cores idle.
WAITING = ("-n", "3", *FILES[2:])
PARTS = {
    # Without other people's programs and without waiting: the rules themselves, and the examples in the code.
    "pure": (
        *("tests", "src", "--doctest-modules", "--ignore=tests/fuzz", "-m", RULES),
        "--ignore=src/quorate/spark/declarative/project",  # which only Spark can load
        *WORKERS,
    ),
    "processes": (
        *("tests", "-m", "processes and not interop and not simulation and not spark and not zookeeper"),
        *WAITING,
    ),
    "interop": ("tests", "-m", "interop and not spark and not zookeeper", *WAITING),
    "zookeeper": ("tests", "-m", "zookeeper", *WAITING),
    "spark": ("tests/spark", "tests/test_readme.py", "-m", "spark", *FILES),
    "fuzz": ("tests/fuzz", *WORKERS),
    # The property tests of the pure part once more, where they are to draw new examples.
    "properties": ("tests", "-m", f"hypothesis and {RULES}", *WORKERS),
    "simulation": ("tests", "-m", "simulation", "-k", f"not {SEEDS}", *FILES),
}
# What runs after a part, and belongs to it.
THEN = {
    # As many seeds as fit into some minutes: they fork workers for all cores, so nothing may run beside them.
    "simulation": ("tests", "-m", "simulation", "-k", SEEDS),
}


class Failure(NamedTuple):
    test: str
    reason: str
    ending: str


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        print(f"usage: run_parts.py PART...; parts are {', '.join(PARTS)}")
        return 2
    results = []
    failures: list[Failure] = []
    for name in names:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        statuses = [
            run_tests(arguments, failures) for arguments in (PARTS[name], THEN.get(name)) if arguments
        ]
        status = next(filter(None, statuses), 0)
        results.append((name, status, (time.monotonic() - started) / 60))
    for failure in failures:
        print(f"\n{failure.test}\n{failure.ending}")
    print()
    for failure in failures:
        print(f"FAILED {failure.test}: {failure.reason}")
    print("\npart        minutes")
    for name, status, minutes in results:
        print(f"{name:<11} {minutes:7.2f}  {'passed' if status == 0 else f'FAILED ({status})'}")
    print(f"{'all':<11} {sum(minutes for _, _, minutes in results):7.2f}")
    return int(any(status for _, status, _ in results))


def run_tests(arguments: tuple[str, ...], failures: list[Failure]) -> int:
    """The exit status; what failed is added to `failures`."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        # The older of the two families: the newer has no place for the figures that tests record.
        options = ("-q", f"--junit-xml={report}", "--override-ini=junit_family=xunit1")
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        status = subprocess.run(command, check=False).returncode
        if report.exists():
            failures.extend(read_failures(report))
    return status


def read_failures(report: Path) -> Iterator[Failure]:
    for test in ElementTree.parse(report).iter("testcase"):
        for outcome in (*test.iter("failure"), *test.iter("error")):
            message = outcome.get("message") or ""
            text = outcome.text or message
            yield Failure(
                test=f"{test.get('classname')}::{test.get('name')}",
                reason=" ".join(message.split())[:REASON_CHARACTERS],
                ending="\n".join(text.splitlines()[-LINES_TOLD_AGAIN:]),
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
