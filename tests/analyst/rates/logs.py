"""Small hierarchies and logs, and counts without noise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from reticent.hierarchy import Hierarchy, Tree
from reticent.privacy import Contributions, Query, Release, SparseRows
from reticent.rates import RateTable
from reticent_analyst.question import Question
from reticent_analyst.rates import estimate
from reticent_sim.ad_log import AdLog

PARENTS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b", "c1": "c", "a": "ab", "b": "ab", "c": "cd", "d1": "d"}
LEAVES = ("a1", "a2", "b1", "b2", "b3", "c1")


def hierarchy(leaves: tuple[str, ...] = LEAVES, levels: int = 3) -> Hierarchy:
    """Places below streets below towns, with as many levels below the root."""
    tree = Tree("place", levels, PARENTS)
    return Hierarchy([tree], [(leaf,) for leaf in leaves], [(level,) for level in range(levels)])


def log_of(places: Hierarchy, users: int, size: int, ads: int, rng: np.random.Generator) -> AdLog:
    """Random entries. Low users, contexts and ads have the most."""
    user, context, ad = ((rng.random(size) ** 2 * n).astype(int) for n in (users, len(places.contexts), ads))
    clicked = rng.random(size) < (1 + ad) / (2 * ads)
    names = tuple(f"ad{number}" for number in range(ads))
    return AdLog(hierarchy=places, ads=names, users=users, user=user, context=context, ad=ad, clicked=clicked)


class ExactCounts:
    """Counts without noise. It keeps all queries."""

    def __init__(self) -> None:
        self.queries: list[Query] = []

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        self.queries.append(query)
        return released(query, rows_of(query, counters).sum(axis=0))


def rows_of(query: Query, counters: Contributions | None) -> np.ndarray:
    """The contributions of all phones, fitted."""
    blocks = [block.dense(query.size) for block in counters or () if isinstance(block, SparseRows)]
    return query.fit(np.concatenate(blocks))


def released(query: Query, value: np.ndarray, **changes: Any) -> Release:
    """A release of all phones without noise."""
    nothing = (0.0,) * query.size
    fields: dict[str, Any] = {"noise": None, "contributors": query.population, "variance": nothing}
    fields |= {"epsilon": query.epsilon, "delta": query.delta, "value": tuple(map(float, value)), **changes}
    return Release(query.id, tuple(counter.name for counter in query.counters), **fields)


def query_of(population: int) -> Callable[[Question], Query]:
    """The query of a question to simulated phones."""
    return partial(_query_of, population)


def _query_of(population: int, question: Question) -> Query:
    return question.to_query(population, "simulated")


def rates_of(counts: Any, log: AdLog, **changes: Any) -> RateTable:
    """An estimate over a log, of all levels with any entry."""
    fields: dict[str, Any] = {
        "ads": dict.fromkeys(log.ads, ()),
        "name": "ctr",
        "epsilon": 1.0,
        "delta": 1e-6,
        "entries": 4,
        "absent": 0.0,
        "min_support": 0.0,
        "to_query": query_of(log.users),
        "counters": log.counters,
    }
    fields |= changes
    return estimate(counts, log.hierarchy, fields.pop("ads"), **fields)
