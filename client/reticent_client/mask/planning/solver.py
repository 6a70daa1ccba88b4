"""Solves linear programs with SciPy's HiGHS; its settings, and the retries after a failure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from reticent_client.mask.chain import Floats

Ints = npt.NDArray[np.int64]

INTERIOR = 2_000  # from this many variables on, interior point is faster than simplex
TOLERANCES = (1e-9, 1e-7)  # of the solver
ITERATIONS = 5_000  # that the solver may take, besides one for each variable
MARGIN = 2e-9  # how far within the bounds repaired releases are put: the solver's tolerance, and some
NO_LIMIT = 1e9  # seconds, for no limit


def solved(objective: Floats, rows: Any, limits: Floats, seconds: float, **more: Any) -> Any:
    """The solver's result, or None when it gives up.

    With a tight tolerance it sometimes does not converge; it is then called again with its default one.
    """
    for tolerance in TOLERANCES:
        result = linprog(
            objective,
            A_ub=rows,
            b_ub=limits,
            method="highs-ipm" if len(objective) > INTERIOR else "highs-ds",
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
                "maxiter": ITERATIONS + len(objective),
                "time_limit": min(max(seconds, 1e-3), NO_LIMIT),
            },
            **more,
        )
        if result.status == 0:
            return result
    return None


def moved_within(released: Floats, mass: Floats, rows: Floats, limits: Floats) -> Floats:
    """The releases nearest to these with released @ rows <= limits, between 0 and the mass.

    Each release is moved in parts of itself, so that the solver's tolerance is a part of it too; nothing is returned
    where it finds no such releases.
    """
    some = np.flatnonzero(released > 0)
    if not len(some):
        return released
    parts = released[some, None] * rows[some]  # (m, constraints)
    room = np.minimum(mass[some] / released[some] - 1, 1.0)
    count = len(some)
    result = solved(
        np.ones(2 * count),
        np.concatenate([parts.T, -parts.T], axis=1),
        limits - released @ rows - MARGIN,
        NO_LIMIT,
        bounds=np.stack([np.zeros(2 * count), np.concatenate([np.maximum(room, 0.0), np.ones(count)])], axis=1),
    )
    moved = np.zeros(len(released))
    if result is not None:
        moved[some] = released[some] * np.clip(1 + result.x[:count] - result.x[count:], 0.0, None)
    return np.asarray(np.minimum(moved, mass))


class Rows:
    """Constraints, one after the other: each a sum that must not exceed 0."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._columns: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._values: list[Floats] = [np.zeros(0)]

    def add(self, columns: Ints, values: Floats) -> None:
        """One more constraint."""
        self._rows.append(np.full(len(columns), self.count))
        self._columns.append(columns)
        self._values.append(values)
        self.count += 1

    def matrix(self, variables: int) -> csr_array:
        """All constraints, over so many variables."""
        entries = (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns)))
        return coo_array(entries, shape=(self.count, variables)).tocsr()
