"""Means, shares and ratios of a release: their intervals hold, one by one and all together; wrong ones are refused."""

import csv
import io
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import Bin, CohortSum, Counter, Query, Release, estimate
from reticent.randomness import seeded
from reticent_analyst.intervals import ratio_interval, statistics_of, to_csv
from reticent_analyst.plan import plan
from reticent_analyst.question import Question
from reticent_client.counting.contribution import values_of
from reticent_sim.local_counts import LocalCounts
from tests.analyst.odds import FALSE_ALARM, OFFS

LEVEL = 0.95
WALK = """
id = "walk"
epsilon = 1.0
delta = 1e-6
scaling = "balanced"
means = ["kilometres"]
[counters]
kilometres = [0, 40]
walked = [0, 1]
[ratios]
"km per walker" = ["kilometres", "walked"]
[histograms]
kilometres = [0, 2, 5, 10, inf]
[expected]
absent = 0.05
"""


# From a question to its statistics, through phones.


def test_phones_are_asked_for_a_mean_a_ratio_and_a_histogram() -> None:
    question = Question.from_toml(WALK)
    query = question.to_query(4000, "k1")
    bins = [counter for counter in query.counters if Bin.of(counter.name)]
    assert [each.name for each in bins] == [f"kilometres[{each})" for each in ("0,2", "2,5", "5,10", "10,inf")]
    assert {each.scale for each in bins} == {40}
    assert (query.l2_squared, query.l1) == (3 * 40**2, 3 * 40)  # a phone is in one bin
    rng = seeded(5, "walk")
    kilometres = rng.gamma(1.2, 5.0, 4000) * (rng.random(4000) < 0.7)
    apps: list[dict[str, float]] = [{"kilometres": each, "walked": float(each > 0)} for each in kilometres]
    values = np.array([values_of(query, app) for app in apps])
    assert values[:, 2:].sum(axis=1).tolist() == [1.0] * 4000
    release = LocalCounts(rng).count(query, values)
    found = {(str(each.kind), each.name): each for each in question.statistics(release)}
    clipped = np.minimum(kilometres, 40).round(0)  # its scale is 1, so phones contribute whole kilometres
    truth = {
        ("total", "kilometres"): clipped.sum(),
        ("total", "walked"): (kilometres > 0).sum(),
        ("mean", "kilometres"): clipped.mean(),
        ("ratio", "km per walker"): clipped.sum() / (kilometres > 0).sum(),
        ("share", "kilometres[0,2)"): (kilometres < 2).mean(),
        ("share", "kilometres[10,inf)"): (kilometres >= 10).mean(),
    }
    assert truth.keys() <= found.keys()
    assert len(found) == 8
    for key, value in truth.items():
        assert found[key].low < value < found[key].high, key
        assert found[key].high - found[key].low < 0.5 * abs(value)


def test_a_number_that_an_app_does_not_have_is_in_no_bin() -> None:
    query = Question.from_toml(WALK).to_query(4000, "k1")
    for app in ({}, {"kilometres": math.nan}, {"kilometres": -1.0}, {"walked": 1.0}):
        assert not any(values_of(query, app)[2:])
    assert values_of(query, {"kilometres": 2.0})[2:] == [0, 1, 0, 0]  # a bin contains its lower edge
    assert values_of(query, {"kilometres": 2.0, "kilometres[5,10)": 1.0})[2:] == [0, 1, 1, 0]  # an app's own counter


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("[0, 2, 5, 10, inf]", "[3]", "edges of the histogram 'kilometres' must be at least two, and grow"),
        ("[0, 2, 5, 10, inf]", "[0, 5, 5]", "at least two, and grow: got"),
        ("[0, 2, 5, 10, inf]", "[0, nan]", "at least two, and grow: got"),
        ("[0, 2, 5, 10, inf]", '["0", "2"]', r"\[histograms\] kilometres must be a list of numbers"),
        ('["kilometres", "walked"]', '["kilometres"]', r"\[ratios\] km per walker must be a list of two names"),
        ('["kilometres", "walked"]', '["kilometres", "miles"]', "of counters of the question: got 'miles'"),
        ('["kilometres", "walked"]', '["walked", "walked"]', "must be of two counters: got 'walked' twice"),
        ('means = ["kilometres"]', 'means = "kilometres"', "means must be a list of names of counters"),
    ],
)
def test_statistics_that_make_no_sense_are_one_sentence(right: str, wrong: str, message: str) -> None:
    assert right in WALK
    with pytest.raises(ValueError, match=message):
        Question.from_toml(WALK.replace(right, wrong, 1))


