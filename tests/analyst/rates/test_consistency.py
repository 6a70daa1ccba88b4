"""Consistent counts are the solution of generalised least squares on any tree, and have its variances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_analyst.rates.consistency import Floats, Indices, consistent


@st.composite
def forests(draw: st.DrawFn) -> tuple[Indices, Indices]:
    """Parents and depths of a few counts: several trees of any shape, some of whose counts stand alone."""
    parent, depth = [-1], [0]
    level = [0]
    for number in range(1, draw(st.integers(1, 4))):
        below = []
        for node in level:
            tied = draw(st.booleans())
            for _ in range(draw(st.integers(0, 3))):
                below.append(len(parent))
                parent.append(node if tied else -1)
                depth.append(number)
        level = below
    return np.array(parent), np.array(depth)


def dense(value: Floats, variance: Floats, parent: Indices) -> tuple[Floats, Floats]:
    """The solution by the counts that have no children: all others are sums of these."""
    size = len(value)
    rows = np.eye(size)
    for node in range(size - 1, -1, -1):
        children = np.flatnonzero(parent == node)
        if len(children):
            rows[node] = rows[children].sum(axis=0)
    design = rows[:, [not (parent == node).any() for node in range(size)]]
    weighted = design / np.sqrt(variance)[:, None]
    solution = np.linalg.lstsq(weighted, value / np.sqrt(variance), rcond=None)[0]
    covariance = design @ np.linalg.pinv(weighted.T @ weighted) @ design.T
    return design @ solution, np.diag(covariance)


@given(forests(), st.integers(0, 2**32))
def test_two_passes_solve_the_least_squares_of_the_whole_tree(forest: tuple[Indices, Indices], seed: int) -> None:
    parent, depth = forest
    rng = np.random.default_rng(seed)
    value, variance = rng.normal(0, 100, len(parent)), rng.uniform(0.1, 50, len(parent))
    found = consistent(value, variance, parent, depth)
    expected, variances = dense(value, variance, parent)
    np.testing.assert_allclose(found.value, expected, atol=1e-8)
    np.testing.assert_allclose(found.variance, variances, rtol=1e-8)
    for node in set(parent[parent >= 0].tolist()):
        assert found.value[parent == node].sum() == pytest.approx(found.value[node], abs=1e-9)
    assert (found.variance <= variance * (1 + 1e-12)).all()


def test_the_error_falls_as_the_variances_say() -> None:
    """A binary tree of four levels: errors of the promised size, and smaller than before, at each level."""
    rng = seeded(4, "consistency")
    parent = np.array([-1, *((np.arange(1, 15) - 1) // 2)])
    depth = np.floor(np.log2(np.arange(1, 16))).astype(np.intp)
    variance = 4.0 + np.arange(15.0)
    errors = rng.normal(0, np.sqrt(variance), (1000, 15))
    found = [consistent(each, variance, parent, depth) for each in errors]
    squares = np.square([each.value for each in found]).mean(axis=0)
    assert np.abs(squares / found[0].variance - 1).max() < 6 * np.sqrt(2 / len(found))
    assert (found[0].variance < variance * 0.9).all()


def test_exact_counts_stay_as_they_are() -> None:
    found = consistent(np.array([7.0, 3.0, 4.0]), np.zeros(3), np.array([-1, 0, 0]), np.array([0, 1, 1]))
    assert found.value.tolist() == [7, 3, 4]
    assert found.variance.max() < 1e-9
