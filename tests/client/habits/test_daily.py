"""Days against an adversary who learns: what is promised of them, and what is not, over all histories."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import (
    Adversary,
    Daily,
    LearningAdversary,
    MarkovChain,
    Policy,
    adaptive,
    daily,
    hybrid,
    optimal,
    probabilistic,
    simulatable,
)
from tests.client.checks import PRIVATE
from tests.client.habits.histories import ERRAND, LINKED, TRIPLE, Counts, checks, every_history, labels, rise, same
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

# What is promised


def assert_each_day_is_bounded(
    check: Callable[..., Policy], chain: MarkovChain, strength: float, problem: dict[str, Any], days: int
) -> None:
    """Over all histories of so many days, of which there is more than one: each day's rise, by enumeration."""
    bounds = oracle.limits(chain, **problem)
    ends = 0
    for moment in every_history(Counts(chain, strength), partial(check, **problem), days):
        assert rise(moment, bounds) <= oracle.TOLERANCE, moment
        ends += moment.number == days - 1
    assert ends > 1


@checks
@pytest.mark.parametrize(
    ("chain", "strength", "sensitive"),
    [
        (LINKED, 1.0, {(0, "s"): 0.4}),
        (LINKED, 0.1, {(1, "s"): 0.35}),
        (chains.independent(0.2, 0.5), 0.5, {(0, "s"): 0.1}),
    ],
)
def test_no_day_of_any_history_tells_more_than_delta(
    check: Callable[..., Policy], chain: MarkovChain, strength: float, sensitive: Any
) -> None:
    """Three days, all that can be released on them, every step: the belief of a second implementation."""
    assert_each_day_is_bounded(check, chain, strength, {"sensitive": sensitive}, days=3)


@pytest.mark.parametrize("check", [check for check in PRIVATE if check is not simulatable])
@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_no_day_tells_more_than_delta_where_every_step_is_sensitive(
    check: Callable[..., Policy], strength: float
) -> None:
    """Silence is all that a simulatable policy knows there; of the others there are many histories."""
    assert_each_day_is_bounded(check, LINKED, strength, {"sensitive": {"s"}, "delta": 0.1}, days=3)


MANY_HISTORIES = [(ERRAND, 3), (TRIPLE, 3), (chains.common(), 3), (LINKED, 4)]


@pytest.mark.parametrize("check", [check for check in PRIVATE if check not in {simulatable, optimal}])
@pytest.mark.parametrize(
    ("chain", "days"),
    [MANY_HISTORIES[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in MANY_HISTORIES[1:])],
)
def test_no_day_of_many_more_histories_tells_more_than_delta(
    check: Callable[..., Policy], chain: MarkovChain, days: int
) -> None:
    """The same on larger chains."""
    assert_each_day_is_bounded(check, chain, 0.3, {"sensitive": {"s"}, "delta": 0.15}, days)


@pytest.mark.slow
@pytest.mark.parametrize(("chain", "days"), MANY_HISTORIES)
def test_no_day_of_many_more_histories_tells_more_than_delta_by_the_optimal_check(
    chain: MarkovChain, days: int
) -> None:
    assert_each_day_is_bounded(optimal, chain, 0.3, {"sensitive": {"s"}, "delta": 0.15}, days)


def test_a_policy_that_is_kept_breaks_delta_on_some_history() -> None:
    """Against the chain of the first morning it is private, against that of a later one it is not."""
    kept = optimal(LINKED, sensitive={"s"}, delta=0.1)
    bounds = oracle.limits(LINKED, {"s"}, 0.1)
    moments = list(every_history(Counts(LINKED, 1.0), lambda _: kept, days=3))
    assert max(rise(moment, bounds) for moment in moments if moment.number == 0) <= oracle.TOLERANCE
    assert max(rise(moment, bounds) for moment in moments) > 0.01


@checks
@pytest.mark.parametrize("chain", [LINKED, ERRAND])
def test_the_adversary_is_that_of_the_enumeration(check: Callable[..., Policy], chain: MarkovChain) -> None:
    """The same mornings, beliefs and gains on each of two days, whatever was released."""
    assert_follows(Daily(LearningAdversary(chain, 0.7), partial(check, sensitive={"s"}, delta=0.1)), Counts(chain, 0.7))


def assert_follows(days: Daily, counts: Counts, *, more: int = 1) -> None:
    """After every output of today, and of so many days more, the adversary is as the enumeration has it."""
    morning, policy = counts.chain, days.morning()
    assert same(days.adversary.chain, morning)
    found = oracle.joint(policy, morning)
    for output, belief in oracle.beliefs(policy, morning).items():
        branch = Branch(days)
        day = branch.evening(labels(morning, output))
        assert day.policy is policy
        assert day.beliefs == pytest.approx(belief, abs=1e-9)
        assert day.prior == pytest.approx(oracle.priors(morning), abs=1e-12)
        assert day.gain is not None
        s = morning.index("s")
        assert day.gain.rise == pytest.approx(max(belief[:, s] - oracle.priors(morning)[:, s]), abs=1e-9)
        assert day.gain.context == "s"
        if more:
            assert_follows(branch, counts.after(found[output]), more=more - 1)


