"""The phone's side of a policy: what is released, step by step and day by day, and what the report says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import secure, seeded
from reticent_client import MarkovChain, MaskIt, Policy, StepError
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem
from tests.client.mask.masks import checks, commute, vector

# What is released


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32))
def test_releases_what_the_policy_can_release(check: Callable[..., Policy], problem: Problem, seed: int) -> None:
    """Whatever comes out could have come out of the policy, and nothing is counted as a surprise."""
    policy = check(problem.chain, **problem.arguments)
    mask = MaskIt(policy, seeded(seed))
    day = problem.chain.sample(seeded(seed, "day"))
    output = tuple(None if label is None else policy.index(label) for label in map(mask.observe, day))
    assert output in oracle.outputs_of(policy, tuple(map(policy.index, day)))
    report = mask.report()
    assert (report.off_model, report.missing, report.missed, report.suspended) == (0, 0, 0, 0)
    assert report.released == sum(index is not None for index in output)


@pytest.mark.parametrize("suppression", [0.0, 0.25, 0.7, 1.0])
def test_suppresses_as_often_as_the_policy_says(suppression: float) -> None:
    """20,000 coins lie within five standard deviations, and would not if it were 5 % more or less."""
    chain = MarkovChain(["x"], [1], np.empty((0, 1, 1)))
    mask = MaskIt(vector(chain, [[suppression]]), seeded(1))
    days = 20_000
    suppressed = sum(mask.filter_day(["x"]) == [None] for _ in range(days))
    deviation = 5 * np.sqrt(suppression * (1 - suppression) / days)
    assert abs(suppressed / days - suppression) <= deviation
    assert deviation < 0.05


def test_secure_unless_asked() -> None:
    """Coins nobody can replay are the default, and the report says which they were."""
    policy = vector(chains.coin())
    assert not MaskIt(policy).report().seeded
    assert not MaskIt(policy, secure()).report().seeded
    assert MaskIt(policy, seeded(1)).report().seeded
    assert MaskIt(policy, np.random.default_rng()).report().seeded


def test_the_same_seed_decides_the_same() -> None:
    """And another does not."""
    policy = vector(commute(), np.full((5, 4), 0.5))
    day = ["home", "bus", "bus", "work", "work"]
    days = [[MaskIt(policy, seeded(seed)).filter_day(day) for _ in range(2)] for seed in range(10)]
    assert all(one == other for one, other in days)
    assert len({tuple(one) for one, _ in days}) > 1


# Steps


def test_steps_in_order() -> None:
    """Said or not said."""
    mask = MaskIt(vector(commute()))
    assert mask.step == 0
    assert mask.observe("home", step=0) == "home"
    assert mask.observe("bus") == "bus"
    assert mask.observe("bus", step=2) == "bus"
    assert mask.step == 3


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (1, "step 1 is over: the next step is 2"),
        (0, "step 0 is over: the next step is 2"),
        (-1, "step -1 lies outside the day of 5 steps"),
        (5, "step 5 lies outside the day of 5 steps"),
    ],
)
def test_wrong_steps_are_refused(step: int, sentence: str) -> None:
    """With both numbers, and nothing has happened."""
    mask = MaskIt(vector(commute()))
    mask.observe("home")
    mask.observe("bus")
    before = mask.snapshot()
    with pytest.raises(StepError, match=f"^{sentence}$"):
        mask.observe("bus", step=step)
    assert mask.snapshot() == before


@pytest.mark.parametrize("step", [1.5, 0.0, "1"])
def test_a_step_is_a_whole_number(step: Any) -> None:
    """Nothing is rounded, and nothing has happened."""
    mask = MaskIt(vector(commute()))
    with pytest.raises(TypeError, match=f"^step must be a whole number: got {step!r}$"):
        mask.observe("home", step=step)
    assert mask.report().steps == 0
    assert mask.observe("home", step=np.int64(0)) == "home"  # type: ignore[arg-type]  # but any whole number will do


@pytest.mark.parametrize("step", [None, 0, 4, 5])
def test_a_day_ends(step: int | None) -> None:
    """After the last step only a new day can begin."""
    mask = MaskIt(vector(commute()))
    mask.observe("home")
    mask.observe("work", step=4)
    assert mask.step == 5
    with pytest.raises(StepError, match=r"cannot follow step 4, the day's last: call next_day\(\)"):
        mask.observe("home", step=step)
    mask.next_day()
    assert mask.observe("home") == "home"


def test_a_day_that_is_cut_short_was_missed() -> None:
    """A day that nobody asked about at all is not counted."""
    mask = MaskIt(vector(commute()))
    mask.next_day()
    mask.next_day()
    assert mask.report().days == 0
    mask.observe("home")
    mask.next_day()
    report = mask.report()
    assert (report.days, report.released, report.missed, report.steps) == (1, 1, 4, 5)


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32), data=st.data())
def test_a_whole_day_is_its_steps(
    check: Callable[..., Policy], problem: Problem, seed: int, data: st.DataObject
) -> None:
    """`filter_day` is `observe` for each step and `next_day`, surprises and gaps included."""
    policy = check(problem.chain, **problem.arguments)
    labels = st.sampled_from([*policy.contexts, "gym", None])
    days = data.draw(st.lists(st.lists(labels, min_size=policy.horizon, max_size=policy.horizon), max_size=3))
    whole, stepwise = MaskIt(policy, seeded(seed)), MaskIt(policy, seeded(seed))
    for day in days:
        outputs = [stepwise.observe(label) for label in day]
        stepwise.next_day()
        assert whole.filter_day(day) == outputs
    assert whole.snapshot() == stepwise.snapshot()
    assert whole.report() == stepwise.report()


def test_a_whole_day_needs_a_whole_day() -> None:
    """As many labels as steps, from the first on."""
    mask = MaskIt(vector(commute()))
    with pytest.raises(ValueError, match="a day has 5 steps: got 2"):
        mask.filter_day(["home", "bus"])
    mask.observe("home")
    with pytest.raises(StepError, match="a whole day begins at step 0, the next step is 1"):
        mask.filter_day(["home"] * 5)


# Reports


def test_every_step_has_one_outcome() -> None:
    """And the report says how often each came."""
    chain = commute()
    table = np.zeros((5, 4))
    table[2] = 1
    mask = MaskIt(vector(chain, table), seeded(1))
    mask.filter_day(["home", "gym", "bus", "work", None])
    mask.observe("home")
    mask.observe("work", step=4)
    report = mask.report()
    assert report.to_json() == {
        "released": 4,
        "suppressed": 1,
        "off_model": 1,
        "missing": 1,
        "missed": 3,
        "suspended": 0,
        "days": 2,
        "off_model_contexts": {"gym": 1},
        "recent": {
            "days": 1,
            "steps": 4,
            "unusual": 1,
            "off_model": 1,
            "usual": None,
            "rate": 0.25,
            "off_model_rate": 0.25,
            "limit": 0.55,
            "stale": False,
        },
        "seeded": True,
        "gaps": {"missing": 1},
        "contexts": 6,
        "released_contexts": 4,
    }
    assert report.off_model_rate == 1 / 6
    assert str(report) == (
        "2 days: released 4 of 6 contexts (67%), suppressed 1, off-model 1, "
        "0 of 1 gaps released as 'unknown', missed 3; "
        "off-model contexts: 'gym' 1; seeded, for simulation only"
    )


def test_an_empty_report() -> None:
    """Nothing has happened yet."""
    assert str(MaskIt(vector(commute())).report()) == "0 days: released 0 of 0 contexts, suppressed 0"
