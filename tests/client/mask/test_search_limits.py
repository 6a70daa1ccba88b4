"""A search for a vector ends at its deadline, or after a certain amount of work."""

import numpy as np
import pytest

from reticent_client.errors import TooLarge
from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning import vectors
from reticent_client.mask.planning.vectors import best_vector, exact_vector, vector_utility
from reticent_client.mask.problem import Problem
from tests.client.mask import chains


@pytest.fixture
def problem() -> Problem:
    return Problem.of(chains.two_paths(), {"s"}, 0.1)


def test_after_the_deadline_nothing_is_tried(problem: Problem) -> None:
    assert (best_vector(problem, rounds=1, deadline=Deadline(0)) == 1).all()


def test_after_so_much_work_no_further_order_is_tried(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    lower = vectors.Lowering.run

    def run(lowering: vectors.Lowering, *arguments: object) -> object:
        tried.append(arguments)
        return lower(lowering, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(vectors.Lowering, "run", run)
    monkeypatch.setattr(vectors, "WORK", 0.0)
    best_vector(problem, rounds=1, deadline=Deadline())
    assert len(tried) == 1


def test_the_best_order_is_kept(problem: Problem) -> None:
    """Also where it is neither the first nor the last."""
    found = [vector_utility(problem, vectors.Lowering(problem).run(order)) for order in vectors._orders(problem, 5)]
    best = vector_utility(problem, best_vector(problem, rounds=2, deadline=Deadline()))
    assert best >= max(found)


def test_on_a_grid_a_value_is_rounded_up(problem: Problem) -> None:
    """To suppress less than is needed would breach."""
    free = best_vector(problem, rounds=1, deadline=Deadline())
    coarse = best_vector(problem, rounds=1, grid=3, deadline=Deadline())
    assert coarse * 3 == pytest.approx(np.round(coarse * 3))
    assert vector_utility(problem, coarse) <= vector_utility(problem, free)


def test_an_exact_search_is_for_few_states() -> None:
    with pytest.raises(TooLarge, match="chooses for at most 40 states"):
        exact_vector(Problem.of(chains.independent(*[0.5] * 41), {"s"}, 0.1), 1)
