"""Counters with a scale: what one user changes stays within the bounds, and what is released is in the user's units."""

import itertools
from typing import Any

import numpy as np
import pytest

from reticent.privacy import CohortSum, Counter, Query, Release, estimate, skellam_variance
from reticent.protocol import packing_of
from tests.core.privacy import oracle
from tests.parties.queries import bits

SMALL = (Counter("km", 0, 4, scale=1), Counter("walked", 0, 1, scale=3), Counter("balance", -1, 1, scale=4))
VALUES = list(itertools.product(np.arange(-1, 6) * 0.75, [0, 0.4, 1, 2], [-2, -1, -0.3, 0, 0.6, 1]))


def scaled(counters: tuple[Counter, ...] = SMALL, **changes: Any) -> Query:
    """A query with tight bounds on the scaled vector, unless changed."""
    most = [counter.most for counter in counters]
    return bits(**{"counters": counters, "l2_squared": sum(each**2 for each in most), "l1": sum(most), **changes})


@pytest.mark.parametrize("changes", [{}, {"l2_squared": 20, "l1": 7}, {"l2_squared": 9, "l1": 4}])
def test_no_user_changes_the_sums_by_more_than_the_bounds(changes: dict[str, Any]) -> None:
    """Every contribution of a small query, and what the noise makes of it, enumerated."""
    query = scaled(**changes)
    steps = query.fit(np.array(VALUES))
    assert np.abs(steps).sum(axis=1).max() == query.l1
    assert np.square(steps).sum(axis=1).max() <= query.l2_squared
    low, high = np.array([counter.scaled for counter in SMALL]).T
    assert ((low <= steps) & (steps <= high)).all()
    for changed in {tuple(sorted(np.abs(row)[row != 0].tolist())) for row in steps if row.any()}:
        assert oracle.vector(query.variance, query.epsilon, changed, above=False) <= query.delta * (1 + 1e-6)


def test_noise_for_the_unscaled_vector_would_protect_nobody() -> None:
    query = scaled()
    unscaled = skellam_variance(query.epsilon, query.delta, np.sqrt(16 + 1 + 1), l1=6)
    assert oracle.vector(unscaled, query.epsilon, (4, 3, 4), above=True) > 10 * query.delta


def test_a_contribution_is_the_scaled_value_on_the_grid_of_the_query() -> None:
    whole = scaled()
    assert whole.fit([2, 1, -1]).tolist() == [2, 3, -4]
    assert whole.fit([2.4, 0.4, 0.3]).tolist() == [2, 1, 1]  # 2.4, 1.2 and 1.2: thirds and quarters are on the grid
    fine = scaled(noise="gaussian", fraction_bits=8)
    assert fine.fit([2.5, 0.5, -0.25]).tolist() == [2.5 * 256, 1.5 * 256, -256]


@pytest.mark.parametrize("fraction_bits", [0, 8])
def test_a_release_is_in_the_units_of_the_user(fraction_bits: int) -> None:
    query = scaled(noise="gaussian" if fraction_bits else "skellam", fraction_bits=fraction_bits)
    truth = np.array([300.0, 60.0, -20.0])
    sums = tuple(int(each) for each in truth * [1, 3, 4] * 2**fraction_bits)
    release = estimate(query, [CohortSum(180, sums)], seeded=False)
    assert release.value == tuple(truth)
    assert np.array(release.variance) == pytest.approx(180 * query.share_variance / np.array([1, 9, 16]))
    reach = release.interval(0.95)[:, 1] - truth
    assert reach[0] == pytest.approx(3 * reach[1])
    assert reach[0] == pytest.approx(4 * reach[2])
    assert Release.from_text(release.to_text()) == release


def test_plaintexts_have_room_for_scaled_counters() -> None:
    """As many as an unscaled counter with bounds as wide."""
    names = [f"c{number}" for number in range(300)]
    bounds = {"l2_squared": 1, "l1": 1}  # little noise
    narrow, scale, wide = (
        packing_of(bits(counters=counters, **bounds), 2048).plaintexts
        for counters in (
            [Counter(name, 0, 1) for name in names],
            [Counter(name, 0, 1, scale=1000) for name in names],
            [Counter(name, 0, 1000) for name in names],
        )
    )
    assert narrow < scale == wide


def test_scales_are_whole_and_positive() -> None:
    for scale in (0, -1, 0.5):
        with pytest.raises(ValueError, match="the scale of 'a'"):
            bits(counters=[Counter("a", 0, 1, scale=scale)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="too large for 64 bits"):
        bits(counters=[Counter("a", 0, 1, scale=2**31)])


def test_only_other_scales_than_one_are_in_the_bytes() -> None:
    plain, large = bits(2), bits(2, counters=[Counter("c0", 0, 1), Counter("c1", 0, 1, scale=7)])
    assert len(large.to_bytes()) == len(plain.to_bytes()) + 16
    assert Query.from_bytes(large.to_bytes()) == large
    with pytest.raises(ValueError, match="whose scales are all 1 end before the scales"):
        Query.from_bytes(plain.to_bytes() + 2 * (7 * b"\0" + b"\1"))
