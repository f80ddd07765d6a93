"""Writes the tables of docs/history.md out of their schemas: `python -m tools.list_history_tables`."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql.types import StructType

from quorate.spark import alerts, answers_schemas, history_schemas, time_travel

PAGE = Path(__file__).parent.parent / "docs" / "history.md"
_MARKED = re.compile(r"<!-- (history|answers|moments) -->\n.*?<!-- end -->", re.DOTALL)
_SPAN = ("origin", "start_offset", "end_offset", "start_ts", "end_ts", "is_start_known", "is_end_known")


def written(page: str) -> str:
    """The page with its lists as they should be."""
    return _MARKED.sub(lambda found: f"<!-- {found[1]} -->\n{_lists(found[1])}\n<!-- end -->", page)


def _lists(which: str) -> str:
    moments = {
        "brokers": time_travel.BROKERS,
        "partitions": time_travel.PARTITIONS,
        "difference": time_travel.DIFFERENCE,
        "alerts": alerts.ALERTS,
    }
    tables = {"history": history_schemas.TABLES, "answers": answers_schemas.TABLES, "moments": moments}[which]
    hidden = _SPAN if which == "history" else ()
    return "\n".join(_list(name, schema, hidden) for name, schema in tables.items())


def _list(name: str, schema: StructType, hidden: tuple[str, ...]) -> str:
    rows = [
        f"| `{one.name}` | {_type(one.dataType.simpleString())} | {one.metadata['comment']} |"
        for one in schema.fields
        if one.name not in hidden
    ]
    return "\n".join([f"\n### {name}\n", "| column | type | meaning |", "|---|---|---|", *rows])


def _type(name: str) -> str:
    return name.replace("bigint", "long").replace("array<int>", "array of int")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
