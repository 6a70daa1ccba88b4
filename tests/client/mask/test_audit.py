"""What an audit says of real days, against numbers that were worked out by hand or by enumeration."""

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import (
    Adversary,
    MarkovChain,
    MaskIt,
    Policy,
    adaptive,
    audit,
    breaches,
    hybrid,
    mask_sensitive,
)
from reticent_client.mask.policy import Automaton, VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.checks import QUICK
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

checks = pytest.mark.parametrize("check", QUICK)


def test_a_phone_call_that_is_masked() -> None:
    """Example 1: the missing call gives itself away, from a half to certainty."""
    policy = mask_sensitive(chains.phone_call(), sensitive={"phone call"})
    days = [["phone call", "coffee break"], ["meeting", "email"], ["phone call", "coffee break"]]
    found = audit(policy, days, delta=1 / 6, rng=seeded(1))
    totals = found.on_model
    assert (totals.days, totals.steps, totals.contexts, totals.released, totals.suppressed) == (3, 6, 6, 4, 2)
    assert (totals.visits, totals.breaches, found.off_model.days) == (2, 2, 0)
    assert [breach._replace(rise=0.0) for breach in found.breaches] == [
        (0.0, "day 1", 0, "phone call"),
        (0.0, "day 3", 0, "phone call"),
    ]
    assert totals.largest is not None
    assert totals.largest._replace(rise=0.0) == (0.0, "day 1", 0, "phone call")
    assert totals.largest.rise == pytest.approx(0.5)
    assert totals.some is not None
    assert (totals.some.step, totals.some.context) == (None, "phone call")
    assert totals.some.rise == pytest.approx(0.5)
    assert found.seeded
    assert breaches(policy, days, 1 / 6) == 2
    assert breaches(policy, days, 0.49) == 2
    assert breaches(policy, days, 0.51) == 0


def test_exactly_delta_is_no_breach() -> None:
    """The belief rises by a half; a delta of a half is kept, one a little smaller is not."""
    policy = mask_sensitive(chains.coin(), sensitive={"s"})
    assert breaches(policy, [["s"]], 0.5) == 0
    assert breaches(policy, [["s"]], 0.5 - 1e-8) == 1


def test_a_wrong_belief_is_a_gain_and_no_breach() -> None:
    """What rises without having happened is the largest gain, but nobody was exposed."""
    chain = MarkovChain(["s", "x", "y"], [0.2, 0.2, 0.6], np.empty((0, 3, 3)))
    origin = Provenance("by hand", chain, np.array([[0.1, np.nan, np.nan]]), (), 0.6)
    found = audit(VectorPolicy(origin, np.array([[1, 1, 0]])), [["x"]])
    assert (found.on_model.visits, found.breaches) == (0, [])
    assert found.on_model.largest is not None
    assert found.on_model.largest.rise == pytest.approx(0.5 - 0.2)


def test_a_window_that_outruns_every_step() -> None:
    """The belief at one step rises by .0176 at most; that in s at step 1 or 2 by .1437."""
    chain = chains.window()
    table = np.ones((4, 3))
    table[[0, 3]] = 0
    deltas = np.full((4, 3), np.nan)
    deltas[1:3, chain.index("s")] = 0.02
    policy = VectorPolicy(Provenance("by hand", chain, deltas, (), 2.0), table)
    days = [list(day) for day in itertools.product("suv", repeat=4) if possible(chain, day)]
    found = audit(policy, days, window=range(1, 3)).on_model
    assert found.largest is not None
    assert found.some is not None
    assert found.largest.rise == pytest.approx(0.0176, abs=5e-5)
    assert found.some.rise == pytest.approx(0.1437, abs=5e-5)
    assert found.breaches == 0
    narrow = audit(policy, days, window=[1]).on_model
    assert narrow.some is not None
    assert narrow.some.rise == pytest.approx(0.0176, abs=5e-5)
    nothing = audit(policy, days, window=[0, 3])  # s is not sensitive then
    assert nothing.on_model.some is None


