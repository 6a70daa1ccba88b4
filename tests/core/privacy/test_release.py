"""Releases, and the estimates in them: what `interval` says covers as often as it says."""

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reticent.errors import ReticentError
from reticent.privacy._counts import CohortSum, QueryBurnt, estimate, variance_of_normal_median
from reticent.privacy._query import Query
from reticent.privacy._release import Release
from reticent.randomness import seeded
from tests.parties.queries import bits

FALSE_ALARM = 1e-6  # of each statistical test; the streams are fixed, so it passes always or never
LEVEL = 0.9
RUNS = 4000
OFF = 0.3  # by so much a deviation may not be wrong, either way
VARIANCE = 900.0  # of a cohort's noise, in most tests

amounts = st.floats(-1e9, 1e9)


def make_query(size: int = 1, **changes: Any) -> Query:
    """A query of 1000 phones in each of five cohorts, all of whom must contribute unless it is changed."""
    return bits(size, **{"population": 5000, "cohorts": 5, "min_contributions": 800, **changes})


def _given_variance(query: Query, variance: float) -> Query:
    """The query, as if its noise were calibrated to this variance in a cohort of which the fewest are honest."""
    query.__dict__["variance"] = variance
    return query


# The value.


@st.composite
def releases(draw: st.DrawFn) -> Release:
    size = draw(st.integers(1, 4))

    def each(what: st.SearchStrategy[Any]) -> Any:
        return tuple(draw(st.lists(what, min_size=size, max_size=size)))

    return Release(
        query=draw(st.text(max_size=5)),
        counters=each(st.text(max_size=5)),
        value=each(amounts),
        variance=each(st.floats(0, 1e9)),
        noise=draw(st.sampled_from(["skellam", "gaussian", None])),
        contributors=draw(st.integers(0, 10**9)),
        epsilon=draw(st.floats(0.01, 10)),
        delta=draw(st.floats(1e-12, 0.1)),
        cohorts_left_out=tuple(draw(st.lists(st.integers(0, 99)))),
        cohorts_outlying=each(st.lists(st.integers(0, 99)).map(tuple)),
        seeded=draw(st.booleans()),
    )


@given(releases())
def test_a_release_comes_back_from_text_as_it_was(release: Release) -> None:
    assert Release.from_text(release.to_text()) == release


def test_a_release_cannot_be_changed() -> None:
    release = Release("q", ("a",), (1.0,), (2.0,), None, 9, 1.0, 1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.seeded = True  # type: ignore[misc]
    assert release.cohorts_outlying == ((),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "the release has format version 2: this program reads 1"),
        ({"format": "reticent-chain"}, "this is not a release written by Reticent"),
        ({"value": [1.0, 2.0]}, "one value and one variance for each counter"),
        ({"value": [None]}, "the release is damaged"),
        ({"variance": [-1.0]}, "a variance is finite and at least 0"),
        ({"more": 1}, "the release is damaged"),
    ],
)
def test_what_is_no_release_is_refused(change: dict[str, Any], words: str) -> None:
    content = json.loads(Release("q", ("a",), (1.0,), (2.0,), None, 9, 1.0, 1e-6).to_text())
    with pytest.raises(ValueError, match=words):
        Release.from_text(json.dumps(content | change))


@pytest.mark.parametrize("text", ["", "3", "[]", "null", "{}"])
def test_what_is_no_json_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="this is not a release written by Reticent"):
        Release.from_text(text)


@pytest.mark.parametrize("level", [0, 1, -0.5, 2, math.nan])
def test_a_level_is_a_probability(level: float) -> None:
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\): got"):
        Release("q", ("a",), (1.0,), (2.0,), None, 9, 1.0, 1e-6).interval(level)


# How far an interval reaches.


@pytest.mark.parametrize("variance", [0.01, 0.3, 1, 7, 50.0, 999.0, 9_999.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, 1 - 1e-6])
def test_the_interval_of_skellam_noise_is_the_smallest_that_covers(variance: float, level: float) -> None:
    low, high = Release("q", ("a",), (10.0,), (variance,), "skellam", 9, 1.0, 1e-6).interval(level)[0]
    reach = round(high - 10)
    noise = stats.skellam(variance / 2, variance / 2)
    assert (low, high) == (10 - reach, 10 + reach)
    assert noise.cdf(reach) - noise.cdf(-reach - 1) >= level - 1e-9
    assert reach == 0 or noise.cdf(reach - 1) - noise.cdf(-reach) < level + 1e-9


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("noise", ["gaussian", None])
def test_other_intervals_are_normal(level: float, noise: Any) -> None:
    interval = Release("q", ("a", "b"), (10.0, -3.0), (4.0, 0.0), noise, 9, 1.0, 1e-6).interval(level)
    assert interval[0] == pytest.approx(stats.norm(10, 2).interval(level))
    assert interval[1].tolist() == [-3.0, -3.0]


