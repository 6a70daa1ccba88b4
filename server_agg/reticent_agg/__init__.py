"""The aggregation server: announces queries, collects what phones contribute, adds it up, and never reads it."""

from reticent_agg.errors import AggregationError, BadAdFolder, BadKeyServerReply, BadStore, NotServed, WrongClock
from reticent_agg.server import AggregationServer
from reticent_agg.sql_store import SqlStore
from reticent_agg.store import AggregationStore

__all__ = [
    "AggregationError",
    "AggregationServer",
    "AggregationStore",
    "BadAdFolder",
    "BadKeyServerReply",
    "BadStore",
    "NotServed",
    "SqlStore",
    "WrongClock",
]
