"""Each number of a plan, against a simulation; the same comparison must refuse a number that is 30 % off."""

import math
import time
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reticent.paillier import PublicKey
from reticent.privacy import (
    CohortSum,
    Counter,
    Query,
    QueryBurnt,
    Release,
    estimate,
    gaussian_share,
    gaussian_sigma,
    skellam_share,
    thesis_sigma,
)
from reticent.protocol.layout import ciphertexts_to, packing_of
from reticent.randomness import seeded
from reticent.v1 import counting_pb2 as wire
from reticent_agg.asking import chances
from reticent_agg.asking.load import contribution_bytes, encryption_seconds
from reticent_agg.asking.plan import Plan, plan
from reticent_keys import KeyPair
from reticent_sim.local_counts import LocalCounts

FALSE_ALARM = 1e-6  # of each test; the streams are fixed, so it passes always or never
OFF = 0.3
OFFS = (1 - OFF, 1 + OFF)
SEEN = 400  # times that something must happen for 30 % to be seen


def asked(size: int = 1, **changes: Any) -> Query:
    fields: dict[str, Any] = {
        "id": "q",
        "counters": [Counter(f"c{number}", 0, 1) for number in range(size)],
        "epsilon": 1.0,
        "delta": 1e-6,
        "l2_squared": size,
        "l1": size,
        "noise": "skellam",
        "population": 600,
        "cohorts": 1,
        "fewest": 400,
        "liars": 10,
        "key_id": "k1",
        "closes_after": 60,
    }
    return Query(**{**fields, **changes})


# The estimates.


def simulated(query: Query, absent: float, runs: int, name: str) -> list[tuple[Release, np.ndarray]]:
    """Releases, and how far each value is off; half of the phones say a counter's low, half its high."""
    rng = seeded(5, "plan", name)
    low, high = np.array([(counter.low, counter.high) for counter in query.counters]).T
    found = []
    for _ in range(runs):
        cohort = rng.permutation(query.population) % query.cohorts
        present = rng.random(query.population) >= absent
        values = np.where(rng.random((query.population, query.size)) < 0.5, low, high) * present[:, None]
        sums = []
        for number in range(query.cohorts):
            mine = present & (cohort == number)
            size = int(mine.sum())
            steps = values[mine].sum(axis=0) * 2**query.fraction_bits + _noise(query, size, rng)
            sums.append(CohortSum(size, tuple(steps.tolist()) if size >= query.fewest else None))
        try:
            release = estimate(query, sums, seeded=True)
        except QueryBurnt:
            continue
        found.append((release, np.array(release.value) - values.sum(axis=0)))
    return found


def _noise(query: Query, size: int, rng: np.random.Generator) -> np.ndarray:
    if query.noise == "skellam":
        return skellam_share(size * query.share_variance, query.size, rng)
    return gaussian_share(size * query.share_variance, query.size, rng, query.fraction_bits)


