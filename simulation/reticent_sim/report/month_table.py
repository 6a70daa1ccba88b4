"""The table of a month: what each check released in a month, and what it leaked."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.experiments.month import BEST, LEARNED_DAYS, SENSITIVE, Score
from reticent_sim.world.people import HOURS

ROUNDING = 1e-6  # of a number of hours


@dataclass(frozen=True)
class MonthTable:
    """The scores of all checks, and the settings of the run."""

    people: int
    days: int
    delta: float
    seed: int
    scores: dict[str, Score]

    @property
    def kept(self) -> bool:
        """Whether every private check kept its promise."""
        return not any(score.on_model.breaches for check, score in self.scores.items() if CHECKS[check].private)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each check."""
        return [score.to_json() for score in self.scores.values()]

    def to_json(self) -> dict[str, Any]:
        """The table as plain data."""
        best = self.scores[BEST]
        return {
            "people": self.people,
            "days": self.days,
            "steps": HOURS,
            "delta": self.delta,
            "sensitive": sorted(SENSITIVE),
            "seed": self.seed,
            "seeded": True,
            "learned_days": LEARNED_DAYS,
            "days_on_model": best.on_model.days,
            "days_off_model": best.off_model.days,
            "kept": self.kept,
            "checks": self.rows,
        }

    def write_csv(self, path: Path) -> None:
        """Write the rows."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.rows[0])
            writer.writeheader()
            writer.writerows(self.rows)

    def show(self, console: Console) -> None:
        """Print the table and its legend."""
        best = self.scores[BEST]
        console.print(
            f"{self.people} simulated people for {self.days} days of {HOURS} hours. "
            f"Sensitive: {', '.join(sorted(SENSITIVE))}; delta: {self.delta:g}. "
            f"Habits are learned from the {LEARNED_DAYS} days before, weekdays and weekends apart."
        )
        console.print(self._table())
        notes = Table.grid(padding=(0, 2, 0, 0))
        notes.add_row(
            "released",
            f"hours a day, of {best.per_day(best.readings):.2f} with a reading: expected, if days follow the habits, "
            "and in fact",
        )
        notes.add_row(
            "ceiling", f"{best.per_day(best.ceiling):.2f} hours: the most that a private check can expect to release"
        )
        notes.add_row("breach", "an hour in the hospital at which the belief in it rose by more than delta")
        notes.add_row("gain", "the largest rise of the belief in the hospital, at any hour")
        notes.add_row(
            "off model",
            f"{best.off_model.days} of the {best.days} days contain something that the habits rule out. No check "
            f"promises anything for these days, and a policy may stay silent afterwards. The breaches and gain to the "
            f"left are of the other {best.on_model.days} days.",
        )
        notes.add_row("seeded", f"Everything follows from seed {self.seed}: this is a simulation and protects nobody.")
        console.print(notes)

    def _table(self) -> Table:
        visits = self.scores[BEST].on_model.visits
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        table.add_column("\ncheck", no_wrap=True)
        for heading in (
            "released\nexpected",
            "released\nin fact",
            "to the\nceiling",
            f"breaches\nof {visits}",
            "largest\ngain",
            "off model\nhours",
            "off model\nbreaches",
        ):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self.rows:
            distance = row["to_ceiling"]
            table.add_row(
                row["check"],
                f"{row['expected']:.2f}",
                f"{row['realised']:.2f}",
                "above" if distance < -ROUNDING else f"{max(distance, 0):.2f}",
                Text(str(row["breaches"]), style="bold red" if row["breaches"] else ""),
                f"{row['largest_gain']:.3f}",
                str(row["off_model_hours"]),
                str(row["off_model_breaches"]),
            )
        return table
