"""Estimates refuse bad arguments with a sentence, before anything is asked."""

import math
from typing import Any

import numpy as np
import pytest

from reticent.hierarchy import Node
from reticent.randomness import seeded
from reticent_analyst.rates import candidates
from tests.analyst.rates.logs import ExactCounts, hierarchy, log_of, rates_of

LOG = log_of(hierarchy(), users=60, size=150, ads=2, rng=seeded(1, "arguments"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ads": {}}, "an estimate needs at least one ad: got none"),
        (
            {"ads": {"x": [Node(2, ("elsewhere",))]}},
            "the ad 'x' bids on a node that does not exist: the hier",
        ),
        ({"entries": 0}, "entries must be at least 1: got 0"),
        ({"entries": 1.5}, "entries must be a whole number: got 1.5"),
        ({"depth": -1}, "depth must be at least 0: got -1"),
        ({"depth": 4}, "depth must be at most 3, that of the exact contexts: got 4"),
        ({"epsilon": math.nan}, r"epsilon must lie in \[1e-06, 100\]: got nan"),
        ({"delta": math.nan}, r"delta must lie in \[1e-100, 0.5\]: got nan"),
        ({"min_support": math.nan}, "min_support must be a finite number of at least 0: got nan"),
        ({"min_support": -1}, "min_support must be a finite number of at least 0: got -1"),
        ({"lowest_scale": 0}, "lowest_scale must be at least 1: got 0"),
        ({"l2_squared": 0}, "l2_squared must be at least 1: got 0"),
        ({"level": math.nan}, r"level must lie in \(0, 1\): got nan"),
        ({"absent": 1.0}, r"absent must lie in \[0, 1\)"),
        ({"name": ""}, "the name of an estimate must"),
        ({"noise": "loud"}, "loud"),
        ({"l1": 7}, "the sequence 'ctr' sets l1 for all of its questions"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_before_anything_is_asked(changes: dict[str, Any], said: str) -> None:
    counts = ExactCounts()
    with pytest.raises(ValueError, match=said):
        rates_of(counts, LOG, **changes)
    assert counts.queries == []


def test_a_level_with_too_many_counters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_COUNTERS", 20)
    counts = ExactCounts()
    with pytest.raises(ValueError, match="level 3 would need up to 30 counters, and a query has 20 at most: raise min"):
        rates_of(counts, LOG)
    assert len(counts.queries) == 3


def test_a_log_of_nobody_has_no_rates() -> None:
    log = log_of(hierarchy(), users=60, size=0, ads=2, rng=seeded(1))
    table = rates_of(ExactCounts(), log)
    assert len(table.rate) == 0
    assert table.frequency[0] == 1.0
    assert np.isnan(table.frequency[1:]).all()


@pytest.mark.parametrize("bound", [1, 5, 40])
def test_a_bound_on_squares_bounds_whole_numbers_as_well(bound: int) -> None:
    """No squared norm of whole numbers is below their L1 norm: a query with such bounds would be refused."""
    counts = ExactCounts()
    rates_of(counts, LOG, l2_squared=bound)
    assert {(query.l1 <= bound, query.l2_squared) for query in counts.queries} == {(True, bound)}
