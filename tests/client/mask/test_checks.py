"""Every check on chains of all kinds, against the enumeration of all days and outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent_client import (
    Adversary,
    MarkovChain,
    Policy,
    adaptive,
    breaches,
    ceiling,
    hybrid,
    mask_sensitive,
    optimal,
    probabilistic,
    simulatable,
    split_delta,
)
from tests.client.checks import AGAINST, SEARCHING, VARIANTS, Compute, best_plan
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, SLOW, Problem

private_checks = pytest.mark.parametrize("check", VARIANTS)
searching_checks = pytest.mark.parametrize("check", SEARCHING)
checks_against = pytest.mark.parametrize("check", [*AGAINST, best_plan])
all_checks = pytest.mark.parametrize("check", [*VARIANTS, "mask"])


def computed(check: Compute | str, problem: Problem) -> Policy:
    """The policy of a check; the mask knows no delta."""
    if isinstance(check, str):
        return mask_sensitive(problem.chain, sensitive=frozenset(problem.sensitive))
    return check(problem.chain, **problem.arguments)


def labels(chain: MarkovChain, output: oracle.Output) -> list[str | None]:
    """An output as the adversary reads it."""
    return [None if i is None else chain.contexts[i] for i in output]


def assert_private(policy: Policy, problem: Problem) -> None:
    """No output that can occur lifts a belief above its limit."""
    excess = oracle.worst_excess(policy, problem.chain, problem.limits)
    assert excess <= oracle.TOLERANCE


def assert_known_to_the_adversary(policy: Policy, problem: Problem) -> None:
    """Adversary, prior and enumeration agree after every output and every beginning of one."""
    chain = problem.chain
    assert chain.prior == pytest.approx(oracle.priors(chain), abs=1e-12)
    adversary = Adversary(policy)
    expected = oracle.beliefs(policy, chain) | oracle.prefix_beliefs(policy, chain)
    for output, belief in expected.items():
        found = adversary.beliefs(labels(chain, output))
        assert found == pytest.approx(belief, abs=1e-9), labels(chain, output)


def assert_some_is_exact(policy: Policy, problem: Problem) -> None:
    """The belief in some step of a window is that of the enumeration, for every window."""
    chain, index = problem.chain, problem.limits[0].context
    for start in range(chain.horizon):
        window = range(start, min(start + 3, chain.horizon))
        for output, belief in oracle.some(policy, chain, index, window).items():
            found = Adversary(policy).some(labels(chain, output), chain.contexts[index], window)
            assert chains.close(found, belief)


def assert_literal(problem: Problem) -> None:
    """At every moment that can occur the greedy check decides as algorithm 4 does."""
    policy = simulatable(problem.chain, **problem.arguments)
    literal = oracle.Algorithm4(problem.chain, problem.limits)
    for (output, _), suppressions in oracle.decisions(policy, problem.chain).items():
        excess = literal.excess(output)
        assume(not 1e-14 < abs(excess) < 1e-7)
        assert suppressions == {0.0 if excess <= oracle.TOLERANCE else 1.0}


def vector_of(policy: Policy, chain: MarkovChain) -> oracle.Vector:
    """The suppressions of a policy that looks at the current context only, as it must."""
    seen: dict[tuple[int, int], set[float]] = {}
    for (output, index), suppressions in oracle.decisions(policy, chain).items():
        seen.setdefault((len(output), index), set()).update(suppressions)
    probabilities = np.ones((chain.horizon, len(chain.contexts)))
    for state, values in seen.items():
        (probabilities[state],) = values
    return oracle.Vector(probabilities)


def assert_minimal(problem: Problem) -> None:
    """Any suppression that is lowered by a thousandth of itself breaches a limit."""
    chain = problem.chain
    vector = vector_of(probabilistic(chain, **problem.arguments), chain)
    before = oracle.worst_excess(vector, chain, problem.limits)
    visible = (oracle.priors(chain) > 0) & (vector.probabilities > oracle.TOLERANCE)
    for step, index in zip(*np.nonzero(visible), strict=True):
        lowered = vector.lowered(step, index, 0.999)
        after = oracle.worst_excess(lowered, chain, problem.limits)
        assert after > max(before + 1e-13, -oracle.TOLERANCE), (step, index)


def assert_best_of_the_grid(problem: Problem, parts: int) -> None:
    """No vector of the grid is better: rounding may decide only where a limit is met exactly."""
    policy = probabilistic(problem.chain, search="exact", grid=parts, **problem.arguments)
    multiples = vector_of(policy, problem.chain).probabilities * parts
    assert multiples == pytest.approx(np.round(multiples), abs=1e-12)
    least = oracle.grid_optimum(problem.chain, problem.limits, parts, 1e-13)
    most = oracle.grid_optimum(problem.chain, problem.limits, parts, oracle.TOLERANCE)
    assert least - 1e-12 <= policy.utility <= most + 1e-12
    assert_private(policy, problem)


def assert_optimal(problem: Problem) -> None:
    """The check reaches the program over all causal policies and stays under the ceiling."""
    policy = optimal(problem.chain, **problem.arguments)
    bound = ceiling(problem.chain, **problem.arguments)
    most = oracle.causal_optimum(problem.chain, problem.limits)
    assert policy.complete
    assert chains.close(policy.utility, most, 1e-6)
    assert policy.utility <= bound + 1e-7
    assert bound >= most - 1e-6


def assert_optimal_or_incomplete(problem: Problem) -> None:
    """Where solvers struggle, the check may fall short, but then it says so.

    What is promised is delta and a tolerance of 1e-9, and on such chains that can be worth 1e-5 of a release. The
    program to compare with struggles as well: where its own policy breaches, it has promised too much.
    """
    policy = optimal(problem.chain, **problem.arguments)
    program = oracle.causal_program(problem.chain, problem.limits)
    allowed = [limit._replace(delta=limit.delta + oracle.TOLERANCE) for limit in problem.limits]
    assert policy.utility <= oracle.causal_optimum(problem.chain, allowed) + 1e-6
    if program.excess <= oracle.TOLERANCE:
        assert not policy.complete or policy.utility >= program.value - 1e-6
        assert ceiling(problem.chain, **problem.arguments) >= program.value - 1e-6


def assert_ordered(problem: Problem) -> None:
    """Each check does at least as well as those that see less."""
    chain, arguments = problem.chain, problem.arguments
    greedy, best = simulatable(chain, **arguments), best_plan(chain, **arguments)
    mixed, last = hybrid(chain, **arguments), adaptive(chain, **arguments)
    assert greedy.utility <= best.utility + 1e-9
    assert max(greedy.utility, probabilistic(chain, **arguments).utility) <= mixed.utility + 1e-7
    assert mixed.utility <= last.utility + 1e-7
    assert last.utility <= optimal(chain, **arguments).utility + 1e-7
    assert last.utility <= ceiling(chain, **arguments) + 1e-7


def assert_private_against(check: Compute, problem: Problem, others: list[MarkovChain]) -> None:
    """The limits hold for each adversary's chain, and the utility is the user's."""
    policy = check(problem.chain, against=others, **problem.arguments)
    for other in others:
        assert oracle.worst_excess(policy, other, problem.limits) <= oracle.TOLERANCE
    assert chains.close(policy.utility, oracle.utility(policy, problem.chain))


def assert_counted(problem: Problem) -> None:
    """The breaches of the mask are the sensitive states of the days whose belief rises too far."""
    chain, delta = problem.chain, problem.delta
    assert delta is not None
    policy = mask_sensitive(chain, sensitive=frozenset(problem.sensitive))
    limits = {(t, s) for t, s, _ in oracle.limits(chain, frozenset(problem.sensitive), delta)}
    prior, after = oracle.priors(chain), oracle.beliefs(policy, chain)
    expected = 0
    for day in oracle.days(chain):
        (output,) = oracle.outputs_of(policy, day)
        gains = [float((after[output] - prior)[t, s]) for t, s in limits if day[t] == s]
        assume(all(abs(gain - delta) > 1e-8 for gain in gains))
        expected += sum(gain > delta for gain in gains)
    real = [[chain.contexts[i] for i in day] for day in oracle.days(chain)]
    assert breaches(policy, real, delta) == expected


@all_checks
@FAST
@given(problem=chains.problems())
def test_a_policy_is_what_it_says_and_keeps_its_promise(check: Compute | str, problem: Problem) -> None:
    """Its utility is the expected number of releases, and the adversary believes what the enumeration says.

    After every output, and about windows. No belief rises above its limit, for labels, states and deltas of their own.
    """
    policy = computed(check, problem)
    assert chains.close(policy.utility, oracle.utility(policy, problem.chain))
    assert_known_to_the_adversary(policy, problem)
    assert_some_is_exact(policy, problem)
    if not isinstance(check, str):  # the mask promises nothing
        assert_private(policy, problem)


def test_the_mask_breaches() -> None:
    """Suppressing the sensitive context alone gives it away."""
    problem = Problem(chains.phone_call(), frozenset({"phone call"}), 1 / 6)
    with pytest.raises(AssertionError):
        assert_private(computed("mask", problem), problem)


@pytest.mark.parametrize("check", [probabilistic, adaptive, optimal])
def test_a_hundredth_less_is_caught(check: Compute) -> None:
    """On a coin the policies are tight: the oracle sees a suppression lowered by 1 %."""
    problem = Problem(chains.coin(), frozenset({"s"}), 1 / 4)
    vector = vector_of(check(problem.chain, **problem.arguments), problem.chain)
    assert oracle.worst_excess(vector.lowered(0, 1, 0.99), problem.chain, problem.limits) > 1e-4


@FAST
@given(problem=chains.problems())
def test_greedy_is_algorithm_4(problem: Problem) -> None:
    """The greedy simulatable check is the thesis's algorithm 4 to the letter."""
    assert_literal(problem)


