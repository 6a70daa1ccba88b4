"""Ceilings, gaps and searches that stop early: what the optimal check promises however far it searched."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from benchmarks.chains import learned, visited
from reticent_client import TOLERANCE, MarkovChain, Policy, adaptive, mask_sensitive, optimal
from reticent_client.mask.chain import Floats
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning import refinement, solver
from reticent_client.mask.planning.certificates import CeilingProof
from reticent_client.mask.planning.histories import Behaviour, CappedStates, Level, follow, merge
from reticent_client.mask.planning.prices import SmoothCeiling
from reticent_client.mask.planning.programs import END, Program
from reticent_client.mask.planning.refinement import Refinement
from reticent_client.mask.planning.solutions import evaluate, make_private
from reticent_client.mask.planning.windows import Window
from reticent_client.mask.policy import SILENT, START
from reticent_client.mask.problem import Problem as Asked
from tests.client.commands import Run, furnish, runner
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

CHAIN = learned(12, 7, 40, 2)
PLACE = visited(CHAIN, 1)


def to_the_end(chain: MarkovChain) -> Floats:
    """(T, n): the worth of a release if it and all that follow are released."""
    return np.repeat(np.arange(chain.horizon, 0.0, -1.0)[:, None], chain.size, axis=1)


@FAST
@given(data=st.data())
def test_any_prices_prove_a_ceiling(data: st.DataObject) -> None:
    """Whatever the bounds cost, and whatever is merged or forgotten: no causal policy is worth more than is proved."""
    problem = data.draw(chains.problems(chains.PROGRAM, chains.MODERATE))
    chain = problem.chain
    asked = Asked.of(chain, problem.arguments["sensitive"], problem.arguments.get("delta"))
    most = to_the_end(chain)
    capped = CappedStates(Window(asked, START, 0, most))
    until = [data.draw(st.integers(-1, chain.horizon)) for _ in range(len(capped))]
    capped.remembered = np.array(until, dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    levels = merge(capped, data.draw(st.sampled_from([0.0, 0.1, np.inf])), None)
    assert levels is not None
    if data.draw(st.booleans()):  # what another policy is likely to reach is followed
        policy = Behaviour(levels, [rng.random(len(level.contexts)) for level in levels])
        levels = merge(capped, 0.1, policy) or []
    capped.remembered = np.full(len(capped), -1)  # what is remembered later changes nothing
    numbers = range(len(capped) + len(capped.groups))
    at = [(END, 0), *((level.step, int(i)) for level in levels for i in np.unique(level.contexts))]
    prices = {(step, i, k): float(rng.exponential()) for step, i in at for k in numbers if rng.random() < 0.5}
    bound = CeilingProof.of(capped, levels, prices).bound(most)
    assert bound >= oracle.causal_optimum(chain, problem.limits) - 1e-9


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 8, 9])
def test_merging_and_forgetting_only_raise_the_bound(seed: int) -> None:
    """With the best prices, the bound of merged histories is as high as that of all histories, or higher."""
    chain = learned(8, 6, 60, seed)
    (place,) = visited(chain, 1)
    capped, levels = windows_of(chain, place, 0.02)
    most = to_the_end(chain)

    def bound(levels: list[Level]) -> float:
        plan = Program(capped, levels, most).solve((), Deadline())
        assert plan is not None
        return CeilingProof.of(capped, levels, plan.prices).bound(most)

    exact = bound(levels)
    merged = bound(merge(capped, np.inf, None) or [])
    assert exact < merged - 1e-6  # some states matter
    capped.remembered = np.minimum(capped.remembered, capped.steps + 3)
    forgetful = bound(follow(capped, 0.0, None) or [])
    assert forgetful >= exact - 1e-9


def test_programs_have_no_more_histories_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of three sensitive places, whose states are many."""
    sizes: list[int] = []

    class Counted(Program):
        def __init__(self, capped: CappedStates, levels: Sequence[Level], worth: Floats) -> None:
            sizes.append(sum(len(level.contexts) for level in levels))
            super().__init__(capped, levels, worth)

    monkeypatch.setattr(refinement, "Program", Counted)
    for name in ("SMALL", "SIZE", "LARGEST", "WIDE", "MOST"):
        monkeypatch.setattr(refinement, name, 300)
    chain = learned(10, 6, 40, 3)
    places = visited(chain, 3)
    policy = optimal(chain, sensitive=places, delta=0.1)
    assert 200 < max(sizes) <= 300
    assert oracle.worst_excess(policy, chain, oracle.limits(chain, places, 0.1)) <= TOLERANCE


