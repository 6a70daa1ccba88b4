"""What an experiment found: rows, findings of the text that hold or do not, and the files they are written to."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reticent_sim.experiments.runner import Laboratory
from reticent_sim.experiments.statistics import CONFIDENCE, Estimate
from reticent_sim.experiments.subjects import Subject

Value = str | int | float | bool | Estimate | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Finding:
    """Something that the text says, or that we add, and whether it is so here."""

    name: str
    claim: str
    """In one sentence."""
    published: str
    """The text's numbers; empty where the claim is not the text's."""
    ours: str
    """The same numbers here."""
    rule: str
    """What decides."""
    holds: bool


@dataclass(frozen=True)
class Result:
    """All that an experiment found."""

    name: str
    title: str
    settings: dict[str, Any]
    rows: Sequence[Row]
    findings: Sequence[Finding]
    people: Sequence[Row] = field(default=())
    """A row for each person, where the experiment looks at them one by one."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "experiment": self.name,
            "title": self.title,
            "settings": self.settings,
            "rows": [_plain(row) for row in self.rows],
            "people": [_plain(row) for row in self.people],
            "findings": [asdict(finding) for finding in self.findings],
        }

    def write(self, folder: Path) -> None:
        """Write NAME.csv and NAME.json; the CSV holds the people where there are any, else the rows."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(
            json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8"
        )
        rows = [_flat(row) for row in self.people or self.rows]
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            columns = dict.fromkeys(column for row in rows for column in row)
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def described(laboratory: Laboratory, subjects: Sequence[Subject], **more: Any) -> dict[str, Any]:
    """The settings of a run, as they stand in its JSON."""
    settings = laboratory.settings
    contexts, days = [who.seen for who in subjects], [len(who.days) for who in subjects]
    followed = sum(len(who.halves[0]) for who in subjects)
    judged = sum(len(who.judged) for who in subjects)
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "source": "made-up population" if settings.traces is None else settings.traces.name,
        "seeded": True,
        "people": len(subjects),
        "steps": settings.steps,
        "chains": "one for each person and all days of the week, counted from the first half of the days, unsmoothed",
        "off_model": "what the chain rules out is suppressed, whatever the system",
        "contexts": _range(contexts),
        "days": _range(days),
        "judged_days": judged,
        "judged_days_off_model": judged - followed,
        "confidence": CONFIDENCE,
        **more,
    }


def _range(values: Sequence[int]) -> dict[str, float]:
    return {"mean": round(sum(values) / len(values), 2), "least": min(values), "most": max(values)}


def _plain(row: Row) -> dict[str, Any]:
    return {name: value.to_json() if isinstance(value, Estimate) else _rounded(value) for name, value in row.items()}


def _flat(row: Row) -> dict[str, Any]:
    """An estimate takes four columns."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Estimate):
            parts = value.to_json()
            flat |= {name: parts["value"], f"{name}_low": parts["low"], f"{name}_high": parts["high"]}
            flat[f"{name}_n"] = parts["n"]
        else:
            flat[name] = _rounded(value)
    return flat


def _rounded(value: Value) -> Any:
    return round(value, 6) if isinstance(value, float) else value
