"""The outcome of a query in a simulation, beside the contributions that only a simulation knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from reticent.privacy import Query, QueryBurnt, Release
from reticent_analyst import Handle, Progress
from reticent_sim.engine.exactness import NEVER_SENT, is_exact
from reticent_sim.engine.messages import Contributed

__all__ = ["CountOutcome"]


@dataclass(frozen=True)
class CountOutcome:
    """A query that was decided.

    Args:
        progress: The query, its contributors and the outcomes of its cohorts.
        day: The day.
        release: What was released; None if the query was burnt.
        burnt: Why it was burnt.
        acknowledged: The phones whose contributions were acknowledged.
        exact: Whether the release is, to the unit, the sum of what the phones contributed; None if that is not known.
        truth: (counters,): the sums of the phones' counters, before any phone scales its contribution down; without the
            malicious phones whose contributions never arrive.
        seconds: Real seconds from the first round to the decision.
    """

    progress: Progress
    day: int
    release: Release | None
    burnt: str | None
    acknowledged: int
    exact: bool | None
    truth: tuple[float, ...]
    seconds: float

    @property
    def query(self) -> Query:
        """The query."""
        return self.progress.query

    @classmethod
    def of(
        cls,
        handle: Handle,
        result: Release | QueryBurnt,
        contributed: Sequence[Contributed],
        acknowledged: Collection[int],
        *,
        day: int,
        seconds: float,
    ) -> CountOutcome:
        """The outcome of a decided query.

        Args:
            handle: The query.
            result: Its release, or why there is none.
            contributed: All contributions that phones have made.
            acknowledged: The phones whose contribution was acknowledged.
            day: The day.
            seconds: Real seconds from the first round to the decision.
        """
        query = handle.query
        release = result if isinstance(result, Release) else None
        contributed = sorted(contributed, key=lambda each: each.phone)
        scales = np.array([counter.scale for counter in query.counters])
        sent = [each for each in contributed if each.malice not in NEVER_SENT]
        truth = sum((each.counted for each in sent), np.zeros(query.size, dtype=np.int64))
        return cls(
            progress=handle.progress,
            day=day,
            release=release,
            burnt=str(result) if isinstance(result, QueryBurnt) else None,
            acknowledged=len(acknowledged),
            exact=None if release is None else is_exact(query, release, contributed, acknowledged),
            truth=tuple((truth * query.unit / scales).tolist()),
            seconds=seconds,
        )

    @property
    def text(self) -> str:
        """For the trace."""
        if self.release is None:
            return f"burnt {self.query.id}: {self.burnt}"
        return f"released {self.query.id}: value {[*self.release.value]}, contributors {self.release.contributors}"