def test_a_solver_that_runs_out_of_time_is_not_asked_again() -> None:
    """Each attempt has what is left of the time, not all of it."""
    now = 0.0
    tried: list[float] = []

    class Slow(solver.LinearProgram):
        def _attempt(self, tolerance: float, seconds: float, *, inside: bool) -> solver.Optimum | None:
            nonlocal now
            tried.append(seconds)
            now += 0.75 * seconds if len(tried) == 1 else seconds
            return None

    program = Slow(np.ones(1), csr_array(np.ones((1, 1))), np.ones(1))
    assert program.solve(Deadline(8, clock=lambda: now)) is None
    assert tried == [8, 2]
    assert program.solve(Deadline(0, clock=lambda: now)) is None
    assert len(tried) == 2


def windows_of(chain: MarkovChain, place: str, delta: float = 0.1) -> tuple[CappedStates, list[Level]]:
    """The first window of a chain, and all of its histories."""
    asked = Asked.of(chain, {place}, delta)
    capped = CappedStates(Window(asked, START, 0, np.ones((chain.horizon, chain.size))))
    capped.remembered = np.full(len(capped), chain.horizon)
    levels = follow(capped, 0.0, None)
    assert levels is not None
    return capped, levels


@dataclass
class Priced:
    """A window, with what each release is worth, and some prices."""

    capped: CappedStates
    levels: list[Level]
    most: Floats
    ceiling: SmoothCeiling
    prices: Floats

    @classmethod
    def random(cls, seed: int) -> "Priced":
        """A window of a random chain, some of its histories merged."""
        rng = np.random.default_rng(seed)
        chain = learned(8, 6, 60, seed)
        (place,) = visited(chain, 1)
        capped, _ = windows_of(chain, place, 0.02)
        levels = merge(capped, rng.choice([0.0, 0.05]), None) or []
        most = to_the_end(chain)
        ceiling = SmoothCeiling(capped, levels, most)
        return cls(capped, levels, most, ceiling, rng.exponential(size=len(ceiling._bounds)))

    def proved(self, prices: Floats) -> float:
        """The ceiling that some prices prove."""
        known = dict(zip(self.ceiling._bounds, prices.tolist(), strict=True))
        return CeilingProof.of(self.capped, self.levels, known).bound(self.most)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("softness", [0.01, 0.5])
