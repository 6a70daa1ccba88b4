import json
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent  # type: ignore[import-untyped]
from dp_accounting.rdp import RdpAccountant  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reticent.privacy._cost import ORDERS, Cost, Noise, composed, epsilon_of, log_delta_of
from reticent.privacy.mechanisms import NoiseKind

amounts = st.floats(0, 1e6)
positives = st.floats(1e-6, 1e6)
noises = st.builds(Noise, st.sampled_from(["skellam", "gaussian"]), positives, positives, positives)
costs = st.builds(Cost, amounts, st.floats(0, 1, exclude_max=True), st.none() | noises)


@given(costs)
def test_a_cost_comes_back_from_text_as_it_was(cost: Cost) -> None:
    assert Cost.from_text(cost.to_text()) == cost


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "3", "[]", "null"),
        '{"epsilon": 1, "delta": 0}',
        '{"epsilon": -1, "delta": 0, "noise": null}',
        '{"epsilon": 1, "delta": 0, "noise": {"kind": "laplace", "variance": 1, "l1": 1, "l2": 1}}',
        '{"epsilon": 1, "delta": NaN, "noise": null}',
        '{"epsilon": "1", "delta": 0, "noise": null}',
        '{"epsilon": 1, "delta": 0, "noise": null, "more": 1}',
    ],
)
def test_what_is_no_cost_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the text is not a cost"):
        Cost.from_text(text)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1, 0), (math.inf, 0), (math.nan, 0), (1, -1e-9), (1, 1), ("1", 0), (None, 0), (10**400, 0)]
)
def test_a_cost_out_of_range_is_refused(epsilon: Any, delta: Any) -> None:
    with pytest.raises(ValueError, match=r"must (be a finite number|lie in)"):
        Cost(epsilon, delta)


def test_costs_that_print_as_decimals_add_like_decimals() -> None:
    assert composed([Cost(0.1, 1e-7)] * 3, 3e-7).epsilon == 0.3
    with pytest.raises(ValueError, match="add up to a delta of 3e-07"):
        composed([Cost(0.1, 1e-7)] * 3, 2.9e-7)


def _divergence(order: int, shift: int, variance: float) -> float:
    """Of one counter's Skellam noise, by its probability mass function."""
    reach = int(shift + 60 * math.sqrt(variance) + 200)
    k = np.arange(-reach, reach + 1)
    here = stats.skellam.logpmf(k, variance / 2, variance / 2)
    there = stats.skellam.logpmf(k - shift, variance / 2, variance / 2)
    known = np.isfinite(here) & np.isfinite(there)
    terms = order * here[known] + (1 - order) * there[known]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


@pytest.mark.parametrize("variance", [20.0, 100.0, 2500.0])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("order", [2, 5, 12])
def test_the_bound_of_skellam_noise_is_above_the_truth_and_not_far(variance: float, shift: int, order: int) -> None:
    exact = _divergence(order, shift, variance)
    bound = Noise("skellam", variance, shift, shift).renyi(order)
    gaussian = Noise("gaussian", variance, shift, shift).renyi(order)
    assert exact <= bound
    assert bound <= gaussian * (1 + 3 / min(math.sqrt(variance), variance / shift))
    assert bound * 0.7 < exact  # had it been of 30 % more variance, it would not be a bound


@pytest.mark.parametrize("kind", ["skellam", "gaussian"])
@given(variance=st.floats(0.1, 1e6), more=st.floats(1, 100), order=st.sampled_from(ORDERS))
def test_more_noise_never_costs_more(kind: NoiseKind, variance: float, more: float, order: int) -> None:
    assert Noise(kind, variance * more, 2, 4).renyi(order) <= Noise(kind, variance, 2, 4).renyi(order)


