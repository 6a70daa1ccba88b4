"""`reticent demo`: simulated people for a month, under every check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts.validators import Number
from rich.console import Console

from reticent.console.options import AsJson
from reticent.errors import ExitCode
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.experiments.month import Score, month
from reticent_sim.report.day import draw
from reticent_sim.report.example_day import ExampleDay, example_days
from reticent_sim.report.month_table import MonthTable
from reticent_sim.report.progress import progress_bar
from reticent_sim.world.world import World

app = cyclopts.App(name="demo")

FILES = ("table.json", "table.csv", "day.png")


@app.default
def demo(
    *,
    people: Annotated[int, cyclopts.Parameter(validator=Number(gte=1))] = 20,
    days: Annotated[int, cyclopts.Parameter(validator=Number(gte=1))] = 30,
    delta: float = 0.1,
    seed: int = 1,
    output: Annotated[Path, cyclopts.Parameter(name=["--output", "-o"])] = Path("demo"),
    as_json: AsJson = False,
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
        output: The folder for table.json, which `--json` prints, table.csv and day.png.
        as_json: Print JSON.
    """
    output.mkdir(parents=True, exist_ok=True)
    table, example = _run(people, days, delta, seed)
    data = table.to_json() | {"picture": {"person": example.person, "day": example.day}}
    (output / "table.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    table.write_csv(output / "table.csv")
    draw(example, output / "day.png")
    console = Console()
    if as_json:
        console.print_json(data=data)
    else:
        table.show(console)
        console.print(f"\nWritten to {output}: {', '.join(FILES)}", soft_wrap=True, highlight=False)
    return ExitCode.DONE if table.kept else ExitCode.BAD_ANSWER


def _run(people: int, days: int, delta: float, seed: int) -> tuple[MonthTable, ExampleDay]:
    scores = {check: Score(check) for check in CHECKS}
    best: ExampleDay | None = None
    world = World(seed, people, routines=people)  # everybody has habits of their own
    with progress_bar() as progress:
        task = progress.add_task("", total=people)
        for number in range(people):

            def show_progress(check: str, number: int = number) -> None:
                progress.update(task, description=f"person {number}: {check:<14}")

            for part in month(world.person(number), days, delta, show_progress):
                for score in part.scores():
                    scores[score.check] += score
                best = max([*([best] if best else []), *example_days(part)], key=lambda day: day.interest)
            progress.advance(task)
    if best is None:
        raise AssertionError("unreachable: there is a person with a day")
    return MonthTable(people, days, delta, seed, scores), best
