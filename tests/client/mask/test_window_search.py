"""The search in one window: prices and the ceilings that they prove, and solutions and their privacy."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chains import learned, visited
from reticent_client import MarkovChain
from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning import solutions
from reticent_client.mask.planning.certificates import CeilingProof
from reticent_client.mask.planning.histories import Behaviour, CappedStates, Level, follow, merge
from reticent_client.mask.planning.prices import EXACT, SmoothCeiling
from reticent_client.mask.planning.programs import END, Program
from reticent_client.mask.planning.refinement import Refinement
from reticent_client.mask.planning.solutions import LEAST, Solution, evaluate, kept_within, make_private
from reticent_client.mask.planning.windows import Window
from reticent_client.mask.policy import SILENT, START
from reticent_client.mask.problem import SEARCH
from reticent_client.mask.problem import Problem as Asked
from tests.client.mask import chains, oracle
from tests.client.mask.chains import FAST


def windows_of(chain: MarkovChain, place: str, delta: float = 0.1) -> tuple[CappedStates, list[Level]]:
    """The first window of a chain, and all of its histories."""
    asked = Asked.of(chain, {place}, delta)
    capped = CappedStates(Window(asked, START, 0, np.ones((chain.horizon, chain.size))))
    capped.remembered = np.full(len(capped), chain.horizon)
    levels = follow(capped, 0.0, None)
    assert levels is not None
    return capped, levels


def of_seed(seed: int) -> tuple[CappedStates, list[Level]]:
    """The first window of a random chain."""
    chain = learned(8, 6, 60, seed)
    (place,) = visited(chain, 1)
    return windows_of(chain, place, 0.02)


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
    capped, levels = of_seed(seed)
    most = to_the_end(capped.window.problem.chain)

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


@dataclass
class Priced:
    """A window, with what each release is worth, and some prices."""

    capped: CappedStates
    levels: list[Level]
    most: Floats
    ceiling: SmoothCeiling
    prices: Floats

    @classmethod
    def random(cls, seed: int, unfold: Callable[..., list[Level] | None] = merge) -> "Priced":
        """A window of a random chain, some of its histories merged or lost."""
        rng = np.random.default_rng(seed)
        capped, _ = of_seed(seed)
        levels = unfold(capped, rng.choice([0.0, 0.05]), None) or []
        most = to_the_end(capped.window.problem.chain)
        ceiling = SmoothCeiling(capped, levels, most)
        return cls(capped, levels, most, ceiling, rng.exponential(size=len(ceiling._bounds)))

    def smoothed(self, prices: Floats, softness: float, near: Floats | None = None) -> tuple[float, Floats]:
        """The smoothed ceiling of some prices, perhaps near some shares, and its slope."""
        return self.ceiling._pass(prices, np.ones(len(prices)), self.ceiling._smoothing(softness, near))

    def some_shares(self, rng: np.random.Generator) -> Floats:
        """Shares released of all histories; of some all or nothing."""
        return np.clip(rng.uniform(-0.5, 1.5, sum(len(level.contexts) for level in self.levels)), 0.0, 1.0)

    def proved(self, prices: Floats) -> float:
        """The ceiling that some prices prove."""
        known = dict(zip(self.ceiling._bounds, prices.tolist(), strict=True))
        return CeilingProof.of(self.capped, self.levels, known).bound(self.most)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("softness", [0.01, 0.5])
def test_a_smoothed_ceiling_is_near_the_proved_one(seed: int, softness: float) -> None:
    """It is above what the prices prove by a quarter of the softness for each step at most."""
    one = Priced.random(seed)
    smoothed, _ = one.smoothed(one.prices, softness)
    most = softness * float(one.most.max()) / 4 * len(one.levels)
    assert 0 <= smoothed - one.proved(one.prices) + 1e-12 <= most


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("softness", [0.01, 0.5])
def test_a_smoothed_ceiling_near_a_policy_is_below_the_proved_one(seed: int, softness: float) -> None:
    """By the softness for each step at most; for the policy that the prices lead to, by nothing."""
    one = Priced.random(seed)
    proved = one.proved(one.prices)
    near = one.some_shares(np.random.default_rng(seed))
    smoothed, _ = one.smoothed(one.prices, softness, near)
    assert 0 < proved - smoothed <= softness * float(one.most.max()) * len(one.levels)
    _, best = one.ceiling._shares(one.prices, one.ceiling._smoothing(EXACT))
    assert one.smoothed(one.prices, softness, best)[0] == pytest.approx(proved)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unfold", [merge, follow])
@pytest.mark.parametrize("is_near", [False, True])
def test_a_smoothed_ceiling_has_its_slope(seed: int, unfold: Callable[..., list[Level] | None], is_near: bool) -> None:
    """Also of histories that are lost, and with room to spare for silence; units only stretch it."""
    one = Priced.random(seed, unfold)
    rng = np.random.default_rng(seed)
    one.ceiling.leave_room(rng.exponential(size=len(one.capped)))
    softness, near = 0.02, one.some_shares(rng) if is_near else None
    _, slope = one.smoothed(one.prices, softness, near)
    for _ in range(20):
        direction = rng.normal(size=len(slope))
        by = 1e-7
        ahead, behind = (one.smoothed(one.prices + way * direction, softness, near)[0] for way in (by, -by))
        assert (ahead - behind) / (2 * by) == pytest.approx(slope @ direction, abs=2e-5)
    units = rng.exponential(size=len(slope)) + 0.1
    assert one.ceiling._pass(one.prices / units, units, one.ceiling._smoothing(softness, near))[1] == pytest.approx(
        slope * units, rel=1e-6, abs=1e-12
    )


@pytest.mark.parametrize("seed", range(6))
def test_room_to_spare_lowers_the_ceiling_by_its_price(seed: int) -> None:
    """Only bounds on silence are tightened."""
    one = Priced.random(seed, follow)
    before, slope = one.smoothed(one.prices, 0.1)
    more = np.random.default_rng(seed).uniform(size=len(one.capped)) * one.capped.room / 2
    for _ in range(2):
        one.ceiling.leave_room(more / 2)
    after, steeper = one.smoothed(one.prices, 0.1)
    columns = [k if step == END and k < len(more) else -1 for step, _, k in one.ceiling._bounds]
    room = np.array([more[k] if k >= 0 else 0.0 for k in columns])
    assert room.any()
    assert before - after == pytest.approx(room @ one.prices)
    assert slope - steeper == pytest.approx(room)
    one.ceiling.leave_room(10 * one.capped.room)
    _, steepest = one.smoothed(one.prices, 0.1)
    half = np.array([one.capped.room[k] / 2 if k >= 0 else 0.0 for k in columns])
    assert slope - steepest == pytest.approx(half)


@pytest.mark.parametrize("seed", range(6))
def test_the_prices_found_prove_nearly_the_lowest_ceiling(seed: int) -> None:
    """A linear program finds the lowest; without time, the first prices remain."""
    one = Priced.random(seed)
    plan = Program(one.capped, one.levels, one.most).solve((), Deadline())
    assert plan is not None
    lowest = CeilingProof.of(one.capped, one.levels, plan.prices).bound(one.most)
    first = one.proved(np.zeros(len(one.prices)))
    before = first
    nearly = one.ceiling.approach({}, 1e-6, Deadline())
    again = one.ceiling.approach(nearly.prices, 1e-6, Deadline(), nearly.suppressed)
    for share, found in ((1.0, one.ceiling.lower({}, Deadline())), (0.002, again.prices)):
        bound = CeilingProof.of(one.capped, one.levels, found).bound(one.most)
        assert lowest - 1e-9 <= bound <= min(lowest + share * (first - lowest), before)
        before = bound
    assert one.ceiling.work > 0
    assert one.ceiling.lower(found, Deadline(0)) == found
    assert one.ceiling.approach(found, 0.0, Deadline(0)).prices == found


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 8, 9])
def test_the_policy_of_the_prices_found_is_nearly_private_and_nearly_the_best(seed: int) -> None:
    """Made private, it is worth nearly as much as the solution of a linear program, and room to spare helps."""
    capped, levels = of_seed(seed)
    worth = to_the_end(capped.window.problem.chain)
    best = best_of(capped, levels, worth).value(worth)
    ceiling = SmoothCeiling(capped, levels, worth)
    choices = ceiling.approach({}, 1e-6, Deadline())
    assert choices.value == pytest.approx(best, rel=1e-4)
    found, excess = make_private(capped, levels, choices.suppressed)
    assert found is not None
    assert found.private
    assert 0.999 * best <= found.value(worth) <= best + 1e-6
    ceiling.leave_room(1.5 * excess)
    again, _ = make_private(
        capped, levels, ceiling.approach(choices.prices, 1e-6, Deadline(), choices.suppressed).suppressed
    )
    assert again is not None
    assert 0.9999 * best <= again.value(worth) <= best + 1e-6


def test_without_bounds_the_best_policy_is_exact() -> None:
    """There is nothing to pay for, and no round that could sharpen soft choices."""
    chain = learned(8, 6, 60, 3)
    worth = np.random.default_rng(1).uniform(size=(chain.horizon, chain.size))
    capped = CappedStates(Window(Asked.of(chain, visited(chain, 1), 0.9), START, 0, worth))
    levels = merge(capped, 0.0, None) or []
    choices = SmoothCeiling(capped, levels, worth).approach({}, 0.0, Deadline())
    assert not choices.prices
    assert choices.value == pytest.approx(CeilingProof.of(capped, levels, {}).bound(worth))


def best_of(capped: CappedStates, levels: list[Level], worth: Floats) -> Solution:
    """The solution of a linear program."""
    plan = Program(capped, levels, worth).solve((), Deadline())
    assert plan is not None
    found, _ = make_private(capped, levels, plan.suppressed)
    assert found is not None
    return found


@FAST
@given(seed=st.integers(0, 2**32), histories=st.integers(2, 40), bounds=st.integers(1, 8))
def test_releases_change_by_as_little_as_keeps_the_bounds(seed: int, histories: int, bounds: int) -> None:
    """Those that keep them stay; those that nearly keep them lose nearly nothing; what is left keeps them."""
    rng = np.random.default_rng(seed)
    mass = rng.exponential(size=histories)
    share = rng.choice([0.0, 1.0, 0.5, 1e-8], size=histories, p=[0.2, 0.4, 0.3, 0.1])
    parts = rng.choice([-0.1, 0.9], size=(histories, bounds), p=[0.9, 0.1]) * rng.uniform(0.5, 1, (histories, bounds))
    found = kept_within(mass * share, mass, parts)
    assert (found @ parts).max() <= SEARCH * found.sum()
    assert (found <= mass).all()
    assert ((found == 0) | (found >= LEAST * mass)).all()
    assert kept_within(found, mass, parts).tolist() == found.tolist()
    disturbed = np.minimum(found * (1 + 1e-6 * rng.normal(size=histories)), mass)
    assert kept_within(disturbed, mass, parts).sum() >= (1 - 1e-3) * found.sum()


def test_releases_are_scaled_down_where_an_older_scipy_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its least squares fail on singular systems."""

    def fail(*_: object) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(solutions, "nnls", fail)
    capped, levels = of_seed(3)
    leaks = [np.full(len(level.contexts), 0.5) for level in levels]
    found, _ = make_private(capped, levels, leaks)
    assert found is not None
    assert found.private


