"""Rates that are counted in a whole log, without noise: the non-private statistics of section 4.4.1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reticent.rates import RateTable
from reticent_sim.ad_log import AdLog

LEAST_RECORDS = 20
"""The fewest records of a node with estimates below it."""


def exact_rates(log: AdLog, least_records: int = LEAST_RECORDS) -> RateTable:
    """The frequencies and rates of the nodes that algorithm 7 reaches: those whose parents have enough records.

    No ad has a rate at the root. Each ad is shown in a part of it, and a rate there says nothing about the other parts.

    Args:
        log: The log.
        least_records: The fewest records of a node with estimates below it.
    """
    table, hierarchy = log.rates("the whole log"), log.hierarchy
    estimated = np.append(True, table.frequency[hierarchy.parents[1:]] * len(log) >= least_records - 0.5)
    kept = estimated[table.node] & (table.node > 0)
    entries = {name: getattr(table, name)[kept] for name in ("ad", "node", "rate", "low", "high", "views")}
    return replace(table, frequency=np.where(estimated, table.frequency, np.nan), **entries)
