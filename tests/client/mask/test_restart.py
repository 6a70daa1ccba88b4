"""Whatever becomes of the phone, nobody learns more than the policy allows."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import (
    MarkovChain,
    MaskIt,
    Policy,
    StepError,
    optimal,
    probabilistic,
    simulatable,
)
from reticent_client.mask.policy import Automaton, ReleaseTimes, VectorPolicy
from reticent_client.mask.report import Outcome
from tests.client.checks import VARIANTS
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, SLOW, Problem
from tests.client.mask.faults import (
    Coins,
    Flash,
    double_faults,
    schedules,
    single_faults,
    worst_excess,
    worst_excess_with_gaps,
)

EXAMPLES = {
    "two paths": Problem(chains.two_paths(), frozenset({"s"}), 0.1),
    "phone call": Problem(chains.phone_call(), frozenset({"phone call"}), 1 / 6),
    "two tosses": Problem(MarkovChain(["s", "x"], [0.5, 0.5], [[[0.7, 0.3], [0.2, 0.8]]]), frozenset({"s"}), 0.25),
    "sticky": Problem(
        MarkovChain(["s", "x", "y"], [0.2, 0.5, 0.3], [[[0.6, 0.4, 0.0], [0.1, 0.6, 0.3], [0.0, 0.3, 0.7]]] * 2),
        frozenset({"s"}),
        0.2,
    ),
    "four steps": Problem(
        MarkovChain(
            ["s", "x"], [0.1, 0.9], [[[0.5, 0.5], [0.2, 0.8]], [[0.9, 0.1], [0.0, 1.0]], [[0.3, 0.7], [0.4, 0.6]]]
        ),
        {"s": 0.15, (2, "x"): 0.05},
        None,
    ),
}

checks = pytest.mark.parametrize("check", VARIANTS)
examples = pytest.mark.parametrize("name", EXAMPLES)


@cache
def policy_and_limits(check: Callable[..., Policy], name: str) -> tuple[Policy, Sequence[oracle.Limit]]:
    """The policy for an example, and what it promises."""
    problem = EXAMPLES[name]
    return check(problem.chain, **problem.arguments), problem.limits


@examples
@checks
def test_killed_once_at_any_moment(check: Callable[..., Policy], name: str) -> None:
    """Whenever the phone is killed, however long it is off, with and without its memory."""
    policy, limits = policy_and_limits(check, name)
    for faults in single_faults(policy.horizon):
        assert worst_excess(policy, limits, faults) <= oracle.TOLERANCE, str(faults[0])


@pytest.mark.parametrize("check", [probabilistic, simulatable, optimal])
def test_killed_twice(check: Callable[..., Policy]) -> None:
    """The same, when it is killed again. Each check makes another kind of policy."""
    policy, limits = policy_and_limits(check, "two tosses")
    for faults in double_faults(policy.horizon):
        assert worst_excess(policy, limits, faults) <= oracle.TOLERANCE, list(map(str, faults))


@pytest.mark.slow
@examples
@checks
def test_killed_twice_on_all_examples(check: Callable[..., Policy], name: str) -> None:
    """The same, on the longer days."""
    policy, limits = policy_and_limits(check, name)
    for faults in double_faults(policy.horizon):
        assert worst_excess(policy, limits, faults) <= oracle.TOLERANCE, list(map(str, faults))


@checks
@FAST
@given(data=st.data())
def test_any_chain_and_any_faults(check: Callable[..., Policy], data: st.DataObject) -> None:
    """On drawn chains, with up to three faults."""
    problem = data.draw(chains.problems())
    faults = data.draw(schedules(problem.chain.horizon))
    policy = check(problem.chain, **problem.arguments)
    assert worst_excess(policy, problem.limits, faults) <= oracle.TOLERANCE


@pytest.mark.slow
@checks
@SLOW
@given(data=st.data())
def test_many_chains_and_any_faults(check: Callable[..., Policy], data: st.DataObject) -> None:
    """On more and larger chains."""
    problem = data.draw(chains.problems(chains.LARGE))
    faults = data.draw(schedules(problem.chain.horizon))
    policy = check(problem.chain, **problem.arguments)
    assert worst_excess(policy, problem.limits, faults) <= oracle.TOLERANCE


@examples
@checks
def test_gaps(check: Callable[..., Policy], name: str) -> None:
    """Steps may be missed, or seen without a reading, in any combination."""
    policy, limits = policy_and_limits(check, name)
    for gaps in itertools.product(("missed", "missing", "read"), repeat=policy.horizon):
        assert worst_excess_with_gaps(policy, limits, gaps) <= oracle.TOLERANCE, gaps


# Days that are over


def tossing() -> VectorPolicy:
    """Releases half of the time, four times a day."""
    chain = MarkovChain.uniform(["x", "y"], 4)
    origin = probabilistic(chain, sensitive={"x"}, delta=0.1).provenance
    return VectorPolicy(origin, np.full((4, 2), 0.5))


def filtered(flash: Flash) -> MaskIt:
    """A phone that has decided on the whole day d1."""
    MaskIt(tossing(), store=flash, day="d0")
    mask = MaskIt(tossing(), store=flash, day="d1")
    mask.filter_day(["x"] * 4)
    return mask


def test_a_filtered_day_is_not_decided_again() -> None:
    """A restart stands at its end, with whatever coins, and leaves the store as it was."""
    flash = Flash()
    mask = filtered(flash)
    kept, report = flash.text, mask.report()
    for seed in range(5):
        again = MaskIt(tossing(), seeded(seed), store=flash, day="d1")
        assert (again.step, again.day, again.suspended) == (4, "d1", False)
        for step in (None, 0, 3, 4):
            with pytest.raises(StepError, match=r"^the day 'd1' is over: step . cannot follow step 3"):
                again.observe("x", step=step)
        with pytest.raises(StepError, match="a whole day begins at step 0"):
            again.filter_day(["x"] * 4)
        assert again.report().steps == report.steps
    assert flash.text == kept
    assert MaskIt(tossing(), store=flash, day="d2").step == 0


def test_a_day_that_was_followed_by_another_is_over() -> None:
    """By name; the later day is not lost by it."""
    flash = Flash()
    filtered(flash).next_day("d2")
    MaskIt(tossing(), store=flash, day="d2").observe("x", step=1)
    assert MaskIt(tossing(), store=flash, day="d1").step == 4
    assert MaskIt(tossing(), store=flash, day="d2").step == 2
    stale = MaskIt(tossing(), store=flash, day="d1")
    stale.next_day("d3")
    assert stale.report().missed == 1 + 2
    assert [MaskIt(tossing(), store=flash, day=day).step for day in ("d1", "d2", "d3")] == [4, 4, 0]


@pytest.mark.parametrize("day", ["d0", "d1"])
def test_a_day_that_is_over_cannot_begin(day: str) -> None:
    """Neither at once nor after a restart."""
    flash = Flash()
    for mask in (filtered(flash), MaskIt(tossing(), store=flash), MaskIt(tossing(), store=flash, day="d1")):
        before = mask.snapshot()
        with pytest.raises(StepError, match=f"^the day '{day}' has begun already: it is over$"):
            mask.next_day(day)
        assert mask.snapshot() == before


def test_only_the_last_days_are_kept() -> None:
    """The state stays small."""
    mask = MaskIt(tossing())
    for number in range(200):
        mask.next_day(f"2026-{number:05}")
    assert len(json.loads(mask.snapshot())["days"]) == 60
    assert len(mask.snapshot()) < 2000
    with pytest.raises(StepError, match="it is over"):
        mask.next_day("2026-00140")
    mask.next_day("2026-00139")


# Phones that do not follow the rules: the enumeration sees what they leak.


def by_hand() -> Automaton:
    """On two paths: release a at once and then nothing, or suppress b and release j in the end."""
    chain = chains.two_paths()
    n = len(chain.contexts)
    origin = simulatable(chain, sensitive={"s"}, delta=0.1).provenance
    rows = np.ones((3, n))  # one node a step, for whoever began with b
    rows[0, chain.index("a")] = rows[2, chain.index("j")] = 0.0
    onward = np.repeat([[1], [2], [-1]], n, axis=1)
    roots = np.full((chain.horizon + 1, n), -1)
    roots[0] = 0
    return Automaton(origin, rows, onward.astype(np.int32), roots.astype(np.int32))


class Heedless(MaskIt):
    """Takes a missed step for a suppressed one."""

    def _skip_step(self) -> None:
        self._last = None
        if self._memory is not None:
            some = int(np.flatnonzero(self.policy.chain.reachable[self._step])[0])
            self._memory = self.policy.advance(self._step, self._memory, some, False)


class Forgetful(MaskIt):
    """Takes a lost memory for a new day."""

    def _resume_from_store(self, kept: str | None, day: str | None) -> None:
        if kept is not None:
            super()._resume_from_store(kept, day)


class Late(MaskIt):
    """Stores a step when the next one is decided."""

    _behind: str | None = None

    def _store_state(self) -> None:
        assert self._store is not None
        if self._behind is not None and self._begun:
            self._store.write(self._behind)
        self._behind = self._snapshot()


class Suppressing(MaskIt):
    """Remembers every step that was stored as suppressed."""

    def _decide(self, context: str | None) -> Outcome:
        memory, step = self._memory, self._step
        outcome = super()._decide(context)
        if memory is not None and context is not None:
            self._memory = self.policy.advance(step, memory, self.policy.index(context), False)
        return outcome


def excesses(mask: type[MaskIt], policy: Policy, limits: Sequence[oracle.Limit]) -> Iterator[float]:
    """The worst excess of each single fault."""

    def start(policy: Policy, coins: Coins, flash: Flash) -> MaskIt:
        return mask(policy, cast("Any", coins), store=flash)

    return (worst_excess(policy, limits, faults, start) for faults in single_faults(policy.horizon))


def test_by_hand_is_private() -> None:
    """It gains .03, and keeps to it under all faults."""
    policy, limits = by_hand(), EXAMPLES["two paths"].limits
    assert oracle.worst_gain(policy, policy.chain, limits) == pytest.approx(0.03)
    assert max(excesses(MaskIt, policy, limits)) == pytest.approx(0.03 - 0.1)


def test_missed_is_not_suppressed() -> None:
    """Who began with a and was not seen releases j in the end: .47 of .55 came through s."""
    gaps = ("missed", "read", "read")
    policy, limits = by_hand(), EXAMPLES["two paths"].limits
    assert worst_excess_with_gaps(policy, limits, gaps, Heedless) == pytest.approx(0.47 / 0.55 - 0.47 - 0.1)
    assert worst_excess_with_gaps(policy, limits, gaps) <= 0.03 - 0.1 + oracle.TOLERANCE


@pytest.mark.parametrize(
    ("mask", "check", "name"),
    [
        (Heedless, optimal, "four steps"),
        (Forgetful, probabilistic, "two tosses"),
        (Forgetful, optimal, "sticky"),
        (Late, probabilistic, "two tosses"),
        (Late, optimal, "sticky"),
        (Suppressing, optimal, "sticky"),
    ],
)
def test_careless_phones_leak(mask: type[MaskIt], check: Callable[..., Policy], name: str) -> None:
    """Each rule is needed: `test_killed_once_at_any_moment` has the same policies and faults, with no rule broken."""
    policy, limits = policy_and_limits(check, name)
    assert any(excess > 0.01 for excess in excesses(mask, policy, limits))


def test_the_enumeration_covers_every_kind_of_policy() -> None:
    """The examples make policies of all kinds."""
    kinds = {type(policy_and_limits(check, name)[0]) for check in VARIANTS for name in EXAMPLES}
    assert kinds == {VectorPolicy, ReleaseTimes, Automaton}