@pytest.mark.parametrize("seed", [3, 8])
def test_a_solver_that_releases_next_to_nothing_of_a_history_spoils_no_solution(seed: int) -> None:
    """A belief on the strength of a billionth of a history would rest on rounding."""
    capped, levels = of_seed(seed)
    worth = to_the_end(capped.window.problem.chain)
    plan = Program(capped, levels, worth).solve((), Deadline())
    assert plan is not None
    best, _ = make_private(capped, levels, plan.suppressed)
    rng = np.random.default_rng(1)
    noisy = [share * (1 - 10.0 ** rng.uniform(-9, -8, len(share))) for share in plan.suppressed]
    found, _ = make_private(capped, levels, noisy)
    assert best is not None
    assert found is not None
    assert found.value(worth) == pytest.approx(best.value(worth), rel=1e-6)


@pytest.mark.parametrize(("part", "least"), [(1e-3, 0.99), (0.3, 0.45), (1.0, 0.2)])
def test_too_little_silence_is_mended_by_as_much_as_is_needed(part: float, least: float) -> None:
    """Part of what should stay suppressed to the end of the day is released; the result is private all the same."""
    capped, levels = of_seed(3)
    worth = np.ones((capped.window.problem.chain.horizon, capped.window.problem.chain.size))
    plan = Program(capped, levels, worth).solve((), Deadline())
    assert plan is not None
    may = capped.window.problem.releasable[-1, levels[-1].contexts]
    fewer = np.where(may, (1 - part) * plan.suppressed[-1], plan.suppressed[-1])
    best, _ = make_private(capped, levels, plan.suppressed)
    found, excess = make_private(capped, levels, [*plan.suppressed[:-1], fewer])
    assert best is not None
    assert found is not None
    assert least * best.value(worth) < found.value(worth) < best.value(worth)
    assert -1e-3 < found.excess.max() <= 0 < excess.max()


