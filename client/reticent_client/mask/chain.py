"""The user's habits: a Markov chain over the contexts of one day.

Section 3.2 of Götz's dissertation. Contexts are labels outside and indices inside; steps count from 0; the chain starts
before step 0 and ends after step T - 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from reticent.storage.documents import DocumentFormat
from reticent_client.errors import FileError
from reticent_client.mask.limits import whole_number

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = "unknown"
"""The context of a step without a reading: learned, released and suppressed like any other."""

FORMAT = DocumentFormat("reticent-chain", 1, "a chain", FileError)

_SUM_TOLERANCE = 1e-6  # how far a given row may be from 1 before it is refused rather than normalised
_ROUNDING = 1e-12  # a row this close to 1 is left as it is, so that files are read back bit for bit


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A day of `horizon` steps over labelled contexts.

    `initial` (n,) is the distribution of step 0; `transitions` (T - 1, n, n) holds, at position t, the probabilities of
    moving from each context at step t to each at step t + 1.

    >>> chain = MarkovChain(["home", "work"], [1, 0], [[[0.2, 0.8], [0.5, 0.5]]])
    >>> chain.horizon
    2
    >>> chain.prior[1].tolist()
    [0.2, 0.8]
    """

    contexts: tuple[str, ...]
    initial: Floats  # (n,)
    transitions: Floats  # (T - 1, n, n)

    def __init__(self, contexts: Sequence[str], initial: npt.ArrayLike, transitions: npt.ArrayLike) -> None:
        labels = _labels(contexts)
        n = len(labels)
        first = _floats(initial, "initial")
        if first.shape != (n,):
            raise ValueError(f"initial must hold one probability for each of the {n} contexts: got shape {first.shape}")
        steps = _floats(transitions, "transitions")
        if steps.size == 0:
            steps = steps.reshape(0, n, n)
        if steps.ndim != 3 or steps.shape[1:] != (n, n):
            raise ValueError(f"transitions must have shape (T - 1, {n}, {n}): got {steps.shape}")
        object.__setattr__(self, "contexts", labels)
        object.__setattr__(self, "initial", _stochastic(first, "initial", labels))
        object.__setattr__(self, "transitions", _stochastic(steps, "transitions", labels))

    @property
    def size(self) -> int:
        """The number of contexts, n."""
        return len(self.contexts)

    @property
    def horizon(self) -> int:
        """The number of steps of a day, T."""
        return len(self.transitions) + 1

    @cached_property
    def prior(self) -> Floats:
        """(T, n): the probability of each context at each step, before anything is released."""
        prior = np.empty((self.horizon, self.size))
        prior[0] = self.initial
        for t, step in enumerate(self.transitions):
            prior[t + 1] = prior[t] @ step
        prior.flags.writeable = False
        return prior

    @cached_property
    def reachable(self) -> Bools:
        """(T, n): the states that have a path of positive probability; free of underflow."""
        reachable = np.empty((self.horizon, self.size), dtype=np.bool_)
        reachable[0] = self.initial > 0
        for t, step in enumerate(self.transitions):
            reachable[t + 1] = (step[reachable[t]] > 0).any(axis=0)
        reachable.flags.writeable = False
        return reachable

    def onward(self, t: int) -> list[Floats]:
        """[t2 - t - 1] -> (n, n): the probabilities of moving from each context at step t to each at t2 > t."""
        products: list[Floats] = []
        for step in self.transitions[t:]:
            products.append(products[-1] @ step if products else step)
        return products

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.contexts)}

    def index(self, label: str) -> int:
        """The index of a label; `ValueError` for one that the chain does not know."""
        try:
            return self._index[label]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self.contexts))
            raise ValueError(f"unknown context {label!r}: this chain has {known}") from None

    def find(self, label: str) -> int | None:
        """The index of a label, or None for one that the chain does not know."""
        return self._index.get(label)

    @classmethod
    def fit(
        cls,
        days: Iterable[Sequence[str | None]],
        *,
        contexts: Sequence[str] | None = None,
        horizon: int | None = None,
        smoothing: float = 0.0,
    ) -> Self:
        """Count the moves of whole days; a gap (None) is the context "unknown".

        `smoothing` is added to every count. The row of a context that was never seen at a step, and so counts nothing,
        is the overall frequency of the contexts at the next step.

        >>> MarkovChain.fit([["home", "work"], ["home", None]]).contexts
        ('home', 'work', 'unknown')
        """
        if not (smoothing >= 0 and np.isfinite(smoothing)):
            raise ValueError(f"smoothing must be a number of at least 0: got {smoothing}")
        labelled = [_labelled(day, number) for number, day in enumerate(days)]
        if not labelled:
            raise ValueError("fit needs at least one day: got none")
        steps = _steps(len(labelled[0]) if horizon is None else horizon)
        for number, day in enumerate(labelled):
            if len(day) != steps:
                raise ValueError(f"day {number} has {len(day)} steps where {steps} were expected")
        labels = _labels(_seen(labelled) if contexts is None else contexts)
        index = {label: i for i, label in enumerate(labels)}
        for number, day in enumerate(labelled):
            for t, label in enumerate(day):
                if label not in index:
                    raise ValueError(f"day {number}, step {t}: unknown context {label!r}")
        walks = np.array([[index[label] for label in day] for day in labelled])  # (days, T)
        n = len(labels)
        visits = np.full((steps, n), smoothing)
        np.add.at(visits, (np.arange(steps)[None, :], walks), 1.0)
        moves = np.full((steps - 1, n, n), smoothing)
        np.add.at(moves, (np.arange(steps - 1)[None, :], walks[:, :-1], walks[:, 1:]), 1.0)
        totals = moves.sum(axis=2, keepdims=True)
        frequencies = visits / visits.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            rows = np.where(totals > 0, moves / totals, frequencies[1:, None, :])
        return cls(labels, frequencies[0], rows)

    @classmethod
    def uniform(cls, contexts: Sequence[str], horizon: int) -> Self:
        """The uninformed chain: every context is equally likely at every step."""
        labels, steps = _labels(contexts), _steps(horizon)
        n = len(labels)
        return cls(labels, np.full(n, 1 / n), np.full((steps - 1, n, n), 1 / n))

    def can_produce(self, day: Sequence[str | None]) -> bool:
        """Whether a day, with None for a gap, can be a sample of the chain. If not, it is off the model.

        >>> MarkovChain.fit([["home", "work"]]).can_produce(["work", "work"])
        False
        """
        return len(day) == self.horizon and self.first_off_model(day) is None

    def first_off_model(self, day: Sequence[str | None]) -> int | None:
        """The first step of a day that the chain rules out after the step before it, or None.

        >>> MarkovChain.fit([["home", "work"]]).first_off_model(["home", "gym"])
        1
        """
        onward = self.initial
        for t, label in enumerate(day):
            index = self.find(UNKNOWN if label is None else label)
            if index is None or onward[index] == 0:
                return t
            if t + 1 < self.horizon:
                onward = self.transitions[t, index]
        return None

    def frequencies(self) -> MarkovChain:
        """The same prior without memory: the chain of an adversary who knows only the frequency of each context."""
        rows = np.repeat(self.prior[1:, None, :], self.size, axis=1)
        return MarkovChain(self.contexts, self.initial, rows)

    def sample(self, rng: np.random.Generator) -> list[str]:
        """One day, as labels."""
        state = _draw(self.initial, rng)
        day = [self.contexts[state]]
        for step in self.transitions:
            state = _draw(step[state], rng)
            day.append(self.contexts[state])
        return day

    def to_json(self) -> dict[str, Any]:
        """The chain as plain data; numbers are written so that they read back bit for bit."""
        return FORMAT.document(
            {
                "contexts": list(self.contexts),
                "initial": self.initial.tolist(),
                "transitions": self.transitions.tolist(),
            }
        )

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The chain that `to_json` wrote; `FileError` for anything else."""
        return cls._of(FORMAT.content(data))

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        try:
            return cls(content["contexts"], content["initial"], content["transitions"])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"the chain is damaged: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the chain as JSON."""
        Path(path).write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a chain that `save` wrote."""
        try:
            return cls._of(FORMAT.parse(Path(path).read_bytes()))
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror}") from error
        except FileError as error:
            raise FileError(f"{path}: {error}") from error


def _labels(contexts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(contexts, str):
        raise ValueError(f"contexts must be a list of labels: got the one string {contexts!r}")
    labels = tuple(contexts)
    if not labels:
        raise ValueError("a chain needs at least one context: got none")
    for label in labels:
        if not isinstance(label, str):
            raise ValueError(f"a context is a string: got {label!r}")
        if labels.count(label) > 1:
            raise ValueError(f"the context {label!r} is named twice")
    return labels


def _labelled(day: Sequence[str | None], number: int) -> list[str]:
    """A day to learn from, checked, with "unknown" where there is a gap."""
    if isinstance(day, str) or not isinstance(day, Iterable):
        raise ValueError(f"day {number} must be a list of contexts: got {day!r}")
    labels = [UNKNOWN if label is None else label for label in day]
    for t, label in enumerate(labels):
        if not isinstance(label, str):
            raise ValueError(f"day {number}, step {t}: a context is a string, or None for a gap: got {label!r}")
    return labels


def _steps(horizon: int) -> int:
    """The number of steps of a day, checked."""
    steps = whole_number(horizon, "a day must have a whole number of steps")
    if steps < 1:
        raise ValueError(f"a day must have at least one step: got {steps}")
    return steps


def _seen(days: list[list[str]]) -> list[str]:
    """Every label of the days in sorted order, "unknown" last."""
    labels = sorted({label for day in days for label in day} - {UNKNOWN})
    return [*labels, UNKNOWN] if any(UNKNOWN in day for day in days) else labels


def _floats(values: npt.ArrayLike, name: str) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a regular array of numbers: {error}") from error


def _stochastic(rows: Floats, name: str, labels: tuple[str, ...]) -> Floats:
    """The rows, checked and normalised where rounding has left them a little off 1; read-only."""
    bad = ~(np.isfinite(rows) & (rows >= 0))
    if bad.any():
        place = tuple(int(k) for k in np.argwhere(bad)[0])
        raise ValueError(f"{_place(name, place, labels)}: a probability cannot be {rows[place]}")
    sums = rows.sum(axis=-1, keepdims=True)
    off = np.abs(sums - 1) > _SUM_TOLERANCE
    if off.any():
        place = tuple(int(k) for k in np.argwhere(off)[0][:-1])
        raise ValueError(
            f"{_place(name, place, labels)}: probabilities must sum to 1, these sum to {float(sums[place][0]):.9g}"
        )
    rows = np.where(np.abs(sums - 1) > _ROUNDING, rows / sums, rows)
    rows.flags.writeable = False
    return rows


def _place(name: str, place: tuple[int, ...], labels: tuple[str, ...]) -> str:
    """The name of a place in an array: step and context where there are some."""
    if name == "initial":
        return name if not place else f"{name}[{place[0]}] ({labels[place[0]]!r})"
    return f"{name}{''.join(f'[{k}]' for k in place)} (step {place[0]}, from {labels[place[1]]!r})"


def _draw(probabilities: Floats, rng: np.random.Generator) -> int:
    """An index drawn with these probabilities; never one of probability zero."""
    cumulative = np.cumsum(probabilities)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
