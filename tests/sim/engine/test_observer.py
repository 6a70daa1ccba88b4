"""What an adversary learns from released streams: each leak counts, and only days without a promise are left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from reticent_client import MarkovChain, MaskIt, Schedule, adaptive
from reticent_sim.engine.broken_promises import broken_promises
from reticent_sim.engine.messages import MaskLeakage, Measure, Published
from reticent_sim.engine.observer import TOLERANCE, measured
from reticent_sim.engine.policies import KINDS, Policies
from reticent_sim.engine.scenario import Scenario
from reticent_sim.world.people import Day
from reticent_sim.world.world import World

HOME, OFFICE, WARD = "home", "office", "ward"
DELTA = 0.1
CHAIN = MarkovChain(
    [HOME, OFFICE, WARD],
    [0.9, 0.1, 0.0],
    [[[0.95, 0.0, 0.05], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]],
)
"""The user is at the ward with 0, 0.095 and 0.0475; the office, which often leads there, is never released."""
DAYS: list[Day] = [[HOME, HOME, HOME], [HOME, WARD, HOME], [HOME, WARD, WARD], [OFFICE, OFFICE, OFFICE]]
"""Days that the chain allows."""
POLICY = adaptive(CHAIN, sensitive={WARD}, delta=DELTA)


MISSED = object()
"""A step at which a phone published nothing."""


def leakage(lived: Day, stream: Sequence[object], check: str = "adaptive", read: Day | None = None) -> MaskLeakage:
    """What an adversary learns about one day of one phone, which read the contexts where its user was unless given."""
    published = [
        None if context is MISSED else Published(0, step, cast("str | None", context), place)
        for step, (context, place) in enumerate(zip(stream, lived if read is None else read, strict=True))
    ]
    person = SimpleNamespace(day=lambda _: lived, routine=0, sensitive=frozenset({WARD}))
    policies = SimpleNamespace(
        chain=lambda _routine, _kind: CHAIN, schedule=lambda _check, _routine: Schedule(dict.fromkeys(KINDS, POLICY))
    )
    request = Measure({4: {0: published}}, "adaptive", (check,), DELTA)
    world = cast("World", SimpleNamespace(seed=1, person=lambda _: person))
    return measured(request, world, cast("Policies", policies))[0]


def problems(*found: MaskLeakage) -> list[str]:
    return list(broken_promises(Scenario(delta=DELTA), found, [], faults=False))


def test_a_stream_that_the_policy_releases_keeps_the_promise() -> None:
    found = leakage([HOME, WARD, WARD], [HOME, None, None])
    assert found.rises[4] == [pytest.approx(DELTA)]
    assert (found.breaches, found.strayed, found.released, found.steps) == (0, 0, 1, 3)
    assert problems(found) == []


def test_the_release_of_a_sensitive_context_is_the_worst_leak() -> None:
    """Its policy rules it out."""
    found = leakage([HOME, WARD, WARD], [HOME, None, WARD])
    assert found.rises[4] == [pytest.approx(1 - 0.0475)]
    assert (found.breaches, found.forbidden, found.strayed) == (1, 1, 0)
    assert problems(found) == [
        "the check adaptive let a belief rise by 0.9525: more than delta = 0.1",
        "the check adaptive must suppress 1 of the contexts that phones released",
    ]


def test_a_rise_while_the_user_is_elsewhere_breaks_the_promise() -> None:
    """The adversary sees the office, and wrongly expects the ward."""
    found = leakage([OFFICE, OFFICE, OFFICE], [OFFICE, None, None])
    assert found.largest == pytest.approx(0.5 - 0.095)
    assert found.breaches == 0
    assert len(problems(found)) == 2  # the office is forbidden, too


def test_phones_without_a_mask_promise_nothing() -> None:
    found = leakage([HOME, WARD, HOME], [HOME, None, None], check="none")
    assert found.rises[4] == [pytest.approx(1 - 0.095)]
    assert found.breaches == 1
    assert problems(found) == []


@pytest.mark.parametrize(
    ("lived", "stream"),
    [([HOME, OFFICE, WARD], [HOME, None, WARD]), ([HOME, HOME, HOME], [HOME, HOME, None])],
    ids=["the habits rule out the day", "the policy rules out the suppression"],
)
def test_days_without_a_promise_are_left_out(lived: Day, stream: Day) -> None:
    found = leakage(lived, stream)
    assert (found.rises[4], found.released, found.forbidden, found.strayed) == ([], 0, 0, 1)


def test_what_a_mask_publishes_around_missed_steps_keeps_the_promise() -> None:
    """A phone was off or its disk full: the step is no suppression, and says nothing."""
    for lived, missed, coin in product(DAYS, product([False, True], repeat=3), (0.0, 0.3, 0.999)):
        mask = MaskIt(POLICY, cast("np.random.Generator", SimpleNamespace(random=lambda coin=coin: coin)))
        stream = [
            MISSED if gap else mask.observe(context, step=step)
            for step, (context, gap) in enumerate(zip(lived, missed, strict=True))
        ]
        found = leakage(lived, stream)
        assert (len(found.rises[4]), found.forbidden, found.strayed) == (1, 0, 0), stream
        assert found.largest <= DELTA + TOLERANCE, stream


def test_a_forbidden_release_after_a_missed_step_is_a_problem() -> None:
    found = leakage([HOME, HOME, WARD], [HOME, MISSED, WARD])
    assert (found.breaches, found.forbidden, found.strayed) == (1, 1, 0)
    assert len(problems(found)) == 2


def test_a_phone_with_a_wrong_clock_is_judged_by_what_it_read() -> None:
    """Its user went to the office and to the ward, which the habits rule out; the phone read them a step later."""
    lived: Day = [HOME, OFFICE, WARD]
    found = leakage(lived, [HOME, MISSED, HOME], read=[HOME, None, HOME])
    assert (len(found.rises[4]), found.strayed) == (1, 0)
    found = leakage(lived, [HOME, MISSED, WARD], read=[HOME, None, WARD])
    assert (found.breaches, found.forbidden) == (1, 1)