def possible(chain: MarkovChain, day: tuple[str, ...]) -> bool:
    """Whether the chain gives a day a chance."""
    return tuple(map(chain.index, day)) in oracle.days(chain)


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32))
def test_against_the_enumeration(check: Callable[..., Policy], problem: Problem, seed: int) -> None:
    """Gains, in states and in windows, are those of the worst output that came."""
    policy = check(problem.chain, **problem.arguments)
    days = [problem.chain.sample(seeded(seed, k)) for k in range(3)]
    found = audit(policy, days, rng=seeded(seed)).on_model
    mask, prior = MaskIt(policy, seeded(seed)), oracle.priors(problem.chain)
    after = oracle.beliefs(policy, problem.chain)
    outputs = [tuple(None if label is None else policy.index(label) for label in mask.filter_day(day)) for day in days]
    rises = [after[output][t, s] - prior[t, s] for output in outputs for t, s, _ in problem.limits]
    assert found.largest is not None
    assert found.largest.rise == pytest.approx(max(rises), abs=1e-9)
    assert found.breaches == 0
    assert found.impossible == 0
    assert found.released == sum(index is not None for output in outputs for index in output)
    assert found.some is not None
    assert found.some.rise == pytest.approx(worst_some(policy, problem, outputs), abs=1e-9)


def test_nothing_is_never_less_than_nothing() -> None:
    """Over no steps the probability is 0, and not -0."""
    adversary = Adversary(mask_sensitive(chains.coin(), sensitive={"s"}))
    assert str(adversary.some([], "x", [])) == "0.0"


def worst_some(policy: Policy, problem: Problem, outputs: list[oracle.Output]) -> float:
    """The largest rise of the belief in a sensitive context at some step at which it is sensitive."""
    silent = oracle.Vector(np.ones((problem.chain.horizon, problem.chain.size)))
    worst = -1.0
    for s in {index for _, index, _ in problem.limits}:
        window = sorted({step for step, index, _ in problem.limits if index == s})
        (before,) = oracle.some(silent, problem.chain, s, window).values()
        after = oracle.some(policy, problem.chain, s, window)
        worst = max(worst, *(after[output] - before for output in outputs))
    return worst


@FAST
@given(problem=chains.problems(), delta=chains.DELTAS)
def test_breaches_are_those_of_the_audit(problem: Problem, delta: float) -> None:
    """The two count the same."""
    policy = mask_sensitive(problem.chain, sensitive=frozenset(problem.sensitive))
    days = [problem.chain.sample(seeded(k)) for k in range(4)]
    adversary = Adversary(policy)
    rises = [belief - adversary.prior for belief in (adversary.beliefs(MaskIt(policy).filter_day(day)) for day in days)]
    assume(all(abs(rise - delta).min() > 1e-7 for rise in rises))
    assert breaches(policy, days, delta) == audit(policy, days, delta=delta).total.breaches


def test_days_off_the_model_are_told_apart() -> None:
    """What the chain rules out is outside the promise, and said to be."""
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[1, 0], [0, 1]]])
    deltas = np.array([[np.nan, 0.2], [np.nan, np.nan]])
    policy = VectorPolicy(Provenance("by hand", chain, deltas, (), 1.0), np.array([[1, 1], [0, 0.0]]))
    days: list[list[str | None]] = [["s", "s"], ["s", "gym"], ["x", None], ["x", "x"]]
    found = audit(policy, days)
    on, off = found.on_model, found.off_model
    assert [day.on_model for day in found.days] == [True, False, False, True]
    assert (on.days, on.visits, on.breaches, on.impossible) == (2, 1, 1, 0)
    assert (off.days, off.visits, off.breaches, off.impossible) == (2, 1, 0, 2)
    assert (off.off_model, off.gaps, off.gaps_off_model) == (1, 1, 1)


def test_a_breach_on_a_day_off_the_model() -> None:
    """The adversary takes a suppression that cannot be for the context that is always suppressed."""
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[1, 0], [0, 1]]])
    deltas = np.array([[np.nan, 0.2], [np.nan, 0.2]])
    policy = VectorPolicy(Provenance("by hand", chain, deltas, (), 1.0), np.array([[1, 1], [0, 1.0]]))
    found = audit(policy, [["s", "gym"]])
    assert (found.off_model.visits, found.off_model.breaches, found.off_model.impossible) == (1, 1, 0)
    assert found.on_model.days == 0


def test_several_adversaries() -> None:
    """The worst of those that the policy was made against counts, or of those that are asked for."""
    own = MarkovChain(["x", "s"], [0.5, 0.5], np.empty((0, 2, 2)))
    other = MarkovChain(["x", "s"], [0.9, 0.1], np.empty((0, 2, 2)))
    deltas = np.array([[np.nan, 0.6]])
    policy = VectorPolicy(Provenance("by hand", own, deltas, (own, other), 0.5), np.array([[0, 1.0]]))
    found = audit(policy, [["s"]])
    assert found.on_model.largest is not None
    assert found.on_model.largest.rise == pytest.approx(0.9)
    assert found.on_model.breaches == breaches(policy, [["s"]]) == 1
    alone = audit(policy, [["s"]], against=[own])
    assert alone.on_model.largest is not None
    assert alone.on_model.largest.rise == pytest.approx(0.5)
    assert alone.breaches == []


