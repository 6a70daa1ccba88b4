"""`reticent demo`: a thousand phones for some days, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts.validators import Number

from reticent.console.options import AsJson, in_json
from reticent.errors import ExitCode
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.simulation import RUN_FILE
from reticent_sim.report.run.command import print_run, simulate_live, write_files

app = cyclopts.App(name="demo")

SCENARIO = Scenario(
    phones=1000,
    days=4,
    check="optimal",
    compare=("hybrid",),
    routines=6,
    rates_epsilon=4.0,
    entries=8,
    counts=1,
    counters=16,
    cohorts=15,
    absent=0.1,
    attacks={"wild": 2, "garbage": 2, "replay": 2, "flood": 2, "silence": 2, "colluder": 2},
)
"""The whole story: masks, ads, learned rates, a count, absent and malicious phones."""
FEWEST_PHONES = 150
"""Ten in each cohort of the count."""

Phones = Annotated[int, cyclopts.Parameter(validator=Number(gte=FEWEST_PHONES))]


@app.default
def demo(
    *,
    phones: Phones = SCENARIO.phones,
    days: Annotated[int, cyclopts.Parameter(validator=Number(gte=1))] = SCENARIO.days,
    seed: int = SCENARIO.seed,
    output: Annotated[Path, cyclopts.Parameter(name=["--output", "-o"])] = Path("demo"),
    as_json: AsJson = False,
) -> int:
    """Simulate a thousand phones with real servers, and write a report.

    People live for some days. Their phones release or suppress contexts, show ads, and are counted. Each evening an
    analyst estimates the click-through rates of ads from private counts, and the next day's ads are chosen by them. In
    each phase a tenth of the phones is absent, and a few are malicious. `reticent simulate` has all options.

    Exits with 1 if a promise is broken: a private check lets a belief rise by more than delta, a phone releases what
    the policy must suppress, a release is not the sum of what the phones contributed, or a query is burnt without a
    cause.

    Args:
        phones: The number of phones.
        days: The number of days.
        seed: The seed of the people and of all randomness.
        output: The folder for report.html, run.json, which `--json` prints, and the CSV files. Those of a former demo
            are replaced, and other files stay.
        as_json: Print JSON.
    """
    scenario = SCENARIO.changed(phones=phones, days=days, seed=seed)
    output.mkdir(parents=True, exist_ok=True)
    run = simulate_live(scenario, None)
    (output / RUN_FILE).write_text(in_json(run.data) + "\n", encoding="utf-8")
    write_files(run, output)
    print_run(run, output, as_json=as_json)
    return ExitCode.BAD_ANSWER if run.problems else ExitCode.DONE
