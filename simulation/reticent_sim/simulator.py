"""`reticent simulate`: thousands of phones against real servers, and a report."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict
from cyclopts.validators import Number
from rich.console import Console

from reticent.console.configuration import configured
from reticent.console.options import AsJson
from reticent.errors import ExitCode, MissingExtra, ReticentError
from reticent.storage.documents import parse_json, parse_toml
from reticent_sim.engine.backends import BackendName
from reticent_sim.engine.coordinator import SCENARIO_FILE
from reticent_sim.engine.faults import FaultSchedule, ShrinkProgress, shrink
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import FAULTS_FILE, TRACE_FILE, Run, simulate
from reticent_sim.engine.trace import first_difference
from reticent_sim.report.progress import progress_bar
from reticent_sim.report.run.command import print_run, simulate_live, write_files
from reticent_sim.report.timeline import draw_timeline

SHRUNK_FILE, TIMELINE_FILE = "shrunk.jsonl", "shrunk.png"
RESULTS = ("days", "masks", "rates", "budget", "counts")
"""The results that two simulations must have in common besides the trace."""
MAX_RUNS = 60
"""The most runs of a reduction."""

DEFAULT = Scenario()


def _from_file(app: cyclopts.App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take the options that are not given from the scenario file."""
    named = [token.value for argument in arguments if argument.name == "--scenario" for token in argument.tokens]
    if not named:
        return
    path = Path(named[-1])
    try:
        content = parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no scenario: {error}") from error
    names = {each.name for each in dataclasses.fields(Scenario)}
    if unknown := sorted(content.keys() - names):
        raise ValueError(f"{path}: a scenario has the keys {', '.join(sorted(names))}: got {unknown[0]!r}")
    for name in ("faults", "intervals"):
        if isinstance(content.get(name), str):
            content[name] = str(path.parent / content[name])
    content = {name.replace("_", "-"): value for name, value in content.items()}
    # In a table: at the top of a dictionary, cyclopts ignores keys like "ads", which are commands of `reticent`.
    Dict({"simulate": content}, source=str(path))(app, ("simulate",), arguments)


app = cyclopts.App(
    name="simulate",
    config=[_from_file, *configured("simulate")],
    default_parameter=cyclopts.Parameter(negative_iterable=(), negative_none=()),
)


@app.default
def simulate_command(
    *,
    scenario: Path | None = None,  # noqa: ARG001  # `_from_file` reads it
    options: Annotated[Scenario, cyclopts.Parameter(name="*")] = DEFAULT,
    out: Path | None = None,
    engine: BackendName = "local",
    workers: Annotated[int | None, cyclopts.Parameter(validator=Number(gte=1))] = None,
    twice: Annotated[bool, cyclopts.Parameter(negative=())] = False,
    shrink_run: Annotated[Path | None, cyclopts.Parameter(name="--shrink")] = None,
    as_json: AsJson = False,
) -> int:
    """Simulate phones with real servers, real connections and simulated time.

    People live, their phones release or suppress contexts, apps show ads, and an analyst counts the phones. The same
    scenario gives the same trace, whatever the number of workers. If a worker dies for another reason than a fault of
    the scenario, the simulation ends with an error.

    Exits with 1 if a promise is broken: a private check lets a belief rise by more than delta, a phone releases what
    the policy must suppress, a release is not the sum of what the phones contributed, a query is burnt without a
    cause, or two simulations differ.

    Args:
        scenario: A TOML file with options of the scenario, such as phones = 1000. Those on the command line win.
        options: The scenario.
        out: An empty folder for all files. Without it, no files are kept.
        engine: Where the workers run: processes of this machine, or a Ray cluster, which is that of RAY_ADDRESS or new.
        workers: The number of workers, by default one for each processor. It changes no result.
        twice: Simulate twice, and name the first event or result that differs.
        shrink_run: The folder of a run that broke a promise or ended with an error. Find the few faults that matter,
            and draw them.
        as_json: Print JSON.
    """
    if twice and options.database is not None:
        raise ValueError("each simulation needs an empty database: leave out --twice or --database")
    if shrink_run is not None:
        return _shrink(shrink_run, engine, workers)
    with _folder(out) as folder:
        run = simulate_live(options, folder, engine=engine, workers=workers)
        write_files(run, folder)
        difference = _second_run(run, folder, engine, workers) if twice else None
    print_run(run, out, as_json=as_json)
    if twice and difference is None and not as_json:
        Console().print("a second simulation has the same trace and results", highlight=False)
    if difference is not None:
        Console(stderr=True).print(difference, soft_wrap=True, highlight=False, markup=False)
    return ExitCode.BAD_ANSWER if run.problems or difference is not None else ExitCode.DONE


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="reticent-simulation-") as name:
        yield Path(name) / "run"