def test_a_smoothed_ceiling_is_near_the_proved_one_and_has_its_slope(seed: int, softness: float) -> None:
    """It is above what the prices prove by a quarter of the softness for each step at most."""
    one = Priced.random(seed)
    smoothed, slope = one.ceiling._pass(one.prices, softness)
    assert 0 <= smoothed - one.proved(one.prices) + 1e-12 <= softness / 4 * len(one.levels)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        direction = rng.normal(size=len(slope))
        by = 1e-7
        ahead, behind = (one.ceiling._pass(one.prices + way * direction, softness)[0] for way in (by, -by))
        assert (ahead - behind) / (2 * by) == pytest.approx(slope @ direction, abs=2e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_prices_found_prove_nearly_the_lowest_ceiling(seed: int) -> None:
    """A linear program finds the lowest; without time, the first prices remain."""
    one = Priced.random(seed)
    plan = Program(one.capped, one.levels, one.most).solve((), Deadline())
    assert plan is not None
    lowest = CeilingProof.of(one.capped, one.levels, plan.prices).bound(one.most)
    first = one.proved(np.zeros(len(one.prices)))
    softnesses = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
    found = one.ceiling.lower({}, softnesses, 500, Deadline())
    bound = CeilingProof.of(one.capped, one.levels, found.prices).bound(one.most)
    assert lowest - 1e-9 <= bound <= lowest + 0.01 * (first - lowest)
    assert one.ceiling.lower(found.prices, softnesses, 500, Deadline(0)).prices == found.prices
    assert found.work > 0


@pytest.mark.parametrize("seed", [3, 8])
def test_a_solver_that_releases_next_to_nothing_of_a_history_spoils_no_solution(seed: int) -> None:
    """A belief on the strength of a billionth of a history would rest on rounding."""
    chain = learned(8, 6, 60, seed)
    (place,) = visited(chain, 1)
    capped, levels = windows_of(chain, place, 0.02)
    worth = np.ones((chain.horizon, chain.size))
    plan = Program(capped, levels, worth).solve((), Deadline())
    assert plan is not None
    best = make_private(capped, levels, plan.kept, plan.given)
    rng = np.random.default_rng(1)
    noise = [kept * 10.0 ** rng.uniform(-9, -8, len(kept)) for kept in plan.kept]
    kept = [kept - some for kept, some in zip(plan.kept, noise, strict=True)]
    given = [given + some for given, some in zip(plan.given, noise, strict=True)]
    found = make_private(capped, levels, kept, given)
    assert best is not None
    assert found is not None
    assert found.value(worth) == pytest.approx(best.value(worth), rel=1e-6)


@pytest.mark.parametrize(("part", "least"), [(1e-3, 0.99), (0.3, 0.45), (1.0, 0.2)])
def test_too_little_silence_is_mended_by_as_much_as_is_needed(part: float, least: float) -> None:
    """Part of what should stay suppressed to the end of the day is released; the result is private all the same."""
    chain = learned(8, 6, 60, 3)
    (place,) = visited(chain, 1)
    capped, levels = windows_of(chain, place, 0.02)
    worth = np.ones((chain.horizon, chain.size))
    plan = Program(capped, levels, worth).solve((), Deadline())
    assert plan is not None
    may = capped.window.problem.releasable[-1, levels[-1].contexts]
    moved = np.where(may, part * plan.kept[-1], 0.0)
    best = make_private(capped, levels, plan.kept, plan.given)
    found = make_private(
        capped, levels, [*plan.kept[:-1], plan.kept[-1] - moved], [*plan.given[:-1], plan.given[-1] + moved]
    )
    assert best is not None
    assert found is not None
    assert least * best.value(worth) < found.value(worth) < best.value(worth)
    assert -1e-3 < found.excess.max() <= 0


def test_a_window_begins_with_what_the_next_one_remembers() -> None:
    """The same states, up to the same steps, and no others; once it was searched itself, nothing changes."""
    chain = learned(8, 6, 60, 3)
    asked = Asked.of(chain, visited(chain, 1), 0.02)
    worth = to_the_end(chain)
    first, second = (Refinement(Window(asked, *state, worth)) for state in ((1, 2), (2, 2)))
    second.refine(worth, worth, Deadline())
    assert second.remembered
    first.begin_like(second)

    def states(of: Refinement) -> set[tuple[int, ...]]:
        capped = of._capped
        return {
            state
            for state in zip(capped.steps.tolist(), capped.contexts.tolist(), capped.remembered.tolist(), strict=True)
            if state[2] >= 0
        }

    assert states(first) == states(second)
    before = states(second)
    second.begin_like(Refinement(Window(asked, 3, 2, worth)))
    assert states(second) == before


def test_what_must_not_be_released_makes_a_solution_not_private() -> None:
    """The exact evaluation relies on nobody else."""
    capped, levels = windows_of(MarkovChain.uniform(["a", "b", "s"], 3), "s")
    silent = [np.ones(len(level.contexts)) for level in levels]
    assert evaluate(capped, levels, silent).private
    for depth, level in enumerate(levels):
        leaks = [each.copy() for each in silent]
        leaks[depth][level.contexts == 2] = 0.0
        assert not evaluate(capped, levels, leaks).private


def test_a_solution_of_a_day_of_a_thousand_steps_has_its_nodes() -> None:
    """A minute a step and more: a node for each step, and each leads to the next."""
    steps = 1_200
    stay = np.tile(np.eye(2), (steps - 1, 1, 1))
    chain = MarkovChain(["a", "b"], np.array([0.5, 0.5]), stay)
    capped, levels = windows_of(chain, "b")
    capped.remembered[:] = -1
    levels = follow(capped, 0.0, None) or []
    suppressed = [np.ones(len(level.contexts)) for level in levels]
    suppressed[-1][levels[-1].contexts == 0] = 0.5
    rows, onward = evaluate(capped, levels, suppressed).nodes()
    assert len(rows) == len(onward) == steps
    assert [row.tolist() for row in rows[-2:]] == [[1.0, 1.0], [0.5, 1.0]]
    assert onward[0] == [1, 1]
    assert onward[-1] == [SILENT, SILENT]


@pytest.mark.parametrize(("size", "unlikely"), [(1, 0.05), (15, 0.05), (15, 0.0), (40, 0.0)])
@FAST
@given(problem=chains.problems(chains.PROGRAM, chains.MODERATE))
def test_small_programs_keep_the_promise_and_the_ceiling(size: int, unlikely: float, problem: Problem) -> None:
    """With programs too small for what matters, the policy is private, and no policy exceeds the ceiling."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SMALL", "SIZE", "LARGEST", "WIDE", "MOST"):
            patch.setattr(refinement, name, size)
        for name, value in (("LIKELY", 0.6), ("UNLIKELY", unlikely)):
            patch.setattr(refinement, name, value)
        policy = optimal(problem.chain, **problem.arguments)
    assert oracle.worst_excess(policy, problem.chain, problem.limits) <= oracle.TOLERANCE
    assert chains.close(policy.utility, oracle.utility(policy, problem.chain))
    assert policy.ceiling is not None
    assert policy.ceiling >= oracle.causal_optimum(problem.chain, problem.limits) - 1e-6
    assert policy.complete == (policy.ceiling - policy.utility <= 1e-6)


@FAST
@given(problem=chains.problems(chains.PROGRAM, chains.MODERATE))
def test_an_older_scipy_finds_the_same(problem: Problem) -> None:
    """Where programs cannot be solved again from their optimum, the values are the same."""
    policy = optimal(problem.chain, **problem.arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "highs", None)
        slower = optimal(problem.chain, **problem.arguments)
    assert chains.close(policy.utility, slower.utility, 1e-6)
    assert oracle.worst_excess(slower, problem.chain, problem.limits) <= oracle.TOLERANCE


def test_a_gap_that_is_wide_enough_ends_the_search() -> None:
    """With each further sweep the value rises, the ceiling falls, and the last gap is within the wanted one."""
    reported: list[tuple[float, float]] = []
    policy = optimal(
        CHAIN, sensitive=PLACE, delta=0.1, gap=0.05, progress=lambda value, most: reported.append((value, most))
    )
    best = optimal(CHAIN, sensitive=PLACE, delta=0.1)
    assert policy.gap is not None
    assert best.gap is not None
    assert best.gap <= policy.gap <= 0.05
    assert policy.utility <= best.utility + 1e-9
    assert [value for value, _ in reported] == sorted(value for value, _ in reported)
    assert [most for _, most in reported] == sorted((most for _, most in reported), reverse=True)
    assert reported[0][1] - reported[0][0] > 0.05 * reported[0][1]


def test_nothing_is_searched_if_any_gap_will_do() -> None:
    """Then the adaptive policy is enough."""
    policy = optimal(CHAIN, sensitive=PLACE, delta=0.1, gap=0.999)
    assert policy.utility == pytest.approx(adaptive(CHAIN, sensitive=PLACE, delta=0.1).utility)
    assert not policy.complete


@pytest.mark.parametrize("gap", [-0.1, 1, float("nan")])
def test_a_gap_is_a_part(gap: float) -> None:
    with pytest.raises(ValueError, match=r"gap must lie in \[0, 1\)"):
        optimal(CHAIN, sensitive=PLACE, delta=0.1, gap=gap)


def test_an_interrupt_keeps_the_best_so_far() -> None:
    """No search is lost: the policy is private, no worse than the adaptive one, and knows its gap."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    policy = optimal(CHAIN, sensitive=PLACE, delta=0.1, progress=interrupt)
    assert policy.utility >= adaptive(CHAIN, sensitive=PLACE, delta=0.1).utility - 1e-9
    assert policy.ceiling is not None
    assert policy.ceiling >= optimal(CHAIN, sensitive=PLACE, delta=0.1).utility - 1e-6
    assert not policy.complete


def test_the_gap_of_a_policy_is_saved(tmp_path: Path) -> None:
    policy = optimal(CHAIN, sensitive=PLACE, delta=0.1, effort=0)
    policy.save(tmp_path / "p.npz")
    gap = Policy.load(tmp_path / "p.npz").gap
    assert policy.ceiling is not None
    assert gap == policy.gap == (policy.ceiling - policy.utility) / policy.ceiling > 0
    assert mask_sensitive(CHAIN, sensitive=PLACE).gap is None


def test_several_sensitive_places_are_counted_apart() -> None:
    """Of two sensitive places the optimum is found, and it is private."""
    chain = learned(4, 4, 40, 1)
    places = visited(chain, 2)
    limits = oracle.limits(chain, places, 0.1)
    policy = optimal(chain, sensitive=places, delta=0.1)
    assert policy.complete
    assert oracle.worst_excess(policy, chain, limits) <= TOLERANCE
    assert policy.utility == pytest.approx(oracle.causal_optimum(chain, limits), abs=1e-6)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program, in this process, in a folder with a chain."""
    furnish(tmp_path)
    CHAIN.save(tmp_path / "habits.json")
    monkeypatch.chdir(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def asked(*more: str) -> list[str]:
    """A command for the optimal policy of the habits."""
    (place,) = PLACE
    return ["policy", "habits.json", "--sensitive", place, "--delta", "0.1", "--check", "optimal", "-o", "p.npz", *more]


def test_the_command_line_stops_at_a_gap(run: Run, tmp_path: Path) -> None:
    facts = json.loads(run(*asked("--gap", "0.05", "--json")).stdout)
    policy = Policy.load(tmp_path / "p.npz")
    assert policy.gap is not None
    assert facts["gap"] == policy.gap <= 0.05
    assert facts["complete"] is policy.complete


def test_ctrl_c_saves_the_best_so_far(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(refinement.Refinement, "refine", interrupt)
    done = run(*asked())
    policy = Policy.load(tmp_path / "p.npz")
    assert policy.gap is not None
    assert f"the gap is {percent(policy.gap)}" in " ".join(done.stdout.split())
    assert "The search was cut short" in done.stdout


def test_a_chain_without_a_sensitive_step_has_no_gap() -> None:
    chain = MarkovChain.uniform(["a", "b"], 3)
    assert optimal(chain, sensitive={(0, "a"): 0.9}).gap == pytest.approx(0)
