import math
from statistics import NormalDist

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from reticent.privacy import (
    comparable_gaussian,
    gaussian_sigma,
    skellam_delta,
    skellam_renyi,
    skellam_variance,
)
from reticent.privacy.mechanisms._calibration import MIN_PROBABILITY
from reticent.privacy.mechanisms._skellam_bound import shift_of, worst_from
from reticent.privacy.mechanisms._skellam_loss import _ratio, mass_at_zero, threshold, upper_tails
from tests.core.privacy import oracle

epsilons = st.floats(-1.5, 0.7).map(lambda x: 10.0**x)
deltas = st.floats(-10, -0.4).map(lambda x: 10.0**x)
variances = st.floats(-2, 3).map(lambda x: 10.0**x)

ROUNDING = 1e-10  # of normal scores that come from sums of up to 10^4 terms

NORMS = [(1.0, None), (math.sqrt(2), None), (math.sqrt(3), None), (2.0, None), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]


@pytest.mark.parametrize("variance", [1e-6, 0.01, 0.7, 5.0, 39.9, 40.1, 700.0, 1e5, 1e8])
def test_the_noise_has_scipys_probabilities(variance: float) -> None:
    assert mass_at_zero(variance) == pytest.approx(special.ive(0, variance), rel=1e-13)
    reach = int(6 * math.sqrt(variance)) + 4
    tails = upper_tails(variance, 0, 40.0)
    noise = np.arange(reach)
    np.testing.assert_allclose(tails.log_mass[:reach], oracle.log_mass(variance, noise), rtol=1e-11, atol=1e-11)
    exact = np.exp(oracle.log_mass(variance, np.arange(reach + int(9 * math.sqrt(variance)) + 40)))
    np.testing.assert_allclose(tails.above[:reach], exact[::-1].cumsum()[::-1][:reach], rtol=1e-9)
    assert (tails.above[:reach] >= exact[::-1].cumsum()[::-1][:reach] * (1 - 1e-11)).all()
    if variance <= 1e5:
        exact = stats.skellam.pmf(noise, variance / 2, variance / 2)
        likely = exact > 1e-6
        np.testing.assert_allclose(np.exp(tails.log_mass[:reach])[likely], exact[likely], rtol=1e-6)


def test_tails_of_1e_minus_200_are_known_relatively() -> None:
    mass = oracle.log_mass(10.0, np.arange(100, 200))
    tails = upper_tails(10.0, 100, 25.0)
    assert math.log(tails.above[100]) == pytest.approx(special.logsumexp(mass), abs=1e-9)
    assert tails.above[100] < 1e-80


@given(variances, epsilons)
def test_one_counter_is_the_exact_sum(variance: float, epsilon: float) -> None:
    found = skellam_delta(variance, epsilon, 1)
    exact = oracle.one_counter(variance, epsilon)
    assert found >= exact * (1 - 1e-9) - 1e-15
    assert found == pytest.approx(exact, rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("epsilon", [0.03, 0.5, 2, 10])
@pytest.mark.parametrize("delta", [0.3, pytest.param(1e-4, marks=pytest.mark.slow), 1e-9])
def test_one_counter_is_safe_at_every_larger_variance_and_no_smaller_one_is(epsilon: float, delta: float) -> None:
    """By the oracle at 200 variances up to 4 times as large, and just below, where the step ends."""
    least = skellam_variance(epsilon, delta, 1)
    for variance in np.geomspace(least, 4 * least, 200):
        assert oracle.one_counter(float(variance), epsilon) <= delta
    assert oracle.one_counter(least * (1 - 1e-7), epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.02), (1, 0.02), (1, 1e-4), (2, 1e-5), (3, 1e-6)])
def test_delta_is_not_monotone_so_bisection_would_be_unsafe(epsilon: float, delta: float) -> None:
    """Below the smallest safe variance lie others that keep delta, with some between that do not."""
    least = skellam_variance(epsilon, delta, 1)
    smaller = np.geomspace(least / 2, least * (1 - 1e-7), 400)
    kept = np.array([oracle.one_counter(float(each), epsilon) <= delta for each in smaller])
    assert kept.any()
    assert not kept[-1]


