"""`reticent experiment`: the published figures and tables, repeated."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console

from reticent.arguments import checked_delta
from reticent.console.options import AsJson
from reticent.errors import ExitCode
from reticent.storage.files import PUBLIC, replace
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.faults.intervals import intervals_of, write_intervals
from reticent_sim.experiments import phases
from reticent_sim.experiments.ads import communication, disclosure, min_ctr, private_rates, surface
from reticent_sim.experiments.ads.measured import SampleRunner
from reticent_sim.experiments.ads.samples import SampleSettings
from reticent_sim.experiments.maskit import activities, checks, contexts, delta, times, users
from reticent_sim.experiments.month import Score, month
from reticent_sim.experiments.results import Result
from reticent_sim.experiments.runner import PEOPLE, Progress, Runner, Settings
from reticent_sim.report.ads import draw_communication, draw_disclosure, draw_min_ctr, draw_private_rates
from reticent_sim.report.bars import draw_checks
from reticent_sim.report.curves import draw_activities, draw_contexts, draw_delta
from reticent_sim.report.day import draw
from reticent_sim.report.durations import draw_times
from reticent_sim.report.example_day import ExampleDay, example_days
from reticent_sim.report.findings import show
from reticent_sim.report.month_table import MonthTable
from reticent_sim.report.phases import draw_phases
from reticent_sim.report.progress import progress_bar
from reticent_sim.report.run.numbers import SPACE, plural
from reticent_sim.report.surface import draw_surface
from reticent_sim.report.users import draw_users
from reticent_sim.world import resident, write_traces
from reticent_sim.world.world import World

app = App(name="experiment")

FOLDER = Path("experiments")


R = TypeVar("R", Runner, SampleRunner, phases.PhaseSettings)


@dataclass(frozen=True)
class Experiment(Generic[R]):
    """One figure or table."""

    name: str
    help: str
    run: Callable[[R], Result]
    draw: Callable[[Result, Path], None]
    simulated: bool = False
    """Whether it runs on simulated data only."""


MASKIT = (
    Experiment(times.NAME, "How long checks take (table 3.2).", times.run, draw_times),
    Experiment(checks.NAME, "What is released, suppressed and breached (figure 3.5).", checks.run, draw_checks),
    Experiment(users.NAME, "Which check is better for whom (figure 3.6).", users.run, draw_users),
    Experiment(delta.NAME, "What a smaller delta costs (figure 3.7).", delta.run, draw_delta),
    Experiment(contexts.NAME, "More and more sensitive contexts (figure 3.8).", contexts.run, draw_contexts),
    Experiment(activities.NAME, "Activities as contexts (figure 3.9).", activities.run, draw_activities),
)
ADS = (
    Experiment(min_ctr.NAME, "Ads over the least click-through rate (figure 4.4).", min_ctr.run, draw_min_ctr),
    Experiment(
        communication.NAME, "Ads over the number that is sent (figure 4.5).", communication.run, draw_communication
    ),
    Experiment(disclosure.NAME, "Ads over what is disclosed (figure 4.6).", disclosure.run, draw_disclosure),
    Experiment(
        private_rates.NAME,
        "Ads by differentially private rates (figure 5.2).",
        private_rates.run,
        draw_private_rates,
        simulated=True,
    ),
    Experiment(surface.NAME, "Disclosure against revenue against bytes.", surface.run, draw_surface),
)
PHASES = Experiment(phases.NAME, "Phases of a query if users are absent (figure 5.3).", phases.run, draw_phases)

Count = Annotated[int, Parameter(validator=Number(gte=1))]


@dataclass(frozen=True)
class OutputOptions:
    """The options of every experiment."""

    quick: Annotated[bool, Parameter(negative="")] = False
    "Use less data: less than a minute."
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = FOLDER
    "The folder for the CSV, the JSON and the picture."
    as_json: AsJson = False
    "Print JSON."


@dataclass(frozen=True)
class CommonOptions(OutputOptions):
    """The options of the experiments on data."""

    workers: Count | None = None
    "The number of processes, by default one for each processor. It changes no result."


@Parameter(name="*")
@dataclass(frozen=True)
class Options(CommonOptions):
    """The options of the experiments about masks."""

    traces: Path | None = None
    "Use real people: CSV (also .csv.gz) or Parquet with the columns user, time and context."
    zone: str | None = None
    "The time zone of the traces, such as Europe/Paris."
    people: Count | None = None
    "The most people. The default is 91 simulated ones, or all of the traces."
    seed: int = 1
    "The seed of the people, their days, their sensitive contexts and all coins."

    @property
    def settings(self) -> Settings:
        """The data and the options of a run."""
        if self.zone is not None and self.traces is None:
            raise ValueError("--zone is the time zone of the traces: it needs --traces")
        return Settings(self.seed, self.people, self.quick, self.traces, self.zone, self.workers)


@Parameter(name="*")
@dataclass(frozen=True)
class AdOptions(CommonOptions):
    """The options of the experiments about ads."""

    data: Path | None = None
    "Use real check-ins: a folder with categories.csv and checkins.csv (also .csv.gz)."
    people: Count | None = None
    "The users of each simulated world. The default depends on the experiment."
    seed: int = 1
    "The seed of the worlds, their logs, the test contexts and all noise."

    @property
    def settings(self) -> SampleSettings:
        """The data and the options of a run."""
        if self.data is not None and self.people is not None:
            raise ValueError("--people is the size of simulated worlds: leave it out with --data")
        return SampleSettings(self.seed, self.people, self.quick, self.data, self.workers)


@Parameter(name="*")
@dataclass(frozen=True)
class PhaseOptions(OutputOptions):
    """The options of the experiment about phases."""

    seed: int = 1
    "The seed of all absences."


def _maskit(experiments: Sequence[Experiment[Runner]]) -> Callable[..., None]:
    def command(*, options: Options = Options()) -> None:
        _run(experiments, options, lambda progress: Runner(options.settings, progress))

    return command


def _ads(experiments: Sequence[Experiment[SampleRunner]]) -> Callable[..., None]:
    def command(*, options: AdOptions = AdOptions()) -> None:
        suited = [each for each in experiments if options.data is None or len(experiments) == 1 or not each.simulated]
        _run(suited, options, lambda progress: SampleRunner(options.settings, progress))

    return command


def _run(experiments: Sequence[Experiment[R]], options: OutputOptions, make_runner: Callable[[Progress], R]) -> None:
    results = []
    with _progress() as (update, name):
        runner = make_runner(update)
        for experiment in experiments:
            name(experiment.name)
            result = experiment.run(runner)
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


for _experiment in MASKIT:
    app.command(_maskit([_experiment]), name=_experiment.name, help=_experiment.help)
app.command(_maskit(MASKIT), name="maskit", help="All experiments of section 3.7 of Götz's dissertation.")
for _ad_experiment in ADS:
    app.command(_ads([_ad_experiment]), name=_ad_experiment.name, help=_ad_experiment.help)
app.command(
    _ads(ADS), name="ads", help="All experiments about ads: sections 4.4 and 5.6 of Götz's dissertation, and ours."
)


@app.command(name=PHASES.name, help=PHASES.help)
def _phases(*, options: PhaseOptions = PhaseOptions()) -> None:
    _run([PHASES], options, lambda _: phases.PhaseSettings(options.seed, options.quick))


@app.command(name="month")
def _month(
    *,
    people: Count = 20,
    days: Count = 30,
    delta: float = 0.1,
    seed: int = 1,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = FOLDER,
    as_json: AsJson = False,
) -> int:
    """Compare the checks on twenty people for a month.

    Each person sometimes visits a hospital, and wants to keep the times secret. A check decides which hours of a day
    may be released. An observer knows the person's habits and the check, and sees all releases of a day. The result is
    a table, and a picture of one day.

    Exits with 1 if a private check lets the observer's belief rise by more than delta on a day that follows the habits.

    Args:
        people: The number of people.
        days: The number of days of each person. Habits are learned from the 84 days before.
        delta: The most by which the belief in the hospital may rise.
        seed: The seed of the people, their days and all coins.
        output: The folder for month.json, which `--json` prints, month.csv and month.png.
        as_json: Print JSON.
    """
    delta = checked_delta(delta)
    output.mkdir(parents=True, exist_ok=True)
    table, example = _months(people, days, delta, seed)
    data = table.to_json() | {"picture": {"person": example.person, "day": example.day}}
    (output / "month.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    table.write_csv(output / "month.csv")
    draw(example, output / "month.png")
    console = Console()
    if as_json:
        console.print_json(data=data)
    else:
        table.show(console)
        written = "month.csv, month.json, month.png"
        console.print(f"\nWritten to {output}: {written}", soft_wrap=True, highlight=False)
    return ExitCode.DONE if table.kept else ExitCode.BAD_ANSWER


def _months(people: int, days: int, delta: float, seed: int) -> tuple[MonthTable, ExampleDay]:
    """The table of all people, and the day that shows most."""
    scores = {check: Score(check) for check in CHECKS}
    examples: list[ExampleDay] = []
    world = World(seed, people, routines=people)  # everybody has habits of their own
    with _progress() as (update, name):
        for number in range(people):

            def show_check(check: str, number: int = number) -> None:
                name(f"person {number}: {check:<14}")
                update(number, people)

            for part in month(world.person(number), days, delta, show_check):
                for score in part.scores():
                    scores[score.check] += score
                examples = [max([*examples, *example_days(part)], key=lambda day: day.interest)]
    return MonthTable(people, days, delta, seed, scores), examples[0]


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


@app.command
def intervals(
    traces: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    gap: Annotated[float, Parameter(validator=Number(gt=0))] = 120.0,
    zone: str | None = None,
) -> None:
    """Write when phones are on, by the gaps of traces: CSV with phone, on and off, for `reticent simulate`.

    Args:
        traces: CSV (also .csv.gz) or Parquet with the columns user, time and context.
        output: The file for the intervals.
        gap: The longest time in minutes without a reading in which a phone is on.
        zone: The time zone of the traces, such as Europe/Paris.
    """
    found = intervals_of(read_traces(traces, zone=zone), dt.timedelta(minutes=gap))
    replace(output, write_intervals(found).encode(), PUBLIC)
    days = (max(each.off for each in found) - min(each.on for each in found)).days + 1
    phones = len({each.phone for each in found})
    numbers = f"{plural(phones, 'phone')}, {plural(len(found), 'interval')} in {plural(days, 'day')}"
    Console().print(f"{numbers.replace(SPACE, ' ')}, written to {output}", soft_wrap=True, highlight=False)


@contextmanager
def _progress() -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """A progress bar on standard error: the function that moves it, and the one that names the experiment."""
    with progress_bar() as bar:
        task = bar.add_task("", total=None)
        yield (
            lambda done, total: bar.update(task, completed=done, total=total),
            lambda name: bar.update(task, description=name, completed=0, total=None),
        )
