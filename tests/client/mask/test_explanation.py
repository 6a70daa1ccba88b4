"""Why something is suppressed, against beliefs that were worked out by hand or by enumeration."""

import itertools
import json
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client import (
    MarkovChain,
    Policy,
    adaptive,
    hybrid,
    mask_sensitive,
    optimal,
    probabilistic,
    simulatable,
)
from reticent_client.mask.explanation import ContextExplanation, Effect, Hidden, explain
from reticent_client.mask.explanation_text import reason
from reticent_client.mask.occupancy import release_probabilities
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.checks import PRIVATE
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

checks = pytest.mark.parametrize("check", PRIVATE)


def explanations(policy: Policy, step: int, released: tuple[int, str] | None = None) -> dict[str, ContextExplanation]:
    """The answers of an explanation, by context."""
    return {explanation.context: explanation for explanation in explain(policy, step, released).contexts}


# What is released on an average day


@checks
@FAST
@given(problem=chains.problems())
def test_releases_are_those_of_the_enumeration(check: Callable[..., Policy], problem: Problem) -> None:
    """For each state; together they are the utility."""
    policy = check(problem.chain, **problem.arguments)
    expected = np.zeros((policy.horizon, len(policy.contexts)))
    for output, behind in oracle.joint(policy, problem.chain).items():
        for t, index in enumerate(output):
            if index is not None:
                expected[t, index] += sum(behind.values())
    assert release_probabilities(policy) == pytest.approx(expected, abs=1e-9)
    assert release_probabilities(policy).sum() == pytest.approx(policy.utility, abs=1e-7)


# Suppressions


@checks
@FAST
@given(problem=chains.problems(), data=st.data())
def test_suppressions_are_those_of_the_enumeration(
    check: Callable[..., Policy], problem: Problem, data: st.DataObject
) -> None:
    """On average over all days with that last release, which is the likeliest by then."""
    policy = check(problem.chain, **problem.arguments)
    step = data.draw(st.integers(0, policy.horizon - 1))
    found = explain(policy, step)
    masses = last_releases(policy, step)
    likeliest = max(sum(behind.values()) for behind in masses.values())
    key = None if found.released is None else (found.released[0], policy.index(found.released[1]))
    here = masses[key]
    assert sum(here.values()) == pytest.approx(likeliest, abs=1e-9)
    assert found.likelihood == pytest.approx(likeliest, abs=1e-9)
    seen = {index: mass for (index, _), mass in here.items()}
    for explanation in found.contexts:
        index = policy.index(explanation.context)
        assert (explanation.suppression is None) == (index not in seen)
        if explanation.suppression is not None:
            present = sum(mass for (i, _), mass in here.items() if i == index)
            away = sum(mass for (i, suppressed), mass in here.items() if i == index and suppressed)
            assert explanation.suppression == pytest.approx(away / present, abs=1e-7)


Last = tuple[int, int] | None


def last_releases(policy: Policy, step: int) -> dict[Last, dict[tuple[int, bool], float]]:
    """By the last release before a step: how likely each context is there, suppressed or not."""
    found: dict[Last, dict[tuple[int, bool], float]] = {}
    for output, behind in oracle.joint(policy, policy.chain).items():
        before = [(t, index) for t, index in enumerate(output[:step]) if index is not None]
        here = found.setdefault(before[-1] if before else None, {})
        for day, mass in behind.items():
            key = day[step], output[step] is None
            here[key] = here.get(key, 0.0) + mass
    return found


# Reasons


def assert_reveals(
    effect: Effect | None, place: tuple[str, int, str], numbers: tuple[float, float, float], adversary: int
) -> None:
    """Which state it is about, when; prior, belief and bound; and whose belief it is."""
    assert effect is not None
    assert (effect.context, effect.step, effect.when) == place
    assert (effect.prior, effect.belief, effect.bound) == pytest.approx(numbers)
    assert effect.adversary == adversary


