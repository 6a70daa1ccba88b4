"""The phone's side of a policy: gaps, surprises, wrong steps, snapshots, stores and threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import secure, seeded
from reticent_client import (
    MarkovChain,
    MaskIt,
    Policy,
    StepError,
    adaptive,
    hybrid,
    optimal,
    probabilistic,
    simulatable,
)
from reticent_client.policy import Automaton, Memory, Provenance, ReleaseTimes, VectorPolicy
from reticent_client.report import MAX_LABELS, MAX_LENGTH
from tests.client import chains, oracle
from tests.client.chains import FAST, Problem

CHECKS: list[Callable[..., Policy]] = [simulatable, probabilistic, hybrid, adaptive, optimal]

checks = pytest.mark.parametrize("check", CHECKS)


def vector(chain: MarkovChain, table: Any = None) -> VectorPolicy:
    """A policy that suppresses by a table: nothing at all unless given."""
    zeros = np.zeros((chain.horizon, len(chain.contexts)))
    origin = Provenance("by hand", chain, zeros + 0.5, (), 0.0)
    return VectorPolicy(origin, zeros if table is None else np.asarray(table, float))


def commute() -> MarkovChain:
    """Home, then by bus or bike to work; nobody goes back."""
    labels = ["home", "bus", "bike", "work"]
    away = [[0, 0.5, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0]]
    return MarkovChain(labels, [1, 0, 0, 0], [away] * 4)


# What is released


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32))
def test_releases_what_the_policy_can_release(check: Callable[..., Policy], problem: Problem, seed: int) -> None:
    """Whatever comes out could have come out of the policy, and nothing is counted as a surprise."""
    policy = check(problem.chain, **problem.asked)
    mask = MaskIt(policy, seeded(seed))
    day = problem.chain.sample(seeded(seed, "day"))
    output = tuple(None if label is None else policy.index(label) for label in map(mask.observe, day))
    assert output in oracle.outputs_of(policy, tuple(map(policy.index, day)))
    report = mask.report()
    assert (report.off_model, report.missing, report.missed, report.dark) == (0, 0, 0, 0)
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


# Surprises


@pytest.mark.parametrize("day", [["home", "gym", "bus"], ["gym", "bus", "work"], ["home", "bus", "gym"]])
def test_an_unknown_label_is_suppressed_and_reported(day: list[str]) -> None:
    """It neither raises nor passes through, and what follows is decided as before."""
    mask = MaskIt(vector(commute()))
    assert [mask.observe(label) for label in day] == [None if label == "gym" else label for label in day]
    report = mask.report()
    assert report.off_model == 1
    assert report.off_model_contexts == (("gym", 1),)


def test_a_context_that_the_last_release_rules_out_is_suppressed() -> None:
    """From bike nobody takes the bus, although others may be on it."""
    mask = MaskIt(vector(commute()))
    day = ["home", "bike", "bus", "work", "home"]
    assert [mask.observe(label) for label in day] == ["home", "bike", None, "work", None]
    assert mask.report().off_model_contexts == (("bus", 1), ("home", 1))


def test_possible_is_what_the_last_release_leaves() -> None:
    """While nothing is released, all that the chain allows since is possible, however the user got there."""
    table = np.zeros((5, 4))
    table[1] = 1
    mask = MaskIt(vector(commute(), table))
    day = ["home", "bike", "bus", "work", "work"]
    assert [mask.observe(label) for label in day] == ["home", None, "bus", "work", "work"]
    assert mask.report().off_model == 0


def test_a_surprise_leaves_what_is_possible_to_the_last_release() -> None:
    """It is not taken at its word."""
    mask = MaskIt(vector(commute()))
    day = ["home", "bike", "bus", "bus", "bike"]
    assert [mask.observe(label) for label in day] == ["home", "bike", None, None, "bike"]


def test_a_state_that_is_never_reached_is_suppressed() -> None:
    """Even as the first of a day."""
    mask = MaskIt(vector(commute()))
    assert mask.filter_day(["bus", "bus", "bus", "bus", "bus"])[0] is None


def test_a_surprise_at_a_bound_release_ends_in_silence() -> None:
    """A simulatable policy that could not release when it had to has checked nothing later."""
    chain = commute()
    every = np.repeat(np.arange(6)[:, None], 4, axis=1)  # release at every step
    policy = ReleaseTimes(vector(chain).provenance, every.astype(np.int32))
    assert MaskIt(policy).filter_day(["home", "bus", "bus", "work", "work"]) == ["home", "bus", "bus", "work", "work"]
    assert MaskIt(policy).filter_day(["home", "bus", "gym", "work", "work"]) == ["home", "bus", None, None, None]
    assert MaskIt(policy).filter_day(["home", "bus", "bike", "work", "work"]) == ["home", "bus", None, None, None]


def test_a_surprise_moves_the_memory_of_an_automaton() -> None:
    """A known context advances the policy as suppressed; an unknown label is taken for any that is known."""
    advanced: list[tuple[int, int, bool]] = []

    class Spy(VectorPolicy):
        def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
            advanced.append((t, index, released))
            return memory

    policy = vector(commute())
    mask = MaskIt(Spy(policy.provenance, policy.table))
    mask.filter_day(["home", "gym", "home", "bus", None])
    assert advanced == [(0, 0, True), *((1, i, False) for i in range(4)), (2, 0, False), (3, 1, True)]


FORBIDDEN = MarkovChain(["x", "s"], [0.5, 0.5], np.full((3, 2, 2), 0.5))


@pytest.mark.parametrize("check", [adaptive, optimal])
@pytest.mark.parametrize("day", [["x", "mars", "s", "x"], ["mars", "x", "s", "x"], ["mars", "mars", "s", "x"]])
def test_nothing_sensitive_is_released_after_an_unknown_label(check: Callable[..., Policy], day: list[str]) -> None:
    """The memory moves on, and does not answer for a step at which s may be released."""
    policy = check(FORBIDDEN, sensitive={(2, "s")}, delta=0.1)
    assert isinstance(policy, Automaton)
    outputs = [MaskIt(policy, seeded(seed)).filter_day(day) for seed in range(50)]
    assert {output[2] for output in outputs} == {None}
    assert MaskIt(policy, seeded(1)).filter_day(["x", "s", "x", "x"])[1] == "s"  # which another step may release


def test_a_vector_goes_on_after_an_unknown_label() -> None:
    """It remembers nothing that could be lost."""
    policy = probabilistic(FORBIDDEN, sensitive={(2, "s")}, delta=0.1)
    assert MaskIt(policy).filter_day(["x", "mars", "s", "x"]) == ["x", None, None, "x"]
    assert MaskIt(vector(FORBIDDEN)).filter_day(["x", "mars", "s", "x"]) == ["x", None, "s", "x"]


def test_the_report_names_only_some_contexts() -> None:
    """However many there are, and however long."""
    chain = MarkovChain(["x"], [1], np.ones((99, 1, 1)))
    mask = MaskIt(vector(chain))
    mask.filter_day([f"{i} " * 100 for i in range(100)])
    report = mask.report()
    assert report.off_model == 100
    assert len(report.off_model_contexts) == MAX_LABELS
    assert all(len(label) == MAX_LENGTH for label, _ in report.off_model_contexts)
    assert len(mask.snapshot()) < 3000


@pytest.mark.parametrize("context", [3, b"home", ["home"], 0.5])
def test_what_is_no_label_is_a_mistake_of_the_app(context: Any) -> None:
    """It raises, and nothing has happened."""
    mask = MaskIt(vector(commute()))
    with pytest.raises(TypeError, match="a context is a string, or None"):
        mask.observe(context)
    assert mask.step == 0
    assert mask.report().steps == 0


# Gaps


def test_no_reading_is_a_context_where_the_chain_knows_it() -> None:
    """Learned like any other, released like any other, and impossible where it never was."""
    chain = MarkovChain.fit([["home", None, "work"], ["home", "work", "work"]])
    mask = MaskIt(vector(chain))
    assert [mask.observe(label) for label in ["home", None, "work"]] == ["home", "unknown", "work"]
    mask.next_day()
    assert [mask.observe(label) for label in ["home", "work", None]] == ["home", "work", None]
    report = mask.report()
    assert (report.missing, report.off_model_contexts) == (0, (("unknown", 1),))


def test_no_reading_elsewhere_is_a_missed_step() -> None:
    """A vector goes on; a policy that may have released does not."""
    chain = commute()
    day = ["home", None, "bus", "work", "work"]
    mask = MaskIt(vector(chain))
    assert mask.filter_day(day) == ["home", None, "bus", "work", "work"]
    assert (mask.report().missing, mask.report().dark) == (1, 0)
    n = len(chain.contexts)
    nodes = np.zeros((chain.horizon + 1, n), np.int32)
    automaton = Automaton(vector(chain).provenance, np.zeros((1, n)), np.zeros((1, n), np.int32), nodes)
    mask = MaskIt(automaton)
    assert mask.filter_day(day) == ["home", None, None, None, None]
    assert (mask.report().missing, mask.report().dark) == (1, 3)
    assert mask.filter_day(["home", "bus", "bus", "work", "work"]) == ["home", "bus", "bus", "work", "work"]


def test_missed_steps_where_the_policy_would_have_been_silent_anyway() -> None:
    """Nothing is lost: the memory is what it would have been."""
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]] * 3)
    policy = simulatable(chain, sensitive={(1, "s"), (2, "s")}, delta=0.1)
    assert MaskIt(policy).filter_day(["x", "x", "x", "x"]) == ["x", None, None, "x"]
    mask = MaskIt(policy)
    assert mask.observe("x") == "x"
    assert mask.observe("x", step=3) == "x"
    assert mask.report().missed == 2
    mask.next_day()
    assert mask.observe("x", step=3) is None  # the release at step 0 was missed
    assert mask.dark


def test_a_missed_step_still_moves_what_is_possible() -> None:
    """From home nobody is at work in one step, but in two."""
    mask = MaskIt(vector(commute()))
    assert mask.observe("home") == "home"
    assert mask.observe("work", step=2) == "work"
    mask.next_day()
    assert mask.observe("home") == "home"
    assert mask.observe("work", step=1) is None


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
    ("step", "said"),
    [
        (1, "step 1 is over: the next step is 2"),
        (0, "step 0 is over: the next step is 2"),
        (-1, "step -1 lies outside the day of 5 steps"),
        (5, "step 5 lies outside the day of 5 steps"),
    ],
)
def test_wrong_steps_are_refused(step: int, said: str) -> None:
    """With both numbers, and nothing has happened."""
    mask = MaskIt(vector(commute()))
    mask.observe("home")
    mask.observe("bus")
    before = mask.snapshot()
    with pytest.raises(StepError, match=f"^{said}$"):
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
    policy = check(problem.chain, **problem.asked)
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
        "dark": 0,
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
    }
    assert report.off_model_rate == 1 / 6
    assert str(report) == (
        "2 days: released 4 of 10 steps (40%), suppressed 1, off-model 1, missing 1, missed 3; "
        "off-model contexts: 'gym' 1; seeded, for simulation only"
    )


def test_an_empty_report() -> None:
    """Nothing has happened yet."""
    assert str(MaskIt(vector(commute())).report()) == "0 days: released 0 of 0 steps, suppressed 0"