def _second_run(run: Run, folder: Path, engine: BackendName, workers: int | None) -> str | None:
    """Simulate the same again. Returns the first difference as a sentence; None if there is none."""
    with tempfile.TemporaryDirectory(prefix="reticent-simulation-") as name:
        second = simulate_live(run.scenario, Path(name) / "run", engine=engine, workers=workers)
        if second.trace == run.trace:
            return _different_results(run, second)
        found = first_difference(folder / TRACE_FILE, Path(name) / "run" / TRACE_FILE)
    lines = [each or "the end of the trace" for each in found or ("", "")]
    return f"the traces differ, first in these events:\n  {lines[0]}\n  {lines[1]}"


def _different_results(first: Run, second: Run) -> str | None:
    """The first result that differs, as a sentence; None if there is none. Real seconds and costs may differ."""
    for name in RESULTS:
        found = _first_difference(name, first.data[name], second.data[name])
        if found is not None:
            return f"the traces are the same, and the results differ, first in {found}"
    return None


def _first_difference(place: str, one: Any, other: Any) -> str | None:
    """The first place in which two documents differ, with both values."""
    if one == other:
        return None
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        parts = [(f"{place}.{key}", one[key], other[key]) for key in one if key != "seconds"]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [(f"{place}[{number}]", *pair) for number, pair in enumerate(zip(one, other, strict=True))]
    else:
        return f"{place}: {one!r} and {other!r}"
    return next((found for part in parts if (found := _first_difference(*part)) is not None), None)


def _shrink(folder: Path, engine: BackendName, workers: int | None) -> int:
    """Reduce the faults of a run that broke a promise, or ended with an error."""
    content = parse_json((folder / SCENARIO_FILE).read_text(encoding="utf-8"))
    scenario = Scenario.of(content["scenario"])
    if scenario.database is not None:
        raise ValueError(f"each simulation needs an empty database: the faults of {folder} cannot be reduced")
    number = content["workers"] if workers is None else workers
    schedule = FaultSchedule.from_text((folder / FAULTS_FILE).read_text(encoding="utf-8"), FAULTS_FILE)
    with progress_bar() as bar:
        task = bar.add_task(f"{len(schedule)} faults", total=MAX_RUNS)

        def fails(faults: FaultSchedule) -> bool:
            try:
                return bool(simulate(scenario, engine=engine, workers=number, faults=faults).problems)
            except MissingExtra:
                raise
            except (ReticentError, TimeoutError):
                return True

        def show(progress: ShrinkProgress) -> None:
            bar.update(task, completed=progress.runs, description=f"{progress.faults} faults")

        found = shrink(schedule, fails, max_runs=MAX_RUNS, on_progress=show)
    (folder / SHRUNK_FILE).write_text(found.to_text(), encoding="utf-8")
    draw_timeline(found, folder / TIMELINE_FILE)
    console = Console()
    console.print(f"{len(found)} of {len(schedule)} faults matter:", highlight=False)
    for fault in found.faults:
        console.print(f"  {fault.to_json()}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Written to {folder}: {SHRUNK_FILE}, {TIMELINE_FILE}", soft_wrap=True, highlight=False)
    return ExitCode.DONE
