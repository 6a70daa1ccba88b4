"""The solver of linear programs: its time, and the turns of threads."""

import threading

import numpy as np
from scipy.sparse import csr_array

from reticent_client.mask.limits import Deadline
from reticent_client.mask.planning import solver


def test_a_solver_that_runs_out_of_time_is_not_asked_again() -> None:
    """Each attempt has what is left of the time, not all of it."""
    now = 0.0
    tried: list[float] = []

    class Slow(solver.LinearProgram):
        def _attempt(self, tolerance: float, seconds: float, *, inside: bool) -> solver.Optimum | None:
            nonlocal now
            tried.append(seconds)
            now += 0.75 * seconds if len(tried) == 1 else seconds
            return None

    program = Slow(np.ones(1), csr_array(np.ones((1, 1))), np.ones(1))
    assert program.solve(Deadline(8, clock=lambda: now)) is None
    assert tried == [8, 2]
    assert program.solve(Deadline(0, clock=lambda: now)) is None
    assert len(tried) == 2


def test_threads_take_turns_and_programs_are_solved_beside() -> None:
    """While one thread solves, another one has its turn; otherwise there is one at a time."""
    order: list[str] = []
    is_solving, other_is_done = threading.Event(), threading.Event()

    class Watched(solver.LinearProgram):
        def _attempt(self, tolerance: float, seconds: float, *, inside: bool) -> solver.Optimum | None:
            order.append("solving")
            is_solving.set()
            assert other_is_done.wait(10)
            return super()._attempt(tolerance, seconds, inside=inside)

    def other() -> None:
        assert is_solving.wait(10)
        with solver.in_turn():
            order.append("other")
        other_is_done.set()

    program = Watched(np.ones(1), csr_array(np.ones((1, 1))), np.ones(1))
    thread = threading.Thread(target=other)
    thread.start()
    with solver.in_turn():
        order.append("first")
        optimum = program.solve(Deadline())
        order.append("first again")
    thread.join()
    assert order == ["first", "solving", "other", "first again"]
    assert optimum is not None
    assert optimum.x.tolist() == [1.0]
