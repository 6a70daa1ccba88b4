"""Ceilings, gaps and searches that stop early: what the optimal check promises however far it searched."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from benchmarks.chains import learned, visited
from reticent_client import TOLERANCE, MarkovChain, Policy, adaptive, mask_sensitive, optimal
from reticent_client.mask.chain import Floats
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.planning import planner, refinement, solver
from reticent_client.mask.planning.histories import CappedStates, Level
from reticent_client.mask.planning.programs import Program
from reticent_client.mask.policy import START
from tests.client.commands import Run, furnish, runner
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST, Problem

CHAIN = learned(12, 7, 40, 2)
PLACE = visited(CHAIN, 1)


def limit(patch: pytest.MonkeyPatch, histories: int) -> None:
    """Let searches have no more histories."""
    for name in ("RARE", "DAILY", "LAST"):
        patch.setattr(refinement, name, refinement.Extent(histories, histories, histories))


def test_programs_have_no_more_histories_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of three sensitive places, whose states are many."""
    sizes: list[int] = []

    class Counted(Program):
        def __init__(self, capped: CappedStates, levels: Sequence[Level], worth: Floats) -> None:
            sizes.append(sum(len(level.contexts) for level in levels))
            super().__init__(capped, levels, worth)

    monkeypatch.setattr(refinement, "Program", Counted)
    limit(monkeypatch, 300)
    chain = learned(10, 6, 40, 3)
    places = visited(chain, 3)
    policy = optimal(chain, sensitive=places, delta=0.1)
    assert 200 < max(sizes) <= 300
    assert oracle.worst_excess(policy, chain, oracle.limits(chain, places, 0.1)) <= TOLERANCE


@pytest.mark.parametrize(("size", "unlikely"), [(1, 0.05), (15, 0.05), (15, 0.0), (40, 0.0)])
@FAST
@given(problem=chains.problems(chains.PROGRAM, chains.MODERATE))
def test_small_programs_keep_the_promise_and_the_ceiling(size: int, unlikely: float, problem: Problem) -> None:
    """With programs too small for what matters, the policy is private, and no policy exceeds the ceiling."""
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, size)
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


def test_work_that_is_spent_early_leaves_some_for_the_first_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was spent on later ones, the window of the start is searched once, and thoroughly."""
    searched: list[tuple[int, float]] = []

    class Noted(refinement.Refinement):
        def begin(self, often: float, like: refinement.Refinement | None) -> None:
            searched.append((self._capped.window.start, often))
            super().begin(often, like)

    monkeypatch.setattr(planner, "Refinement", Noted)
    monkeypatch.setattr(planner, "BUDGET", 1_000)
    limit(monkeypatch, 30)  # the work of small programs is nothing
    chain = learned(12, 7, 40, 4)
    places = visited(chain, 1)
    assert (
        optimal(chain, sensitive=places, delta=0.1).utility > adaptive(chain, sensitive=places, delta=0.1).utility + 0.3
    )
    assert searched[0][1] > 0
    assert max(often for start, often in searched if start == 0) == 0
    assert searched[-1] == (START, 1.0)


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
