"""Samplers against the exact distributions and against OpenDP's: each test rejects the right noise once in 10^6."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import opendp.prelude as dp
import pytest
from scipy import special, stats

from reticent.privacy import discrete_gaussian, discrete_laplace
from reticent.privacy.mechanisms import _samplers as samplers
from reticent.privacy.mechanisms._samplers import poisson
from reticent.randomness import seeded

FALSE_ALARM = 1e-6
DRAWS = 100_000
CELLS = 200
OFF = 1.3  # a scale 30 % too large, and too small, must be rejected

Sampler = Callable[[float, int, np.random.Generator], np.ndarray]


def _laplace_mass(scale: float, value: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(1 / (2 * scale)) * np.exp(-np.abs(value) / scale))


def _gaussian_mass(sigma: float, value: np.ndarray) -> np.ndarray:
    reach = np.arange(-math.ceil(40 * sigma) - 5, math.ceil(40 * sigma) + 6)
    return np.asarray(np.exp(-(value**2) / (2 * sigma**2)) / np.exp(-(reach**2) / (2 * sigma**2)).sum())


def _poisson_mass(mean: float, value: np.ndarray) -> np.ndarray:
    return np.asarray(stats.poisson.pmf(value, mean))


SAMPLERS: list[tuple[Sampler, Callable[[float, np.ndarray], np.ndarray], list[float]]] = [
    (discrete_laplace, _laplace_mass, [0.3, 1.0, 2.7, 40.0, 1000.5]),
    (discrete_gaussian, _gaussian_mass, [0.4, 1.0, 2.7, 40.0, 1000.5]),
    (poisson, _poisson_mass, [0.01, 1.0, 7.3, 100.0, 30_000.0]),
]
CASES = [(sampler, mass, scale) for sampler, mass, scales in SAMPLERS for scale in scales]


def _chi_square(draws: np.ndarray, scale: float, mass: Callable[[float, np.ndarray], np.ndarray]) -> float:
    """The p-value of the counts in up to 200 cells of about equal probability, none expected to hold less than 5."""
    values, exact = _exact(scale, mass)
    cell = np.floor(np.minimum(np.cumsum(exact), 1 - 1e-12) * CELLS).astype(int)
    expected = np.bincount(cell, weights=exact * draws.size)
    counts = np.bincount(cell[np.clip(draws, values[0], values[-1]) - values[0]], minlength=expected.size)
    large = expected >= 5
    rest = expected[~large].sum()
    if rest > 1e-3:
        expected, counts = np.append(expected[large], rest), np.append(counts[large], counts[~large].sum())
    else:
        expected, counts = expected[large], counts[large]
    return float(stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue)


def _ks(draws: np.ndarray, scale: float, mass: Callable[[float, np.ndarray], np.ndarray]) -> float:
    """Kolmogorov and Smirnov's p-value, which is conservative for integers."""
    values, exact = _exact(scale, mass)
    found = np.searchsorted(np.sort(draws), values, side="right") / draws.size
    return float(stats.kstwobign.sf(np.abs(found - np.cumsum(exact)).max() * math.sqrt(draws.size)))


