"""The aggregation server: announces queries, collects what phones contribute, adds it up, and never reads it."""

from reticent_agg.errors import AggregationError, BadAnswer, BadStore
from reticent_agg.server import AggregationServer

__all__ = ["AggregationError", "AggregationServer", "BadAnswer", "BadStore"]
