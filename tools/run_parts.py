"""Runs parts of the test suite one after the other, and says how many minutes each took.

All parts run even if one fails; the exit status says whether all passed.
"""

import subprocess
import sys
import time

WORKERS = ("-n", "2")
RULES = "not interop and not simulation and not processes and not spark and not zookeeper"
SEEDS = "test_seeds_keep_every_promise"
PARTS = {
    # Without other people's programs and without waiting: the rules themselves, and the examples in the code.
    "pure": (
        *("tests", "src", "--doctest-modules", "--ignore=tests/fuzz", "-m", RULES),
        "--ignore=src/quorate/spark/declarative/project",  # which only Spark can load
        *WORKERS,
    ),
    "processes": (
        "tests",
        "-m",
        "processes and not interop and not simulation and not spark and not zookeeper",
        *WORKERS,
        "--dist",
        "loadfile",
    ),
    # What a file starts, such as a cluster, it starts once.
    "interop": ("tests", "-m", "interop and not spark and not zookeeper", *WORKERS, "--dist", "loadfile"),
    "zookeeper": ("tests", "-m", "zookeeper", *WORKERS, "--dist", "loadfile"),
    # In the order of tests/conftest.py, not that of how many tests a file has.
    "spark": (
        *("tests/spark", "tests/test_readme.py", "-m", "spark"),
        *(*WORKERS, "--dist", "loadfile", "--no-loadscope-reorder"),
    ),
    "fuzz": ("tests/fuzz", *WORKERS),
    "simulation": ("tests", "-m", "simulation", "-k", f"not {SEEDS}", *WORKERS, "--dist", "loadfile"),
}
# What runs after a part, and belongs to it.
THEN = {
    # As many seeds as fit into some minutes: they fork workers for all cores, so nothing may run beside them.
    "simulation": ("tests", "-m", "simulation", "-k", SEEDS),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        print(f"usage: run_parts.py PART...; parts are {', '.join(PARTS)}")
        return 2
    results = []
    for name in names:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        statuses = [run_tests(arguments) for arguments in (PARTS[name], THEN.get(name)) if arguments]
        status = next(filter(None, statuses), 0)
        results.append((name, status, (time.monotonic() - started) / 60))
    print("\npart        minutes")
    for name, status, minutes in results:
        print(f"{name:<11} {minutes:7.2f}  {'passed' if status == 0 else f'FAILED ({status})'}")
    return int(any(status for _, status, _ in results))


def run_tests(arguments: tuple[str, ...]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