@pytest.mark.parametrize(("sensitivity", "l1"), NORMS)
@pytest.mark.parametrize(("variance", "epsilon"), [(0.5, 1.0), (5.0, 0.5), (5.0, 3.0), (30.0, 1.0)])
def test_vectors_are_the_worst_of_all_contributions(
    sensitivity: float, l1: float | None, variance: float, epsilon: float
) -> None:
    square = round(sensitivity**2)
    total = square if l1 is None else round(l1)
    found = skellam_delta(variance, epsilon, sensitivity, l1=l1)
    every = list(oracle.contributions(square, total))
    low = max(oracle.vector(variance, epsilon, each, above=False) for each in every)
    high = max(oracle.vector(variance, epsilon, each, above=True) for each in every)
    assert low * (1 - 1e-9) - 1e-14 <= found <= high * (1 + 1e-5) + 1e-14
    assert high <= low * 1.2 + 1e-12  # or the oracle would say little


@pytest.mark.parametrize(("sensitivity", "l1"), [*NORMS[1:], (math.sqrt(5), None), (math.sqrt(6), None), (5.0, 5.0)])
@pytest.mark.parametrize(("epsilon", "delta"), [pytest.param(0.5, 0.1, marks=pytest.mark.slow), (1, 1e-6), (3, 1e-4)])
def test_vectors_are_safe_from_the_variance_to_four_times_it(
    sensitivity: float, l1: float | None, epsilon: float, delta: float
) -> None:
    """Upper bounds of the oracle for all contributions; and the variance is no more than it needs to be twice over."""
    square = round(sensitivity**2)
    least = skellam_variance(epsilon, delta, sensitivity, l1=l1)
    every = list(oracle.contributions(square, square if l1 is None else round(l1)))
    for variance in np.geomspace(least, 4 * least, 12):
        assert max(oracle.vector(float(variance), epsilon, each, above=True) for each in every) <= delta
    assert least < 1.6 * gaussian_sigma(epsilon, delta, sensitivity) ** 2


def test_all_ones_are_worse_than_one_big_entry() -> None:
    one = oracle.vector(30.0, 1, (2,), above=True)
    assert oracle.vector(30.0, 1, (1, 1, 1, 1), above=False) > one
    assert skellam_delta(30.0, 1, 2) > one > skellam_delta(30.0, 1, 2, l1=1)