def test_a_histogram_needs_no_counters_and_the_noise_of_one() -> None:
    question = Question(
        id="age", counters=(), epsilon=1.0, delta=1e-6, absent=0.1, histograms={"age": (0, 18, 65, 120)}
    )
    query = question.to_query(1000, "k1")
    assert (query.size, query.l2_squared, query.l1) == (3, 1, 1)
    one = Question(id="age", counters=[Counter("adult", 0, 1)], epsilon=1.0, delta=1e-6, absent=0.1)
    assert plan(query).trusted_error == plan(one.to_query(1000, "k1")).trusted_error


def test_a_release_of_another_question_is_refused() -> None:
    with pytest.raises(ValueError, match="'other' is of other counters: c0"):
        Question.from_toml(WALK).statistics(Release("other", ("c0",), (1.0,), (1.0,), None, 5, 1.0, 1e-6))


# One ratio.


@pytest.mark.parametrize("below", [6.0, 20.0, 1000.0])
@pytest.mark.parametrize("above", [-30.0, 0.0, 4.0, 5000.0])
def test_a_ratio_is_covered_as_often_as_stated(above: float, below: float) -> None:
    """Errors of deviation 3 and 1; intervals 30 % narrower or wider than Fieller's are refused."""
    draws = seeded(5, "ratio", str((above, below))).normal((above, below), (3.0, 1.0), (6000, 2))
    quantile = stats.norm.isf((1 - LEVEL) / 2)
    for factor in (1.0, *OFFS):
        reach = factor * quantile
        covered = 0
        for a, b in draws:
            low, high = ratio_interval((a, 3 * reach), (b, reach), is_independent=True)
            covered += low <= above / below <= high
        is_right = stats.binomtest(covered, len(draws), LEVEL).pvalue > FALSE_ALARM
        assert is_right == (factor == 1.0), covered / len(draws)


def test_the_delta_method_covers_too_little_near_a_denominator_of_noise() -> None:
    draws = seeded(5, "delta").normal((8.0, 2.5), (0.5, 1.0), (6000, 2))
    quantile = stats.norm.isf((1 - LEVEL) / 2)
    by_delta = by_fieller = 0
    for a, b in draws:
        ratio = a / b
        reach = quantile * math.sqrt(0.25 + ratio**2) / abs(b)
        by_delta += abs(ratio - 8 / 2.5) <= reach
        low, high = ratio_interval((a, 0.5 * quantile), (b, quantile), is_independent=True)
        by_fieller += low <= 8 / 2.5 <= high
    assert by_delta / len(draws) < 0.93
    assert by_fieller / len(draws) > LEVEL - 0.01


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_a_ratio_of_dependent_totals_is_covered_at_least_as_often_as_stated(correlation: float) -> None:
    rng, quantile = seeded(5, "dependent", str(correlation)), stats.norm.isf((1 - LEVEL) / 2)
    covariance = [[9, 3 * correlation], [3 * correlation, 1]]
    covered = 0
    for a, b in rng.multivariate_normal((60.0, 20.0), covariance, 4000):
        low, high = ratio_interval((a, 3 * quantile), (b, quantile), is_independent=False)
        covered += low <= 3 <= high
    if correlation == -1:  # the worst: then it is exact
        assert stats.binomtest(covered, 4000, LEVEL).pvalue > FALSE_ALARM
    assert stats.binomtest(covered, 4000, LEVEL, alternative="less").pvalue > FALSE_ALARM


def test_a_ratio_to_noise_is_unbounded() -> None:
    assert ratio_interval((5.0, 1.0), (0.9, 1.0), is_independent=True) == (-math.inf, math.inf)
    release = Release("q", ("a", "b"), (5.0, 0.0), (1.0, 1.0), "gaussian", 9, 1.0, 1e-6)
    ratio = statistics_of(release, ratios={"r": ("a", "b")})[-1]
    assert math.isnan(ratio.value)
    assert ratio.to_json() == {"kind": "ratio", "name": "r", "value": None, "low": None, "high": None}


