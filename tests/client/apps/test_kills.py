"""However a phone is killed, all apps together learn no more than the policy allows."""

import datetime as dt
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import MaskIt, Policy, optimal, probabilistic, simulatable
from reticent_client.apps.mask_runner import MaskRunner
from tests.client.apps.kills import Kill, blows, contradictions, live, schedules, worst_excess
from tests.client.apps.phones import tossing
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem
from tests.client.mask.faults import Coins
from tests.client.mask.test_restart import EXAMPLES

PROBLEMS = {"coin": Problem(chains.coin(), frozenset({"s"}), 0.25), **EXAMPLES}
CHECKS: list[Callable[..., Policy]] = [probabilistic, simulatable, optimal]
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


@cache
def policy_and_limits(check: Callable[..., Policy], name: str) -> tuple[Policy, Sequence[oracle.Limit]]:
    """A policy for a problem, and what it has promised."""
    problem = PROBLEMS[name]
    return check(problem.chain, **problem.arguments), problem.limits


@pytest.mark.parametrize("name", ["coin"])
@pytest.mark.parametrize("check", [pytest.param(probabilistic, marks=pytest.mark.slow), simulatable, optimal])
def test_killed_once_at_any_moment(check: Callable[..., Policy], name: str) -> None:
    """Around every write and after every message, back soon or a step later, with and without its store."""
    policy, limits = policy_and_limits(check, name)
    for kills in schedules(policy, lost=(False, True)):
        assert worst_excess(policy, limits, kills) <= oracle.TOLERANCE, kills


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "name"),
    [
        *((check, name) for check in CHECKS for name in ("two paths", "phone call", "two tosses")),
        (optimal, "sticky"),
        (probabilistic, "four steps"),
    ],
)
def test_killed_once_on_all_examples(check: Callable[..., Policy], name: str) -> None:
    """The same, on the longer days. How a phone starts again does not depend on its check."""
    policy, limits = policy_and_limits(check, name)
    for kills in schedules(policy, lost=(False, True)):
        assert worst_excess(policy, limits, kills) <= oracle.TOLERANCE, kills


@pytest.mark.slow
@pytest.mark.parametrize(("check", "name"), [*((check, "coin") for check in CHECKS), (probabilistic, "two tosses")])
def test_killed_twice(check: Callable[..., Policy], name: str) -> None:
    """And killed again at any moment of the second life, away for as long as the first time or for longer."""
    policy, limits = policy_and_limits(check, name)
    for first in schedules(policy):
        for kills in schedules(policy, first):
            assert worst_excess(policy, limits, kills) <= oracle.TOLERANCE, kills


@pytest.mark.parametrize(
    ("check", "back"),
    [
        (probabilistic, HOUR),
        (optimal, DAY),
        *(
            pytest.param(check, back, marks=pytest.mark.slow)
            for check in CHECKS
            for back in (HOUR, DAY, 13 * HOUR, 30 * DAY)
            if (check, back) not in {(probabilistic, HOUR), (optimal, DAY)}
        ),
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each),
)
def test_killed_and_set_back(check: Callable[..., Policy], back: dt.timedelta) -> None:
    """It comes back with a clock that is wrong."""
    policy, limits = policy_and_limits(check, "two tosses")
    for blow in range(blows(policy)):
        kills = (Kill(blow, dt.timedelta(), back=back),)
        assert worst_excess(policy, limits, kills) <= oracle.TOLERANCE, kills


@FAST
@given(
    day=st.lists(st.sampled_from(["home", "work", "hospital"]), min_size=4, max_size=4),
    kills=st.lists(
        st.builds(
            Kill,
            st.integers(0, 40),
            st.sampled_from([dt.timedelta(), dt.timedelta(milliseconds=500), dt.timedelta(seconds=1), 6 * HOUR]),
            back=st.sampled_from([dt.timedelta(), dt.timedelta(seconds=2), HOUR, 7 * HOUR, DAY]),
        ),
        max_size=4,
    ),
    seed=st.integers(0, 1000),
)
def test_no_position_is_ever_told_in_two_ways(day: Sequence[str], kills: Sequence[Kill], seed: int) -> None:
    """Whatever coins fall after the restart, and whatever the clock says."""
    view = live(tossing(4), day, kills, cast("Any", seeded(seed)))
    assert contradictions(view) == []


# Phones that do not follow the rules: the enumeration sees what they leak.


class Trusting(MaskRunner):
    """Takes a lost store for a new one."""

    def __init__(self, policy: Policy, **options: Any) -> None:
        super().__init__(policy, **options | {"first_day": True})


class Fresh(MaskRunner):
    """Begins the day anew whenever it is started."""

    def _mask(self, date: dt.date) -> MaskIt:
        if self._today is None or self._today[0] != date:
            mask = MaskIt(self._schedule.on(date), self._rng)
            self._masks, self._today = {"": mask}, (date, mask)
        return self._today[1]


@pytest.mark.slow
def test_fresh_phones_leak() -> None:
    """A memory that is not that of the day releases what was never checked."""
    policy, limits = policy_and_limits(optimal, "sticky")
    kills = [(Kill(blow, dt.timedelta()),) for blow in range(blows(policy))]
    assert max(worst_excess(policy, limits, each, Fresh) for each in kills) > 0.01


def test_trusting_phones_leak() -> None:
    """Without its store, and with its clock an hour back, a phone must not toss the coin of noon again."""
    policy, limits = policy_and_limits(probabilistic, "two tosses")
    after_noon = [Kill(blows(policy) - 1, dt.timedelta(), lost=True, back=HOUR)]
    assert worst_excess(policy, limits, after_noon, Trusting) > 0.01
    assert worst_excess(policy, limits, after_noon) <= oracle.TOLERANCE


def test_the_enumeration_reaches_every_write_and_every_message() -> None:
    """Killed at its first chance and away for a day, a phone tells nothing; at its last chance, it has told all."""
    policy = tossing(2)
    count = blows(policy)
    views = [live(policy, ["home", "work"], [Kill(blow, DAY)], Coins()) for blow in (0, count - 1)]
    assert [sum(entry[0] != "back" for entry in view) for view in views] == [0, 2]
    # Around each write: waking, two days, two steps. And after each transaction (waking, two steps) and each message.
    assert count == 2 * (2 + 3 + 2 + 2 * 2) + 3 + 2
