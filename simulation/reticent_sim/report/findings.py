"""The findings of an experiment, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from reticent_sim.experiments.results import Result
from reticent_sim.experiments.verdicts import Verdict

_STYLES = {
    Verdict.HOLDS: "bold green",
    Verdict.FAILS: "bold red",
    Verdict.UNDECIDED: "bold yellow",
}


def show(console: Console, result: Result) -> None:
    """Print the findings."""
    settings = result.settings
    console.print(Text(result.title, style="bold"))
    console.print(f"{settings['summary']}.", highlight=False)
    for finding in result.findings:
        console.print()
        reason = f": too few {settings['intervals']}" if finding.verdict == Verdict.UNDECIDED else ""
        console.print(
            Text(f"{finding.verdict.value}{reason}", style=_STYLES[finding.verdict]) + Text(f"  {finding.claim}")
        )
        if finding.published:
            console.print(Text(f"  published  {finding.published}"))
        console.print(Text(f"  here       {finding.ours}"))
        console.print(Text(f"  holds if   {finding.rule}", style="dim"))
    if settings["seeded"]:
        console.print(f"\nEverything follows from seed {settings['seed']}: this is a simulation and protects nobody.")
