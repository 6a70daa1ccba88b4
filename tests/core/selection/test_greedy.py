"""The greedy selection equals algorithm 6 choice by choice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from reticent.selection import Rates, Revenues, Selection, _greedy, greedy
from tests.core.selection.instances import Floats, Instance, instances
from tests.core.selection.naive import naive

ALPHAS = st.sampled_from([0.0, 0.1, 0.5])


def listed(selection: Selection) -> tuple[list[int], list[float]]:
    return selection.ads.tolist(), selection.gains.tolist()


@settings(max_examples=200)
@given(instance=instances(), alpha=ALPHAS, pool=st.integers(1, 5), block=st.integers(1, 3))
def test_equals_the_naive_greedy_choice_by_choice(instance: Instance, alpha: float, pool: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FIRST_POOL": pool, "FIRST_BLOCK": block, "ROWS": pool}.items():
            patch.setattr(_greedy, name, value)
        selection = greedy(*instance, alpha=alpha)
    assert listed(selection) == naive(*instance, alpha)


@pytest.mark.parametrize("equal_rates", [False, True])
def test_equals_the_naive_greedy_with_many_ads_and_long_rows(equal_rates: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 12, 6_000) ** 2  # up to 121 entries
    ads = np.repeat(np.arange(len(lengths)), lengths)
    contexts = np.concatenate([rng.permutation(300)[:length] for length in lengths])
    values = np.ones(len(ads)) if equal_rates else rng.beta(1, 20, len(ads))
    rates = Rates(ads, contexts, values, (len(lengths), 300))
    bids = 1 / np.maximum(lengths, 1) ** 0.8
    weights = rng.dirichlet(np.ones(300))
    assert listed(greedy(rates, weights, bids, 40)) == naive(rates, weights, bids, 40)


def priced(rates: Rates, bids: Floats, kept: Floats) -> Rates:
    """Payments instead of rates, at the same entries."""
    payments = rates.values * bids[rates.ads, rates.contexts] * kept[rates.ads, rates.contexts]
    return Rates(rates.ads, rates.contexts, payments, rates.shape)


@given(
    instance=instances(),
    seed=st.integers(0, 99),
    least_rate=st.sampled_from([0.0, 1 / 3, 0.5]),
    least=st.integers(0, 3),
)
def test_bids_on_contexts_and_thresholds_leave_the_other_entries_out(
    instance: Instance, seed: int, least_rate: float, least: int
) -> None:
    rng = np.random.default_rng(seed)
    rates, weights, _, k = instance
    bids, views = rng.integers(0, 3, (2, *rates.shape)) * 1.0
    kept = (rates.rows(range(rates.shape[0])) >= least_rate) & (views >= least)
    expected = naive(priced(rates, bids, kept * 1.0), weights, np.ones(rates.shape[0]), k)
    selection = greedy(
        rates, weights, Rates.of(bids), k, least_rate=least_rate, support=Rates.of(views), least_support=least
    )
    assert listed(selection) == expected


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array, sparse.coo_matrix])
def test_arrays_and_matrices_of_scipy_are_taken_as_they_are(convert: Callable[[Any], Any]) -> None:
    rates, bids, views = np.random.default_rng(1).integers(0, 3, (3, 30, 8)) / 2
    weights = np.arange(8.0)
    ours, payments, support = map(Rates.of, (rates, bids, views))
    expected = greedy(ours, weights, payments, 5, support=support, least_support=1)
    selection = greedy(convert(rates), weights, convert(bids), 5, support=convert(views), least_support=1)
    assert listed(selection) == listed(expected)
    assert len(selection.ads) > 1


@given(instance=instances(), alpha=ALPHAS)
def test_the_first_ads_are_the_selection_of_fewer(instance: Instance, alpha: float) -> None:
    rates, weights, bids, k = instance
    ads, gains = listed(greedy(rates, weights, bids, k, alpha=alpha))
    for fewer in range(1, len(ads) + 1):
        assert listed(greedy(rates, weights, bids, fewer, alpha=alpha)) == (ads[:fewer], gains[:fewer])


@given(instance=instances(), seed=st.integers(0, 99))
def test_the_selection_for_a_node_regards_its_contexts_alone(instance: Instance, seed: int) -> None:
    rates, weights, bids, k = instance
    below = np.random.default_rng(seed).random(len(weights)) < 0.4
    selection = Revenues.of(rates, bids).columns(below).greedy(weights[below], k)
    dense = rates.rows(range(rates.shape[0]))[:, below]
    assert listed(selection) == naive(Rates.of(dense), weights[below], bids, k)


def test_k_above_the_number_of_ads_selects_all_that_gain() -> None:
    rates = Rates.of([[0.5, 0.0], [0.5, 0.0], [0.0, 0.1], [0.0, 0.0]])
    assert greedy(rates, [0.5, 0.5], [1.0, 1.0, 1.0, 1.0], 99).ads.tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (3, 3)])
def test_no_rates_select_no_ads(shape: tuple[int, int]) -> None:
    selection = greedy(Rates([], [], [], shape), np.ones(shape[1]), np.ones(shape[0]), 2)
    assert listed(selection) == ([], [])


RATES = Rates.of([[0.5, 0.1], [0.2, 0.3]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": [1.0]}, r"weights must be 2 numbers: got an array of shape \(1,\)"),
        ({"weights": [1.0, -1.0]}, "weights must be finite numbers of at least 0: got -1.0 at 1"),
        ({"weights": [np.nan, 1.0]}, "weights must be finite numbers of at least 0: got nan at 0"),
        ({"weights": [1e308, 1e308], "bids": [9.0, 9.0]}, "weights times revenue must be finite"),
        ({"bids": [1.0, np.inf]}, "bids must be finite numbers of at least 0: got inf at 1"),
        ({"bids": [1.0, 1.0, 1.0]}, r"bids must be 2 numbers: got an array of shape \(3,\)"),
        ({"bids": Rates.of([[1.0, 1.0]])}, r"matrices must have one shape: got \(1, 2\) beside \(2, 2\)"),
        ({"k": 0}, "k must be at least 1: got 0"),
        ({"alpha": -0.1}, "alpha must be a finite number of at least 0: got -0.1"),
        ({"least_rate": np.nan}, "least_rate must be a finite number of at least 0: got nan"),
        ({"least_support": 2}, "least_support needs support"),
        ({"rates": Rates.of([[1e308, 0], [0, 0]]), "bids": [10.0, 1.0]}, "bids times rates must be finite"),
    ],
)
def test_bad_arguments_are_refused(changed: dict[str, object], message: str) -> None:
    arguments = {"rates": RATES, "weights": [1.0, 1.0], "bids": [1.0, 1.0], "k": 1} | changed
    with pytest.raises(ValueError, match=message):
        greedy(**arguments)  # type: ignore[arg-type]
