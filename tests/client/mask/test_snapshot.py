"""A mask that is replaced by its snapshot goes on as if nothing had been."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import FileError, MaskIt, Policy, StepError, adaptive, hybrid
from tests.client.mask import chains
from tests.client.mask.chains import FAST, Problem
from tests.client.mask.masks import checks, commute, vector


@checks
@FAST
@given(problem=chains.problems(), seed=st.integers(0, 2**32), data=st.data())
def test_restored_at_every_step(check: Callable[..., Policy], problem: Problem, seed: int, data: st.DataObject) -> None:
    """A mask that is replaced by its snapshot before every step decides as one that is not."""
    policy = check(problem.chain, **problem.arguments)
    labels = st.sampled_from([*policy.contexts, "gym", None])
    day = data.draw(st.lists(labels, min_size=policy.horizon, max_size=policy.horizon))
    rng, other = seeded(seed), seeded(seed)
    steady, snapshot = MaskIt(policy, rng), MaskIt(policy, other).snapshot()
    for label in day:
        restored = MaskIt(policy, other)
        restored.restore(snapshot)
        assert restored.observe(label) == steady.observe(label)
        snapshot = restored.snapshot()
        assert snapshot == steady.snapshot()
        report = restored.report()
        assert report == replace(steady.report(), off_model_contexts=report.off_model_contexts)


def test_a_restored_step_may_be_asked_for_again() -> None:
    """The answer is the stored one, with no new coin; after the next step it is not."""
    seen = set()
    for seed in range(20):
        mask = MaskIt(vector(commute(), np.full((5, 4), 0.5)), seeded(seed))
        mask.observe("home")
        outcome = mask.observe("bus")
        seen.add(outcome)
        again = MaskIt(mask.policy)
        again.restore(mask.snapshot())
        assert again.observe("bike", step=1) == outcome
        for step in (0, 1):
            with pytest.raises(StepError, match=f"step {step} is over"):
                again.observe("bus", step=step)
    assert seen == {"bus", None}


def test_a_fresh_snapshot_has_no_step_to_repeat() -> None:
    """Step -1 is none."""
    mask = MaskIt(vector(commute()))
    mask.restore(mask.snapshot())
    with pytest.raises(StepError, match="step -1 lies outside"):
        mask.observe("home", step=-1)


def test_a_snapshot_is_small() -> None:
    """Whatever the policy."""
    mask = MaskIt(adaptive(commute(), sensitive={"bus"}, delta=0.1))
    mask.filter_day(["home", "bus", "bus", "work", "work"])
    assert len(mask.snapshot()) < 1000


def test_a_seed_stays_in_the_report() -> None:
    """Counts that were made with a seed are not made secure by a restart."""
    mask = MaskIt(vector(commute()), seeded(1))
    mask.observe("home")
    restored = MaskIt(mask.policy)
    restored.restore(mask.snapshot())
    assert restored.report().seeded


def test_another_policys_snapshot_is_refused() -> None:
    """However similar."""
    one, other = (hybrid(commute(), sensitive={"bus"}, delta=delta) for delta in (0.1, 0.11))
    mask = MaskIt(other)
    before = mask.snapshot()
    with pytest.raises(FileError, match="belongs to another policy"):
        mask.restore(MaskIt(one).snapshot())
    assert mask.snapshot() == before


def damaged(snapshot: str) -> Iterator[str]:
    """Every way to cut a snapshot short or to change one character of it."""
    for position in range(len(snapshot)):
        yield snapshot[:position]
        yield snapshot[:position] + chr(ord(snapshot[position]) ^ 1) + snapshot[position + 1 :]


def test_damaged_snapshots_are_refused() -> None:
    """Any character, any length, and the mask stays as it was."""
    mask = MaskIt(vector(commute()))
    mask.observe("home")
    before = mask.snapshot()
    for text in damaged(before):
        with pytest.raises(FileError, match=r"damaged|not a stored state|format version"):
            mask.restore(text)
    assert mask.snapshot() == before


def test_newer_and_foreign_snapshots_are_refused() -> None:
    """With a sentence that says which."""
    mask = MaskIt(vector(commute()))
    newer = json.dumps(json.loads(mask.snapshot()) | {"version": 2})
    with pytest.raises(FileError, match="format version 2: this program reads 1"):
        mask.restore(newer)
    for foreign in ("{}", "[]", "null", json.dumps(commute().to_json())):
        with pytest.raises(FileError, match="not a stored state written by Reticent"):
            mask.restore(foreign)
    for damage in ("", "{", "[" * 100_000):
        with pytest.raises(FileError, match="not a stored state written by Reticent"):
            mask.restore(damage)
