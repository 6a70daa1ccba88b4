"""The result of an experiment: rows, verdicts about the claims of the dissertation, and the files."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reticent_sim.experiments.runner import Runner
from reticent_sim.experiments.statistics import CONFIDENCE, Estimate
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.verdicts import Verdict

Value = str | int | float | bool | Estimate | None
Row = dict[str, Value]


@dataclass(frozen=True)
class Finding:
    """A claim of the dissertation, or of ours, and the verdict of this run."""

    name: str
    claim: str
    """The claim, in one sentence."""
    published: str
    """The published numbers; empty if the claim is ours."""
    ours: str
    """The numbers of this run."""
    rule: str
    """The rule that decides."""
    verdict: Verdict

    def to_json(self) -> dict[str, str]:
        """The finding as plain data."""
        return {**asdict(self), "verdict": self.verdict.value}


@dataclass(frozen=True)
class Result:
    """Everything that an experiment found."""

    name: str
    title: str
    settings: dict[str, Any]
    rows: Sequence[Row]
    findings: Sequence[Finding]
    people: Sequence[Row] = field(default=())
    """A row for each person, if the experiment has results for each."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "experiment": self.name,
            "title": self.title,
            "settings": self.settings,
            "rows": [_plain(row) for row in self.rows],
            "people": [_plain(row) for row in self.people],
            "findings": [finding.to_json() for finding in self.findings],
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


def settings_of(runner: Runner, subjects: Sequence[Subject], **more: Any) -> dict[str, Any]:
    """The settings of a run, for its JSON."""
    settings = runner.settings
    contexts, days = [subject.seen for subject in subjects], [len(subject.days) for subject in subjects]
    followed = sum(len(subject.halves[0]) for subject in subjects)
    judged = sum(len(subject.judged) for subject in subjects)
    source = "made-up population" if settings.traces is None else settings.traces.name
    sample = f"{len(subjects)} people ({source}), {settings.steps} steps a day"
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "source": source,
        "seeded": True,
        "people": len(subjects),
        "steps": settings.steps,
        "intervals": "people",
        "sample": sample,
        "summary": f"{sample}. {judged - followed} of the {judged} test days leave the chains",
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
