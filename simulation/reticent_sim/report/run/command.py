"""A simulation as a command: a live view while it runs, then its files and one screen of results."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from reticent.console.options import in_json
from reticent_sim.engine.backends import BackendName
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import Run, simulate
from reticent_sim.report.run.csvs import write_csvs
from reticent_sim.report.run.live import LiveView
from reticent_sim.report.run.page import write_report
from reticent_sim.report.run.summary import summary

__all__ = ["REPORT_FILE", "print_run", "simulate_live", "write_files"]

REPORT_FILE = "report.html"


def simulate_live(
    scenario: Scenario, out: Path | None, *, engine: BackendName = "local", workers: int | None = None
) -> Run:
    """Simulate, and show the state of the run on standard error: see `reticent_sim.engine.simulation.simulate`."""
    with LiveView(Console(stderr=True)) as view:
        return simulate(scenario, out, engine=engine, workers=workers, show=view.update)


def write_files(run: Run, folder: Path) -> None:
    """Write the report and the CSV files of a run."""
    write_csvs(run.data, folder)
    write_report(run.data, folder / REPORT_FILE)


def print_run(run: Run, folder: Path | None, *, as_json: bool) -> None:
    """Print run.json, or one screen of results and the path of the report in the folder, if there is one."""
    console = Console()
    if as_json:
        console.out(in_json(run.data), highlight=False)
        return
    summary(console, run.data)
    if folder is not None:
        console.print(f"report: {folder / REPORT_FILE}", soft_wrap=True, highlight=False)