# How often an interval covers.


def _covers(release: Release, truth: np.ndarray, stretch: float) -> int:
    """How many of its counters a release's interval covers, were it wider by this factor."""
    middle = np.array(release.value)
    reach = (release.interval(LEVEL)[:, 1] - middle) * stretch
    return int((np.abs(truth - middle) <= reach).sum())


def _says_otherwise(covered: int, runs: int, level: float) -> bool:
    """Whether so many covered, of so many, reject that they do with this probability."""
    return bool(stats.binomtest(covered, runs, level).pvalue < FALSE_ALARM)


def _assert_covers(draw: Callable[[np.random.Generator], tuple[Release, np.ndarray]], name: str) -> None:
    """Intervals cover at their level; ones that are 30 % narrower or wider would be seen not to."""
    rng = seeded(4, "coverage", name)
    drawn: list[tuple[Release, np.ndarray]] = []
    while sum(len(truth) for _, truth in drawn) < RUNS:
        drawn.append(draw(rng))
    runs = sum(len(truth) for _, truth in drawn)
    covered = {stretch: sum(_covers(*one, stretch) for one in drawn) for stretch in (1 - OFF, 1.0, 1 + OFF)}
    assert not _says_otherwise(covered[1.0], runs, LEVEL), covered
    assert _says_otherwise(covered[1 - OFF], runs, LEVEL), covered
    assert _says_otherwise(covered[1 + OFF], runs, LEVEL), covered


class _Population:
    """Phones whose counters are 0 or 1, dealt anew in every run; each adds its share of noise."""

    def __init__(self, query: Query, ones: float, rng: np.random.Generator) -> None:
        self.query = query
        self.rng = rng
        self.values = rng.random((query.population, query.size)) < ones
        self.truth = self.values.sum(axis=0)

    def cohorts(self) -> list[CohortSum]:
        dealt = np.split(self.rng.permutation(self.values), np.cumsum(self.query.cohort_populations)[:-1])
        return [self._cohort(values) for values in dealt]

    def _cohort(self, values: np.ndarray) -> CohortSum:
        mean = len(values) * self.query.share_variance / 2
        noise = self.rng.poisson(mean, self.query.size) - self.rng.poisson(mean, self.query.size)
        return CohortSum(len(values), tuple((values.sum(axis=0) + noise).tolist()))


def test_an_interval_of_sums_covers_at_its_level() -> None:
    query = _given_variance(make_query(size=40), VARIANCE)

    def draw(rng: np.random.Generator) -> tuple[Release, np.ndarray]:
        population = _Population(query, 0.3, rng)
        return estimate(query, population.cohorts(), seeded=True), population.truth

    _assert_covers(draw, "sums")


@pytest.mark.parametrize("variance", [4.0, VARIANCE])
def test_an_interval_that_leaves_cohorts_out_covers_at_its_level(variance: float) -> None:
    """The truth is about all contributors, those of the burnt cohorts too."""
    query = _given_variance(make_query(size=40), variance)

    def draw(rng: np.random.Generator) -> tuple[Release, np.ndarray]:
        population = _Population(query, 0.3, rng)
        cohorts = population.cohorts()
        cohorts[1:3] = [CohortSum(cohort.contributors, None) for cohort in cohorts[1:3]]
        release = estimate(query, cohorts, seeded=True)
        assert (release.cohorts_left_out, release.contributors, release.noise) == ((1, 2), 5000, None)
        return release, population.truth

    _assert_covers(draw, f"left out {variance}")