def test_two_paths_reasons() -> None:
    """After a: s is sensitive, z covers it, j would tell s in between and k covers j."""
    policy = adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1)
    first = explanations(policy, 0)
    assert {label: first[label].reason for label in "ab"} == {"a": "released", "b": "released"}
    assert_reveals(first["a"].release, ("s", 1, "after"), (0.47, 0.5, 0.57), 0)
    assert first["s"].reason == "impossible"
    second = explanations(policy, 1, (0, "a"))
    assert second["s"].reason == "reveals"
    assert_reveals(second["s"].release, ("s", 1, "now"), (0.47, 1.0, 0.57), 0)
    assert second["z"].reason == "cover"
    assert_reveals(second["z"].silence, ("s", 1, "now"), (0.47, 1.0, 0.57), 0)
    third = explanations(policy, 2, (0, "a"))
    assert third["j"].reason == "reveals"
    assert_reveals(third["j"].release, ("s", 1, "before"), (0.47, 1.0, 0.57), 0)
    assert third["k"].reason == "cover"


def test_what_comes_after_may_be_the_reason() -> None:
    """Whoever is seen at x is in s later, whatever is suppressed then."""
    chain = chains.layered({"x": 0.2, "y": 0.8}, {"x": {"s": 1.0}, "y": {"z": 1.0}})
    explanation = explanations(hybrid(chain, sensitive={"s"}, delta=0.1), 0)["x"]
    assert explanation.reason == "reveals"
    assert_reveals(explanation.release, ("s", 1, "after"), (0.2, 1.0, 0.3), 0)


def test_a_mask_masks() -> None:
    """It bounds nothing, and hides what is sensitive."""
    found = explanations(mask_sensitive(chains.coin(), sensitive={"s"}), 0)
    assert (found["s"].reason, found["x"].reason) == ("mask", "released")
    assert found["s"].release == Effect("s", 0, "now", 0.5, 1.0, None, 0)


def test_the_adversary_that_matters_is_named() -> None:
    """A release may be fine for one and too much for another."""
    own = MarkovChain(["x", "y"], [0.5, 0.5], [[[0.9, 0.1], [0.9, 0.1]]])
    other = MarkovChain(["x", "y"], [0.5, 0.5], [[[0.9, 0.1], [0.1, 0.9]]])
    deltas = np.array([[np.nan, np.nan], [np.nan, 0.2]])
    policy = VectorPolicy(Provenance("by hand", own, deltas, (own, other), 0.0), np.ones((2, 2)))
    found = explanations(policy, 0)
    assert_reveals(found["y"].release, ("y", 1, "after"), (0.5, 0.9, 0.7), 1)
    assert found["y"].reason == "reveals"
    assert found["x"].reason == "cover"


@checks
@FAST
@given(problem=chains.problems())
def test_private_policies_never_release_what_tells(check: Callable[..., Policy], problem: Problem) -> None:
    """What would tell too much is suppressed: always, unless the policy knows more than the last release."""
    policy = check(problem.chain, **problem.arguments)
    for step in range(policy.horizon):
        for explanation in explain(policy, step).contexts:
            reveals = explanation.release is not None and explanation.release.excessive
            if reveals and check is not optimal:
                assert explanation.suppression == 1
            assert reveals == (explanation.reason == "reveals")
            assert not (reveals and explanation.suppression == 0)


# Questions


def test_only_some_contexts() -> None:
    """In the order in which they are asked for."""
    policy = adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1)
    assert [explanation.context for explanation in explain(policy, 1, contexts=["z", "a"]).contexts] == ["z", "a"]


def test_since_the_start() -> None:
    """As if nothing had been released."""
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
    policy = probabilistic(chain, sensitive={"s"}, delta=0.25)
    assert explain(policy, 1, "start").released is None
    assert explain(policy, 1, "start").likelihood is None
    assert explain(policy, 1, (0, "x")).released == (0, "x")


@pytest.mark.parametrize(
    ("step", "released", "contexts", "sentence"),
    [
        (3, None, None, "step 3 lies outside the day of 3 steps"),
        (-1, None, None, "step -1 lies outside the day of 3 steps"),
        (1, (1, "a"), None, "the last release must lie before step 1: got step 1"),
        (1, (-1, "a"), None, "the last release must lie before step 1: got step -1"),
        (1, (0, "gym"), None, "unknown context 'gym'"),
        (1, None, ["gym"], "unknown context 'gym'"),
        (1, "start", None, "the policy always releases something between that release and step 1"),
    ],
)
def test_questions_without_an_answer(
    step: int, released: tuple[int, str] | Literal["start"] | None, contexts: list[str] | None, sentence: str
) -> None:
    """One sentence says why."""
    policy = adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1)
    with pytest.raises(ValueError, match=sentence):
        explain(policy, step, released, contexts=contexts)


