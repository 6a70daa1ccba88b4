"""Time to select 50 of 10^5 ads for a generalised context of 2,000 contexts, against algorithm 6, vectorised.

The packages apricot-select and submodlib-py are compared if they can be imported: install them into a folder of their
own (`pip install --target FOLDER apricot-select submodlib-py`), and set PYTHONPATH to it.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Row, best_of, seconds, table
from reticent.randomness import seeded
from reticent.selection import Rates, Revenues, Selection, greedy
from tests.core.selection.naive import naive

ADS, CONTEXTS, ENTRIES, K = 100_000, 2_000, 2_000_000, 50
RUNS = 5
LEVELS = (2000, 500, 100, 20, 5, 1)
"""Contexts below a node, level by level."""

Floats = NDArray[np.float64]


def run() -> Iterator[str]:
    """The time of a selection beside those of the rivals, and of the selections for all nodes of a hierarchy."""
    title = f"Selecting {K} of {ADS:,} ads: {CONTEXTS:,} contexts, {ENTRIES:,} rates"
    yield table(title, [row for name in INPUTS for row in _compared(name)])
    yield table("Selections for all nodes of a hierarchy, by one index", _nodes())


def _rates(*, equal: bool = False) -> Rates:
    rng = seeded(1, "entries")
    entries = rng.choice(ADS * CONTEXTS, ENTRIES, replace=False, shuffle=False)
    values = np.ones(ENTRIES) if equal else rng.beta(1, 20, ENTRIES)
    return Rates(entries // CONTEXTS, entries % CONTEXTS, values, (ADS, CONTEXTS))


def _weights() -> Floats:
    return seeded(1, "weights").dirichlet(np.full(CONTEXTS, 0.5))


INPUTS: dict[str, Callable[[], tuple[Rates, Floats, Floats]]] = {
    "bids of a log-normal distribution": lambda: (_rates(), _weights(), seeded(1, "bids").lognormal(0, 1, ADS)),
    "bids of a uniform distribution": lambda: (_rates(), _weights(), seeded(1, "bids").uniform(0.1, 1, ADS)),
    "equal bids": lambda: (_rates(), _weights(), np.ones(ADS)),
    "equal bids, all rates 1 (weighted maximum coverage)": lambda: (_rates(equal=True), _weights(), np.ones(ADS)),
}


def _compared(name: str) -> Iterator[Row]:
    rates, weights, bids = INPUTS[name]()
    target = "" if name.endswith("coverage)") else ">= 20 x"
    chosen = greedy(rates, weights, bids, K)
    expected, gains = naive(rates, weights, bids, K)
    assert (chosen.ads.tolist(), chosen.gains.tolist()) == (expected, gains)
    rival = best_of(RUNS, lambda: naive(rates, weights, bids, K))
    ours = best_of(RUNS, lambda: greedy(rates, weights, bids, K))
    yield Row(name, seconds(ours), f"naive greedy, {seconds(rival)}", rival / ours, target)
    revenues = Revenues.of(rates, bids)
    again = best_of(RUNS, lambda: revenues.greedy(weights, K))
    yield Row("  from an index", seconds(again), f"naive greedy, {seconds(rival)}", rival / again)
    for library, measure in (("apricot", _apricot), ("submodlib", _submodlib)):
        if importlib.util.find_spec(library):
            rival, ads = measure(revenues.matrix, weights)
            same = len(set(ads) & set(chosen.ads.tolist()))
            what = f"  beside {library}'s lazy greedy, {same} of {K} ads the same"
            yield Row(what, seconds(ours), seconds(rival), rival / ours)


def _apricot(revenues: Rates, weights: Floats) -> tuple[float, list[int]]:
    """Its facility location, of a sparse square matrix: the other columns are empty. It compiles first, untimed."""
    apricot: Any = importlib.import_module("apricot")
    optimizers: Any = importlib.import_module("apricot.optimizers")
    sparse: Any = importlib.import_module("scipy.sparse")
    terms = revenues.values * weights[revenues.contexts]
    matrix = sparse.csr_matrix((terms, (revenues.ads, revenues.contexts)), shape=(ADS, ADS))
    selector = apricot.FacilityLocationSelection(K, metric="precomputed")
    selector._initialize(matrix)  # noqa: SLF001  # what its `fit` calls
    begin = time.perf_counter()
    optimizers.LazyGreedy(selector).select(matrix, K)
    return time.perf_counter() - begin, list(map(int, selector.ranking))


def _submodlib(revenues: Rates, weights: Floats) -> tuple[float, list[int]]:
    """Its facility location, of a dense matrix of single precision. Making that is not timed."""
    submodlib: Any = importlib.import_module("submodlib")
    dense = np.zeros((CONTEXTS, ADS), np.float32)
    dense[revenues.contexts, revenues.ads] = revenues.values * weights[revenues.contexts]
    function = submodlib.FacilityLocationFunction(n=ADS, mode="dense", separate_rep=True, n_rep=CONTEXTS, sijs=dense)
    begin = time.perf_counter()
    found = function.maximize(budget=K, optimizer="LazyGreedy", show_progress=False)
    return time.perf_counter() - begin, [ad for ad, _ in found]


def _nodes() -> list[Row]:
    rates, weights, bids = INPUTS["bids of a uniform distribution"]()
    begin = time.perf_counter()
    revenues = Revenues.of(rates, bids)
    rows = [Row("the index", seconds(time.perf_counter() - begin))]
    for size in LEVELS:
        begin = time.perf_counter()
        for first in range(0, CONTEXTS, size):
            _below(revenues, weights, slice(first, first + size))
        took, nodes = time.perf_counter() - begin, CONTEXTS // size
        rows.append(Row(f"{nodes:,} nodes of {size:,} contexts", f"{seconds(took)}, {seconds(took / nodes)} each"))
    return rows


def _below(revenues: Revenues, weights: Floats, contexts: slice) -> Selection:
    return revenues.columns(contexts).greedy(weights[contexts], K)
