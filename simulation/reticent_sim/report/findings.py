"""The findings of an experiment, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from reticent_sim.experiments.results import Result
from reticent_sim.experiments.verdicts import Verdict

_VERDICTS = {
    Verdict.HOLDS: Text("holds", style="bold green"),
    Verdict.FAILS: Text("does not hold", style="bold red"),
    Verdict.UNDECIDED: Text("undecided: too few people", style="bold yellow"),
}


def show(console: Console, result: Result) -> None:
    """Print the findings."""
    settings = result.settings
    console.print(Text(result.title, style="bold"))
    console.print(
        f"{settings['people']} people ({settings['source']}), {settings['steps']} steps a day. "
        f"{settings['judged_days_off_model']} of the {settings['judged_days']} test days leave the chains."
    )
    for finding in result.findings:
        console.print()
        console.print(_VERDICTS[finding.verdict] + Text(f"  {finding.claim}"))
        if finding.published:
            console.print(Text(f"  published  {finding.published}"))
        console.print(Text(f"  here       {finding.ours}"))
        console.print(Text(f"  holds if   {finding.rule}", style="dim"))
    if settings["seeded"]:
        console.print(f"\nEverything follows from seed {settings['seed']}: this is a simulation and protects nobody.")
