"""Runs parts of the test suite one after the other, and says how many minutes each took.

All parts run even if one fails; the exit status says whether all passed.
"""

import subprocess
import sys
import time

WORKERS = ("-n", "2")
RULES = "not interop and not simulation and not processes and not spark and not zookeeper"
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
    "spark": ("tests", "-m", "spark", *WORKERS, "--dist", "loadfile"),
    "fuzz": ("tests/fuzz", *WORKERS),
    # It forks its own workers.
    "simulation": ("tests", "-m", "simulation"),
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
        status = subprocess.run([sys.executable, "-m", "pytest", "-q", *PARTS[name]], check=False).returncode
        results.append((name, status, (time.monotonic() - started) / 60))
    print("\npart        minutes")
    for name, status, minutes in results:
        print(f"{name:<11} {minutes:7.2f}  {'passed' if status == 0 else f'FAILED ({status})'}")
    return int(any(status for _, status, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