def _exact(scale: float, mass: Callable[[float, np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    reach = int(60 * scale) + 100
    values = np.arange(-reach, reach + 1)
    return values, mass(scale, values)


@pytest.mark.parametrize(("sampler", "mass", "scale"), CASES)
@pytest.mark.parametrize("p_value", [_chi_square, _ks])
def test_draws_have_their_exact_distribution(
    sampler: Sampler, mass: Callable[[float, np.ndarray], np.ndarray], scale: float, p_value: Callable[..., float]
) -> None:
    draws = sampler(scale, DRAWS, seeded(1, "samplers", str(scale)))
    assert draws.dtype == np.int64
    assert p_value(draws, scale, mass) > FALSE_ALARM


# Where almost all draws are 0 the distribution function hardly moves: the chi-square test alone looks at those.
MOSTLY_ZERO = 0.5
REJECTING = [(*case, _chi_square) for case in CASES] + [(*case, _ks) for case in CASES if case[2] > MOSTLY_ZERO]


@pytest.mark.parametrize(("sampler", "mass", "scale", "p_value"), REJECTING)
@pytest.mark.parametrize("factor", [pytest.param(OFF, marks=pytest.mark.slow), 1 / OFF])
def test_the_same_tests_reject_another_scale(
    sampler: Sampler,
    mass: Callable[[float, np.ndarray], np.ndarray],
    scale: float,
    p_value: Callable[..., float],
    factor: float,
) -> None:
    draws = sampler(scale * factor, DRAWS, seeded(1, "samplers", str(scale)))
    assert p_value(draws, scale, mass) < FALSE_ALARM


def _opendp(make: Callable[..., object], metric: object, scale: float, draws: int) -> np.ndarray:
    dp.enable_features("contrib")
    noise = make(dp.vector_domain(dp.atom_domain(T="i64")), metric, scale=scale)
    return np.array(noise([0] * draws))  # type: ignore[operator]


@pytest.mark.parametrize("scale", [0.7, pytest.param(5.0, marks=pytest.mark.slow), 300.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_opendps_samplers_draw_from_the_same_distribution(kind: str, scale: float) -> None:
    """A chi-square test of two samples, and Kolmogorov and Smirnov's; both reject ours at a scale 30 % off."""
    draws = 20_000
    ours: Sampler = discrete_laplace if kind == "laplace" else discrete_gaussian
    if kind == "laplace":
        theirs = _opendp(dp.m.make_laplace, dp.l1_distance(T="i64"), scale, draws)
    else:
        theirs = _opendp(dp.m.make_gaussian, dp.l2_distance(T="i64"), scale, draws)
    for factor, same in [(1, True), (OFF, False), (1 / OFF, False)]:
        found = ours(scale * factor, draws, seeded(2, kind, str(scale)))
        assert (_two_samples(found, theirs) > FALSE_ALARM) == same
        if same or scale > 1:
            assert (stats.ks_2samp(found, theirs).pvalue > FALSE_ALARM) == same


def _two_samples(one: np.ndarray, other: np.ndarray) -> float:
    edges = np.unique(np.quantile(other, np.linspace(0, 1, 30)).round()) + 0.5
    table = np.array([np.bincount(np.searchsorted(edges, each), minlength=edges.size + 1) for each in (one, other)])
    return float(stats.chi2_contingency(table[:, table.sum(0) > 20]).pvalue)


@pytest.mark.parametrize(("sampler", "scale"), [(discrete_laplace, 2.7), (discrete_gaussian, 2.7), (poisson, 7.3)])
def test_where_floating_point_is_never_trusted_the_draws_are_the_same(
    sampler: Sampler, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every coin is thrown by exact arithmetic, of the same first words, and none falls differently."""
    quick = sampler(scale, 1000, seeded(3, "slow"))
    monkeypatch.setattr(samplers, "DOUBT", 2.0)
    monkeypatch.setattr(samplers, "TABLE_DOUBT", 0.4)
    assert sampler(scale, 1000, seeded(3, "slow")).tolist() == quick.tolist()


def test_where_53_bits_do_not_decide_more_are_drawn() -> None:
    """The first word of a uniform number is that of exp(-1) itself: what follows decides, by the right share."""
    with mpmath.workdps(60):
        place = mpmath.exp(-1) * 2**53
        word, share = int(mpmath.floor(place)), float(mpmath.frac(place))
    throws = [samplers._Uniform(word, seeded(4, number)).below_exp(Fraction(1)) for number in range(2000)]
    assert 0.01 < share < 0.99
    assert stats.binomtest(sum(throws), 2000, share).pvalue > FALSE_ALARM


def test_a_rare_poisson_is_found_by_exact_arithmetic() -> None:
    """A uniform number of 53 zeros or ones is a variable beyond the table, which exact sums find."""
    for mean in (0.5, 7.3, 100.0):
        high = samplers._Uniform(2**53 - 1, seeded(5, "high")).quantile(Fraction(mean), 3)
        low = samplers._Uniform(0, seeded(5, "low")).quantile(Fraction(mean), 3)
        assert stats.poisson.sf(high, mean) < 2.0**-53 < stats.poisson.sf(high - 30, mean)
        assert low == 0 or stats.poisson.cdf(low - 1, mean) < 2.0**-53


class _Given:
    """A generator whose first words are given, and whose further bits are those of a seeded one."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)
        self._rest = seeded(6, "given")

    def integers(self, high: int, size: int) -> np.ndarray:
        assert high == 1 << 53
        return np.array([self._words.pop(0) for _ in range(size)])

    def bytes(self, length: int) -> bytes:
        return self._rest.bytes(length)


@pytest.mark.parametrize("mean", [0.5, 7.3, 100.0])
def test_poisson_leaves_what_its_table_does_not_tell_to_exact_arithmetic(mean: float) -> None:
    """At both ends of the uniform numbers, and where two entries of the table meet; the table alone would be wrong."""
    first, table = samplers._poisson_table(mean)
    edge = int(table[np.searchsorted(table, 0.5)] * 2.0**53)
    drawn = samplers._look_up(first, table, mean, 4, _Given(0, 2**53 - 1, edge - 2**10, edge + 2**10))  # type: ignore[arg-type]
    lowest, highest, below, above = drawn.tolist()
    assert lowest == 0 or stats.poisson.cdf(lowest - 1, mean) < 2.0**-53
    assert stats.poisson.sf(highest - 1, mean) < 2.0**-50 < stats.poisson.sf(highest - 40, mean)
    with mpmath.workdps(40):
        for number, word in ((below, edge - 2**10), (above, edge + 2**10)):
            cdf = [
                mpmath.gammainc(last + 1, mean, regularized=True) if last >= 0 else 0 for last in (number - 1, number)
            ]
            assert cdf[0] <= mpmath.mpf(word + 1) / 2**53
            assert mpmath.mpf(word) / 2**53 < cdf[1]


def _counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The answers of exact arithmetic, each turned into its opposite, or one more: so that it is seen who listens."""
    exact_results: list[Any] = []
    exact = getattr(samplers._Uniform, name)

    def other(uniform: samplers._Uniform, *arguments: Any) -> Any:
        exact_results.append(exact(uniform, *arguments))
        return not exact_results[-1] if name == "below_exp" else exact_results[-1] + 1

    monkeypatch.setattr(samplers._Uniform, name, other)
    return exact_results


def test_a_coin_that_floating_point_does_not_decide_is_thrown_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words next to exp(-1) and next to 1; a word far from it is left to floating point."""
    near = int(math.exp(-1) * 2.0**53)
    words = (near, near - 2**10, near + 2**10, 0, 2**53 - 1)
    survivors = samplers._survives(np.ones(5), lambda _: Fraction(1), _Given(*words))  # type: ignore[arg-type]
    assert survivors.tolist()[1:] == [True, False, True, False]
    exact_results = _counted(monkeypatch, "below_exp")
    again = samplers._survives(np.ones(5), lambda _: Fraction(1), _Given(*words))  # type: ignore[arg-type]
    assert exact_results == survivors.tolist()[:3]
    assert again.tolist() == [not coin for coin in exact_results] + survivors.tolist()[3:]


def test_a_poisson_that_the_table_does_not_decide_is_found_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    first, table = samplers._poisson_table(7.3)
    words = (0, 2**53 - 1, int(table[5] * 2.0**53), int((table[5] + table[6]) / 2 * 2.0**53))
    exact_results = _counted(monkeypatch, "quantile")
    found = samplers._look_up(first, table, 7.3, 4, _Given(*words))  # type: ignore[arg-type]
    assert found.tolist() == [each + 1 for each in exact_results] + [first + 6]
    assert len(exact_results) == 3


def test_large_means_are_sums() -> None:
    draws = poisson(5e6, 20_000, seeded(6, "large"))
    z = (draws - 5e6) / math.sqrt(5e6)
    assert abs(z.mean()) * math.sqrt(z.size) < stats.norm.isf(FALSE_ALARM / 2)
    low, high = stats.chi2.ppf(np.array([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2]), z.size)
    assert low < (z**2).sum() < high


def test_extreme_scales_have_no_overflow() -> None:
    assert (discrete_laplace(2.0**-40, 1000, seeded(7)) == 0).all()
    assert (discrete_gaussian(2.0**-40, 1000, seeded(7)) == 0).all()
    for scale in (2.0**40, 1e12 / 7):
        laplace = discrete_laplace(scale, 20_000, seeded(8)) / scale
        assert stats.kstest(laplace, "laplace").pvalue > FALSE_ALARM
        assert stats.kstest(discrete_gaussian(scale, 20_000, seeded(9)) / scale, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian, poisson])
def test_shapes_and_bad_arguments(sampler: Callable[..., np.ndarray]) -> None:
    assert sampler(2.0, 3, seeded(1)).shape == (3,)
    assert sampler(2.0, (2, 3), seeded(1)).shape == (2, 3)
    assert sampler(2.0, 0, seeded(1)).shape == (0,)
    assert sampler(2.0, 50, seeded(1)).tolist() == sampler(2.0, 50, seeded(1)).tolist()
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"must be positive and finite: got {wrong!r}"):
            sampler(wrong, 3, seeded(1))
    for extreme in (1e-20, 1e20):
        with pytest.raises(ValueError, match=r"must lie between 2\^-40 and 2\^[34]0: got"):
            sampler(extreme, 3, seeded(1))


def test_special_functions_agree_about_the_table() -> None:
    for mean in (0.01, 7.3, 1e4, 1e6):
        first, table = samplers._poisson_table(mean)
        exact = special.pdtr(first + np.arange(table.size), mean)
        np.testing.assert_allclose(table, exact, atol=1e-11)
