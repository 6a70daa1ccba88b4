"""Sums of shares: each test rejects the right noise once in 10^6, and noise 30 % off on either side always."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import (
    fixed_point_delta,
    fixed_point_sigma,
    gaussian_share,
    share_variance,
    skellam_delta,
    skellam_share,
    skellam_variance,
)
from reticent.privacy.mechanisms._samplers import Size
from reticent.randomness import seeded
from tests.core.privacy import oracle

FALSE_ALARM = 1e-6
PHONES = 100_000
SIGMA = 5.0
SUMS = 400
FRACTION_BITS = 9

Share = Callable[[float, Size, np.random.Generator], np.ndarray]


def _sums(share: Share, variance: float, phones: int = PHONES) -> np.ndarray:
    """Sums of the shares of so many phones, in each of 400 counters."""
    rng, total = seeded(1, "shares"), np.zeros(SUMS)
    for _ in range(phones // 1000):
        total += share(variance, (1000, SUMS), rng).sum(0)
    return total


def _has_variance(sums: np.ndarray, variance: float) -> bool:
    """Whether the sums' squares add up to what chi-square allows, and their mean is that of such noise."""
    low, high = stats.chi2.ppf(np.array([FALSE_ALARM / 4, 1 - FALSE_ALARM / 4]), sums.size)
    near = abs(sums.mean()) < stats.norm.isf(FALSE_ALARM / 4) * math.sqrt(variance / sums.size)
    return bool(low < (sums**2).sum() / variance < high) and near


def _fixed_point(variance: float, size: Size, rng: np.random.Generator) -> np.ndarray:
    return gaussian_share(variance, size, rng, FRACTION_BITS) / 2.0**FRACTION_BITS


def _rounded(variance: float, size: Size, rng: np.random.Generator) -> np.ndarray:
    return np.rint(rng.normal(0, math.sqrt(variance), size))


@pytest.mark.slow
@pytest.mark.parametrize("share", [skellam_share, _fixed_point])
def test_a_hundred_thousand_shares_have_the_promised_variance(share: Share) -> None:
    """The interval is chi-square's for 400 sums: from 69 % to 138 % of the variance."""
    each = share_variance(SIGMA**2, PHONES + 1, 0)
    assert math.sqrt(each) == pytest.approx(0.016, abs=2e-4)
    sums = _sums(share, each)
    assert _has_variance(sums, SIGMA**2)
    assert not _has_variance(sums, (SIGMA * 1.3) ** 2)
    assert not _has_variance(sums, (SIGMA / 1.3) ** 2)


@pytest.mark.parametrize("share", [skellam_share, _fixed_point])
def test_a_thousand_shares_do_and_deviations_30_percent_off_do_not(share: Share) -> None:
    each = share_variance(SIGMA**2, 1001, 0)
    assert _has_variance(_sums(share, each, 1000), SIGMA**2)
    assert not _has_variance(_sums(share, each * 1.3**2, 1000), SIGMA**2)
    assert not _has_variance(_sums(share, each / 1.3**2, 1000), SIGMA**2)


def test_rounded_normal_shares_are_rejected_since_they_are_all_zero() -> None:
    sums = _sums(_rounded, share_variance(SIGMA**2, PHONES + 1, 0), 10_000)
    assert (sums == 0).all()
    assert not _has_variance(sums, SIGMA**2 / 10)


def test_the_sum_of_skellam_shares_is_skellam() -> None:
    """Chi-square against SciPy's probabilities; 10 % more variance is rejected."""
    sums = skellam_share(0.05, (200, 40_000), seeded(2, "sum")).sum(0)
    assert _skellam_p_value(sums, 10.0) > FALSE_ALARM
    assert _skellam_p_value(sums, 11.0) < FALSE_ALARM


def _skellam_p_value(sums: np.ndarray, variance: float) -> float:
    values = np.arange(-9, 10)
    inside = np.exp(oracle.log_mass(variance, values))
    counts = [(sums == value).sum() for value in values]
    expected = np.append(inside, 1 - inside.sum()) * sums.size
    return float(stats.chisquare([*counts, sums.size - sum(counts)], expected).pvalue)


def test_the_sum_of_gaussian_shares_is_discrete_gaussian() -> None:
    """50 shares of deviation 4, the coarsest allowed: the sum has the probabilities of one draw of their variance."""
    sums = gaussian_share(16.0, (50, 40_000), seeded(3, "sum"), 0).sum(0)
    values = np.arange(-400, 401)
    mass = np.exp(-(values**2) / (2 * 800.0))
    edges = np.arange(-90, 91, 6)
    expected = np.bincount(np.searchsorted(edges, values), weights=mass / mass.sum()) * sums.size
    assert stats.chisquare(np.bincount(np.searchsorted(edges, sums)), expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("answering", [100, 101, 137, 250, 1000])
def test_with_more_phones_than_the_fewest_delta_still_holds(answering: int) -> None:
    """At most 20 of them add no noise, or tell theirs; the phone that looks knows its own share."""
    epsilon, delta, min_contributions, liars = 1.0, 1e-4, 100, 20
    each = share_variance(skellam_variance(epsilon, delta, 1), min_contributions, liars)
    hidden = each * (answering - liars - 1)
    assert skellam_delta(hidden, epsilon, 1) <= delta
    assert oracle.one_counter(hidden, epsilon) <= delta
    sigma = fixed_point_sigma(epsilon, delta, 1, l1=1, fraction_bits=6)
    hidden = share_variance(sigma**2, min_contributions, liars) * (answering - liars - 1)
    assert fixed_point_delta(math.sqrt(hidden), epsilon, 1, l1=1, fraction_bits=6) <= delta


def test_with_fewer_phones_it_does_not() -> None:
    each = share_variance(skellam_variance(1, 1e-4, 1), 100, 20)
    assert oracle.one_counter(each * (99 - 20 - 1), 1) > 1e-4


def test_a_grid_too_coarse_says_which_would_do() -> None:
    """A deviation of .016 has 4.05 steps of 2^-8."""
    with pytest.raises(ValueError, match=r"need at least 8 fraction bits: got 7, a deviation of 2\.0[0-9]* steps"):
        gaussian_share(0.0158**2, 3, seeded(1), 7)
    assert gaussian_share(0.0158**2, 3, seeded(1), 8).shape == (3,)


def test_share_variance_says_what_is_wrong() -> None:
    assert share_variance(10.0, 12, 1) == 1.0
    assert share_variance(10.0, 2, 0) == 10.0
    with pytest.raises(ValueError, match="of 10 contributions at least 2 must be honest: got 9 liars"):
        share_variance(1.0, 10, 9)
    with pytest.raises(ValueError, match="min_contributions must be at least 2: got 1"):
        share_variance(1.0, 1, 0)
    with pytest.raises(ValueError, match="liars must be at least 0: got -1"):
        share_variance(1.0, 10, -1)
    with pytest.raises(ValueError, match=r"liars must be a whole number: got 0\.5"):
        share_variance(1.0, 10, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="variance must be positive and finite: got 0"):
        share_variance(0, 10, 1)