@FAST
@given(problem=chains.problems(chains.PROGRAM, chains.MODERATE))
def test_probabilistic_vectors_are_minimal(problem: Problem) -> None:
    """No single suppression could be lower."""
    assert_minimal(problem)


@FAST
@given(problem=chains.problems(chains.GRID), parts=st.integers(1, 2))
def test_exact_search_is_the_best_of_the_grid(problem: Problem, parts: int) -> None:
    """The exact search finds what trying the whole grid finds."""
    assert_best_of_the_grid(problem, parts)


@FAST
@given(problem=chains.problems(chains.PROGRAM, chains.MODERATE))
def test_optimal_is_the_best_causal_policy(problem: Problem) -> None:
    """Nothing that does not see the future releases more, and the ceiling is above it."""
    assert_optimal(problem)


@FAST
@given(problem=chains.problems())
def test_checks_are_ordered(problem: Problem) -> None:
    """Simulatable and probabilistic, hybrid, adaptive, optimal, ceiling."""
    assert_ordered(problem)


@pytest.mark.parametrize("limit", [{"effort": 0}, {"time_limit": 0}, {"time_limit": 1e-4}])
@searching_checks
@FAST
@given(problem=chains.problems())
def test_no_time_to_search_is_private_all_the_same(check: Compute, limit: dict[str, Any], problem: Problem) -> None:
    """A search that is cut short at any moment returns a policy that keeps its promise."""
    policy = check(problem.chain, **limit, **problem.arguments)
    assert_private(policy, problem)
    assert chains.close(policy.utility, oracle.utility(policy, problem.chain))


