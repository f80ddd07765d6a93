"""Answers to what operators ask, computed from history and events.

    from quorate.spark import answers, history

    states, leaders = history.broker_states(records), history.partition_leaders(records)
    answers.failovers(records, states, leaders, events).orderBy("ts").show()

Each function gives one table of docs/history.md, and its parameters are named after the tables that it reads.
What a log cannot know is null, never guessed.
"""

from __future__ import annotations

from quorate.spark.answers_availability import availability, imbalance
from quorate.spark.answers_failovers import failovers, flapping
from quorate.spark.answers_groups import lag, rebalances
from quorate.spark.answers_incidents import incidents
from quorate.spark.answers_restarts import rolling_restarts
from quorate.spark.answers_schemas import TABLES

__all__ = [
    "TABLES",
    "availability",
    "failovers",
    "flapping",
    "imbalance",
    "incidents",
    "lag",
    "rebalances",
    "rolling_restarts",
]