@given(epsilons, deltas, st.integers(1, 50), st.floats(1.01, 20))
def test_more_of_anything_moves_the_variance_the_right_way(
    epsilon: float, delta: float, square: int, factor: float
) -> None:
    sensitivity = math.sqrt(square)
    variance = skellam_variance(epsilon, delta, sensitivity)
    assert skellam_delta(variance, epsilon, sensitivity) <= delta
    assert skellam_delta(variance * factor, epsilon, sensitivity) <= delta
    assert skellam_variance(epsilon, delta / factor, sensitivity) >= variance
    assert skellam_variance(epsilon * factor, delta, sensitivity) <= variance * (1 + 1e-8)
    assert skellam_variance(epsilon, delta, math.sqrt(square + 1)) >= variance
    assert skellam_variance(epsilon, delta, sensitivity, l1=max(1, square // 2)) <= variance


@given(epsilons, deltas, st.integers(2, 1000))
def test_vectors_need_at_most_what_the_renyi_bound_asks_for(epsilon: float, delta: float, square: int) -> None:
    variance = skellam_variance(epsilon, delta, math.sqrt(square))
    orders = (1 + np.geomspace(1e-3, 1e4, 200)).tolist()
    published = min(
        (each - 1)
        * (
            each * square / (2 * variance)
            + min(((2 * each - 1) * square + 6 * square) / (4 * variance**2), 3 * square / (2 * variance))
            - epsilon
        )
        for each in orders
    )
    assert (1 + math.exp(-epsilon)) * math.exp(published) >= delta


@pytest.mark.parametrize("variance", [0.05, 1.0, 25.0, 400.0])
@pytest.mark.parametrize("change", [1, 5])
@pytest.mark.parametrize("order", [1.01, 2.0, 4.0, 64.0])
def test_the_renyi_bound_is_above_the_exact_divergence(variance: float, change: int, order: float) -> None:
    exact = oracle.renyi(order, variance, change)
    assert math.isfinite(exact)
    assert skellam_renyi(order, variance, change, change) >= exact * (1 - 1e-9)
    if variance >= 25 and order * change <= 8:
        assert skellam_renyi(order, variance, change, change) <= exact * 1.2  # it is no idle bound


def test_renyi_curves_give_the_epsilon_that_dp_accounting_finds() -> None:
    """Definition 4 by its own conversion: Skellam's curve is below that of the Gaussian it is compared with."""
    orders = [1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]
    curve = [skellam_renyi(each, 50.0, 2.0, 4.0) for each in orders]
    gauss = [each * 4 / (2 * comparable_gaussian(50.0)) for each in orders]
    ours, _ = compute_epsilon(orders, curve, 1e-6)
    theirs, _ = compute_epsilon(orders, gauss, 1e-6)
    assert ours <= theirs * (1 + 1e-9)
    assert oracle.indistinguishability(50.0, ours, 2) <= 1e-6


@pytest.mark.parametrize("variance", [1e-4, 1e-3, *np.geomspace(0.01, 3e4, 30).tolist()])
def test_normal_scores_grow_most_in_the_middle(variance: float) -> None:
    """The theorem behind the comparison: between neighbouring integers the normal score grows ever less outwards."""
    tails = upper_tails(variance, 0, 600.0).above[1:]
    scores = np.array([-NormalDist().inv_cdf(float(each)) for each in tails if 1e-250 < each < 0.5])
    growth = np.diff(np.concatenate([[-scores[0]], scores]))
    assert (np.diff(growth) <= ROUNDING).all()
    assert growth.max() <= shift_of(variance) + ROUNDING


@given(variances, st.floats(0, 4), st.integers(1, 6))
def test_definition_4_is_below_that_of_the_comparable_gaussian(variance: float, epsilon: float, change: int) -> None:
    deviation = math.sqrt(comparable_gaussian(variance)) / change
    gauss = special.ndtr(1 / (2 * deviation) - epsilon * deviation) - math.exp(epsilon) * special.ndtr(
        -1 / (2 * deviation) - epsilon * deviation
    )
    assert oracle.indistinguishability(variance, epsilon, change) <= gauss * (1 + 1e-7) + 1e-13


def test_a_gaussian_of_a_little_more_variance_would_hide_more() -> None:
    """So the comparison is not loose: at .2 more variance it is false."""
    deviation = math.sqrt(comparable_gaussian(10.0) + 0.2)
    gauss = special.ndtr(0.5 / deviation) - special.ndtr(-0.5 / deviation)
    assert oracle.indistinguishability(10.0, 0.0, 1) > gauss


@given(variances, epsilons)
def test_the_bound_for_all_larger_variances_is_above_the_exact_value(variance: float, epsilon: float) -> None:
    bound = worst_from(shift_of(variance), epsilon)
    for factor in (1, 1.1, 1.5, 3):
        assert oracle.one_counter(variance * factor, epsilon) <= bound + 1e-14


@given(st.floats(0.05, 5), st.floats(0.05, 10))
def test_the_bound_is_the_smallest_of_its_kind(shift: float, epsilon: float) -> None:
    """A search of 4000 steps finds no smaller one, and the bound is no smaller than what it finds."""
    earlier = np.geomspace(1e-3 * epsilon, 50 * epsilon + 50, 4000)
    x = epsilon - earlier
    loss = special.ndtr(shift / 2 - x / shift) - np.exp(x + special.log_ndtr(-shift / 2 - x / shift))
    smallest = float((np.maximum(loss, 0) / -np.expm1(-earlier)).min()) * (1 + math.exp(-epsilon))
    found = worst_from(shift, epsilon)
    assert min(1.0, smallest) * (1 - 1e-4) - 1e-14 <= found <= min(1.0, smallest) * (1 + 1e-5) + 1e-14


def test_square_roots_do_not_lose_a_unit() -> None:
    """The float nearest the root of 3 has a square below 3."""
    assert math.sqrt(3) ** 2 < 3
    assert skellam_variance(1, 0.01, math.sqrt(3)) == skellam_variance(1, 0.01, math.sqrt(3.5))


@pytest.mark.parametrize("variance", [0.02, 5.0, 400.0])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 2.5])
def test_one_counter_is_not_below_the_exact_value_in_the_last_digits(variance: float, epsilon: float) -> None:
    with mpmath.workdps(40):
        step = threshold(variance, epsilon)
        mass = [mpmath.exp(-mpmath.mpf(variance)) * mpmath.besseli(each, variance) for each in range(step, step + 300)]
        exact = 2 * mpmath.fsum(mass) - mass[0]
        assert mass[1] / mass[0] < mpmath.exp(-mpmath.mpf(epsilon))
    found = skellam_delta(variance, epsilon, 1)
    assert exact <= found <= max(exact * (1 + 1e-10), MIN_PROBABILITY)


