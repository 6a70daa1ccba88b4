"""The parts of a run as CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reticent_sim.report.run import facts
from reticent_sim.report.run.facts import Data

__all__ = ["FILES", "write_csvs"]

DAYS = (
    "day", "date", "steps", "released", "suppressed", "missing", "requests", "shown", "clicks", "precision", "coverage",
    "revenue_none", "revenue_learned", "revenue_exact", "progress", "progress_low", "progress_high",
)  # fmt: skip
COUNTS = (
    "id", "day", "kind", "counter", "truth", "value", "low", "high", "sigma", "population", "contributors", "cohorts",
    "cohorts_left_out", "method", "epsilon", "delta", "exact", "burnt",
)  # fmt: skip
MASKS = (
    "check", "released", "phones", "days", "strayed", "breaches", "forbidden", "largest_rise", "mean_rise",
    "rise_from", "rise_to", "rises",
)  # fmt: skip
FAULTS = ("day", "step", "kind", "target", "steps", "applied", "outcome")
MALICE = ("phone", "kind", "noticed", "by", "how")


def write_csvs(data: Data, folder: Path) -> None:
    """Write days.csv, counts.csv, masks.csv, faults.csv and malice.csv: only headings where the run has no such part.

    Args:
        data: The run, as in `run.json`.
        folder: An existing folder.
    """
    for name, (columns, rows) in FILES.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows(data))


def _days(data: Data) -> Iterator[Mapping[str, Any]]:
    for day in facts.rows(data, "days"):
        ads = day.get("ads") or {}
        revenue = {f"revenue_{key}": value for key, value in (ads.get("revenue") or {}).items()}
        interval = zip(("progress_low", "progress_high"), ads.get("progress_interval") or (), strict=False)
        yield {**day, **ads, **revenue, **dict(interval)}


def _counts(data: Data) -> Iterator[Mapping[str, Any]]:
    """A row for each counter."""
    for each in facts.rows(data, "counts"):
        for counter in each.get("counters") or []:
            yield {**each, **counter, "counter": counter.get("name")}


def _masks(data: Data) -> Iterator[Mapping[str, Any]]:
    """A row for each bin of each check's rises."""
    for mask in facts.rows(data, "masks"):
        rises = mask.get("rises") or {}
        row = {**mask, "largest_rise": rises.get("max"), "mean_rise": rises.get("mean"), "rises": None}
        histogram = rises.get("histogram") or {"edges": [None, None], "counts": [None]}
        edges = histogram["edges"]
        for low, high, number in zip(edges, edges[1:], histogram["counts"], strict=False):
            yield row | {"rise_from": low, "rise_to": high, "rises": number}


def _faults(data: Data) -> Iterable[Mapping[str, Any]]:
    return facts.rows(data, "faults")


def _malice(data: Data) -> Iterable[Mapping[str, Any]]:
    return facts.rows(data, "malice")


def _plain(value: Any) -> Any:
    """A value of a cell: of a list its items, apart by spaces."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


FILES = {
    "days.csv": (DAYS, _days),
    "counts.csv": (COUNTS, _counts),
    "masks.csv": (MASKS, _masks),
    "faults.csv": (FAULTS, _faults),
    "malice.csv": (MALICE, _malice),
}
"""The columns of each file, and its rows."""
