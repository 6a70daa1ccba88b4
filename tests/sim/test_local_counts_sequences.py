"""Sequences of queries without servers: the joint bounds, the terms and the budget hold as among real phones."""

import dataclasses
import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from reticent.privacy import BudgetExceeded, Cost, Counter, Ledger, Query, QueryBurnt
from reticent.randomness import seeded
from reticent_sim.local_counts import LocalCounts
from tests.parties.queries import bits


def query(name: str, **changes: Any) -> Query:
    counters = [Counter("a", 0, 2), Counter("b", 0, 2)]
    return bits(**{"id": name, "counters": counters, "l2_squared": 4, "l1": 4, **changes})


def in_sequence(name: str, **changes: Any) -> Query:
    return query(name, sequence="levels", **changes)


def test_what_a_phone_adds_to_a_sequence_stays_within_the_joint_bounds() -> None:
    """Each phone wants to say (1, 1) three times; a squared norm of 4 is two of these."""
    counts = LocalCounts(seeded(11))
    wanted = np.ones((200, 2))
    means = [np.array(counts.count(in_sequence(name), wanted).value) / 200 for name in ("one", "two", "three")]
    deviation = math.sqrt(in_sequence("one").variance * 200 / 120) / 200
    assert np.abs(np.array(means) - [[1, 1], [1, 1], [0, 0]]).max() < 6 * deviation < 0.5


def test_a_phone_of_a_burnt_cohort_has_said_nothing() -> None:
    """All want to say (1, 1) three times, and may twice; one cohort of two was short at first, so half may go on."""
    counts = LocalCounts(seeded(12), absent=0.05)
    asked = [in_sequence(name, population=2000, cohorts=2, min_contributions=950) for name in ("one", "two", "three")]
    first = counts.count(asked[0], np.ones((2000, 2)))
    assert len(first.cohorts_left_out) == 1
    counts.absent = 0.0
    means = [np.array(counts.count(each, np.ones((2000, 2))).value) / 2000 for each in asked[1:]]
    deviation = math.sqrt(2000 * asked[0].share_variance) / 2000
    assert np.abs(means[0] - 1).max() < 6 * deviation < 0.1
    assert np.abs(means[1] - (1 - 0.95 / 2)).max() < 6 * deviation + 0.02


def test_a_sequence_is_paid_once() -> None:
    with closing(Ledger(Cost(1.5, 1e-5))) as ledger:
        counts = LocalCounts(ledger=ledger)
        for name in ("one", "two", "three"):
            counts.count(in_sequence(name), np.zeros((200, 2)))
        counts.absent = 1.0
        with pytest.raises(QueryBurnt):
            counts.count(in_sequence("four"), np.zeros((200, 2)))
        assert [(entry.query, entry.state) for entry in ledger.entries()] == [("sequence levels", "spent")]
        with pytest.raises(BudgetExceeded):
            counts.count(query("another", l1=2), np.zeros((200, 2)))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"l2_squared": 5},
        {"l1": 3},
        {"fraction_bits": 12},
        {"noise": "skellam", "fraction_bits": 0},
    ],
    ids=str,
)
def test_all_of_a_sequence_name_the_same_terms(changes: dict[str, Any]) -> None:
    """A phone that is asked on other terms declines: what it has used is of the first bounds, in the first steps."""
    counts = LocalCounts(seeded(13))
    one = in_sequence("one", noise="gaussian", fraction_bits=10)
    other = dataclasses.replace(one, id="two", **changes)
    counts.count(one, np.ones((200, 2)))
    with pytest.raises(ValueError, match=r"all of 'sequence levels' have the terms .*: 'two' has"):
        counts.count(other, np.ones((200, 2)))
    assert counts.count(dataclasses.replace(one, id="three"), np.ones((200, 2))).contributors == 200
    LocalCounts(seeded(13)).count(other, np.ones((200, 2)))


def test_a_query_that_was_burnt_binds_no_sequence_to_its_terms() -> None:
    counts = LocalCounts(seeded(13), absent=1.0)
    with pytest.raises(QueryBurnt):
        counts.count(in_sequence("one"), np.ones((200, 2)))
    counts.absent = 0.0
    assert counts.count(in_sequence("two", epsilon=2.0), np.ones((200, 2))).contributors == 200


def test_a_sequence_is_about_the_same_phones() -> None:
    counts = LocalCounts()
    counts.count(in_sequence("one"), np.zeros((200, 2)))
    with pytest.raises(ValueError, match="'sequence levels' is about 200 phones: 'two' has 300"):
        counts.count(in_sequence("two", population=300), np.zeros((300, 2)))
