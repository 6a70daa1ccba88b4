"""Chains that borrow from one another: the mixture of days that they stand for, and its limits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client import MarkovChain
from reticent_client.habits.pooling import nearby, pooled, widened
from reticent_client.mask.chain import Floats

LABELS = ("a", "b", "c")
HORIZON = 4

some_days = st.lists(
    st.lists(st.sampled_from(LABELS), min_size=HORIZON, max_size=HORIZON), min_size=1, max_size=8
)  # fmt: skip


def fit(days: list[list[str]]) -> MarkovChain:
    """Plain counts."""
    return MarkovChain.fit(days, contexts=LABELS)


def joint(chain: MarkovChain) -> Floats:
    """(T - 1, n, n): the probability of each move of a day."""
    return chain.prior[:-1, :, None] * chain.transitions


def assert_stochastic(chain: MarkovChain) -> None:
    assert np.allclose(chain.initial.sum(), 1, atol=1e-12)
    assert np.allclose(chain.transitions.sum(axis=2), 1, atol=1e-12)


@given(some_days, some_days)
def test_pooling_plain_counts_by_their_days_is_counting_all_days(one: list[list[str]], other: list[list[str]]) -> None:
    chain = pooled([fit(one), fit(other)], [len(one), len(other)])
    assert_stochastic(chain)
    assert np.allclose(chain.initial, fit(one + other).initial)
    assert np.allclose(joint(chain), joint(fit(one + other)))


@given(some_days, some_days, st.floats(0.01, 100))
def test_each_move_is_as_likely_as_on_a_day_of_either(
    one: list[list[str]], other: list[list[str]], days: float
) -> None:
    chain = pooled([fit(one), fit(other)], [3.0, days])
    mixed = (3.0 * joint(fit(one)) + days * joint(fit(other))) / (3.0 + days)
    assert np.allclose(joint(chain), mixed)
    assert ((chain.prior > 0) == (fit(one).prior > 0) | (fit(other).prior > 0)).all()


@given(some_days, some_days)
def test_no_days_change_nothing_that_can_happen_and_ever_more_lead_to_the_target(
    one: list[list[str]], other: list[list[str]]
) -> None:
    seen, target = fit(one), fit(other)
    unchanged = pooled([seen, target], [len(one), 0])
    assert np.allclose(joint(unchanged), joint(seen))
    far = [np.abs(joint(pooled([seen, target], [len(one), days])) - joint(target)).max() for days in (1, 10, 1e3, 1e9)]
    assert all(nearer <= further + 1e-12 for further, nearer in pairwise(far))
    assert far[-1] < 1e-7


def test_a_row_that_nobody_has_a_day_of_is_that_of_the_last_chain() -> None:
    seen, target = (MarkovChain(LABELS, [1, 0, 0], [rows]) for rows in (np.eye(3), np.eye(3)[[0, 2, 1]]))
    assert pooled([seen, target], [1, 1]).transitions[0].tolist() == np.eye(3)[[0, 2, 1]].tolist()


def test_chains_with_other_contexts_are_pooled_over_all_contexts() -> None:
    one, other = MarkovChain.fit([["a", "b"]]), MarkovChain.fit([["c", "b"], ["c", "c"]])
    chain = pooled([one, other], [1, 2])
    assert chain.contexts == ("a", "b", "c")
    assert np.allclose(chain.initial, [1 / 3, 0, 2 / 3])
    assert np.allclose(chain.transitions[0][[0, 2]], [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])


def test_a_widened_chain_is_the_same_and_never_enters_what_it_did_not_know() -> None:
    chain = MarkovChain.fit([["a", "b"], ["a", "a"], ["a", "a"], ["a", "a"]])
    wide = widened(chain, ("x", "b", "a"))
    assert wide.initial.tolist() == [0, 0, 1]
    assert wide.transitions[0].tolist() == [[0, 0.25, 0.75]] * 3
    assert not wide.reachable[:, 0].any()
    assert widened(chain, chain.contexts) is chain


@given(some_days, st.integers(0, 5))
def test_nearby_moves_as_was_seen_about_that_time(days: list[list[str]], width: int) -> None:
    """Counted by hand: all moves from a context up to `width` steps away."""
    chain = nearby(fit(days), width)
    assert_stochastic(chain)
    for t in range(HORIZON - 1):
        for i, label in enumerate(LABELS):
            seen = [day[k + 1] for day in days for k in range(HORIZON - 1) if abs(k - t) <= width and day[k] == label]
            if seen:
                assert np.allclose(chain.transitions[t, i], [seen.count(each) / len(seen) for each in LABELS])
    first = [label for day in days for label in day[: width + 1]]
    assert np.allclose(chain.initial, [first.count(each) / len(first) for each in LABELS])


@given(some_days)
def test_nearby_at_no_distance_is_the_chain(days: list[list[str]]) -> None:
    assert np.allclose(joint(nearby(fit(days), 0)), joint(fit(days)))


@pytest.mark.parametrize(
    ("chains", "days", "sentence"),
    [
        ([], [], "pooled needs chains, and a number of days for each"),
        ([fit([["a"] * 4])], [1, 2], "pooled needs chains, and a number of days for each"),
        ([fit([["a"] * 4])], [-1], "numbers of days are at least 0, and not all 0"),
        ([fit([["a"] * 4])], [float("nan")], "numbers of days are at least 0, and not all 0"),
        ([fit([["a"] * 4])], [0], "numbers of days are at least 0, and not all 0"),
        ([fit([["a"] * 4]), fit([["a"] * 5])], [1, 1], "chains of different numbers of steps"),
    ],
)
def test_bad_arguments_are_one_error(chains: list[MarkovChain], days: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        pooled(chains, days)
    with pytest.raises(ValueError, match="width is a number of steps"):
        nearby(fit([["a"] * 4]), -1)