def test_plain_data() -> None:
    """JSON, with the reasons."""
    plain = explain(adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1), 1).to_json()
    assert json.loads(json.dumps(plain)) == json.loads(json.dumps(plain, allow_nan=False))
    assert plain["step"] == 1
    assert plain["released"] == (0, "a")
    assert {explanation["context"]: explanation["reason"] for explanation in plain["contexts"]}["s"] == "reveals"


RELEASING = "releasing raises the belief in 's' at 12:00 from 10% to at most 20%"
TOO_MUCH = "would raise the belief in 's' at 12:00 from 10% to 20% (limit 15%)"
SILENCE = "suppressing it would raise the belief in 's' at 00:00 from 10% to 50% (limit 30%)"


@pytest.mark.parametrize(
    ("bound", "explanation", "sentence"),
    [
        (0.3, {"suppression": 0.0}, f"{RELEASING} (limit 30%)"),
        (0.15, {"suppression": 1.0}, f"releasing {TOO_MUCH}"),
        (0.15, {"suppression": 0.5}, f"always releasing {TOO_MUCH}"),
        (
            None,
            {"suppression": 1.0, "sensitive": True},
            f"sensitive, and always masked; {RELEASING}",
        ),
        (
            0.3,
            {"suppression": 0.5, "silence": Effect("s", 0, "before", 0.1, 0.5, 0.3, 0)},
            (f"cover: {RELEASING} (limit 30%); but if it were always released, {SILENCE}"),
        ),
        (
            0.3,
            {"suppression": 1.0},
            (f"cover: {RELEASING} (limit 30%); but the check found no private policy that releases it more often"),
        ),
        (0.3, {"suppression": None}, "impossible, given the last release"),
    ],
)
def test_sentences(bound: float | None, explanation: dict[str, Any], sentence: str) -> None:
    """What a person reads."""
    release = Effect("s", 1, "now", 0.1, 0.2, bound, 0)
    facts: dict[str, Any] = {"sensitive": False, "silence": None} | explanation
    assert reason(ContextExplanation("x", release=release, **facts), 2) == sentence


def test_cover_names_what_it_hides() -> None:
    """Where no single suppression says why: the contexts whose release would reveal too much, and when."""
    chain = chains.layered({"s": 0.25, "x": 0.25, "y": 0.25, "z": 0.25})
    found = explain(simulatable(chain, sensitive={"s"}, delta=0.2), 0)
    assert found.hidden == Hidden(0, ("s",))
    assert found.to_json()["hidden"] == {"step": 0, "contexts": ("s",)}
    assert [each.reason for each in found.contexts] == ["reveals", "cover", "cover", "cover"]
    assert reason(found.contexts[1], 1, found.hidden).endswith("must not tell it apart from 's' at 00:00")


def test_cover_for_what_comes_later() -> None:
    """Nothing at this step would reveal too much; something at the next one would."""
    rows = np.array([[[0, 0.5, 0, 0.5], [0, 0, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0]]])
    chain = MarkovChain(["a", "b", "c", "s"], [0.5, 0.25, 0.25, 0], rows)
    silent = VectorPolicy(Provenance("by hand", chain, np.full((2, 4), [np.nan] * 3 + [0.3]), (), 0.0), np.ones((2, 4)))
    found = explain(silent, 0)
    assert [each.reason for each in found.contexts] == ["cover", "cover", "cover", "impossible"]
    assert found.hidden == Hidden(1, ("s",))


def test_nothing_to_tell() -> None:
    """Where what is sensitive lies behind."""
    chain = chains.layered({"s": 0.5, "x": 0.5}, {"s": {"y": 0.5, "z": 0.5}, "x": {"y": 0.5, "z": 0.5}})
    policy = simulatable(chain, sensitive={(0, "s")}, delta=0.5)
    assert explain(policy, 0).contexts[0].release is not None
    later = explanations(policy, 1, (0, "x"))
    assert all(later[label].release is None for label in "yz")
    assert reason(later["y"], 2) == "releasing reveals nothing"
    assert [a.reason for a in itertools.chain(later.values())].count("released") == 2
