"""Rows of counters that are mostly 0 are fitted, measured and added up as arrays are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import Counter, Query, SparseRows
from tests.parties.queries import bits

PHONES, SIZE = 6, 4
COUNTERS = [Counter("a", 0, 3), Counter("b", -2, 1), Counter("c", 0, 2, 2), Counter("d", 0, 1)]
VALUES = st.sampled_from([-9.0, -1.0, 0.0, 0.4, 1.0, 2.6, 5.0])
ROWS = st.lists(st.lists(VALUES, min_size=SIZE, max_size=SIZE), min_size=PHONES, max_size=PHONES).map(np.array)


def query(*, fine: bool) -> Query:
    noise: dict[str, Any] = {"noise": "gaussian", "fraction_bits": 10} if fine else {}
    return bits(counters=COUNTERS, l2_squared=12, l1=6, sequence="levels", **noise)


def sparse(rows: np.ndarray) -> SparseRows:
    row, column = np.nonzero(rows)
    return SparseRows(len(rows), row, column, rows[row, column])


@given(ROWS, st.booleans(), st.lists(st.integers(0, 7), min_size=PHONES, max_size=PHONES))
def test_sparse_rows_are_fitted_as_arrays_are(rows: np.ndarray, fine: bool, before: list[int]) -> None:
    asked = query(fine=fine)
    used = np.array(before), np.square(before)
    fitted, expected = sparse(rows).fit(asked, used), asked.fit(rows, used=used)
    np.testing.assert_array_equal(fitted.dense(SIZE), expected)
    np.testing.assert_array_equal(fitted.norms(), [np.abs(expected).sum(axis=1), np.square(expected).sum(axis=1)])
    group = np.array([0, 1, -1, 1, 0, 2])
    sums = [expected[group == number].sum(axis=0) for number in range(3)]
    np.testing.assert_array_equal(fitted.sums(group, 3, SIZE), sums)


@pytest.mark.parametrize("column", [-1, SIZE])
def test_an_entry_of_no_counter_is_refused(column: int) -> None:
    rows = SparseRows(1, np.array([0]), np.array([column]), np.array([1.0]))
    with pytest.raises(ValueError, match="'q' has 4 counters"):
        rows.fit(query(fine=False), (np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)))


def test_an_entry_that_is_no_number_is_refused() -> None:
    rows = SparseRows(1, np.array([0]), np.array([0]), np.array([np.nan]))
    with pytest.raises(ValueError, match="'q' takes finite numbers"):
        rows.fit(query(fine=False), (np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)))
