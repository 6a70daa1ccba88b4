"""The state of an estimate in a file, so that it continues after a kill and asks nothing twice."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from reticent.privacy import Query, Release
from reticent.storage import files
from reticent.storage.documents import DocumentFormat
from reticent_analyst.rates.terms import EstimateTerms

__all__ = ["Attempt", "EstimateState", "QueryOutcome"]

FORMAT = DocumentFormat("reticent-rates-state", 1, "the state of an estimate of rates")

QueryOutcome = Literal["open", "released", "free", "spent"]
"""The outcome of a query: not known yet, released, or burnt: "free" if no phone has spent budget, otherwise "spent"."""


@dataclass(frozen=True)
class Attempt:
    """A query about a level.

    Args:
        depth: The level's depth.
        query: The query.
        outcome: Its outcome.
        release: The release, if there is one.
    """

    depth: int
    query: Query
    outcome: QueryOutcome = "open"
    release: Release | None = None

    def to_json(self) -> dict[str, Any]:
        """The attempt as plain data, with the canonical bytes of the query."""
        return {
            "depth": self.depth,
            "query": base64.b64encode(self.query.to_bytes()).decode(),
            "outcome": self.outcome,
            "release": None if self.release is None else self.release.to_text(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Attempt:
        """The attempt of plain data.

        Raises:
            ValueError: It is damaged.
        """
        release, outcome = content["release"], content["outcome"]
        if outcome not in get_args(QueryOutcome) or (outcome == "released") != (release is not None):
            raise ValueError(f"a query has the outcome {outcome!r:.40}")
        query = Query.from_bytes(base64.b64decode(content["query"], validate=True))
        return cls(int(content["depth"]), query, outcome, None if release is None else Release.from_text(release))


class EstimateState:
    """All queries of an estimate. Each change is in the file, if there is one, before a method returns.

    Args:
        path: The file; None to keep the state in memory only.
        terms: The terms of this run. The first run's are kept; later ones may only have a smaller depth.
        inputs: Digests of the other inputs that all runs share, by name.

    Raises:
        ValueError: The file is damaged, or the state of an estimate with other terms or inputs.
    """

    def __init__(self, path: Path | None, terms: EstimateTerms, inputs: Mapping[str, str]) -> None:
        self.terms = terms
        """The terms of the first run, which set the budget."""
        self.attempts: list[Attempt] = []
        """All queries so far, in order."""
        self._path = path
        self._inputs = dict(inputs)
        if path is None:
            return
        files.check_writable([path])
        if path.exists():
            self._read(path)

    @property
    def spent(self) -> int:
        """The number of queries to which phones have contributed, or may have."""
        return sum(attempt.outcome != "free" for attempt in self.attempts)

    def current(self, depth: int) -> Attempt | None:
        """The query about a level that is open or released."""
        alive = (each for each in self.attempts if each.depth == depth and each.outcome in {"open", "released"})
        return next(alive, None)

    def add(self, depth: int, query: Query) -> Attempt:
        """Record a query before it is asked."""
        self.attempts.append(Attempt(depth, query))
        self._write()
        return self.attempts[-1]

    def settle(self, depth: int, outcome: QueryOutcome, release: Release | None = None) -> None:
        """Record the outcome of the open query about a level."""
        [place] = [n for n, each in enumerate(self.attempts) if each.depth == depth and each.outcome == "open"]
        self.attempts[place] = replace(self.attempts[place], outcome=outcome, release=release)
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            content = {
                "terms": self.terms.to_json(),
                "inputs": self._inputs,
                "attempts": [attempt.to_json() for attempt in self.attempts],
            }
            files.replace(self._path, FORMAT.text(content).encode())

    def _read(self, path: Path) -> None:
        try:
            content = FORMAT.parse(path.read_bytes())
            terms = EstimateTerms(**content["terms"])
            inputs = {str(name): str(digest) for name, digest in content["inputs"].items()}
            attempts = [Attempt.from_json(each) for each in content["attempts"]]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: {error}") from error
        before, now = terms.to_json() | inputs, self.terms.to_json() | self._inputs
        different = [field for field in now if now[field] != before.get(field)]
        if self.terms.depth < terms.depth:
            different.remove("depth")
        if different:
            differences = ", ".join(f"{name} = {now[name]!r} instead of {before.get(name)!r}" for name in different)
            raise ValueError(f"{path} is the state of an estimate with other terms: got {differences}")
        self.terms, self.attempts = terms, attempts