@pytest.mark.parametrize("variance", [0.1, 37.0, 1e3, 3e5])
@pytest.mark.parametrize("order", [1, 2, 60])
def test_a_ratio_has_all_digits_however_large_the_noise(variance: float, order: int) -> None:
    with mpmath.workdps(40):
        above, below = (mpmath.besseli(each, variance, maxterms=10**6) for each in (order, order - 1))
        exact = float(above / below)
    assert _ratio(variance, order) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize(
    "sensitivity", [1.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (math.sqrt(2), 1e3)), 2.0, 1e9]
)
def test_every_call_ends_whatever_is_asked(epsilon: float, sensitivity: float) -> None:
    for variance in (1e-9, 1.0, 90.0, 1e5, 3e5, 1e8, 1e15):
        assert 0 < skellam_delta(variance, epsilon, sensitivity) <= 1
    found = [skellam_variance(epsilon, delta, sensitivity) for delta in (0.9, 0.02, 1e-12, 1e-30, 1e-100)]
    assert found == sorted(found)
    assert 0 < found[0] < found[-1] < math.inf


@pytest.mark.parametrize("y", [32, 33, 100, 1e4, 1e8])
def test_every_step_of_the_lemma_holds(y: float) -> None:
    """By 50 digits, where 2 (j + 1) / variance is y: the four facts, and what follows from them."""
    with mpmath.workdps(50):
        for n in (1, 2, 3, 10, 60, 300):
            variance = 2 * n / mpmath.mpf(y)
            mass = [mpmath.exp(-variance) * mpmath.besseli(each, variance) for each in range(n - 1, n + 60)]
            tails = [mpmath.fsum(mass[each:]) for each in range(3)]  # from n - 1, n, n + 1
            lower, middle, upper = (_normal_score(each) for each in tails)
            growth, mills = middle - lower, mpmath.npdf(middle) / tails[1]
            assert upper - middle < growth
            if n > 1:
                log = mpmath.log(y)
                assert log <= mpmath.log(tails[0] / tails[1]) <= growth * mills
                assert mills**2 < 2 * n * (log + 2 / mpmath.mpf(y)) + mpmath.mpf("0.62")
                bent = -mpmath.log(tails[2] * tails[0] / tails[1] ** 2)
                assert bent < y / ((y - 1) * n) <= 2 / mpmath.pi * growth**2


def _normal_score(tail: mpmath.mpf) -> mpmath.mpf:
    """The x with 1 - Phi(x) = tail, by Newton's method on the logarithm, which is concave."""
    x = mpmath.sqrt(max(0, -2 * mpmath.log(tail)))
    for _ in range(60):
        above = mpmath.erfc(x / mpmath.sqrt(2)) / 2
        x += mpmath.log(above / tail) * above / mpmath.npdf(x)
    return x


@pytest.mark.parametrize("order", [2000.01, 2000.5, 2001])
def test_the_published_renyi_bound_is_used_at_whole_orders_only(order: float) -> None:
    """It was proved for those, and a divergence of the next whole order is larger; at large ones it is the smaller."""
    assert skellam_renyi(order, 100.0, 1.0, 1.0) == pytest.approx(2001 / 200 + 3 / 200, rel=1e-12)


@pytest.mark.parametrize("delta", [0.5, 0.02, 1e-6, 1e-30, 1e-100])
@pytest.mark.parametrize(
    "epsilon", [1e-6, 2.3e-6, *(pytest.param(each, marks=pytest.mark.slow) for each in (1e-5, 1e-4)), 1e-3]
)
def test_rounding_makes_no_more_of_delta_than_is_said(epsilon: float, delta: float) -> None:
    for sensitivity in (1.0, 1.5, 2.0, 100.0, 1e9):
        variance = skellam_variance(epsilon, delta, sensitivity)
        for larger in (1, 1 + 1e-9, 1.1):
            assert skellam_delta(variance * larger, epsilon, sensitivity) <= delta * (1 + 1e-5)
        assert skellam_delta(variance * 0.98, epsilon, sensitivity) > delta


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"L2 norm of at least 1: got 0\.5"):
        skellam_variance(1, 0.1, 0.5)
    with pytest.raises(ValueError, match=r"L1 norm of at least 1: got l1 = 0\.5"):
        skellam_delta(1, 1, 1, l1=0.5)
    with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\): got 2"):
        skellam_variance(1, 2, 1)
    with pytest.raises(ValueError, match=r"delta must be at least 1e-307, as floats are no finer: got 1e-308"):
        skellam_variance(1, 1e-308, 1)
    with pytest.raises(ValueError, match="epsilon above 100 promises nothing: got 101"):
        skellam_variance(101, 0.1, 1)
    with pytest.raises(ValueError, match="Rényi order must be above 1: got 1"):
        skellam_renyi(1, 1, 1, 1)
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"must be positive and finite: got {wrong!r}"):
            skellam_delta(wrong, 1, 1)
        with pytest.raises(ValueError, match=f"must be positive and finite: got {wrong!r}"):
            comparable_gaussian(wrong)
