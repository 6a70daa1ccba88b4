"""`reticent experiment`: the published figures and tables, repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console

from reticent.console.options import AsJson
from reticent_sim.experiments.maskit import activities, checks, contexts, delta, times, users
from reticent_sim.experiments.results import Result
from reticent_sim.experiments.runner import PEOPLE, Runner, Settings
from reticent_sim.report.bars import draw_checks
from reticent_sim.report.curves import draw_activities, draw_contexts, draw_delta
from reticent_sim.report.durations import draw_times
from reticent_sim.report.findings import show
from reticent_sim.report.progress import progress_bar
from reticent_sim.report.users import draw_users
from reticent_sim.world import resident, write_traces

app = App(name="experiment")

FOLDER = Path("experiments")


@dataclass(frozen=True)
class Experiment:
    """One figure or table."""

    name: str
    help: str
    run: Callable[[Runner], Result]
    draw: Callable[[Result, Path], None]


EXPERIMENTS = (
    Experiment(times.NAME, "How long checks take (table 3.2).", times.run, draw_times),
    Experiment(checks.NAME, "What is released, suppressed and breached (figure 3.5).", checks.run, draw_checks),
    Experiment(users.NAME, "Which check is better for whom (figure 3.6).", users.run, draw_users),
    Experiment(delta.NAME, "What a smaller delta costs (figure 3.7).", delta.run, draw_delta),
    Experiment(contexts.NAME, "More and more sensitive contexts (figure 3.8).", contexts.run, draw_contexts),
    Experiment(activities.NAME, "Activities as contexts (figure 3.9).", activities.run, draw_activities),
)

Count = Annotated[int, Parameter(validator=Number(gte=1))]


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """The options of every experiment."""

    quick: Annotated[bool, Parameter(negative="")] = False
    "Use fewer people, days and steps: less than a minute."
    traces: Path | None = None
    "Use real people: CSV (also .csv.gz) or Parquet with the columns user, time and context."
    zone: str | None = None
    "The time zone of the traces, such as Europe/Paris."
    people: Count | None = None
    "The most people. The default is 91 simulated ones, or all of the traces."
    seed: int = 1
    "The seed of the people, their days, their sensitive contexts and all coins."
    workers: Count | None = None
    "The number of processes, by default one for each processor. It changes no result."
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = FOLDER
    "The folder for the CSV, the JSON and the picture."
    as_json: AsJson = False
    "Print JSON."

    @property
    def settings(self) -> Settings:
        """The data and the options of a run."""
        if self.zone is not None and self.traces is None:
            raise ValueError("--zone is the time zone of the traces: it needs --traces")
        return Settings(self.seed, self.people, self.quick, self.traces, self.zone, self.workers)


def _command(experiments: Sequence[Experiment]) -> Callable[..., None]:
    def command(*, options: Options = Options()) -> None:
        results = []
        for experiment, result in _run(experiments, options.settings):
            result.write(options.output)
            experiment.draw(result, options.output / f"{result.name}.png")
            results.append(result)
        console = Console()
        if options.as_json:
            shown = [result.to_json() for result in results]
            console.print_json(data=shown if len(experiments) > 1 else shown[0])
            return
        for result in results:
            show(console, result)
            files = ", ".join(f"{result.name}.{ending}" for ending in ("csv", "json", "png"))
            console.print(f"Written to {options.output}: {files}\n", soft_wrap=True, highlight=False)

    return command


for _experiment in EXPERIMENTS:
    app.command(_command([_experiment]), name=_experiment.name, help=_experiment.help)
app.command(
    _command(EXPERIMENTS),
    name="maskit",
    help="All experiments of section 3.7 of Götz's dissertation.",
)


@app.command
def population(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    people: Count = PEOPLE,
    seed: int = 1,
    activities: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write the traces of the simulated population: CSV with user, time and context.

    Args:
        output: The file for the traces.
        people: The number of people.
        seed: The seed of the people and their days.
        activities: Write the use of the phone and the way of moving instead of places, for the people with such
            records.
    """
    residents = [each for number in range(people) if (each := resident(seed, number)).uses or not activities]
    if not residents:
        raise ValueError(f"no activities were recorded: use more than {people} people")
    lines = write_traces(output, residents, activities=activities)
    Console().print(f"{len(residents)} people, {lines} hours, written to {output}", soft_wrap=True, highlight=False)


def _run(experiments: Sequence[Experiment], settings: Settings) -> Iterator[tuple[Experiment, Result]]:
    with _progress() as (update, name):
        runner = Runner(settings, update)
        for experiment in experiments:
            name(experiment.name)
            yield experiment, experiment.run(runner)


@contextmanager
def _progress() -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """A progress bar on standard error: the function that moves it, and the one that names the experiment."""
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        yield (
            lambda done, total: bar.update(task, completed=done, total=total),
            lambda name: bar.update(task, description=name, completed=0, total=None),
        )
