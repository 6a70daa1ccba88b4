"""Solves linear programs with HiGHS, and again with more rows, from the optimum that it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from reticent_client.mask.chain import Floats
from reticent_client.mask.limits import Deadline

highs: Any
try:
    from scipy.optimize._highspy import _core as highs  # type: ignore[import-not-found, no-redef]
except ImportError:  # an older SciPy: `linprog` does the same, and starts afresh each time
    highs = None

Ints = npt.NDArray[np.int64]

TOLERANCES = (1e-9, 1e-7)  # of the solver: it does not always reach the first
ITERATIONS = 5_000  # that the solver may take, besides one for each variable
INTERIOR = 3_000  # from this many variables on, interior point is faster than simplex, and starts afresh each time
CORNERS = 70  # so many iterations of simplex take as long as one of interior point
NO_LIMIT = 1e9  # seconds, for no limit

_TURN = threading.Lock()
_THREAD = threading.local()


@contextmanager
def in_turn() -> Iterator[None]:
    """One thread after the other, but several while they solve programs.

    Threads that call many small NumPy functions at the same time are slower than one.
    """
    with _TURN:
        _THREAD.has_turn = True
        try:
            yield
        finally:
            _THREAD.has_turn = False


@contextmanager
def _turn_given_away() -> Iterator[None]:
    if not getattr(_THREAD, "has_turn", False):
        yield
        return
    _TURN.release()
    try:
        yield
    finally:
        _TURN.acquire()


@dataclass(frozen=True)
class Inequality:
    """A sum of variables that must not exceed 0."""

    columns: Ints
    values: Floats


@dataclass(frozen=True)
class Optimum:
    """A program's solution, and what each row costs: at least 0."""

    x: Floats
    prices: Floats


class LinearProgram:
    """The largest sum of gains · x over x >= 0, where flow @ x = sources and no row exceeds 0.

    Args:
        gains: Of the variables.
        flow: The equations, in rows.
        sources: Their right-hand sides.
    """

    def __init__(self, gains: Floats, flow: csr_array, sources: Floats) -> None:
        self.work = 0
        """The entries of all programs that were solved, times the iterations."""
        self._gains = gains
        self._flow = flow
        self._sources = sources
        self._rows: list[Inequality] = []
        self._entries = int(flow.nnz)
        self._model: Any = None if highs is None else self._new_model()

    @property
    def is_large(self) -> bool:
        """Whether it is solved by interior point: each time afresh, and not in a corner."""
        return len(self._gains) > INTERIOR

    def add(self, rows: Sequence[Inequality]) -> None:
        """Add rows."""
        self._rows += rows
        self._entries += sum(len(row.columns) for row in rows)
        if self._model is not None and rows:
            sizes = [len(row.columns) for row in rows]
            self._model.addRows(
                len(rows),
                np.full(len(rows), -np.inf),
                np.zeros(len(rows)),
                sum(sizes),
                np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32),
                np.concatenate([row.columns for row in rows]).astype(np.int32),
                np.concatenate([row.values for row in rows]),
            )

    def solve(self, deadline: Deadline) -> Optimum | None:
        """The optimum; None when the solver gives up, or the time is over."""
        attempts = [(TOLERANCES[0], True)] if self.is_large and self._rows and self._model is not None else []
        for tolerance, inside in [*attempts, *((tolerance, False) for tolerance in TOLERANCES)]:
            if deadline.passed():
                return None
            seconds = min(max(deadline.left(), 1e-3), NO_LIMIT)
            with _turn_given_away():
                found = self._attempt(tolerance, seconds, inside=inside)
            if found is not None:
                return found
            if self._model is not None:
                self._model.clearSolver()  # or it goes on from where it gave up
        return None

    def _attempt(self, tolerance: float, seconds: float, *, inside: bool) -> Optimum | None:
        if highs is None:
            return self._from_scratch(tolerance, seconds)
        model = self._model
        model.setOptionValue("solver", "ipm" if inside else "simplex")
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            model.setOptionValue(name, tolerance)
        model.setOptionValue("time_limit", model.getRunTime() + seconds)
        model.run()
        info = model.getInfo()
        self.work += self._entries * (info.ipm_iteration_count + info.simplex_iteration_count // CORNERS)
        if model.getModelStatus() != highs.HighsModelStatus.kOptimal:
            return None
        solution = model.getSolution()
        prices = -np.array(solution.row_dual)[len(self._sources) :]
        return Optimum(np.array(solution.col_value), np.maximum(prices, 0.0))

    def _from_scratch(self, tolerance: float, seconds: float) -> Optimum | None:
        size = len(self._gains)
        starts = np.concatenate([[0], np.cumsum([len(row.columns) for row in self._rows])]).astype(np.int64)
        columns = np.concatenate([np.zeros(0, dtype=np.int64), *(row.columns for row in self._rows)])
        values = np.concatenate([np.zeros(0), *(row.values for row in self._rows)])
        flow: Any = self._flow
        rows: Any = csr_array((values, columns, starts), shape=(len(self._rows), size))
        result: Any = linprog(
            -self._gains,
            A_ub=rows,
            b_ub=np.zeros(len(self._rows)),
            A_eq=flow,
            b_eq=self._sources,
            bounds=(0, None),
            method="highs",
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
                "maxiter": ITERATIONS + size,
                "time_limit": seconds,
            },
        )
        self.work += self._entries * (int(result.nit) // CORNERS)
        if result.status != 0:
            return None
        return Optimum(result.x, np.maximum(-result.ineqlin.marginals, 0.0))

    def _new_model(self) -> Any:
        matrix = self._flow.tocsc()
        size = len(self._gains)
        lp = highs.HighsLp()
        lp.num_row_, lp.num_col_ = lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = matrix.shape
        lp.a_matrix_.format_ = highs.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        lp.col_cost_ = -self._gains
        lp.col_lower_, lp.col_upper_ = np.zeros(size), np.full(size, np.inf)
        lp.row_lower_ = lp.row_upper_ = self._sources
        model = highs._Highs()  # noqa: SLF001  # SciPy has no public way to add rows to a solved program
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 1)
        model.setOptionValue("run_crossover", "off")
        model.setOptionValue("presolve", "on" if self.is_large else "off")
        model.setOptionValue("simplex_iteration_limit", ITERATIONS + size)
        model.passModel(lp)
        return model
