"""What the demo did, for programs: `story.json` in its directory, replaced whenever something was done.

    {"cluster_id": ..., "steps": [{"what": "kill", "node": 2, "at_ms": ..., "until_ms": ...,
     "metadata_offset_before": 120, "metadata_offset_after": 133, ...}, ...], "acknowledged": 9000, ...}

All metadata records that a step caused have offsets from `metadata_offset_before` to before
`metadata_offset_after`. Others may stand between them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from quorate.cli.demo_proof import Claim

__all__ = ["STORY_FILE", "Story", "wall_ms"]

STORY_FILE: Final = "story.json"
_VERSION: Final = 1


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Story:
    """`facts` are about the whole; steps come one after the other, and claims at the end of each."""

    def __init__(self, directory: Path, offset: Callable[[], int]) -> None:
        """`offset` says how far the metadata log is committed."""
        self.path = directory / STORY_FILE
        self.facts: dict[str, Any] = {}
        self.claims: list[Claim] = []
        self._offset = offset
        self._steps: list[dict[str, Any]] = []
        self._began_ms = wall_ms()

    @contextlib.contextmanager
    def step(self, what: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """For the time of a step; what is found out about it is added to what the block is given."""
        step: dict[str, Any] = {"what": what, **facts}
        step["metadata_offset_before"] = self._offset()
        step["at_ms"] = wall_ms()
        self._steps.append(step)
        yield step
        step["metadata_offset_after"] = self._offset()
        step["until_ms"] = wall_ms()
        self.write()

    def began(self, what: str, **facts: Any) -> None:
        """A step that was over before there was anybody to ask for offsets: the start of the cluster."""
        offsets = {"metadata_offset_before": 0, "metadata_offset_after": self._offset()}
        self._steps.append({"what": what, "at_ms": self._began_ms, "until_ms": wall_ms(), **facts, **offsets})
        self.write()

    def claim(self, claim: Claim) -> Claim:
        self.claims.append(claim)
        return claim

    def note(self, facts: Mapping[str, Any]) -> None:
        self.facts.update(facts)
        self.write()

    @property
    def broken(self) -> list[Claim]:
        """Claims that do not hold."""
        return [one for one in self.claims if not one.holds]

    def write(self) -> None:
        content = {
            "version": _VERSION,
            "began_ms": self._began_ms,
            **self.facts,
            "steps": self._steps,
            "claims": [{"claim": one.text, "holds": one.holds, "detail": one.detail} for one in self.claims],
        }
        fresh = self.path.with_suffix(".json.new")
        fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.path)