@pytest.mark.parametrize(("cohorts", "wild"), [(9, 1), (15, 3), pytest.param(40, 4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variance", [4.0, VARIANCE])
def test_an_interval_of_medians_covers_at_its_level(cohorts: int, wild: int, variance: float) -> None:
    """Some cohorts are a liar's; the truth is what honest phones would have added in their place."""
    query = _given_variance(make_query(size=40, cohorts=cohorts, population=1000 * cohorts), variance)

    def draw(rng: np.random.Generator) -> tuple[Release, np.ndarray]:
        population = _Population(query, 0.3, rng)
        honest = population.cohorts()
        lies = [CohortSum(cohort.contributors, (10**9,) * query.size) for cohort in honest[:wild]]
        release = estimate(query, [*lies, *honest[wild:]], seeded=True)
        assert set(range(wild)) <= set(release.cohorts_outlying[0])
        return release, population.truth

    _assert_covers(draw, f"medians {cohorts} {variance}")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 9, 14, 15, 40, 101])
def test_the_variance_of_a_median_is_nearly_exact(size: int) -> None:
    """From the joint distribution of the one or two order statistics in the middle."""
    x = np.linspace(-8, 8, 1601)
    below, above, density = stats.norm.cdf(x), stats.norm.sf(x), stats.norm.pdf(x)
    half = (size - 1) // 2
    if size % 2:
        log_weight = math.lgamma(size + 1) - 2 * math.lgamma(half + 1)
        exact = float(np.trapezoid(x**2 * np.exp(log_weight) * (below * above) ** half * density, x))
    else:
        log_weight = math.lgamma(size + 1) - 2 * math.lgamma(half + 1)
        joint = np.exp(log_weight) * np.outer(below**half * density, above**half * density)
        ordered = np.triu(joint, 1) + np.diag(np.diag(joint)) / 2
        exact = float((((x[:, None] + x) / 2) ** 2 * ordered).sum()) * (x[1] - x[0]) ** 2
    assert variance_of_normal_median(np.array([size]))[0] == pytest.approx(exact, rel=0.01)


# Estimates.


def test_sums_are_added_exactly() -> None:
    query = make_query(cohorts=2, population=2000)
    assert float(2**53 + 1) == 2.0**53
    release = estimate(query, [CohortSum(1000, (2**53 + 1,))] * 2, seeded=False)
    assert release.value == (2.0**54 + 2,)


def test_fixed_point_sums_are_released_in_their_unit() -> None:
    query = make_query(noise="gaussian", fraction_bits=10)
    release = estimate(query, [CohortSum(1000, (300 << 10,))] * 5, seeded=False)
    assert release.value == (1500.0,)
    assert release.variance == pytest.approx((5000 * query.share_variance,))
    assert release.noise == "gaussian"


def test_one_liar_moves_nothing_but_is_named() -> None:
    query = make_query(size=2, l2_squared=1, l1=1)
    cohorts = [CohortSum(1000, (300 + number, 100)) for number in range(4)]
    release = estimate(query, [*cohorts[:2], CohortSum(1000, (10**9, 100)), *cohorts[2:]], seeded=False)
    assert release.cohorts_outlying == ((2,), ())
    assert release.value == pytest.approx((5 * 301.5, 500.0))
    assert release.cohorts_left_out == ()


def test_outlying_cohorts_are_named_by_their_numbers_also_beside_burnt_ones() -> None:
    sums = [None, (300,), (10**9,), (301,), (302,)]
    release = estimate(make_query(), [CohortSum(1000, each) for each in sums], seeded=False)
    assert (release.cohorts_left_out, release.cohorts_outlying) == ((0,), ((2,),))


def test_half_of_the_cohorts_may_be_far_and_count_no_more() -> None:
    """Two of four: how far they are changes neither the value nor its variance."""
    query = make_query(cohorts=4, population=4000)
    releases = [
        estimate(query, [CohortSum(1000, (total,)) for total in (-900, 0, 0, far)], seeded=False)
        for far in (1800, 2700)
    ]
    assert [release.cohorts_outlying for release in releases] == [((0, 3),)] * 2
    assert [release.value for release in releases] == [(0.0,)] * 2
    assert releases[0].variance == releases[1].variance


@pytest.mark.parametrize("sums", [[10**9, 300], [10**300, -(10**300)], [10**9, 10**9]])
def test_where_there_is_no_majority_there_is_still_a_number(sums: list[int]) -> None:
    query = make_query(cohorts=2, population=2000)
    release = estimate(query, [CohortSum(1000, (total,)) for total in sums], seeded=False)
    assert math.isfinite(release.value[0])
    assert math.isfinite(release.variance[0])


@pytest.mark.parametrize(
    ("cohorts", "burnt", "kept"), [(1, 1, False), (4, 2, True), (4, 3, False), (5, 2, True), (5, 3, False)]
)
def test_fewer_than_half_left_burns_the_query(cohorts: int, burnt: int, kept: bool) -> None:
    query = make_query(cohorts=cohorts, population=1000 * cohorts)
    sums = [CohortSum(10, None)] * burnt + [CohortSum(1000, (7,))] * (cohorts - burnt)
    if kept:
        assert estimate(query, sums, seeded=False).cohorts_left_out == tuple(range(burnt))
        return
    with pytest.raises(QueryBurnt, match=f"'q' is burnt: {burnt} of its {cohorts} cohorts are") as burning:
        estimate(query, sums, seeded=False)
    assert burning.value.left_out == tuple(range(burnt))
    assert isinstance(burning.value, ReticentError)
    assert str(pickle.loads(pickle.dumps(burning.value))) == str(burning.value)  # noqa: S301  # our own


def test_a_release_needs_every_cohort() -> None:
    with pytest.raises(ValueError, match="'q' has 5 cohorts: got 4"):
        estimate(make_query(), [CohortSum(1000, (7,))] * 4, seeded=False)


@pytest.mark.parametrize("seeded_noise", [True, False])
def test_a_release_says_whether_its_noise_can_be_replayed(seeded_noise: bool) -> None:
    assert estimate(make_query(), [CohortSum(1000, (7,))] * 5, seeded=seeded_noise).seeded is seeded_noise