def test_an_output_that_an_adversary_rules_out() -> None:
    """The day is off that adversary's model, and its two gains are of the same beliefs."""
    own = MarkovChain(["x", "s"], [0.5, 0.5], np.empty((0, 2, 2)))
    other = MarkovChain(["x", "s"], [0.0, 1.0], np.empty((0, 2, 2)))
    policy = VectorPolicy(Provenance("by hand", own, np.array([[np.nan, 0.6]]), (other,), 0.5), np.zeros((1, 2)))
    found = audit(policy, [["x"]])
    assert (found.on_model.days, found.off_model.impossible) == (0, 1)
    assert found.off_model.largest is not None
    assert found.off_model.some is not None
    assert found.off_model.largest.rise == found.off_model.some.rise == -1.0  # the release is believed


def test_progress_and_iterators() -> None:
    """Days and windows may be read once only; each day is reported."""
    policy = hybrid(chains.two_paths(), sensitive={"s", "w"}, delta=0.1)
    done: list[int] = []
    found = audit(policy, iter([["a", "s", "j"]] * 4), window=iter(range(3)), progress=done.append)
    assert done == [1, 2, 3, 4]
    assert found.on_model.days == 4
    assert found.on_model.visits == 4
    assert found.on_model.some is not None


def test_no_days() -> None:
    """Nothing was learned."""
    found = audit(hybrid(chains.coin(), sensitive={"s"}, delta=0.1), [])
    assert (found.days, found.breaches, found.total.largest, found.total.some) == ((), [], None, None)


def test_an_audit_as_plain_data() -> None:
    policy = mask_sensitive(chains.phone_call(), sensitive={"phone call"})
    found = audit(policy, [["phone call", "coffee break"]], names=["mon"], delta=0.1, rng=seeded(1), ceiling=2.0)
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["on_model"]["breaches"] == 1
    assert plain["on_model"]["largest"] == {"rise": 0.5, "day": "mon", "step": 0, "context": "phone call"}
    assert plain["on_model"]["some"]["step"] is None
    assert plain["off_model"]["days"] == 0
    assert plain["breaches"] == [{"rise": 0.5, "day": "mon", "step": 0, "context": "phone call", "on_model": True}]
    assert plain["seeded"] is True


def test_days_have_names_and_every_name_a_day() -> None:
    policy = mask_sensitive(chains.coin(), sensitive={"s"})
    assert [day.day for day in audit(policy, [["s"], ["x"]], names=["mon", "tue"], delta=0.5).days] == ["mon", "tue"]
    with pytest.raises(ValueError, match="argument"):
        audit(policy, [["s"], ["x"]], names=["mon"], delta=0.5)


def test_a_day_may_leave_the_chain_in_silence() -> None:
    """Each context of the day is possible at its step; the move between them is not."""
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[1, 0], [0, 1]]])
    deltas = np.array([[np.nan, 0.2], [np.nan, 0.2]])
    policy = VectorPolicy(Provenance("by hand", chain, deltas, (), 0.0), np.ones((2, 2)))
    (day,) = audit(policy, [["s", "x"]]).days
    assert [decision.outcome for decision in day.decisions] == ["suppressed", "suppressed"]
    assert not day.on_model


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32), data=st.data())
def test_windows_reveal_what_whole_days_do(
    check: Callable[..., Policy], problem: Problem, seed: int, data: st.DataObject
) -> None:
    """On any days, also those that leave the chain: each window is judged once, and beliefs are those of the day."""
    policy = check(problem.chain, **problem.arguments)
    contexts = st.sampled_from((*problem.chain.contexts, None, "gym"))
    days = data.draw(st.lists(st.lists(contexts, min_size=policy.horizon, max_size=policy.horizon), max_size=3))
    adversary = Adversary(policy)
    for day in audit(policy, days, rng=seeded(seed)).days:
        outputs = [decision.output for decision in day.decisions]
        beliefs, impossible = adversary.beliefs_of_real_day(outputs)
        rise = np.where(np.isnan(policy.deltas), -np.inf, beliefs - adversary.prior)
        assert day.rises == pytest.approx(rise.max(axis=1), abs=1e-9)
        assert day.impossible == len(impossible)
        windows = {
            label: np.flatnonzero(~np.isnan(column))
            for label, column in zip(policy.contexts, policy.deltas.T, strict=True)
        }
        gains = [
            adversary.some_of_real_day(outputs, label, steps.tolist()) - adversary.some([], label, steps.tolist())
            for label, steps in windows.items()
            if len(steps)
        ]
        assert day.some is not None
        assert day.some.rise == pytest.approx(max(gains), abs=1e-9)


