"""The noise of an estimate, beside corollary 2 and beside a flat histogram of the lowest level."""

import math

import numpy as np
import pytest

from reticent.privacy import gaussian_delta, skellam_variance
from reticent.randomness import seeded
from reticent_analyst.rates import noise_report
from tests.analyst.rates.logs import hierarchy, log_of, rates_of
from tests.analyst.rates.test_consistency import dense
from tests.analyst.rates.test_estimate import Recorded

PLACES = hierarchy()


@pytest.mark.parametrize(("delta", "ratio"), [(0.02, 0.596), (1e-6, 0.728)])
@pytest.mark.parametrize(("entries", "depth"), [(1, 0), (4, 1), (4, 3)])
def test_fixed_queries_need_less_noise_than_corollary_2(delta: float, ratio: float, entries: int, depth: int) -> None:
    report = noise_report(PLACES, epsilon=1.0, delta=delta, entries=entries, depth=depth)
    assert report.corollary2 is not None
    assert report.corollary2 == pytest.approx(math.sqrt(6 * (depth + 1) * entries**2 * math.log(4 / delta)))
    assert report.fixed / report.corollary2 == pytest.approx(ratio, abs=1e-3)
    assert report.fixed < report.skellam < report.gaussian < report.corollary2
    l2 = math.sqrt(2 * (depth + 1)) * entries
    assert gaussian_delta(report.fixed, 1.0, l2) == pytest.approx(delta, rel=1e-6)
    assert noise_report(PLACES, epsilon=2.0, delta=delta, entries=entries, depth=depth).corollary2 is None


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_deviations_are_those_of_an_estimate(depth: int) -> None:
    """Counts of all nodes, before and after consistency, against sums over the nodes of the lowest level."""
    report = noise_report(PLACES, epsilon=1.0, delta=1e-6, entries=2, depth=depth)
    log = log_of(PLACES, users=300, size=0, ads=1, rng=seeded(1))
    counts = Recorded(trusted=True)
    rates_of(counts, log, entries=2, depth=depth)
    assert counts.releases[0].variance[0] == pytest.approx(report.levels[0].alone ** 2)
    one = skellam_variance(1.0, 1e-6, math.sqrt(2) * 2, l1=4.0)
    lowest = len(range(*PLACES.nodes_at(PLACES.height - 1 - depth).indices(99)))
    assert [each.nodes for each in report.levels] == [
        len(range(*PLACES.nodes_at(PLACES.height - 1 - number).indices(99))) for number in range(depth + 1)
    ]
    assert report.levels[0].flat == pytest.approx(math.sqrt(lowest * one))
    assert report.levels[-1].flat == pytest.approx(math.sqrt(one))
    for each in report.levels:
        assert each.flat == pytest.approx(math.sqrt(one * lowest / each.nodes))  # in the root mean square
    size = sum(each.nodes for each in report.levels)
    alone = np.full(size, report.levels[0].alone ** 2)
    _, variances = dense(np.zeros(size), alone, PLACES.parents[:size].astype(np.intp))
    depths = PLACES.height - 1 - PLACES.node_levels[:size]
    for number, each in enumerate(report.levels):
        assert each.consistent == pytest.approx(math.sqrt(variances[depths == number].mean()))
