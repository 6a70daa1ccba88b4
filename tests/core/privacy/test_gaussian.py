import math
from collections.abc import Callable

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reticent.privacy import (
    fixed_point_delta,
    fixed_point_sigma,
    gaussian_delta,
    gaussian_sigma,
    sequence_sigma,
    thesis_sigma,
)
from reticent.randomness import seeded
from tests.core.privacy import oracle

epsilons = st.floats(-6, 4).map(lambda x: 10.0**x)
deltas = st.floats(-40, -0.05).map(lambda x: 10.0**x)
sensitivities = st.floats(-6, 6).map(lambda x: 10.0**x)


def _exact(sigma: float, epsilon: float, sensitivity: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        shift = mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
        away = mpmath.mpf(epsilon) / shift
        return mpmath.ncdf(shift / 2 - away) + mpmath.ncdf(-shift / 2 - away)


def test_the_known_answer() -> None:
    """At epsilon 1 and delta .02 the printed bound asks for 3.255, which has a tail of .0013; 2.376 is enough."""
    assert thesis_sigma(1, 0.02, 1) == pytest.approx(3.255, abs=5e-4)
    assert gaussian_delta(thesis_sigma(1, 0.02, 1), 1, 1) == pytest.approx(0.0013, abs=5e-5)
    assert gaussian_sigma(1, 0.02, 1) == pytest.approx(2.376, abs=5e-4)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1, 5, 50, 1e3, 1e6])
@pytest.mark.parametrize("delta", [0.9, 0.5, 0.02, 1e-6, 1e-30, 1e-200])
def test_sixty_digits_agree_and_are_never_above(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, 1.7)
    exact = _exact(sigma, epsilon, 1.7)
    assert exact <= gaussian_delta(sigma, epsilon, 1.7) <= delta
    assert float(exact / delta) == pytest.approx(1, rel=1e-10)


@given(epsilons, deltas, sensitivities)
def test_sigma_and_delta_are_inverse(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    found = gaussian_delta(sigma, epsilon, sensitivity)
    assert found <= delta
    assert found == pytest.approx(delta, rel=1e-9)
    assert gaussian_sigma(epsilon, found, sensitivity) == pytest.approx(sigma, rel=1e-9)


@given(epsilons, deltas, sensitivities, st.floats(1.001, 10))
def test_more_of_anything_moves_sigma_the_right_way(
    epsilon: float, delta: float, sensitivity: float, factor: float
) -> None:
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert gaussian_sigma(epsilon * factor, delta, sensitivity) < sigma
    assert gaussian_sigma(epsilon, delta / factor, sensitivity) > sigma
    assert gaussian_sigma(epsilon, delta, sensitivity * factor) == pytest.approx(sigma * factor, rel=1e-9)
    assert gaussian_delta(sigma * factor, epsilon, sensitivity) < gaussian_delta(sigma, epsilon, sensitivity)


@given(st.floats(0.001, 1), deltas, sensitivities)
def test_the_printed_bound_is_never_below_what_is_needed(epsilon: float, delta: float, sensitivity: float) -> None:
    assert gaussian_sigma(epsilon, delta, sensitivity) < thesis_sigma(epsilon, delta, sensitivity)


def test_the_losses_of_drawn_noise_have_this_tail() -> None:
    """10^6 vectors: the number of losses beyond epsilon is binomial. False alarm 1e-6; sigma 30 % off is rejected."""
    change, draws = np.array([0.6, -0.3, 0.5]), 1_000_000
    sensitivity = float(np.linalg.norm(change))
    sigma = gaussian_sigma(1, 0.02, sensitivity)
    normal = np.random.default_rng(1).standard_normal((draws, 3))
    for factor, right in [(1, True), (0.7, False), (1.3, False)]:
        noise = factor * sigma * normal
        loss = (((noise - change) ** 2).sum(1) - (noise**2).sum(1)) / (2 * (factor * sigma) ** 2)
        found = int((np.abs(loss) > 1).sum())
        assert (stats.binomtest(found, draws, 0.02).pvalue > 1e-6) == right


@pytest.mark.parametrize("fraction_bits", [0, 3, 7])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0.02), (0.2, 1e-5), (3, 1e-9)])
def test_a_sum_on_a_grid_keeps_delta_by_its_exact_probabilities(
    epsilon: float, delta: float, fraction_bits: int
) -> None:
    """One number that changes by 1, under discrete Gaussian noise of this and of up to four times the variance."""
    least = fixed_point_sigma(epsilon, delta, 1, l1=1, fraction_bits=fraction_bits)
    assert fixed_point_delta(least, epsilon, 1, l1=1, fraction_bits=fraction_bits) <= delta
    for sigma in np.linspace(least, 2 * least, 200):
        assert _on_grid(float(sigma), epsilon, fraction_bits) <= delta


def test_the_continuous_tail_would_not_do_on_a_grid() -> None:
    sigmas = np.linspace(2, 3, 200)
    assert max(_on_grid(float(each), 1, 0) / gaussian_delta(float(each), 1, 1) for each in sigmas) > 1.2


def test_a_fine_grid_costs_nothing() -> None:
    assert fixed_point_sigma(1, 1e-6, 1, l1=1, fraction_bits=40) == pytest.approx(gaussian_sigma(1, 1e-6, 1), rel=1e-9)


