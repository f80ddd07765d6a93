"""Writes tests/apache-vectors.txt anew: messages that Apache's own classes have just confirmed."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]

from apache_oracle import PINNED, ZOOKEEPER_ERA, ApacheOracle  # noqa: E402
from test_apache import confirm  # noqa: E402

import vectors  # noqa: E402

with ApacheOracle.start(PINNED) as apache, ApacheOracle.start(ZOOKEEPER_ERA) as apache_39:
    confirmed = confirm(apache, apache_39, salt="")
vectors.PATH.write_text("".join(f"{one}\n" for one in confirmed))
print(f"{len(confirmed)} vectors in {vectors.PATH.relative_to(ROOT)}")
