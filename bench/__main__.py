"""`make bench`: every section, or those that are named: `python -m bench codec`. One takes options of its
own: `python -m bench failover --modes kraft,zookeeper --partitions 100,1000`."""

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
    "served",
    "expressions",
    "compaction",
    "startup",
    "simulation",
    "failover",
    "replication",
    "spark",
    "spark-history",
    "spark-logs",
    "spark-pipeline",
)
# Where a section is, if not in the module of its name.
MODULES = {
    "spark": "spark_topics",
    "spark-logs": "spark_logs",
    "spark-history": "spark_history",
    "spark-pipeline": "spark_pipeline",
}

if sys.argv[1:2] == ["failover"] and sys.argv[2:]:
    importlib.import_module("bench.failover").main(sys.argv[2:])
    sys.exit()

for name in sys.argv[1:] or SECTIONS:
    if name not in SECTIONS:
        sys.exit(f"no section {name!r}; there are: {', '.join(SECTIONS)}")
print(f"Python {platform.python_version()}; each ratio compares two sides of the same run")
for name in sys.argv[1:] or SECTIONS:
    print(f"\n{name}")
    for row in importlib.import_module(f"bench.{MODULES.get(name, name)}").section():
        print(row)
