"""`reticent demo`: simulated people for a month, under every check."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts.validators import Number
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.month import BEST, LEARNED_DAYS, SENSITIVE, Score, month
from reticent_sim.picture import draw
from reticent_sim.scene import Scene, scenes
from reticent_sim.world.people import HOURS, person

app = cyclopts.App(name="demo")

FILES = ("table.json", "table.csv", "day.png")
ROUNDING = 1e-6  # of a number of hours


@dataclass(frozen=True)
class DemoResult:
    """The result of a run."""

    people: int
    days: int
    delta: float
    seed: int
    scores: dict[str, Score]
    scene: Scene

    @property
    def kept(self) -> bool:
        """Whether every private check kept its promise."""
        return not any(score.on_model.breaches for check, score in self.scores.items() if CHECKS[check].private)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table."""
        return [score.to_json() for score in self.scores.values()]

    def to_json(self) -> dict[str, Any]:
        """The run as plain data."""
        days = self.scores[BEST]
        return {
            "people": self.people,
            "days": self.days,
            "steps": HOURS,
            "delta": self.delta,
            "sensitive": sorted(SENSITIVE),
            "seed": self.seed,
            "seeded": True,
            "learned_days": LEARNED_DAYS,
            "days_on_model": days.on_model.days,
            "days_off_model": days.off_model.days,
            "kept": self.kept,
            "checks": self.rows,
            "picture": {"person": self.scene.person, "day": self.scene.day},
        }


@app.default
def demo(
    *,
    people: Annotated[int, cyclopts.Parameter(validator=Number(gte=1))] = 20,
    days: Annotated[int, cyclopts.Parameter(validator=Number(gte=1))] = 30,
    delta: float = 0.1,
    seed: int = 1,
    output: Path = Path("demo"),
    as_json: Annotated[bool, cyclopts.Parameter(name="--json", negative="")] = False,
) -> int:
    """Compare the checks on simulated people for a month.

    Each person sometimes visits a hospital, and wants to keep the times secret. A check decides which hours of a day
    may be released. An observer knows the person's habits and the check, and sees all releases of a day. The result is
    a table, and a picture of one day.

    Exits with 1 if a private check lets the observer's belief rise by more than delta on a day that follows the habits.

    Args:
        people: The number of people.
        days: The number of days of each person. Habits are learned from the 84 days before.
        delta: The most by which the belief in the hospital may rise.
        seed: The seed of the people, their days and all coins.
        output: The folder for table.json, table.csv and day.png.
        as_json: Print the contents of table.json instead of the table.
    """
    output.mkdir(parents=True, exist_ok=True)
    result = _run(people, days, delta, seed)
    (output / "table.json").write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    _write_csv(output / "table.csv", result.rows)
    draw(result.scene, output / "day.png")
    console = Console()
    if as_json:
        console.print_json(data=result.to_json())
    else:
        _show(console, result, output)
    return 0 if result.kept else 1


def _run(people: int, days: int, delta: float, seed: int) -> DemoResult:
    scores = {check: Score(check) for check in CHECKS}
    best: Scene | None = None
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=people)
        for number in range(people):

            def show_progress(check: str, number: int = number) -> None:
                progress.update(task, description=f"person {number}: {check:<14}")

            for part in month(person(seed, number), days, delta, show_progress):
                for score in part.scores():
                    scores[score.check] += score
                best = max([*([best] if best else []), *scenes(part)], key=lambda scene: scene.interest)
            progress.advance(task)
    if best is None:
        raise AssertionError("unreachable: there is a person with a day")
    return DemoResult(people, days, delta, seed, scores, best)


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _show(console: Console, result: DemoResult, output: Path) -> None:
    """Print the table and its legend."""
    best = result.scores[BEST]
    console.print(
        f"{result.people} simulated people for {result.days} days of {HOURS} hours. "
        f"Sensitive: {', '.join(sorted(SENSITIVE))}; delta: {result.delta:g}. "
        f"Habits are learned from the {LEARNED_DAYS} days before, weekdays and weekends apart."
    )
    console.print(_table(result))
    notes = Table.grid(padding=(0, 2, 0, 0))
    notes.add_row("released", "hours a day: expected, if days follow the habits, and in fact")
    notes.add_row(
        "ceiling", f"{best.per_day(best.ceiling):.2f} hours: the most that a private check can expect to release"
    )
    notes.add_row("breach", "an hour in the hospital at which the belief in it rose by more than delta")
    notes.add_row("gain", "the largest rise of the belief in the hospital, at any hour")
    notes.add_row(
        "off model",
        f"{best.off_model.days} of the {best.days} days contain something that the habits rule out. No check promises "
        f"anything for these days, and a policy may stay silent afterwards. The breaches and gain to the left are of "
        f"the other {best.on_model.days} days.",
    )
    notes.add_row("seeded", f"Everything follows from seed {result.seed}: this is a simulation and protects nobody.")
    console.print(notes)
    console.print(f"\nWritten to {output}: {', '.join(FILES)}", soft_wrap=True, highlight=False)


def _table(result: DemoResult) -> Table:
    visits = result.scores[BEST].on_model.visits
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
    for row in result.rows:
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
