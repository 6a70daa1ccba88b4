import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import (
    AlreadyDecided,
    BudgetExceeded,
    Cost,
    Counter,
    Counts,
    Ledger,
    Query,
    QueryBurnt,
    SparseRows,
)
from reticent.randomness import secure, seeded
from reticent_sim.local_counts import BLOCK, Liars, LocalCounts
from tests.parties.queries import bits

FALSE_ALARM = 1e-6  # of each statistical test; the streams are fixed, so it passes always or never
OFF = 0.3  # by so much a deviation may not be wrong, either way


def gaussian(size: int = 1, **changes: Any) -> Query:
    return bits(size, **{"noise": "gaussian", "fraction_bits": 10, **changes})


def ones(asked: Query) -> np.ndarray:
    return np.ones((asked.population, asked.size), dtype=np.int64)


# The noise.


def _p_value(errors: np.ndarray, variance: float) -> float:
    """Of whole errors that should be Skellam noise of this variance, by chi-square over bins of some thirty each."""
    noise = stats.skellam(variance / 2, variance / 2)
    edges = np.unique(np.rint(stats.norm.ppf(np.linspace(0, 1, len(errors) // 30)[1:-1]) * np.sqrt(variance)))
    expected = np.diff(np.concatenate([[0.0], noise.cdf(edges), [1.0]])) * len(errors)
    observed = np.bincount(np.searchsorted(edges, errors), minlength=len(expected))
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("each_share", [True, False])
@pytest.mark.parametrize("absent", [0.0, 0.15])
def test_the_noise_is_exactly_the_sum_of_all_shares(absent: float, each_share: bool) -> None:
    """Drawn for each phone or for all at once; more phones than the fewest make it larger, and it is never rounded."""
    asked = bits(size=2000, l1=400, l2_squared=400)
    counts = LocalCounts(seeded(4, "noise", str(absent), int(each_share)), absent=absent, each_share=each_share)
    release = counts.count(asked, np.zeros((asked.population, asked.size)))
    errors = np.array(release.value)
    variance = release.contributors * asked.share_variance
    assert release.variance == pytest.approx([variance] * asked.size)
    assert variance > asked.variance
    assert _p_value(errors, variance) > FALSE_ALARM
    assert _p_value(errors, variance * (1 - OFF) ** 2) < FALSE_ALARM
    assert _p_value(errors, variance * (1 + OFF) ** 2) < FALSE_ALARM


def test_a_trusted_server_adds_the_noise_of_the_query_once() -> None:
    asked = bits(size=2000, l1=400, l2_squared=400, cohorts=2, min_contributions=60, liars=5)
    release = LocalCounts(seeded(4, "trusted"), trusted=True).count(asked, ones(asked))
    assert release.contributors == asked.population
    assert release.variance == pytest.approx([asked.variance] * asked.size)
    errors = np.array(release.value) - asked.population * (np.arange(2000) < 400)  # the most that fits
    assert abs(errors.mean()) < 6 * np.sqrt(asked.variance / asked.size)
    assert _p_value(errors.round(), asked.variance) > FALSE_ALARM
    assert _p_value(errors.round(), asked.variance * (1 - OFF) ** 2) < FALSE_ALARM
    assert _p_value(errors.round(), asked.variance * (1 + OFF) ** 2) < FALSE_ALARM


def test_all_phones_contribute_to_a_trusted_server() -> None:
    for other in ({"absent": 0.1}, {"each_share": True}, {"liars": Liars(1)}):
        with pytest.raises(ValueError, match="all phones contribute to a trusted server"):
            LocalCounts(trusted=True, **other)


def test_noise_that_would_take_long_is_drawn_as_a_normal_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundredth of the variance from which on that is done, nobody can tell either."""
    monkeypatch.setattr("reticent.privacy.mechanisms.skellam.MAX_SAMPLED_VARIANCE", 1000.0)
    monkeypatch.delattr("reticent.privacy.mechanisms.Skellam.share")
    asked = bits(size=2000, l1=400, l2_squared=400)
    release = LocalCounts(seeded(4, "large")).count(asked, np.zeros((200, 2000)))
    assert release.variance[0] > 10 * 1000
    assert _p_value(np.array(release.value), release.variance[0]) > FALSE_ALARM
    assert _p_value(np.array(release.value), release.variance[0] * (1 - OFF) ** 2) < FALSE_ALARM
    assert _p_value(np.array(release.value), release.variance[0] * (1 + OFF) ** 2) < FALSE_ALARM


@pytest.mark.parametrize(
    "wide",
    [
        bits(2000, counters=[Counter(f"c{n}", 0, 70_000) for n in range(2000)], l2_squared=70_000**2, l1=70_000),
        gaussian(2000, l1=400, l2_squared=400, epsilon=1e-6, fraction_bits=16),
    ],
    ids=["skellam", "gaussian"],
)
def test_whatever_phones_can_draw_can_be_simulated(wide: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of many shares is more than the samplers draw at once, and would take minutes in parts."""
    monkeypatch.delattr("reticent.privacy.mechanisms.Skellam.share")
    monkeypatch.delattr("reticent.privacy.mechanisms.Gaussian.share")
    release = LocalCounts(seeded(4, "wide", wide.noise)).count(wide, np.zeros((200, 2000)))
    assert release.variance == pytest.approx([200 * wide.share_variance] * 2000)
    errors = np.array(release.value) / np.sqrt(release.variance)
    assert np.array_equal(np.array(release.value) / wide.unit % 1, np.zeros(2000))
    assert stats.kstest(errors, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(errors / (1 - OFF), "norm").pvalue < FALSE_ALARM
    assert stats.kstest(errors / (1 + OFF), "norm").pvalue < FALSE_ALARM


@pytest.mark.parametrize("each_share", [True, False])
def test_fixed_point_noise_adds_up_as_well(each_share: bool) -> None:
    asked = gaussian(size=2000, l1=400, l2_squared=400, fraction_bits=6)
    release = LocalCounts(seeded(4, "fixed", int(each_share)), each_share=each_share).count(
        asked, np.zeros((asked.population, asked.size))
    )
    errors = np.array(release.value) / np.sqrt(release.variance)
    assert np.array_equal(np.array(release.value) * 64 % 1, np.zeros(asked.size))
    assert stats.kstest(errors, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(errors / (1 - OFF), "norm").pvalue < FALSE_ALARM
    assert stats.kstest(errors / (1 + OFF), "norm").pvalue < FALSE_ALARM


def test_cohorts_have_noise_of_their_own_and_all_phones_once() -> None:
    """Five cohorts carry five times the noise of one, and their sum is everybody."""
    asked = bits(size=2000, l1=100, l2_squared=100, population=1003, cohorts=5, min_contributions=200)
    release = LocalCounts(seeded(4, "cohorts")).count(asked, np.zeros((1003, 2000)))
    assert release.contributors == 1003
    errors = np.array(release.value)[[not far for far in release.cohorts_outlying]]
    assert _p_value(errors, 1003 * asked.share_variance) > FALSE_ALARM
    assert 1003 * asked.share_variance > 5 * asked.variance


def test_phones_are_dealt_evenly_and_at_random() -> None:
    asked = bits(population=1003, cohorts=4, min_contributions=200)
    counts = LocalCounts(seeded(4, "dealing"))
    dealt = np.array([counts._dealt(asked) for _ in range(2000)])
    assert {tuple(sorted(np.bincount(row))) for row in dealt} == {(250, 251, 251, 251)}
    for phone in (0, 501, 1002):
        seen = np.bincount(dealt[:, phone], minlength=4)
        assert stats.chisquare(seen, np.array([251, 251, 251, 250]) / 1003 * 2000).pvalue > FALSE_ALARM
    together = int((dealt[:, 0] == dealt[:, 1]).sum())
    assert stats.binomtest(together, 2000, 250 / 1002).pvalue > FALSE_ALARM


@pytest.mark.parametrize("level", [0.9])
def test_intervals_cover_at_their_level_when_phones_are_absent(level: float) -> None:
    """Everyone who contributes adds 1, so the truth is their number."""
    covered = dict.fromkeys((1 - OFF, 1.0, 1 + OFF), 0)
    rng = seeded(4, "coverage")
    for run in range(100):
        asked = gaussian(
            size=40,
            id=f"q{run}",
            l1=40,
            l2_squared=40,
            population=2000,
            cohorts=4,
            min_contributions=400,
            fraction_bits=12,
        )
        release = LocalCounts(rng, absent=0.1).count(asked, ones(asked))
        middle = np.array(release.value)
        reach = release.interval(level)[:, 1] - middle
        for stretch in covered:
            covered[stretch] += int((np.abs(middle - release.contributors) <= reach * stretch).sum())
    says_otherwise = {
        stretch: stats.binomtest(number, 4000, level).pvalue < FALSE_ALARM for stretch, number in covered.items()
    }
    assert says_otherwise == {1 - OFF: True, 1.0: False, 1 + OFF: True}, covered


# What is counted.


def test_contributions_are_fitted_before_they_are_added() -> None:
    asked = bits(size=2, counters=[Counter("a", 0, 10), Counter("b", -5, 0)], l2_squared=9, l1=3, population=200)
    values = np.tile([100.0, 7.0], (200, 1))
    release = LocalCounts(seeded(1)).count(asked, values)
    low, high = release.interval(1 - 1e-9).T
    assert low[0] <= 600 <= high[0]
    assert low[1] <= 0 <= high[1]


@pytest.mark.parametrize("sizes", [[200], [0, 1, 199], [50] * 4])
def test_phones_may_come_in_blocks(sizes: list[int]) -> None:
    asked = bits(size=3, l1=3, l2_squared=3)
    rows = np.random.default_rng(3).integers(0, 2, (200, 3))
    blocks = np.split(rows, np.cumsum(sizes)[:-1])
    whole = LocalCounts(seeded(1)).count(asked, rows)
    assert LocalCounts(seeded(1)).count(asked, iter(blocks)) == whole


def test_counters_that_are_mostly_0_count_the_same() -> None:
    asked = bits(size=3, cohorts=4, min_contributions=30, liars=2, l1=2, l2_squared=2, sequence="levels")
    rows = (seeded(1, "rows").random((200, 3)) < 0.4).astype(np.int64)
    row, column = np.nonzero(rows)
    first, second = (
        SparseRows(100, row[part] % 100, column[part], rows[rows > 0][part]) for part in (row < 100, row > 99)
    )
    sparse = LocalCounts(seeded(3), absent=0.1).count(asked, iter([first, second]))
    assert sparse == LocalCounts(seeded(3), absent=0.1).count(asked, rows)


@pytest.mark.parametrize("number", [0, 199, 201, 400])
def test_there_are_as_many_rows_as_phones(number: int) -> None:
    with pytest.raises(ValueError, match=f"'q' is about 200 phones: got counters of {number}"):
        LocalCounts().count(bits(), np.zeros((number, 1)))


@pytest.mark.parametrize("counters", [np.zeros(200), np.zeros((200, 2)), np.full((200, 1), np.nan), None])
def test_what_cannot_be_counted_is_refused_and_spends_nothing(counters: Any) -> None:
    with closing(Ledger(Cost(1.0, 1e-6))) as ledger:
        counts = LocalCounts(ledger=ledger)
        with pytest.raises(ValueError, match=r"got"):
            counts.count(bits(), counters)
        assert ledger.entries() == ()
        assert counts.count(bits(), ones(bits())).contributors == 200


# Who is there, and who lies.


def test_a_short_cohort_is_left_out_and_the_rest_scaled_up() -> None:
    asked = bits(population=4000, cohorts=20, min_contributions=180)
    release = LocalCounts(seeded(2), absent=0.08).count(asked, ones(asked))
    assert 1 <= len(release.cohorts_left_out) <= 10
    assert release.noise is None
    low, high = release.interval(1 - 1e-6)[0]
    assert low <= release.contributors <= high
    assert high - low < 0.3 * release.contributors


def test_too_few_phones_burn_the_query_which_spends_nothing() -> None:
    asked = bits(population=2000, cohorts=10, min_contributions=190)
    with closing(Ledger(Cost(1.0, 1e-6))) as ledger:
        counts = LocalCounts(seeded(2), absent=0.3, ledger=ledger)
        with pytest.raises(QueryBurnt, match="10 of its 10 cohorts"):
            counts.count(asked, ones(asked))
        assert ledger.entries() == ()
        with pytest.raises(AlreadyDecided, match="a second attempt is another query"):
            counts.count(asked, ones(asked))
        ledger.reserve("another", asked.cost)


def test_nobody_there_is_a_burnt_query() -> None:
    with pytest.raises(QueryBurnt):
        LocalCounts(absent=1.0).count(bits(), ones(bits()))


def test_a_liar_voids_its_cohort_only() -> None:
    asked = bits(population=4000, cohorts=20, min_contributions=180)
    release = LocalCounts(seeded(2), liars=Liars(1, says=10**9)).count(asked, ones(asked))
    assert len(release.cohorts_outlying[0]) == 1
    assert abs(release.value[0] - 4000) < 400
    with_one = LocalCounts(seeded(2), liars=Liars(1, says=10**9)).count(bits(id="one"), ones(bits()))
    assert with_one.value[0] > 10**8


def test_liars_who_say_nothing_add_no_noise_either() -> None:
    asked = bits(size=2000, l1=400, l2_squared=400)
    release = LocalCounts(seeded(4, "silent"), liars=Liars(50)).count(asked, np.zeros((200, 2000)))
    assert release.contributors == 200
    assert _p_value(np.array(release.value), 150 * asked.share_variance) > FALSE_ALARM
    assert _p_value(np.array(release.value), 200 * asked.share_variance) < FALSE_ALARM


@pytest.mark.parametrize("number", [-1, 201])
def test_there_are_no_more_liars_than_phones(number: int) -> None:
    with pytest.raises(ValueError, match=f"among 200 phones {number} cannot lie"):
        LocalCounts(liars=Liars(number)).count(bits(), ones(bits()))


@pytest.mark.parametrize("absent", [-0.1, 1.1, float("nan")])
def test_absence_is_a_probability(absent: float) -> None:
    with pytest.raises(ValueError, match="absent is a probability: got"):
        LocalCounts(absent=absent)


# Budgets and repetition.


def test_a_query_that_does_not_fit_is_not_asked() -> None:
    with closing(Ledger(Cost(1.5, 1e-5))) as ledger:
        counts = LocalCounts(ledger=ledger)
        counts.count(bits(), ones(bits()))
        with pytest.raises(BudgetExceeded, match="'second' takes"):
            counts.count(bits(id="second"), ones(bits()))
        assert [(entry.query, entry.state) for entry in ledger.entries()] == [("q", "spent")]


def test_a_query_is_answered_once_even_by_another_simulation_with_the_same_ledger() -> None:
    with closing(Ledger(Cost(3.0, 1e-5))) as ledger:
        counts = LocalCounts(ledger=ledger)
        counts.count(bits(), ones(bits()))
        for again in (counts, LocalCounts(ledger=ledger)):
            with pytest.raises(AlreadyDecided):
                again.count(bits(), ones(bits()))
        assert len(ledger.entries()) == 1


def test_the_same_seed_counts_the_same() -> None:
    releases = [
        LocalCounts(rng, absent=0.1).count(bits(), ones(bits())) for rng in (seeded(7, "a"), seeded(7, "a"), seeded(8))
    ]
    assert releases[0] == releases[1] != releases[2]
    assert LocalCounts().count(bits(), ones(bits())) == LocalCounts().count(bits(), ones(bits()))


def test_a_release_says_whether_it_was_seeded() -> None:
    counts: Counts = LocalCounts()
    assert counts.count(bits(), ones(bits())).seeded
    assert not LocalCounts(secure()).count(bits(), ones(bits())).seeded


# Size.


def test_a_million_phones_take_little_memory() -> None:
    asked = bits(size=4, l1=4, l2_squared=4, population=10**6, cohorts=50, min_contributions=15_000)
    rng = np.random.default_rng(1)
    truth = np.zeros(4, dtype=np.int64)

    def blocks() -> Iterator[np.ndarray]:
        nonlocal truth
        for _ in range(10):
            block = rng.random((10**5, 4)) < [0.5, 0.1, 0.01, 0.0]
            truth += block.sum(axis=0)
            yield block

    tracemalloc.start()
    try:
        release = LocalCounts(seeded(5)).count(asked, blocks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BLOCK * 4 * 8 * 12 + 10**6 * 16
    low, high = release.interval(1 - 1e-6).T
    assert ((low <= truth) & (truth <= high)).all()
    assert (high - low < 2000).all()