@checks_against
@FAST
@given(data=st.data())
def test_private_against_each_of_several(check: Compute, data: st.DataObject) -> None:
    """Other beliefs replace the user's own chain, which measures the utility."""
    problem = data.draw(chains.problems())
    others = data.draw(st.lists(chains.beliefs_about(problem.chain), min_size=1, max_size=2))
    assert_private_against(check, problem, others)


@private_checks
@FAST
@given(chain=chains.chains(), delta=chains.DELTAS)
def test_one_delta_for_each_is_one_delta_for_all(check: Compute, chain: MarkovChain, delta: float) -> None:
    """A set with a delta, a mapping and a set of states ask for the same."""
    label = chain.contexts[0]
    states = {(step, label): delta for step in range(chain.horizon)}
    expected = check(chain, sensitive={label}, delta=delta).utility
    assert chains.close(check(chain, sensitive={label: delta}).utility, expected)
    assert chains.close(check(chain, sensitive=states).utility, expected)


@private_checks
@FAST
@given(chain=chains.chains(shapes=[(1, 4), (2, 3), (2, 4), (3, 3)]), delta=chains.DELTAS)
def test_split_delta_protects_some_of_several(check: Compute, chain: MarkovChain, delta: float) -> None:
    """At any one time the belief in one context or the other rises by delta at most."""
    share = split_delta(delta, 2)
    assert share == pytest.approx(delta / 2)
    policy = check(chain, sensitive=set(chain.contexts[:2]), delta=share)
    either = oracle.priors(chain)[:, :2].sum(axis=1)
    for belief in oracle.beliefs(policy, chain).values():
        assert (belief[:, :2].sum(axis=1) - either).max() <= delta + 2 * oracle.TOLERANCE


