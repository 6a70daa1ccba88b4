"""A release is compared, to the unit, with the contributions of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import CohortSum, Query, Release, estimate
from reticent.randomness import seeded
from reticent_analyst import Handle
from reticent_sim.engine import exactness
from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.exactness import is_exact
from reticent_sim.engine.messages import Contributed
from tests.parties.queries import bits

PHONES, COHORTS = 12, 3
ALL = range(PHONES)


def query() -> Query:
    return bits(2, population=PHONES, cohorts=COHORTS, min_contributions=2, liars=0)


def made(malice: dict[int, str] | None = None) -> list[Contributed]:
    """A contribution of each phone, which it has scaled down to a third."""
    rng = seeded(1, "exactness")
    kinds = malice or {}
    return [
        Contributed(phone, "q", phone % COHORTS, 3 * values, values, noise, kinds.get(phone))
        for phone, values, noise in zip(
            ALL, rng.integers(0, 2, (PHONES, 2)), rng.integers(-3, 4, (PHONES, 2)), strict=True
        )
    ]


def released(
    contributed: Sequence[Contributed],
    *,
    left_out: Collection[int] = (),
    change: Callable[[list[int]], object] = list.copy,
) -> Release:
    """The release of servers that have counted these contributions, each as often as it is in the list.

    Args:
        contributed: What they have counted.
        left_out: Cohorts that are burnt or void.
        change: Changes the sum of the first cohort.
    """
    sums = []
    for cohort in range(COHORTS):
        own = [each for each in contributed if each.cohort == cohort]
        total = sum((each.values + each.noise for each in own), np.zeros(2, dtype=np.int64)).tolist()
        if cohort == 0:
            change(total)
        sums.append(CohortSum(len(own), None if cohort in left_out else tuple(total)))
    return estimate(query(), sums, seeded=True)


def test_a_release_of_all_contributions_is_exact() -> None:
    assert is_exact(query(), released(made()), made(), ALL) is True


@given(step=st.integers(-3, 3).filter(bool), counter=st.integers(0, 1))
def test_a_sum_that_is_off_by_a_unit_is_not_exact(step: int, counter: int) -> None:
    def off(total: list[int]) -> None:
        total[counter] += step

    assert is_exact(query(), released(made(), change=off), made(), ALL) is False


@given(st.data())
def test_a_contribution_that_counts_twice_or_not_at_all_is_not_exact(data: st.DataObject) -> None:
    """Also if another one is missing, so that the number of contributors is right."""
    contributed = made()
    twice, lost = data.draw(st.permutations(contributed))[:2]
    rest = [each for each in contributed if each is not lost]
    assert is_exact(query(), released([*contributed, twice]), contributed, ALL) is False
    assert is_exact(query(), released(rest), contributed, ALL) is False
    if twice.cohort == lost.cohort and list(twice.values + twice.noise) != list(lost.values + lost.noise):
        assert is_exact(query(), released([*rest, twice]), contributed, ALL) is False


@given(arrived=st.sets(st.integers(0, 3)))
def test_a_contribution_without_an_acknowledgement_may_count_or_not(arrived: set[int]) -> None:
    """Of phones 0 to 3, nobody knows whether their message has arrived."""
    contributed = made()
    counted = [each for each in contributed if each.phone in arrived or each.phone > 3]
    acknowledged = range(4, PHONES)
    assert is_exact(query(), released(counted), contributed, acknowledged) is True
    assert (
        is_exact(query(), released(counted, change=lambda total: total.__setitem__(0, 99)), contributed, acknowledged)
        is False
    )


@pytest.mark.parametrize(("most", "expected"), [(54, None), (55, True)])
def test_too_many_unknown_arrivals_are_not_tried(most: int, expected: bool | None) -> None:
    """Two of eleven have arrived."""
    contributed = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactness, "MOST_SUBSETS", most)
        assert is_exact(query(), released(contributed[:COHORTS]), contributed, [0]) is expected


def test_any_number_of_unknown_arrivals_is_tried_if_all_have_arrived() -> None:
    contributed = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactness, "MOST_SUBSETS", 1)
        assert is_exact(query(), released(contributed), contributed, [0]) is True


@pytest.mark.parametrize("kind", ["garbage", "silence"])
def test_contributions_that_are_never_accepted_must_not_count(kind: str) -> None:
    contributed = made({5: kind})
    honest = [each for each in contributed if each.phone != 5]
    acknowledged = [each.phone for each in honest]
    assert is_exact(query(), released(honest), contributed, acknowledged) is True
    assert is_exact(query(), released(contributed), contributed, acknowledged) is False


@pytest.mark.parametrize("kind", ["garbage", "silence"])
def test_the_truth_is_that_of_the_phones_that_contributed_before_they_scale_down(kind: str) -> None:
    contributed = made({4: kind})
    honest = [each for each in contributed if each.phone != 4]
    assert contributed[4].values.any()
    handle = cast("Handle", SimpleNamespace(query=query(), progress=None))
    acknowledged = [each.phone for each in honest]
    outcome = CountOutcome.of(handle, released(honest), contributed, acknowledged, day=0, seconds=1.0)
    assert outcome.exact is True
    assert outcome.truth == tuple(np.sum([each.counted for each in honest], axis=0).tolist())


def test_wild_values_leave_it_open_unless_their_cohort_is_left_out() -> None:
    contributed = made({5: "wild"})
    assert is_exact(query(), released(contributed), contributed, ALL) is None
    assert is_exact(query(), released(contributed, left_out=[5 % COHORTS]), contributed, ALL) is True
    assert is_exact(query(), released(contributed, left_out=[0]), contributed, ALL) is None


def test_a_cohort_that_is_left_out_is_not_compared() -> None:
    contributed = made()
    release = released(contributed, left_out=[0], change=lambda total: total.__setitem__(0, 99))
    assert is_exact(query(), release, contributed, ALL) is True
    assert is_exact(query(), release, contributed[1:], ALL) is False


def test_an_arrival_that_leaves_a_cohort_empty_is_ruled_out() -> None:
    """Of the last phone of a cohort, nobody knows whether its message has arrived; that of another cohort has not."""
    contributed = [each for each in made() if each.cohort != 0 or each.phone == 0]
    counted = [each for each in contributed if each.phone != 4]
    acknowledged = [each.phone for each in counted if each.phone != 0]
    assert is_exact(query(), released(counted), contributed, acknowledged) is True
