"""Click-through rates and frequencies of contexts from private counts (section 5.5 of Götz's dissertation)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from reticent.hierarchy import Hierarchy, Node
from reticent.privacy import Counts, NoiseKind
from reticent.rates import RateTable
from reticent_analyst.rates.candidates import BidIndex
from reticent_analyst.rates.state import EstimateState
from reticent_analyst.rates.table import CountedLevel, frequencies, rates_of
from reticent_analyst.rates.terms import EstimateTerms
from reticent_analyst.rates.top_down import CountersOf, OnLevel, TopDown, ToQuery

__all__ = ["estimate"]


def estimate(
    counts: Counts,
    hierarchy: Hierarchy,
    ads: Mapping[str, Collection[Node]],
    *,
    name: str,
    epsilon: float,
    delta: float,
    entries: int,
    absent: float,
    to_query: ToQuery,
    counters: CountersOf | None = None,
    min_support: float | None = None,
    depth: int | None = None,
    noise: NoiseKind = "skellam",
    fraction_bits: int | None = None,
    lowest_scale: int = 1,
    l2_squared: int | None = None,
    level: float = 0.95,
    state: Path | None = None,
    on_level: OnLevel | None = None,
    **question: Any,
) -> RateTable:
    """Estimate click-through rates by one query for each level of the hierarchy, from the root down.

    Each query counts the entries of the candidate nodes, and for each ad with a bid on their contexts the clicks and
    the views without a click. Candidates are the children of nodes with enough entries, and there the ads with enough
    views in the node. All counts are as if the whole population of the first query had contributed to each query:
    other phones may be absent each time. Consistent counts follow by weighted least squares.

    Each interval is about the rate among the entries that all phones chose. Of the intervals at each depth, at least
    the share `level` is expected to contain it, if nobody lied and absence does not depend on logs.

    Args:
        counts: Counts phones, real or simulated.
        hierarchy: The hierarchy of contexts.
        ads: The nodes that each ad bids on, by its name; none for an ad that bids on all contexts.
        name: The name of the sequence of queries. The ids of the queries begin with it.
        epsilon: The cost of all levels together to each user, together with delta.
        delta: See epsilon.
        entries: The most entries of a user's log that count.
        absent: The probability that a phone does not contribute to a query.
        to_query: Makes a query of a question: `Analyst.query`, or `Question.to_query` for simulated phones.
        counters: The counters of simulated phones for a query; None for real phones.
        min_support: The children of a node are counted if its count exceeds this, and there the ads with more views in
            the node. By default, three standard deviations of the count's error.
        depth: The lowest level that is counted, where 0 is the root; by default, that of the exact contexts. The noise
            grows with the square root of the number of levels.
        noise: The mechanism of the noise.
        fraction_bits: As in a question.
        lowest_scale: The scale of the counters of the lowest level; those of the others have 1. With a larger one, the
            noise of the lowest level is smaller and that of the others larger.
        l2_squared: A bound on the squared L2 norm of all that a user contributes, scaled. A smaller bound needs less
            noise, and phones scale larger contributions down. By default, it is the largest possible norm.
        level: The share of the intervals at each depth that contain the rate.
        state: A file that keeps the state. An estimate that was stopped continues from it, and asks nothing twice. A
            smaller depth ends it earlier.
        on_level: Called before the query of each level, and with its release.
        question: Other arguments of `Question`, such as `lying` and `closes_after`.

    Raises:
        LevelBurnt: Too few phones contributed to a query.
        ValueError: An argument is wrong, or the state is of another estimate.
        As `Counts.count`.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level!r}")
    lowest = hierarchy.height - 1
    if depth is not None and depth > lowest:
        raise ValueError(f"depth must be at most {lowest}, that of the exact contexts: got {depth}")
    terms = EstimateTerms(
        name=name,
        epsilon=epsilon,
        delta=delta,
        entries=entries,
        depth=lowest if depth is None else depth,
        min_support=min_support,
        noise=noise,
        fraction_bits=fraction_bits,
        lowest_scale=lowest_scale,
        l2_squared=l2_squared,
    )
    bids = BidIndex(hierarchy, ads)
    top_down = TopDown(
        counts,
        hierarchy,
        bids,
        terms,
        EstimateState(state, terms, {"hierarchy": hierarchy.fingerprint, "ads": _fingerprint(ads)}),
        to_query=to_query,
        counters=counters,
        question={"absent": absent, **question},
        on_level=on_level or (lambda _: None),
    )
    return _table(top_down.run(), hierarchy, bids, terms, level)


def _table(
    levels: list[CountedLevel], hierarchy: Hierarchy, bids: BidIndex, terms: EstimateTerms, level: float
) -> RateTable:
    rates = rates_of(levels, hierarchy, level)
    return RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=bids.ads,
        frequency=frequencies(levels, hierarchy),
        ad=rates.ad,
        node=rates.node,
        rate=rates.rate,
        low=rates.low,
        high=rates.high,
        views=rates.views,
        epsilon=terms.epsilon,
        delta=terms.delta,
        level=level,
        seeded=any(each.seeded for each in levels),
        source=terms.name,
    )


def _fingerprint(ads: Mapping[str, Collection[Node]]) -> str:
    """A digest of the ads and their bids."""
    content = json.dumps([[ad, *map(str, nodes)] for ad, nodes in ads.items()])
    return hashlib.sha256(content.encode()).hexdigest()
