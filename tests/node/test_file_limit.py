"""The limit of open files is raised as far as it goes, and divided."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quorate.node.file_limit import files_for_segments


@pytest.mark.parametrize(
    ("limit", "connections", "files"),
    [(1024, 10_000, 320), (1024, 100, 732), (100, 100, 64), (1 << 20, 10_000, (1 << 20) - 10_192)],
)
def test_segments_get_what_connections_and_syncs_do_not_need(limit: int, connections: int, files: int):
    assert files_for_segments(limit, connections) == files


def test_a_process_takes_what_it_may_have():
    code = (
        "import resource; from quorate.node.file_limit import raised_limit;"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard)); assert raised_limit() == hard;"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
