"""What the experiments are made of: who takes part, the systems, the answers to a question, and the intervals."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from reticent.randomness import seeded
from reticent_client import MarkovChain
from reticent_sim.experiments import statistics
from reticent_sim.experiments.subjects import Subject, from_population
from reticent_sim.experiments.systems import (
    COMPUTED,
    LEAKY,
    PROBABILISTIC,
    SIMULATABLE,
    Trial,
    hybrid_result,
    run_trial,
)
from reticent_sim.rivals.listed_probabilistic import listed_probabilistic
from reticent_sim.rivals.thesis import ThesisProbabilistic

# Subjects


DAY = ("home", "work", None, "home")


def test_the_first_half_is_learned_and_the_second_judged() -> None:
    subject = Subject("ada", (DAY,) * 20 + (("home", "gym", None, "home"),) * 21)
    assert (len(subject.learned), len(subject.judged)) == (20, 21)
    assert subject.contexts == ("home", "work")
    assert subject.seen == 3
    followed, strayed = subject.halves
    assert (len(followed), len(strayed)) == (0, 21)


def test_home_is_where_most_nights_are_spent() -> None:
    """Though less time may be spent there."""
    assert Subject("ada", (("flat", "work", "work", "work"),) * 30).home == "flat"
    assert Subject("ada", ((None, "work", "work", "gym"),) * 30).home == "work"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_sensitive_contexts_are_among_more(count: int) -> None:
    [subject, *_] = from_population(1, 1, steps=24)
    more = subject.sensitive(1, count + 1)
    assert subject.sensitive(1, count) == more[:count]
    assert len(set(more)) == count + 1
    assert set(more) <= set(subject.contexts)


def test_sensitive_contexts_are_drawn_uniformly() -> None:
    drawn = [Subject(f"user {number}", (("a", "b", "c", "d"),) * 30).sensitive(1, 1) for number in range(2000)]
    for label in "abcd":
        assert abs(drawn.count((label,)) / 2000 - 0.25) < 0.04


# Systems


def test_the_probabilistic_check_is_the_one_that_the_text_lists() -> None:
    """Found without a binary search, and the same as with one."""
    between = 0
    for seed in range(8):
        rows = seeded(seed, "listed").dirichlet(np.full(3, 0.4), size=(4, 3))
        chain = MarkovChain(["a", "b", "s"], rows[0, 0], rows[1:])
        listed = ThesisProbabilistic(chain.initial, chain.transitions, {2}, 0.1).initialize()
        table = listed_probabilistic(chain, {"s"}, 0.1).table
        assert np.abs(table - listed)[chain.prior > 0].max() < 1e-9
        between += bool(((table > 0) & (table < 1)).any())
    assert between >= 4


@pytest.mark.parametrize("system", COMPUTED)
def test_an_answer_counts_every_step_once_and_no_private_check_breaches(system: str) -> None:
    [subject, *_] = from_population(1, 1, steps=12, max_days=60)
    sensitive = subject.sensitive(1, 2)
    trial = Trial(subject.name, system, sensitive, 0.1, audited=True)
    found = run_trial(subject, trial, 1)
    followed, strayed = subject.halves
    assert (found.followed.days, found.strayed.days) == (len(followed), len(strayed))
    assert found.whole.steps == 12 * len(subject.judged)
    assert found.whole.sensitive == sum(label in sensitive for day in subject.judged for label in day)
    assert 0 < found.whole.released < found.whole.steps
    assert 0 < found.expected < 1
    assert found.leakage is not None
    assert (found.leakage.followed.breaches == 0) == (system != LEAKY)
    assert run_trial(subject, trial, 1) == found
    assert run_trial(subject, replace(trial, audited=False), 1) == replace(found, leakage=None)


def test_the_hybrid_takes_the_check_that_expects_more() -> None:
    [subject, *_] = from_population(1, 1, steps=12, max_days=60)
    one, other = (
        run_trial(subject, Trial(subject.name, system, subject.sensitive(1, 2), 0.1), 1)
        for system in (SIMULATABLE, PROBABILISTIC)
    )
    best = max(one, other, key=lambda each: each.expected)
    assert hybrid_result(one, other) == best
    assert hybrid_result(one, other).times.initialise == one.times.initialise + other.times.initialise


# Statistics


def test_the_interval_of_a_mean_is_students() -> None:
    values = [0.2, 0.5, 0.9, 0.4]
    found = statistics.mean(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.value, found.low, found.high, found.n) == pytest.approx((0.5, low, high, 4))


@pytest.mark.parametrize(
    "found",
    [
        statistics.mean([0.3]),
        statistics.extended([0.1, 0.5], [0.0]),
        statistics.ratio([0] * 9, [0] * 9, 1),
        statistics.ratio([1], [2], 1),
        statistics.difference_of_ratios(([1], [2]), ([1], [2]), 1),
        statistics.difference_of_ratios(([1] * 9, [2] * 9), ([0] * 9, [0] * 9), 1),
    ],
)
def test_there_is_no_interval_where_nothing_says_how_wide(found: statistics.Estimate) -> None:
    assert (found.low, found.high) == (None, None)
    assert math.isfinite(found.value)


def test_a_ratio_is_of_totals_and_its_interval_is_of_resampled_people() -> None:
    found = statistics.ratio([1, 0, 3], [2, 4, 4], 1, "here")
    assert found.value == pytest.approx(0.4)
    assert found == statistics.ratio([1, 0, 3], [2, 4, 4], 1, "here")
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low < 0.4 < found.high <= 0.75


def test_a_difference_of_ratios_is_of_the_same_people() -> None:
    """So it is certain where each person's ratios differ by the same, however much people differ."""
    wholes = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    one, other = [0.1, 0.9, 0.3, 0.7, 0.2, 0.8], [0.2, 1.0, 0.4, 0.8, 0.3, 0.9]
    found = statistics.difference_of_ratios((one, wholes), (other, wholes), 1, "here")
    assert (found.value, found.low, found.high, found.n) == pytest.approx((-0.1, -0.1, -0.1, 6))
    found = statistics.difference_of_ratios((one, wholes), (other[::-1], wholes), 1, "here")
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.2 < 0 < found.high