def test_a_bound_that_stays_may_rest_on_other_releases() -> None:
    """Later windows are blamed for their part of a gap by the releases of the last search, not of the first."""
    chain = learned(8, 6, 60, 3)
    worth = to_the_end(chain)
    search = Refinement(Window(Asked.of(chain, visited(chain, 1), 0.02), START, 0, worth))
    levels = merge(search._capped, 0.0, None) or []
    for share in (1.0, 0.0):
        search._learn(levels, {}, [np.full(len(level.contexts), share) for level in levels], worth)
    assert search.hoped is not None
    assert search.hoped.sum() == pytest.approx(1.0)


def test_a_window_begins_with_what_the_next_one_remembers() -> None:
    """The same states, up to the same steps, and their prices; once it was searched itself, nothing changes."""
    chain = learned(8, 6, 60, 3)
    asked = Asked.of(chain, visited(chain, 1), 0.02)
    worth = to_the_end(chain)
    first, second = (Refinement(Window(asked, *state, worth)) for state in ((1, 2), (2, 2)))
    second.refine(worth, worth, Deadline())
    assert second.remembered
    first.begin(1.0, second)

    def states(of: Refinement) -> set[tuple[int, ...]]:
        capped = of._capped
        return {
            state
            for state in zip(capped.steps.tolist(), capped.contexts.tolist(), capped.remembered.tolist(), strict=True)
            if state[2] >= 0
        }

    def prices(of: Refinement) -> set[tuple[int, int, int, int, float]]:
        capped = of._capped
        return {
            (step, context, int(capped.steps[number]), int(capped.contexts[number]), price)
            for (step, context, number), price in of._prices.items()
            if number < len(capped)
        }

    assert states(first) == states(second)
    assert prices(first) == prices(second) != set()
    before = states(second)
    second.begin(1.0, Refinement(Window(asked, 3, 2, worth)))
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