class Branch(Daily):
    """Goes on from the morning of others, who stay where they are."""

    def __init__(self, days: Daily) -> None:
        super().__init__(LearningAdversary.from_json(days.adversary.to_json()), days._check)
        self._policy = days.morning()


# What is not promised


def test_the_belief_about_the_first_day_rises_without_bound() -> None:
    """From .1 to over .8 in four hundred days of clinics, of which none tells more than .1."""
    chain = MarkovChain(["clinic", "home"], [0.1, 0.9], [])
    adversary = LearningAdversary(chain, strength=1)
    lived = list(daily(adversary, partial(probabilistic, sensitive={"clinic"}, delta=0.1), [["clinic"]] * 400))
    gains = [day.gain.rise for day in lived if day.gain is not None]
    assert len(gains) == 400
    assert max(gains) <= 0.1 + oracle.TOLERANCE
    assert lived[0].outputs == (None,)
    before = lived[0].prior[0, 0]
    later = Adversary(lived[0].policy, adversary.chain).beliefs(lived[0].outputs)[0, 0]
    assert before == pytest.approx(0.1)
    assert later > 0.8


@checks
@FAST
@given(problem=chains.problems(), strength=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 2**32))
def test_mornings_drift_by_no_more_than_the_logarithm_of_the_days(
    check: Callable[..., Policy], problem: Problem, strength: float, seed: int
) -> None:
    """The morning after day k, the belief in a sensitive state is at most delta / (strength + k) above the last."""
    adversary = LearningAdversary(problem.chain, strength)
    user = problem.chain.sample(seeded(seed, "always the same day"))
    list(daily(adversary, lambda chain: check(chain, **problem.arguments), [user] * 4, seeded(seed)))
    steps = sum(1 / (strength + k) for k in range(1, adversary.days + 1))
    for t, s, delta in problem.limits:
        drift = adversary.chain.prior[t, s] - problem.chain.prior[t, s]
        assert drift <= delta * steps + oracle.TOLERANCE
        assert delta * steps <= delta * math.log(1 + 4 / strength) + oracle.TOLERANCE


# One day after the other


@pytest.mark.slow
def test_equal_releases_make_equal_policies_whatever_the_days_were() -> None:
    """Two users, two years of secrets apart, have the same policy every morning until their releases differ."""
    check = partial(adaptive, sensitive={"s"}, delta=0.1)
    secrets_apart = 0
    for seed in range(20):
        days, other = (Daily(LearningAdversary(TRIPLE, 1), check) for _ in range(2))
        rng = seeded(seed)
        lived = list(daily(LearningAdversary(TRIPLE, 1), check, [TRIPLE.sample(rng) for _ in range(4)], rng))
        for day in lived:
            assert days.morning().fingerprint() == other.morning().fingerprint() == day.policy.fingerprint()
            output = tuple(None if label is None else TRIPLE.index(label) for label in day.outputs)
            secrets_apart += len(oracle.joint(day.policy, Counts(TRIPLE, 1).chain)[output]) > 1
            days.evening(day.outputs)
            other.evening(list(day.outputs))
    assert secrets_apart > 10  # outputs behind which there is more than one day


@checks
def test_the_day_itself_is_never_asked(check: Callable[..., Policy]) -> None:
    """Two different days behind one output, run by the phone: the same policy on the next morning."""
    chain = chains.independent(0.3, 0.4)
    compute = partial(check, sensitive={"s"}, delta=0.1)
    mornings: dict[tuple[Any, ...], set[str]] = {}
    secrets: dict[tuple[Any, ...], set[tuple[str, ...]]] = {}
    for secret in (["s", "s"], ["x", "x"], ["s", "x"], ["x", "s"]):
        for seed in range(5):
            adversary = LearningAdversary(chain, 1)
            (day,) = daily(adversary, compute, [secret], seeded(seed))
            mornings.setdefault(day.outputs, set()).add(Daily(adversary, compute).morning().fingerprint())
            secrets.setdefault(day.outputs, set()).add(tuple(secret))
    assert all(len(policies) == 1 for policies in mornings.values())
    assert max(len(days) for days in secrets.values()) > 1


def test_the_policy_stays_until_the_evening() -> None:
    """It is computed once a day."""
    planned: list[MarkovChain] = []

    def check(chain: MarkovChain) -> Policy:
        planned.append(chain)
        return hybrid(chain, sensitive={"s"}, delta=0.1)

    days = Daily(LearningAdversary(LINKED, 1), check)
    assert days.morning() is days.morning()
    days.evening([None, None])
    days.morning()
    assert len(planned) == 2
    assert planned[1] is days.adversary.chain
