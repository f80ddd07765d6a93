"""What importing costs: a node listens before anything heavy is loaded."""

import subprocess
import sys

HEAVY = ("numpy", "pyarrow", "pyspark", "typer", "asyncio")


def test_the_protocol_loads_nothing_heavy():
    source = "import sys, quorate.protocol.frame, quorate.protocol.batch; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []


def test_a_family_is_loaded_when_it_is_asked_for():
    source = (
        "import sys, quorate.protocol.api as api; before = set(sys.modules);"
        "api.request_class(88); print(*set(sys.modules) - before)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in loaded if ".api." in name] == ["quorate.protocol.api.streams_groups"]