def test_the_ceiling_that_the_policy_knows() -> None:
    """It is told unless another is given."""
    chain = chains.coin()
    origin = Provenance("by hand", chain, np.array([[0.1, np.nan]]), (), 0.5, True, 0.8)
    policy = VectorPolicy(origin, np.ones((1, 2)))
    assert audit(policy, []).ceiling == 0.8
    assert audit(policy, [], ceiling=0.7).ceiling == 0.7


def test_a_mask_needs_a_delta() -> None:
    """It promises none."""
    policy = mask_sensitive(chains.coin(), sensitive={"s"})
    for function in (audit, breaches):
        with pytest.raises(ValueError, match="a mask_sensitive policy promises no delta: give delta="):
            function(policy, [["s"]])


@pytest.mark.parametrize("delta", [0.0, 1.0, -1, float("nan")])
def test_a_delta_is_a_delta(delta: float) -> None:
    """Between 0 and 1."""
    with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\): got"):
        breaches(mask_sensitive(chains.coin(), sensitive={"s"}), [["s"]], delta)


@pytest.mark.parametrize("window", [[-1], [3], range(4)])
def test_a_window_lies_in_the_day(window: list[int]) -> None:
    """Whatever is sensitive when."""
    policy = hybrid(chains.two_paths(), sensitive={(1, "s")}, delta=0.1)
    with pytest.raises(ValueError, match="leaves the day of 3 steps"):
        audit(policy, [], window=window)


def test_days_have_the_policys_length() -> None:
    """The first that has not is named."""
    policy = hybrid(chains.two_paths(), sensitive={"s"}, delta=0.1)
    with pytest.raises(ValueError, match="day 2 has 2 steps where the policy has 3"):
        audit(policy, [["a", "s", "j"], ["a", "s"]])


def test_a_policy_that_leaks_is_caught() -> None:
    """An automaton that counts on nobody seeing what it suppresses."""
    chain = chains.two_paths()
    problem = Problem(chain, frozenset({"s"}), 0.1)
    honest = adaptive(chain, **problem.arguments)
    assert isinstance(honest, Automaton)
    arrays = dict(honest.arrays())
    arrays["rows"] = np.where(arrays["rows"] < 1, 0.0, 1.0)
    leaky = Automaton.from_arrays(honest.provenance, arrays)
    days = [chain.sample(seeded(k)) for k in range(50)]
    assert audit(honest, days).breaches == []
    assert oracle.worst_excess(leaky, chain, problem.limits) > 0.01
    assert audit(leaky, days).breaches


def test_the_promise_about_an_adversary_holds_whatever_another_one_rules_out() -> None:
    """A day that one adversary's chain explains is judged for that adversary, and for no other."""
    transitions = [[[0.2, 0.4, 0.4], [0.1, 0.6, 0.3], [0.1, 0.3, 0.6]]] * 3
    stricter = [[[0.2, 0.4, 0.4], [0.1, 0.9, 0.0], [0.1, 0.0, 0.9]]] * 3
    own, other = (MarkovChain(["s", "a", "b"], [0.1, 0.5, 0.4], each) for each in (transitions, stricter))
    real = adaptive(own, sensitive={"s"}, delta=0.3, against=[own, other])
    policy = VectorPolicy(real.provenance, np.tile([1.0, 0.0, 0.0], (4, 1)))  # releases all but "s": breaks the promise
    rng = np.random.default_rng(1)
    days = [own_day(own, rng) for _ in range(100)]
    both, alone = audit(policy, days, rng=seeded(1)), audit(policy, days, rng=seeded(1), against=[own])
    assert both.on_model.days == alone.on_model.days == len(days)
    assert both.on_model.impossible > 0
    assert alone.on_model.breaches > 0
    assert {(gain.day, gain.step) for gain in alone.breaches} <= {(gain.day, gain.step) for gain in both.breaches}


def own_day(chain: MarkovChain, rng: np.random.Generator) -> list[str]:
    """A day that a chain produces."""
    at = [rng.choice(len(chain.contexts), p=chain.initial)]
    for step in chain.transitions:
        at.append(rng.choice(len(chain.contexts), p=step[at[-1]]))
    return [chain.contexts[each] for each in at]