def off(values: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of these is off; each stands for one run, and runs are independent."""
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


LIMIT = float(stats.norm.isf(FALSE_ALARM / 2))

SETTINGS: dict[str, tuple[Query, float]] = {
    "one cohort": (asked(20, l2_squared=2, l1=2), 0.2),
    "one that is often short": (asked(20, l2_squared=2, l1=2, fewest=480), 0.2),
    "cohorts": (asked(20, l2_squared=2, l1=2, cohorts=5, fewest=70), 0.2),
    "cohorts of which some are short": (asked(20, l2_squared=2, l1=2, cohorts=5, fewest=92), 0.2),
    "of which many are short": (asked(20, l2_squared=2, l1=2, cohorts=5, population=603, fewest=96), 0.2),
    "wide counters": (
        asked(20, counters=[Counter(f"c{k}", -3, 5) for k in range(20)], l2_squared=64, l1=35, cohorts=4, fewest=120),
        0.2,
    ),
    "fixed point": (asked(20, l2_squared=2, l1=2, noise="gaussian", fraction_bits=8, cohorts=3, fewest=150), 0.2),
}


@pytest.mark.parametrize(("query", "absent"), SETTINGS.values(), ids=SETTINGS)
def test_errors_are_as_large_as_foreseen(query: Query, absent: float, request: pytest.FixtureRequest) -> None:
    foreseen = plan(query, absent=absent).estimates[0]
    errors = np.array([error for _, error in simulated(query, absent, 400, request.node.name)])  # (runs, d)
    squares = (errors**2).mean(axis=1)
    assert abs(off(squares, foreseen.standard_error**2)) < LIMIT
    for wrong in OFFS:
        assert abs(off(squares, (wrong * foreseen.standard_error) ** 2)) > LIMIT
    within = {wrong: (np.abs(errors) <= wrong * foreseen.reach).mean(axis=1) for wrong in (1.0, *OFFS)}
    assert abs(off(within[1.0], 0.95)) < LIMIT or _is_whole_step(errors, foreseen.reach)
    assert off(within[OFFS[0]], 0.95) < -LIMIT
    assert off(within[OFFS[1]], 0.95) > LIMIT


def _is_whole_step(errors: np.ndarray, reach: float) -> bool:
    """Whether one step less would cover too little: the errors of whole numbers jump over 95 %."""
    step_less = (np.abs(errors) <= reach - 1).mean(axis=1)
    covered = (np.abs(errors) <= reach).mean(axis=1)
    return off(step_less, 0.95) < LIMIT and off(covered, 0.95) > -LIMIT


def test_where_half_of_the_cohorts_are_left_the_error_is_the_worst() -> None:
    query, absent = asked(20, l2_squared=2, l1=2, cohorts=4, fewest=121), 0.2
    found = [each for each in simulated(query, absent, 1200, "half") if len(each[0].cohorts_left_out) == 2]
    squares = np.array([(error**2).mean() for _, error in found])
    worst = plan(query, absent=absent).estimates[0].worst
    assert len(found) > 100
    assert abs(off(squares, worst**2)) < LIMIT
    for wrong in OFFS:
        assert abs(off(squares, (wrong * worst) ** 2)) > LIMIT


def test_where_a_cohort_stands_out_the_error_is_that_of_the_median() -> None:
    """One of seven cohorts says a million; the truth is what the others say, scaled."""
    query, absent = asked(20, l2_squared=2, l1=2, cohorts=7, population=2100, fewest=200), 0.2
    rng = seeded(5, "median")
    squares = []
    for _ in range(400):
        sizes = rng.binomial(300, 1 - absent, 7)
        values = [(rng.random((size, query.size)) < 0.5).sum(axis=0) for size in sizes]
        noise = [_noise(query, size, rng) for size in sizes]
        lie = 1_000_000 * (np.arange(7) == 3)
        known = [
            CohortSum(int(size), tuple((own + more + lied).tolist()))
            for size, own, more, lied in zip(sizes, values, noise, lie, strict=True)
        ]
        release = estimate(query, known, seeded=True)
        assert all(3 in outlying for outlying in release.cohorts_outlying)
        squares.append(((np.array(release.value) - np.sum(values, axis=0)) ** 2).mean())
    foreseen = plan(query, absent=absent).estimates[0].by_median
    assert foreseen is not None
    for wrong in OFFS:
        assert abs(off(np.array(squares), (wrong * foreseen) ** 2)) > LIMIT
    assert foreseen == pytest.approx(math.sqrt(np.mean(squares)), rel=0.05)


def test_a_median_takes_three_cohorts() -> None:
    assert plan(asked(cohorts=2, fewest=100)).estimates[0].by_median is None
    assert plan(asked(cohorts=3, fewest=100)).estimates[0].by_median is not None


def test_the_median_of_skewed_sums_lies_a_little_below_their_mean() -> None:
    """In each cohort by count / (6 (count + variance of the noise))."""
    rng = seeded(5, "skewed")
    sums = rng.poisson(30.0, (16_000, 61)) + rng.normal(0, math.sqrt(2.0), (16_000, 61))
    below = 30.0 - np.median(sums, axis=1)
    stated = 30.0 / (6 * 32.0)
    assert abs(off(below, stated)) < LIMIT
    for wrong in OFFS:
        assert abs(off(below, stated * wrong)) > LIMIT


@given(
    low=st.integers(-6, 0),
    high=st.integers(0, 6),
    l2_squared=st.integers(1, 40),
)
def test_no_counter_varies_more_among_phones_than_foreseen(low: int, high: int, l2_squared: int) -> None:
    """The largest variance that bounds and L2 allow, over a fine grid of means."""
    from reticent_agg.asking.plan import _spread  # noqa: PLC0415  # it is looked at here only

    if low == high:
        return
    means = np.linspace(low, high, 100_001)
    allowed = np.minimum((high - means) * (means - low), l2_squared - means**2)
    assert _spread(Counter("c", low, high), l2_squared) == pytest.approx(allowed.max(), abs=1e-3)


# Cohorts that are short.


@pytest.mark.parametrize(
    ("population", "cohorts", "fewest", "absent"),
    [(100, 1, 80, 0.2), (103, 4, 21, 0.2), (1003, 5, 160, 0.2), (40, 4, 10, 0.05), (1000, 20, 41, 0.2)],
)
def test_short_cohorts_and_lost_queries_are_as_frequent_as_foreseen(
    population: int, cohorts: int, fewest: int, absent: float
) -> None:
    rng = seeded(5, "short", population)
    runs = 20_000
    sizes = np.array([population // cohorts + (number < population % cohorts) for number in range(cohorts)])
    short = rng.binomial(sizes, 1 - absent, size=(runs, cohorts)) < fewest
    query = asked(population=population, cohorts=cohorts, fewest=fewest, liars=0)
    foreseen = plan(query, absent=absent)
    _check(int(short[:, -1].sum()), runs, foreseen.short)
    _check(int(short.any(axis=1).sum()), runs, foreseen.any_left_out)
    _check(int((2 * short.sum(axis=1) > cohorts).sum()), runs, foreseen.lost)
    assert max(foreseen.short, foreseen.lost) * runs > SEEN


def _check(happened: int, runs: int, chance: float) -> None:
    """A chance passes; when it, or that it does not happen, is 30 % off, it is refused, if anybody could see that."""
    assert stats.binomtest(happened, runs, chance).pvalue > FALSE_ALARM
    small = min(chance, 1 - chance)
    if small * runs > SEEN:
        for wrong in OFFS:
            other = small * wrong
            assert stats.binomtest(happened, runs, other if small == chance else 1 - other).pvalue < FALSE_ALARM


def test_a_simulation_burns_queries_as_often_as_foreseen() -> None:
    counts = LocalCounts(seeded(5, "burnt"), absent=0.2)
    fields: dict[str, Any] = {"noise": "gaussian", "fraction_bits": 4, "population": 60, "cohorts": 3, "liars": 1}
    rows = np.zeros((60, 1))
    burnt = 0
    for run in range(1500):
        try:
            counts.count(asked(id=f"q{run}", fewest=16, **fields), rows)
        except QueryBurnt:
            burnt += 1
    foreseen = plan(asked(fewest=16, **fields), absent=0.2).lost
    assert foreseen * 1500 > SEEN
    _check(burnt, 1500, foreseen)


def test_chances_at_the_ends() -> None:
    assert plan(asked(fewest=600)).lost == 0.0
    certain = plan(asked(cohorts=3, fewest=200, liars=0), absent=0.5)
    assert certain.short == pytest.approx(1.0)
    assert certain.lost == pytest.approx(1.0)
    assert certain.estimates[0].standard_error > 0  # of what cannot happen, but a number
    assert plan(asked(cohorts=3, fewest=100, liars=0), absent=1e-300).any_left_out == 0.0


def test_mean_contributors_are_those_of_the_binomial_distribution() -> None:
    counts = np.arange(51)
    law = stats.binom.pmf(counts, 50, 0.8)
    for fewest in (1, 2, 38, 40, 45, 50):
        enough, few = chances.mean_contributors(50, fewest, 0.2)
        assert enough == pytest.approx((counts * law)[fewest:].sum() / law[fewest:].sum())
        assert few == pytest.approx((counts * law)[:fewest].sum() / law[:fewest].sum(), abs=1e-9)


# Liars.


def dealt(population: int, cohorts: int, liars: int, runs: int) -> np.ndarray:
    """How many liars each cohort has.  # (runs, G)."""
    rng = seeded(5, "dealt", population, cohorts, liars)
    found = np.empty((runs, cohorts), dtype=np.int64)
    for run in range(runs):
        found[run] = np.bincount(rng.choice(population, liars, replace=False) % cohorts, minlength=cohorts)
    return found


@pytest.mark.parametrize(("population", "cohorts", "liars"), [(1000, 15, 10), (60, 6, 8), (5000, 9, 4), (500, 2, 1)])
def test_liars_are_in_as_many_cohorts_as_foreseen(population: int, cohorts: int, liars: int) -> None:
    hit = (dealt(population, cohorts, liars, 20_000) > 0).sum(axis=1)
    foreseen = chances.hit_cohorts(population, cohorts, liars)
    assert foreseen.sum() == pytest.approx(1.0)
    often = foreseen * 20_000 > 30
    assert (hit[~often[hit]].size) < 200
    seen = np.bincount(hit, minlength=cohorts + 1)[often]
    expected = foreseen[often] / foreseen[often].sum() * seen.sum()
    if often.sum() > 1:
        assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM
    crowding = plan(asked(population=population, cohorts=cohorts, fewest=4, liars=2), lying=liars).liars
    assert crowding.hit_on_average == pytest.approx(hit.mean(), rel=0.02)
    assert (hit <= crowding.hit).mean() > 0.94
    assert (hit <= crowding.hit - 1).mean() < 0.96


@pytest.mark.parametrize(
    ("liars", "absent", "fewest"), [(10, 0.0, 50), (5, 0.2, 50), (3, 0.2, 52), (0, 0.2, 53), (12, 0.2, 40)]
)
def test_wild_liars_and_absence_lose_queries_as_often_as_foreseen(liars: int, absent: float, fewest: int) -> None:
    """One per cent of a thousand phones is too much for fifteen cohorts."""
    population, cohorts, runs = 1000, 15, 20_000
    rng = seeded(5, "wild", liars)
    sizes = np.array([population // cohorts + (number < population % cohorts) for number in range(cohorts)])
    short = rng.binomial(sizes, 1 - absent, size=(runs, cohorts)) < fewest
    void = dealt(population, cohorts, liars, runs) > 0
    lost = int((2 * (short | void).sum(axis=1) > cohorts).sum())
    foreseen = plan(
        asked(population=population, cohorts=cohorts, fewest=fewest, liars=1), absent=absent, lying=liars
    ).liars
    _check(lost, runs, foreseen.lost)


def test_so_many_liars_are_borne_and_not_one_more() -> None:
    for cohorts, absent, risk in [(15, 0.0, 0.01), (15, 0.2, 0.05), (31, 0.2, 1e-3), (1, 0.0, 0.01)]:
        query = asked(population=1000, cohorts=cohorts, fewest=20, liars=1)
        borne = plan(query, absent=absent, risk=risk).liars.bearable
        assert plan(query, absent=absent, lying=borne).liars.lost <= risk
        assert plan(query, absent=absent, lying=borne + 1).liars.lost > risk


def test_cohorts_have_more_liars_than_allowed_as_often_as_foreseen() -> None:
    found = dealt(1003, 10, 20, 20_000).max(axis=1)
    for allowed in range(8):
        most = int((found > allowed).sum())
        foreseen = chances.crowded(1003, 10, allowed, 20)
        assert stats.binomtest(most, 20_000, foreseen, alternative="greater").pvalue > FALSE_ALARM
        if 1000 < most < 5000:  # rare enough for the sum over cohorts to be near, and often enough to see it
            assert stats.binomtest(most, 20_000, OFFS[0] * foreseen, alternative="greater").pvalue < FALSE_ALARM


@pytest.mark.parametrize("hit", [1, 2, 4])
def test_liars_pull_estimates_no_further_than_foreseen(hit: int) -> None:
    """Phones all say the middle, which hides liars best; liars push their cohort as far as they dare."""
    query = asked(
        40,
        counters=[Counter(f"c{k}", 0, 100) for k in range(40)],
        epsilon=5.0,
        l2_squared=100**2,
        l1=630,
        population=9000,
        cohorts=15,
        fewest=500,
        liars=2,
    )
    rng = seeded(5, "pull", hit)
    size = 600
    unit = math.sqrt(size * (query.share_variance + _variance_of_the_middle(query)))
    worst = 0.0
    for daring in (2.0, 3.0, 3.5, 3.8, 4.0, 4.3, 5.0, 8.0, 100.0):
        errors = []
        for _ in range(30):
            sums = [50 * size + skellam_share(size * query.share_variance, query.size, rng) for _ in range(15)]
            for number in range(hit):
                sums[number] = sums[number] + round(daring * unit)
            known = [CohortSum(size, tuple(each.tolist())) for each in sums]
            errors.append(np.array(estimate(query, known, seeded=True).value) - 50 * 9000)
        worst = max(worst, float(np.abs(np.mean(errors))))
    foreseen = _pull_of(query, hit)
    assert OFFS[0] * foreseen < worst < foreseen


def _variance_of_the_middle(query: Query) -> float:
    return min(50.0**2, query.l2_squared - 50.0**2)


def _pull_of(query: Query, hit: int) -> float:
    """What the plan says for the number of liars that are most likely in so many cohorts at most."""
    for liars in range(1, 40):
        foreseen = plan(query, lying=liars)
        if foreseen.liars.hit == hit:
            return foreseen.estimates[0].pull
    raise AssertionError(hit)


def test_in_one_cohort_or_half_of_them_liars_can_do_anything() -> None:
    assert plan(asked(), lying=1).estimates[0].pull == math.inf
    assert plan(asked(cohorts=2, fewest=100), lying=1).estimates[0].pull == math.inf
    assert plan(asked(cohorts=3, fewest=100), lying=1).estimates[0].pull < math.inf
    assert plan(asked()).estimates[0].pull == 0


# What it costs.


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("key_bits", [2048, 3072])
def test_bytes_are_those_of_a_contribution(size: int, key_bits: int) -> None:
    query = asked(size, l2_squared=size, l1=size, cohorts=3, fewest=100)
    packing = packing_of(query, key_bits)
    key = PublicKeyOfBits(key_bits)
    real = wire.Contribution(
        query=query.digest,
        phone=bytes(range(16)),
        cohort=2,
        ciphertexts=ciphertexts_to([5] * packing.plaintexts, key),  # type: ignore[arg-type]
        signature=bytes(64),
    )
    load = plan(query, key_bits=key_bits, absent=0.5).load
    assert load.phone_bytes == len(real.SerializeToString()) == contribution_bytes(query, key_bits)
    assert load.ciphertexts == packing.plaintexts
    assert load.received_bytes == 300 * load.phone_bytes


class PublicKeyOfBits:
    """As much of a key as the wire asks for."""

    def __init__(self, bits: int) -> None:
        self.ciphertext_bytes = bits // 4


@pytest.mark.parametrize("size", [1, 6000])
def test_the_time_of_a_phone_is_that_of_encrypting(size: int) -> None:
    """Measured with a real key, within a factor of three: the machine may be busy, or warm."""
    query = asked(size)
    key = KeyPair.generate(2048, simulation=True).public
    fresh = PublicKey(key.n, key.base, simulation=True)
    packing = packing_of(query, 2048)
    begun = time.process_time()
    rng = seeded(5, "time")
    fresh.encrypt(packing.pack(skellam_share(1.0, size, rng).tolist(), [0] * packing.plaintexts), rng)
    real = time.process_time() - begun
    assert real / 3 < encryption_seconds(query, 2048) < 3 * real + 0.02


def test_what_others_would_need_is_beside_it() -> None:
    query = asked(3, l2_squared=3, l1=3)
    foreseen = plan(query, absent=0.1)
    assert foreseen.trusted == gaussian_sigma(1.0, 1e-6, math.sqrt(3))
    share = thesis_sigma(1.0, 1e-6, math.sqrt(3)) ** 2 / (400 - 10 - 1)
    assert foreseen.published == pytest.approx(math.sqrt(540 * share))
    assert plan(asked(epsilon=2.0)).published is None


# The choice.


@pytest.mark.parametrize(("population", "absent", "risk"), [(1000, 0.2, 1e-3), (50, 0.3, 0.05), (10_000, 0.0, 1e-6)])
def test_one_cohort_insists_on_as_many_as_the_risk_allows(population: int, absent: float, risk: float) -> None:
    crowd = chances.choose(population=population, absent=absent, lying=0, risk=risk, variance=20.0)
    assert (crowd.cohorts, crowd.liars) == (1, 0)
    assert chances.lost(population, 1, crowd.fewest, absent) <= risk
    assert crowd.fewest == max(
        k for k in range(1, population + 1) if stats.binom.cdf(k - 1, population, 1 - absent) <= risk
    )


def test_of_many_cohorts_the_choice_is_nearly_the_most_accurate() -> None:
    """Against all thresholds, for counters that differ little among phones."""
    changes: dict[str, Any] = {"population": 400, "cohorts": 8, "liars": 0, "l2_squared": 1, "l1": 1}

    def error(fewest: int) -> float:
        return plan(asked(fewest=fewest, **changes), absent=0.2).estimates[0].standard_error

    crowd = chances.choose(population=400, absent=0.2, lying=0, risk=0.01, variance=20.0, cohorts=8)
    allowed = [k for k in range(2, 51) if chances.lost(400, 8, k, 0.2) <= 0.01]
    assert crowd.fewest in allowed
    assert error(crowd.fewest) < 1.05 * min(map(error, allowed))


@pytest.mark.parametrize(("lying", "risk"), [(1, 1e-3), (10, 1e-3), (50, 0.01), (300, 0.01)])
def test_as_many_cohorts_are_chosen_as_the_liars_ask_for(lying: int, risk: float) -> None:
    crowd = chances.choose(population=100_000, absent=0.2, lying=lying, risk=risk, variance=20.0)
    assert crowd.cohorts % 2 == 1
    assert chances.lost_to_liars(100_000, crowd.cohorts, crowd.fewest, 0.2, lying) <= risk
    assert chances.crowded(100_000, crowd.cohorts, crowd.liars, lying) <= risk
    assert crowd.cohorts <= 2 * lying + 1
    fewer = chances.hit_cohorts(100_000, crowd.cohorts - 2, lying)
    assert fewer[(crowd.cohorts - 2) // 2 + 1 :].sum() > risk / 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"population": 0}, "nobody can be asked"),
        ({"cohorts": 0}, "cannot be dealt into 0 cohorts"),
        ({"cohorts": 1001}, "1000 phones cannot be dealt into 1001 cohorts"),
        ({"population": 10, "lying": 9}, "no number of cohorts up to 10 bears 9 liars"),
        ({"population": 10, "absent": 0.9}, "two honest ones more are needed"),
    ],
)
def test_what_cannot_be_chosen_is_one_sentence(changes: dict[str, Any], said: str) -> None:
    wanted: dict[str, Any] = {"population": 1000, "absent": 0.2, "lying": 0, "risk": 1e-3, "variance": 20.0}
    with pytest.raises(ValueError, match=said):
        chances.choose(**{**wanted, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"absent": 1.0}, "absent is a part"),
        ({"absent": -0.1}, "got -0.1"),
        ({"lying": 601}, "among 600 phones 601 cannot lie"),
        ({"risk": 0.0}, "risk must lie"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan(asked(), **changes)


def test_a_plan_is_plain_data() -> None:
    foreseen: Plan = plan(asked(2, l2_squared=2, l1=2), lying=1)
    plain = foreseen.to_json()
    assert plain["estimates"][1]["pull"] is None
    assert plain["query"]["fewest"] == 400
    assert plain["liars"]["hit"] == 1
    assert plain["lost"] == foreseen.lost


def test_a_plan_of_a_million_phones_takes_no_time() -> None:
    query = asked(population=1_000_000, cohorts=101, fewest=7500, liars=30)
    begun = time.perf_counter()
    plan(query, absent=0.2, lying=100)
    assert time.perf_counter() - begun < 2.0


@pytest.mark.parametrize("population", [1_000_000, 10_000])
@pytest.mark.parametrize("lying", [0.6, 0.34, 0.01, 0.0034, 0.003])
@pytest.mark.parametrize("cohorts", [None, 1, 3, 101, 1001, 5001, 100_000])
def test_many_liars_are_planned_for_or_refused_in_a_moment(population: int, lying: float, cohorts: int | None) -> None:
    liars = int(population * lying)
    begun = time.perf_counter()
    try:
        crowd = chances.choose(
            population=population, absent=0.1, lying=liars, risk=0.01, variance=20.0, cohorts=cohorts
        )
        query = asked(
            population=population, cohorts=crowd.cohorts, fewest=crowd.fewest, liars=min(crowd.liars, crowd.fewest - 2)
        )
        foreseen = plan(query, absent=0.1, lying=liars, risk=0.01)
        assert 0 < foreseen.liars.hit <= crowd.cohorts
    except ValueError as error:
        assert "cohorts" in str(error)  # noqa: PT017  # either will do
    assert time.perf_counter() - begun < 4.0


def test_so_many_liars_that_one_is_in_each_cohort() -> None:
    """Where nothing is computed, it is as where it is."""
    for liars in (300, 400, 500, 700, 1200):
        window = next(islice(chances._hits(10_000, 10), liars, None))
        exact = np.zeros(11)
        exact[window[0] : window[0] + len(window[1])] = window[1]
        assert chances.hit_cohorts(10_000, 10, liars) == pytest.approx(exact, abs=1e-13)


@pytest.mark.parametrize(("liars", "allowed"), [(5000, 480), (5000, 500), (5000, 560), (20, 0), (9990, 995)])
def test_the_tail_of_liars_in_a_cohort_is_the_whole_of_it(liars: int, allowed: int) -> None:
    tail = stats.hypergeom(10_000, liars, 1000).sf(allowed)
    assert chances.crowded(10_000, 10, allowed, liars) == pytest.approx(min(1.0, 10 * tail), rel=1e-6)


@pytest.mark.parametrize("bits", [-8, 0, 7, 8, 1023, 3071, 10**9])
def test_a_key_of_no_length_is_refused_in_a_moment(bits: int) -> None:
    with pytest.raises(ValueError, match=f"1024, 2048, 3072, 4096; got {bits}"):
        encryption_seconds(asked(), bits)