def _on_grid(sigma: float, epsilon: float, fraction_bits: int) -> float:
    steps, change = sigma * 2.0**fraction_bits, 2**fraction_bits
    noise = np.arange(-int(15 * steps) - change, int(15 * steps) + change + 1)
    mass = np.exp(-(noise**2) / (2 * steps**2))
    loss = ((noise - change) ** 2 - noise**2) / (2 * steps**2)
    return float(mass[np.abs(loss) > epsilon].sum() / mass.sum())


def test_the_oracle_agrees() -> None:
    assert oracle.gaussian_tail(2.5, 1, 1) == pytest.approx(gaussian_delta(2.5, 1, 1), rel=1e-9)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf])
def test_numbers_that_are_not_positive_are_refused(wrong: float) -> None:
    calls: list[Callable[[], float]] = [
        lambda: gaussian_sigma(wrong, 0.1, 1),
        lambda: gaussian_sigma(1, 0.1, wrong),
        lambda: gaussian_delta(wrong, 1, 1),
        lambda: thesis_sigma(wrong, 0.1, 1),
        lambda: fixed_point_sigma(1, 0.1, 1, l1=wrong, fraction_bits=3),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"must be positive and finite: got {wrong!r}"):
            call()


@pytest.mark.parametrize("wrong", [0, 1, -0.5, 1.5, math.nan])
def test_a_delta_outside_of_0_and_1_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\): got"):
        gaussian_sigma(1, wrong, 1)


CALIBRATIONS: list[Callable[[float, float], float]] = [
    lambda epsilon, delta: gaussian_sigma(epsilon, delta, 1),
    lambda epsilon, delta: sequence_sigma(epsilon, delta, 1),
    lambda epsilon, delta: fixed_point_sigma(epsilon, delta, 1, l1=1, fraction_bits=1),
]


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("delta", [5e-324, 1e-308, 2.2e-308, 2.4e-308, 9e-308])
def test_a_delta_that_floats_hardly_hold_is_refused(calibration: Callable[[float, float], float], delta: float) -> None:
    for epsilon in (1e-6, 1, 100):
        with pytest.raises(ValueError, match=f"delta must be at least 1e-307, as floats are no finer: got {delta!r}"):
            calibration(epsilon, delta)
        assert 0 < calibration(epsilon, 1e-307) < math.inf


def test_an_epsilon_that_promises_nothing_is_refused_on_a_grid() -> None:
    with pytest.raises(ValueError, match="epsilon above 100 promises nothing: got 50000"):
        fixed_point_sigma(50_000, 1e-6, 1, l1=1, fraction_bits=1)
    with pytest.raises(ValueError, match="epsilon above 100 promises nothing: got 50000"):
        fixed_point_delta(0.003, 50_000, 1, l1=1, fraction_bits=1)
    assert fixed_point_sigma(100, 1e-6, 1, l1=1, fraction_bits=1) > 0


def test_other_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"epsilon up to 1 only: got 1\.5"):
        thesis_sigma(1.5, 0.1, 1)
    with pytest.raises(ValueError, match="fraction_bits must be at least 0: got -1"):
        fixed_point_sigma(1, 0.1, 1, l1=1, fraction_bits=-1)
    with pytest.raises(ValueError, match=r"fraction_bits must be a whole number: got 1\.5"):
        fixed_point_sigma(1, 0.1, 1, l1=1, fraction_bits=1.5)  # type: ignore[arg-type]


# Sequences: whoever asks may stop when the loss is large.


def _first_passage(sigma: float, epsilon: float) -> mpmath.mpf:
    """The probability that the loss of ever more, ever smaller questions ever leaves [-epsilon, epsilon]."""
    with mpmath.workdps(60):
        shift = 1 / mpmath.mpf(sigma)
        near, far = mpmath.ncdf(shift / 2 - epsilon / shift), mpmath.ncdf(-shift / 2 - epsilon / shift)
        return (1 + mpmath.exp(-epsilon)) * near + (1 + mpmath.exp(epsilon)) * far


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1, 5, 50])
@pytest.mark.parametrize("delta", [0.5, 0.02, 1e-6, 1e-30, 1e-200])
def test_the_noise_of_a_sequence_is_enough_for_whoever_stops_at_the_worst_moment(epsilon: float, delta: float) -> None:
    sigma = sequence_sigma(epsilon, delta, 1)
    assert _first_passage(sigma, epsilon) <= delta
    assert _first_passage(gaussian_sigma(epsilon, delta, 1), epsilon) > delta  # that of a fixed vector is not
    assert sigma < (1.6 if delta < 0.1 else 3) * gaussian_sigma(epsilon, delta, 1)
    assert sequence_sigma(epsilon, delta, 2.5) == pytest.approx(2.5 * sigma, rel=1e-12)


def test_whoever_stops_at_the_worst_moment_is_simulated() -> None:
    """400 questions, and none that concerns the user once the loss is beyond epsilon; false alarm 1e-6."""
    epsilon, delta, phones, questions = 1.0, 0.02, 40_000, 400
    rng = seeded(41)

    def breaches(sigma: float) -> int:
        step = 1 / (sigma * math.sqrt(questions))
        loss = np.zeros(phones)
        for _ in range(questions):
            going = np.abs(loss) <= epsilon
            loss[going] += step**2 / 2 + step * rng.standard_normal(going.sum())
        return int((np.abs(loss) > epsilon).sum())

    assert breaches(sequence_sigma(epsilon, delta, 1)) < stats.binom.isf(1e-6, phones, delta)
    assert breaches(gaussian_sigma(epsilon, delta, 1)) > stats.binom.isf(1e-6, phones, delta)