@pytest.mark.parametrize(("deviation", "times"), [(5.0, 1), (20.0, 30), (80.0, 500)])
def test_gaussian_divergences_are_those_of_dp_accounting(deviation: float, times: int) -> None:
    """The divergences agree; the epsilons need not, which are of another definition there."""
    orders = list(ORDERS)
    accountant = RdpAccountant(orders)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(deviation), times))
    noise = Noise("gaussian", deviation**2, 1, 1)
    assert np.allclose(np.array([noise.renyi(order) for order in orders]) * times, accountant._rdp, rtol=1e-12)
    ours = composed([Cost(1.0, 1e-6, noise)] * times, 1e-6).epsilon
    assert ours >= accountant.get_epsilon(1e-6)


def _gaussian_tails(mean: float, epsilon: float) -> float:
    """How likely the loss of Gaussian noise, normal with this mean and twice that variance, is to leave ±epsilon."""
    loss = stats.norm(mean, math.sqrt(2 * mean))
    return float(loss.sf(epsilon) + loss.cdf(-epsilon))


@given(st.floats(1e-4, 20), st.floats(-12, -1), st.sampled_from(ORDERS))
def test_the_conversion_bounds_both_tails_of_the_loss(mean: float, log10_delta: float, order: int) -> None:
    """Gaussian noise of this divergence, whose loss is known: it leaves [-epsilon, epsilon] no oftener than delta."""
    delta = 10**log10_delta
    epsilon = epsilon_of(order * mean, order, delta)
    assert _gaussian_tails(mean, epsilon) <= delta
    assert log_delta_of(order * mean, order, epsilon) <= math.log(delta)
    assert log_delta_of(order * mean, order, epsilon * (1 - 1e-9)) > math.log(delta)


def test_the_conversion_is_needed_in_full() -> None:
    """One output is e times likelier with the user, another without: the loss is 1 or -1 with probability .137.

    Counting the loss above epsilon only, as for indistinguishability, would claim .1.
    """
    order, rare = 20, 0.1
    here = np.array([rare, rare / math.e, 1 - rare - rare / math.e])
    there = here[[1, 0, 2]]
    divergence = math.log(float((here**order * there ** (1 - order)).sum())) / (order - 1)
    below = 1 - 1e-9
    both = here[:2].sum()
    assert math.exp((order - 1) * (divergence - below)) < 0.75 * both
    assert both <= math.exp(log_delta_of(divergence, order, below)) < both * 1.001


def test_many_noisy_queries_cost_less_than_their_sum_and_few_no_more() -> None:
    one = Cost(1.0, 1e-6, Noise("gaussian", 25.0, 1, 1))
    assert composed([one], 1e-6).epsilon == 1.0
    assert composed([one] * 20, 2e-5).epsilon < 6
    assert composed([Cost(1.0, 1e-6)] * 20, 2e-5).epsilon == 20


def test_costs_without_delta_compose_both_ways() -> None:
    """By addition where they are few, through their divergences where they are many."""
    pure = Cost(0.01, 0.0)
    assert composed([pure] * 10, 1e-6).epsilon == 0.1
    assert composed([pure] * 10_000, 1e-6).epsilon < 7


def test_the_divergence_of_a_cost_without_delta_is_never_above_its_epsilon() -> None:
    assert Cost(5.0, 0.0).renyi(2) == 5.0
    assert Cost(0.5, 0.0).renyi(2) == 0.25


def test_one_cost_that_says_no_noise_leaves_addition_only() -> None:
    noisy = Cost(1.0, 1e-6, Noise("gaussian", 25.0, 1, 1))
    assert composed([noisy] * 20 + [Cost(1.0, 1e-6)], 1e-4).epsilon == 21
    assert noisy.renyi(5) == pytest.approx(0.1)
    assert Cost(1.0, 1e-6).renyi(5) is None


def test_a_cost_cannot_be_changed() -> None:
    cost = Cost(1, 0)
    with pytest.raises(AttributeError):
        cost.epsilon = 2  # type: ignore[misc]
    assert json.loads(cost.to_text()) == {"epsilon": 1.0, "delta": 0.0, "noise": None}
