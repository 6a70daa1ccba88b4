"""Whether a release is the sum of what phones contributed, to the unit: only a simulation knows all contributions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

import numpy as np

from reticent.privacy import CohortSum, Query, QueryBurnt, Release, estimate
from reticent_sim.engine.messages import Contributed

__all__ = ["NEVER_SENT", "WILD", "is_exact"]

MOST_SUBSETS = 1024
"""The most subsets that are tried of the contributions of which it is unknown whether they arrived."""
NEVER_SENT = {"garbage", "silence"}
"""The kinds of malicious phones whose contributions are never accepted."""
WILD = "wild"
"""The kind of malicious phones that contribute something else than their client has made."""


def is_exact(
    query: Query, release: Release, contributed: Sequence[Contributed], acknowledged: Collection[int]
) -> bool | None:
    """Whether a release is the sum of the contributions, each counted once; None if that cannot be known.

    Each acknowledged contribution must count. One that was sent without an acknowledgement may count.

    Args:
        query: The query.
        release: Its release.
        contributed: All contributions that phones have made.
        acknowledged: The phones whose contribution was acknowledged.
    """
    certain = [each for each in contributed if each.phone in acknowledged]
    unknown = [each for each in contributed if each.phone not in acknowledged and each.malice not in NEVER_SENT]
    missing = release.contributors - len(certain)
    if missing < 0 or missing > len(unknown):
        return False
    left_out = set(release.cohorts_left_out)
    counted = [each for each in (*certain, *unknown) if each.cohort not in left_out]
    if any(each.malice == WILD for each in counted):
        return None
    if math.comb(len(unknown), missing) > MOST_SUBSETS:
        return None
    return any(_equals(query, release, [*certain, *chosen]) for chosen in combinations(unknown, missing))


def _equals(query: Query, release: Release, contributed: Sequence[Contributed]) -> bool:
    sums = list(_sums(query, release, contributed))
    if any(each.sums is not None and not each.contributors for each in sums):
        return False
    try:
        expected = estimate(query, sums, seeded=True)
    except QueryBurnt:
        return False
    return (expected.value, expected.cohorts_outlying) == (release.value, release.cohorts_outlying)


def _sums(query: Query, release: Release, contributed: Sequence[Contributed]) -> Iterator[CohortSum]:
    """The sum of each cohort."""
    for cohort in range(query.cohorts):
        own = [each for each in contributed if each.cohort == cohort]
        total = np.sum([each.values + each.noise for each in own], axis=0, initial=0, dtype=np.int64)
        sums = np.broadcast_to(total, (query.size,)).tolist()
        yield CohortSum(len(own), None if cohort in release.cohorts_left_out else tuple(sums))