def test_ratios_of_scaled_cohorts_allow_for_dependence() -> None:
    """If cohorts are left out, the same phones are missing from both totals."""
    numbers = ("q", ("a", "b"), (60.0, 20.0), (9.0, 1.0))
    noisy, scaled = (
        statistics_of(Release(*numbers, noise, 99, 1.0, 1e-6), ratios={"r": ("a", "b")})[-1]
        for noise in ("gaussian", None)
    )
    assert scaled.low < noisy.low < 3 < noisy.high < scaled.high


# All together.


def releases(query: Query, truth: np.ndarray, runs: int, name: str) -> list[Release]:
    """Releases of these totals over all phones, with the noise of each run."""
    rng = seeded(5, "together", name)
    noise = query.mechanism.sum_of_shares(
        query.population * query.share_variance, (runs, query.size), rng, query.fraction_bits
    )
    scale = np.array([counter.scale for counter in query.counters]) * 2**query.fraction_bits
    sums = (truth * scale).astype(int) + noise
    return [estimate(query, [CohortSum(query.population, tuple(row.tolist()))], seeded=True) for row in sums]


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
def test_the_intervals_of_a_histogram_hold_together_as_often_as_stated(noise: Any) -> None:
    """Of five bins, each at the level of one in five; noise 30 % off is refused on either side."""
    question = Question(
        id="age", counters=(), epsilon=0.1, delta=1e-6, absent=0.0, noise=noise, histograms={"age": range(0, 60, 10)}
    )
    query, truth = question.to_query(1000, "k1"), np.array([500, 300, 150, 50, 0])
    runs, joint = 1500, (1 - (1 - LEVEL) / 5) ** 5
    found = releases(query, truth, runs, noise)
    errors = np.array([np.array(release.value) - truth for release in found])
    reach = np.array([each.high - each.value for each in question.statistics(found[0])]) * 1000
    for factor in (1.0, *OFFS):
        covered = int((np.abs(errors) <= factor * reach).all(axis=1).sum())
        assert (stats.binomtest(covered, runs, joint).pvalue > FALSE_ALARM) == (factor == 1.0), covered / runs


@pytest.mark.parametrize("epsilon", [0.1, 4.0])  # whole numbers with little noise jump over their level
def test_totals_means_and_ratios_hold_together_at_least_as_often_as_stated(epsilon: float) -> None:
    question = Question.from_toml(WALK.replace("epsilon = 1.0", f"epsilon = {epsilon}"))
    query, truth = question.to_query(4000, "k1"), np.array([9000, 2800, 1500, 1000, 900, 600])
    expected = [9000, 2800, 0.375, 0.25, 0.225, 0.15, 2.25, 9000 / 2800]
    runs, covered = 1200, 0
    for release in releases(query, truth, runs, f"walk {epsilon}"):
        found = question.statistics(release)
        assert len(found) == len(expected)
        covered += all(each.low <= value <= each.high for each, value in zip(found, expected, strict=True))
    assert stats.binomtest(covered, runs, LEVEL, alternative="less").pvalue > FALSE_ALARM
    assert covered / runs < 0.985  # and not for free


# As CSV.


def test_csv_has_a_row_for_each_statistic() -> None:
    release = Release("q", ("a, b", "c[0,1)"), (5.0, 0.5), (1.0, 1.0), "gaussian", 10, 1.0, 1e-6)
    found = statistics_of(release, means=["a, b"], ratios={"r": ("a, b", "c[0,1)")})
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [(row["kind"], row["name"]) for row in rows] == [
        ("total", "a, b"),
        ("share", "c[0,1)"),
        ("mean", "a, b"),
        ("ratio", "r"),
    ]
    assert [float(rows[1][name]) for name in ("value", "low", "high")] == [found[1].value, found[1].low, found[1].high]
    assert (rows[3]["low"], rows[3]["high"]) == ("-inf", "inf")