@FAST
@given(problem=chains.problems())
def test_breaches_of_the_mask_are_counted(problem: Problem) -> None:
    """On every day that can happen."""
    assert_counted(problem)


@private_checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32))
def test_a_private_policy_has_no_breaches(check: Compute, problem: Problem, seed: int) -> None:
    """Whatever the day and the coins."""
    policy = check(problem.chain, **problem.arguments)
    rng = np.random.default_rng(seed)
    days = [problem.chain.sample(rng) for _ in range(5)]
    assert breaches(policy, days, rng=rng) == 0


@pytest.mark.slow
@all_checks
@SLOW
@given(problem=chains.problems(chains.LARGE))
def test_policies_on_many_chains(check: Compute | str, problem: Problem) -> None:
    """What every policy must keep, on more and larger chains."""
    policy = computed(check, problem)
    assert chains.close(policy.utility, oracle.utility(policy, problem.chain))
    assert_known_to_the_adversary(policy, problem)
    if not isinstance(check, str):
        assert_private(policy, problem)


@pytest.mark.slow
@pytest.mark.parametrize("promise", [assert_literal, assert_ordered, assert_counted])
@SLOW
@given(problem=chains.problems(chains.LARGE))
def test_promises_on_many_chains(promise: Callable[[Problem], None], problem: Problem) -> None:
    """The promises of single checks, on more and larger chains."""
    promise(problem)


@pytest.mark.slow
@pytest.mark.parametrize("promise", [assert_minimal, assert_optimal])
@SLOW
@given(problem=chains.problems([*chains.PROGRAM, (4, 3)], chains.MODERATE))
def test_tight_promises_on_many_chains(promise: Callable[[Problem], None], problem: Problem) -> None:
    """The promises to be as good as possible, on more and larger chains."""
    promise(problem)


@pytest.mark.slow
@SLOW
@given(problem=chains.problems(chains.PROGRAM, chains.EXTREME))
def test_optimal_on_extreme_chains(problem: Problem) -> None:
    """The optimal check where some days hardly ever happen."""
    assert_optimal_or_incomplete(problem)


@pytest.mark.slow
@SLOW
@given(problem=chains.problems(chains.GRID), parts=st.integers(1, 3))
def test_exact_search_on_many_chains(problem: Problem, parts: int) -> None:
    """The exact search on more chains and finer grids."""
    assume(4**problem.chain.prior.size <= 4**6 or parts < 3)
    assert_best_of_the_grid(problem, parts)


@pytest.mark.slow
@checks_against
@SLOW
@given(data=st.data())
def test_private_against_many(check: Compute, data: st.DataObject) -> None:
    """Up to three other beliefs on more and larger chains."""
    problem = data.draw(chains.problems(chains.LARGE))
    others = data.draw(st.lists(chains.beliefs_about(problem.chain), min_size=1, max_size=3))
    assert_private_against(check, problem, others)
