"""Click-through rates of ads in a hierarchy of contexts: their table, their lookup, the names of their counters."""

from reticent.rates._counters import (
    RateCounter,
    click_counter,
    counter_prefix,
    node_counter,
    parse_counter,
    view_counter,
)
from reticent.rates._resolved import MAX_RATES, Resolved, resolve
from reticent.rates._table import RateTable

__all__ = [
    "MAX_RATES",
    "RateCounter",
    "RateTable",
    "Resolved",
    "click_counter",
    "counter_prefix",
    "node_counter",
    "parse_counter",
    "resolve",
    "view_counter",
]
