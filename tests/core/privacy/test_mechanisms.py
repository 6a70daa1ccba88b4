"""What every registered mechanism keeps; a new one is tested by being registered."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import MECHANISMS, Cost, Counter, Mechanism, Noise, NoiseKind, Query, Unit, mechanism_of
from reticent.protocol import packing_of
from reticent.randomness import seeded
from reticent_analyst.question import Question
from reticent_sim.local_counts import LocalCounts

FALSE_ALARM = 1e-6
KINDS = list(get_args(NoiseKind))
L2, L1 = 2.0, 4.0  # of four counters of 0 and 1

every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())


def bits(mechanism: Mechanism) -> int:
    """A grid that is fine enough for the shares of these tests."""
    return 0 if mechanism.whole else 12


def test_the_registry_has_every_name_once() -> None:
    assert list(MECHANISMS) == KINDS
    assert [mechanism.name for mechanism in MECHANISMS.values()] == KINDS
    assert [mechanism_of(kind) for kind in KINDS] == list(MECHANISMS.values())
    assert {mechanism.unit for mechanism in MECHANISMS.values()} == {Unit.USER}  # what the ledgers add up
    with pytest.raises(ValueError, match=rf"noise is one of {', '.join(KINDS)}: got 'normal'"):
        mechanism_of("normal")


@every
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-3), (1.0, 1e-6), (2.0, 1e-9)])
def test_the_variance_and_every_larger_one_keep_the_promise(mechanism: Mechanism, epsilon: float, delta: float) -> None:
    variance = mechanism.variance(epsilon, delta, L2, L1, bits(mechanism))
    assert mechanism.sequence_variance(epsilon, delta, L2, L1) >= variance * (1 - 1e-9)
    assert mechanism.variance(epsilon, delta, L2, L1) == pytest.approx(variance, rel=1e-3)  # before a grid is chosen
    for factor in (1.0, 1.01, 1.3, 5.0):
        assert mechanism.delta(variance * factor, epsilon, L2, L1, bits(mechanism)) <= delta
    assert mechanism.delta(variance / 2, epsilon, L2, L1, bits(mechanism)) > delta


@every
def test_divergences_grow_with_the_order_and_fall_with_the_variance(mechanism: Mechanism) -> None:
    divergences = [mechanism.renyi(order, 50.0, L2, L1) for order in (2, 3, 8, 64)]
    assert divergences[0] > 0
    assert divergences == sorted(divergences)
    assert mechanism.renyi(8, 100.0, L2, L1) < divergences[2]


@every
def test_shares_and_sums_of_shares_have_the_variance(mechanism: Mechanism) -> None:
    """Chi-square; noise 30 % off on either side is rejected."""
    rng, variance = seeded(1, "mechanism"), 25.0
    step = 2.0 ** -bits(mechanism)
    shares = mechanism.share(variance / 40, (40, 2000), rng, bits(mechanism)).sum(axis=0) * step
    for sums in (shares, mechanism.sum_of_shares(variance, (2000,), rng, bits(mechanism)) * step):
        assert _has_variance(sums, variance)
        assert not _has_variance(sums, variance * 1.3)
        assert not _has_variance(sums, variance / 1.3)
    assert not mechanism.sum_of_shares(0.0, (3,), rng, bits(mechanism)).any()


def _has_variance(sums: np.ndarray, variance: float) -> bool:
    low, high = stats.chi2.ppf(np.array([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2]), sums.size)
    return bool(low < (sums**2).sum() / variance < high)


@every
@pytest.mark.parametrize("variance", [0.5, 30.0, 4000.0])
def test_the_noise_is_within_its_interval_and_its_tail_bound(mechanism: Mechanism, variance: float) -> None:
    noise = mechanism.sum_of_shares(variance, (20_000,), seeded(2, "tails"), bits(mechanism))
    inside = np.abs(noise) * 2.0 ** -bits(mechanism) <= mechanism.half_width(variance, 0.95)
    assert stats.binomtest(int((~inside).sum()), noise.size, 0.05, alternative="greater").pvalue > FALSE_ALARM
    in_steps = Fraction(variance) * 4 ** bits(mechanism)
    beyond = (noise > mechanism.tail_bound(in_steps, 4)).sum()
    assert stats.binomtest(int(beyond), noise.size, math.exp(-4), alternative="greater").pvalue > FALSE_ALARM
    assert mechanism.tail_bound(in_steps, 30) > mechanism.tail_bound(in_steps, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_becomes_a_query_a_cost_and_a_release(kind: NoiseKind) -> None:
    question = Question(
        id=kind, counters=[Counter("a", 0, 1), Counter("b", -1, 2)], epsilon=1.0, delta=1e-6, absent=0.1, noise=kind
    )
    query = question.to_query(population=1000, key_id="k1")
    assert Query.from_bytes(query.to_bytes()) == query
    assert query.mechanism is MECHANISMS[kind]
    assert query.cost == Cost(1.0, 1e-6, Noise(kind, query.variance, query.l2, query.l1))
    assert Cost.from_text(query.cost.to_text()) == query.cost
    release = LocalCounts(seeded(3, kind)).count(query, np.ones((1000, 2)))
    assert release.noise == kind
    [[low, high], _] = release.interval(0.999_999)
    assert low <= 1000 <= high


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_takes_the_mechanisms_own_tails(kind: NoiseKind, monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question(id="", counters=[Counter("a", 0, 1)], epsilon=1.0, delta=1e-6, absent=0.1, noise=kind)
    usual, wide = (replace(question, id=name).to_query(population=1000, key_id="k1") for name in ("usual", "wide"))
    [narrow] = packing_of(usual, 2048).slots
    monkeypatch.setattr(type(mechanism_of(kind)), "tail_bound", lambda *_: 1 << 60)
    [slot] = packing_of(wide, 2048).slots
    assert narrow.width < 61 < slot.width
