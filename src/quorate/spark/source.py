"""`format("quorate")`: which log an option names, and who reads it.

Spark asks for the source by name, in a worker process that knows only the options. So this module decides and
delegates, and imports what a log needs when somebody asks for that log.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["LOGS", "PushingQuorateSource", "QuorateSource"]

# By the value of the option `log`: the module that has `schema`, `reader` and `stream_reader`.
LOGS: Final = {
    "topic": "quorate.spark.topic_source",
    "metadata": "quorate.spark.metadata_source",
    "groups": "quorate.spark.group_source",
    "events": "quorate.spark.event_source",
}
PUSHDOWN: Final = "pushdown"


class QuorateSource(DataSource):
    """Leaves filters to Spark, unless the option `pushdown` says otherwise: a session that does not allow
    them to be taken over refuses a reader that would."""

    @classmethod
    def name(cls) -> str:
        return "quorate"

    def schema(self) -> StructType:
        schema = self._log().schema(self.options)
        assert isinstance(schema, StructType)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = self._log().reader(self.options, schema)
        assert isinstance(reader, DataSourceReader)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = self._log().stream_reader(self.options, schema)
        assert isinstance(reader, DataSourceStreamReader)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer = self._sink(overwrite).writer(self.options, schema)
        assert isinstance(writer, DataSourceWriter)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = self._sink(overwrite).stream_writer(self.options, schema)
        assert isinstance(writer, DataSourceStreamWriter)
        return writer

    def _sink(self, overwrite: bool) -> ModuleType:
        """Topics can be written, and only appended to; the cluster writes the other logs itself."""
        if overwrite:
            raise ValueError("a topic can only be appended to: use mode('append')")
        if self.options.get("log", "topic") != "topic":
            raise ValueError(f"option log={self.options['log']!r}: only topics can be written")
        return self._log()

    def _log(self) -> ModuleType:
        log = self.options.get("log", "topic")
        if log not in LOGS:
            raise ValueError(f"option log={log!r}: allowed is {', '.join(LOGS)}")
        return import_module(LOGS[log])


class PushingQuorateSource(QuorateSource):
    """What our session registers: readers may take filters over, unless the option `pushdown` is false."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.options.setdefault(PUSHDOWN, "true")
