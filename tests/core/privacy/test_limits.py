"""The limits of a key server on queries: a query at a limit is within it."""

from typing import Any

import pytest

from reticent.privacy import QueryLimits, min_liars
from tests.parties.queries import bits

AT_THE_LIMITS = QueryLimits(
    max_epsilon=1.0, max_delta=1e-6, min_cohort_share=0.75, min_honest=140, min_liars_share=10 / 150, max_ciphertexts=2
)
"""Those of a query of 200 phones, of which 150 must contribute and 10 may lie."""


def test_a_query_at_every_limit_is_within() -> None:
    assert AT_THE_LIMITS.violations(bits(), 2) == {}


@pytest.mark.parametrize(
    ("changes", "ciphertexts", "limits"),
    [
        ({"epsilon": 1.01}, 2, {"max_epsilon"}),
        ({"delta": 1.1e-6}, 2, {"max_delta"}),
        ({}, 3, {"max_ciphertexts"}),
        ({"liars": 9}, 2, {"min_liars_share"}),
        ({"liars": 11}, 2, {"min_honest"}),
        ({"population": 201}, 2, {"min_cohort_share"}),
    ],
)
def test_a_query_beyond_a_limit_breaks_it(changes: dict[str, Any], ciphertexts: int, limits: set[str]) -> None:
    assert AT_THE_LIMITS.violations(bits(**changes), ciphertexts).keys() == limits


def test_rounding_adds_no_liar() -> None:
    """0.07 x 100 is 7.000000000000001."""
    assert min_liars(100, 0.07) == 7
    assert min_liars(101, 0.07) == 8
