"""The protocol `Counts`, which mypy checks here: code that is written against it runs with each implementation."""

import numpy as np
import pytest

from reticent.privacy import Contributions, Counts, Query, Release
from reticent.randomness import seeded
from reticent_analyst import Analyst
from reticent_sim.local_counts import LocalCounts
from tests.analyst.queries import KNOWN, gym_query
from tests.parties.counting_server import CountingServer

IMPLEMENTATIONS: list[type[Counts]] = [Analyst, LocalCounts]


class ReturnsNumbers:
    """Has the method, but no release."""

    def count(self, query: Query, counters: Contributions | None = None) -> list[float]:
        """Zeros."""
        del counters
        return [0.0] * query.size


NOT_COUNTS: list[type[Counts]] = [ReturnsNumbers]  # type: ignore[list-item]  # mypy must refuse it


def contributors(counts: Counts, counters: Contributions | None) -> int:
    """As an experiment or a rate would use any implementation."""
    release: Release = counts.count(gym_query(), counters)
    return release.contributors


def test_a_simulation_counts() -> None:
    assert contributors(LocalCounts(seeded(5, "counts")), np.zeros((60, 2))) == 60


@pytest.mark.slow
def test_an_analyst_counts(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: KNOWN
    assert contributors(analyst, None) == 45
