"""Sparse matrices of rates, and the ad that a phone shows."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from reticent.selection import Rates, best
from tests.core.selection.instances import Instance, instances


@given(instance=instances(), seed=st.integers(0, 99))
def test_entries_in_any_order_make_the_same_matrix(instance: Instance, seed: int) -> None:
    rates = instance.rates
    order = np.random.default_rng(seed).permutation(len(rates.ads))
    shuffled = Rates(rates.ads[order], rates.contexts[order], rates.values[order], rates.shape)
    every = range(rates.shape[0])
    assert np.array_equal(shuffled.rows(every), rates.rows(every))
    assert np.array_equal(Rates.of(scipy.sparse.csr_array(rates.rows(every))).rows(every), rates.rows(every))
    assert np.array_equal(shuffled.ads, np.sort(rates.ads))


@given(instance=instances(), seed=st.integers(0, 99))
def test_some_rows_and_columns_are_those_of_the_dense_matrix(instance: Instance, seed: int) -> None:
    rates, rng = instance.rates, np.random.default_rng(seed)
    ads, contexts = rates.shape
    dense = rates.rows(range(ads))
    rows = rng.integers(0, ads, 5)
    assert np.array_equal(rates.rows(rows), dense[rows])
    mask = rng.random(contexts) < rng.random()
    for chosen in (mask, np.flatnonzero(mask), slice(1, contexts, 2), slice(None)):
        assert np.array_equal(rates.columns(chosen).rows(range(ads)), dense[:, chosen])


def test_columns_of_many_contexts_and_decreasing_ones() -> None:
    rates = Rates([0, 0, 1], [3, 70_000, 65_537], [0.1, 0.2, 0.3], (2, 80_000))
    assert rates.columns([65_537, 70_000]).rows([0, 1]).tolist() == [[0.0, 0.2], [0.3, 0.0]]
    with pytest.raises(ValueError, match="the numbers of contexts must increase"):
        rates.columns([3, 3])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (([0, 2], [0, 0], [0.1, 0.2]), r"the number of each ad must lie in \[0, 2\): got 2"),
        (([0, 1], [0, -1], [0.1, 0.2]), r"the number of each context must lie in \[0, 3\): got -1"),
        (
            ([0, 1], [0, 1], [0.1, np.nan]),
            "a value must be a finite number of at least 0: got nan for ad 1 in context 1",
        ),
        (
            ([0, 1], [0, 1], [0.1, np.inf]),
            "a value must be a finite number of at least 0: got inf for ad 1 in context 1",
        ),
        (
            ([0, 1], [0, 1], [-0.1, 0.2]),
            "a value must be a finite number of at least 0: got -0.1 for ad 0 in context 0",
        ),
        (([1, 0, 1], [2, 0, 2], [0.1, 0.2, 0.3]), "ad 1 has two values in context 2"),
        (([0, 1], [0, 1], [0.1]), "ads, contexts and values must have one length: got 2, 2 and 1"),
        (([0.5], [0], [0.1]), "numbers of ads must be a list of integers: got float64"),
        (([[0]], [0], [0.1]), "numbers of ads must be a list of integers: got int64 of shape"),
    ],
)
def test_bad_entries_are_refused(entries: tuple[list[int], list[int], list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rates(*entries, (2, 3))


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="the number of ads must be at least 0: got -1"):
        Rates([], [], [], (-1, 3))
    with pytest.raises(ValueError, match="a row for each ad and a column for each context: got 1 axes"):
        Rates.of([1.0])


def test_the_entries_cannot_be_changed() -> None:
    values = np.array([0.1, 0.2])
    rates = Rates([0, 1], [0, 1], values, (2, 2))
    values[0] = 9.0
    assert rates.values.tolist() == [0.1, 0.2]
    with pytest.raises(ValueError, match="read-only"):
        rates.values[0] = 9.0


def test_a_phone_shows_the_ad_with_the_greatest_payment_times_rate() -> None:
    assert best([0.1, 0.9], [0.1, 0.01]) == 0
    assert best([0.2, 0.1, 0.2], [1.0, 2.0, 1.0]) == 0
    assert best([0.1, 0.3], [1.0, 1.0]) == 1
    assert best([0.0, 0.5], [1.0, 0.0]) is None
    assert best([], []) is None
    with pytest.raises(ValueError, match="rates must be finite numbers of at least 0: got nan at 0"):
        best([np.nan], [1.0])
