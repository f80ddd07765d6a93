"""Spark looks for modules of such names, and in them for this class: so `format("quorate")` just works."""

from quorate.spark.source import QuorateSource as DefaultSource

__all__ = ["DefaultSource"]