def test_what_is_known_of_a_few_is_extended_by_what_is_known_of_all() -> None:
    found = statistics.extended([0.1, 0.2, 0.3, 0.4], [0.05, 0.15])
    assert found.value == pytest.approx(0.25 + 0.1)
    error = math.sqrt(np.var([0.1, 0.2, 0.3, 0.4], ddof=1) / 4 + np.var([0.05, 0.15], ddof=1) / 2)
    assert found.high == pytest.approx(0.35 + stats.t.ppf(0.975, 1) * error)
    assert found.n == 2


def covered(interval: Callable[[np.random.Generator], statistics.Estimate], truth: float, runs: int) -> float:
    """How often an interval holds the truth."""
    hits = 0
    for number in range(runs):
        found = interval(seeded(number, "coverage"))
        hits += found.low is not None and found.high is not None and found.low <= truth <= found.high
    return hits / runs


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    assert abs(covered(lambda rng: statistics.mean(rng.beta(2, 3, 20).tolist()), 0.4, 500) - 0.95) < 0.03
    assert abs(covered(lambda rng: statistics.share(int(rng.binomial(60, 0.3)), 60), 0.3, 500) - 0.95) < 0.03

    def shares(rng: np.random.Generator) -> statistics.Estimate:
        wholes = rng.integers(10, 100, 60)
        return statistics.ratio(rng.binomial(wholes, 0.3).tolist(), wholes.tolist(), int(rng.integers(10**6)))

    assert abs(covered(shares, 0.3, 300) - 0.94) < 0.04
