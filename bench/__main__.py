"""`make bench`: every section, or those that are named: `python -m bench codec`."""

import importlib
import platform
import sys

SECTIONS = (
    "codec",
    "batches",
    "net",
    "quorum",
    "image",
    "controller",
    "broker",
    "quotas",
    "groups",
    "compaction",
    "startup",
)

for name in sys.argv[1:] or SECTIONS:
    if name not in SECTIONS:
        sys.exit(f"no section {name!r}; there are: {', '.join(SECTIONS)}")
print(f"Python {platform.python_version()}; each ratio compares two sides of the same run")
for name in sys.argv[1:] or SECTIONS:
    print(f"\n{name}")
    for row in importlib.import_module(f"bench.{name}").section():
        print(row)
