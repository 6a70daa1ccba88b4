"""What the phone's side of a policy makes of what the chain does not know, and of no reading at all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, adaptive, optimal, probabilistic, simulatable
from reticent_client.mask.policy import Automaton, Memory, ReleaseTimes, VectorPolicy
from reticent_client.mask.report import MAX_LABELS, MAX_LENGTH
from tests.client.mask.masks import commute, vector


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


def test_an_unknown_label_that_leaves_several_memories_possible_ends_in_silence() -> None:
    class Noting(VectorPolicy):
        """Remembers the last context."""

        def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
            return (index,)

    policy = vector(commute())
    mask = MaskIt(Noting(policy.provenance, policy.table))
    mask.observe("home")
    assert not mask.suspended
    mask.observe("gym")
    assert mask.suspended


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
    assert (mask.report().missing, mask.report().suspended) == (1, 0)
    n = len(chain.contexts)
    nodes = np.zeros((chain.horizon + 1, n), np.int32)
    automaton = Automaton(vector(chain).provenance, np.zeros((1, n)), np.zeros((1, n), np.int32), nodes)
    mask = MaskIt(automaton)
    assert mask.filter_day(day) == ["home", None, None, None, None]
    assert (mask.report().missing, mask.report().suspended) == (1, 3)
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
    assert mask.suspended


def test_a_missed_step_still_moves_what_is_possible() -> None:
    """From home nobody is at work in one step, but in two."""
    mask = MaskIt(vector(commute()))
    assert mask.observe("home") == "home"
    assert mask.observe("work", step=2) == "work"
    mask.next_day()
    assert mask.observe("home") == "home"
    assert mask.observe("work", step=1) is None
