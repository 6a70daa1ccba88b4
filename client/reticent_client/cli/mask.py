"""`reticent mask`: compute, run, explain and audit the policies that decide which contexts a phone releases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts import App, Parameter

from reticent.console.options import AsJson, in_json
from reticent.console.text import write_notes
from reticent.randomness import secure, seeded
from reticent.storage import files
from reticent_client.cli.audit import audit_days
from reticent_client.cli.compare import compare_checks
from reticent_client.cli.inspection import inspect_traces
from reticent_client.cli.learn import learn
from reticent_client.cli.mask_files import (
    OptionalOutput,
    Output,
    busy,
    new_table,
    read_any_days,
    read_policy,
    read_policy_days,
    terminal,
    write_json,
)
from reticent_client.cli.picture import draw_picture
from reticent_client.cli.policy import make_policy
from reticent_client.cli.show import show_file
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.days_file import DayRecord, write_days
from reticent_client.mask.description import describe_chain
from reticent_client.mask.explanation import explain
from reticent_client.mask.explanation_text import percent, reason
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.times_of_day import step_at, time_of

app = App(
    name="mask",
    default_parameter=Parameter(negative=()),
)

app.command(learn)
app.command(inspect_traces, name="inspect")
app.command(make_policy, name="policy")
app.command(compare_checks, name="compare")
app.command(show_file, name="show")
app.command(draw_picture, name="picture")
app.command(audit_days, name="audit")


@app.command
def fit(days: Path | None = None, /, *, output: Output, smoothing: float = 0.0, as_json: AsJson = False) -> None:
    """Learn a Markov chain of a user's contexts from days.

    The chain and its policies reveal the user's habits: adversaries are assumed to know them.

    Args:
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        output: The file for the chain.
        smoothing: A number that is added to the count of every transition.
        as_json: Print JSON.
    """
    files.check_distinct([output], [days])
    real = read_any_days(days)
    chain = MarkovChain.fit((day.labels for day in real), smoothing=smoothing)
    chain.save(output)
    if as_json:
        write_json({"days": len(real)} | describe_chain(chain).to_json())


@app.command(name="filter")
def filter_days(
    policy: Path,
    days: Path | None = None,
    /,
    *,
    seed: int | None = None,
    output: OptionalOutput = None,
    as_json: AsJson = False,
) -> None:
    """Run a policy over days, and write what it releases.

    The output has the form of the input. A suppressed step has an empty context. A report goes to standard
    error; with `--output` and `--json`, to standard output.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        seed: A seed for the random decisions. For simulation only: anyone who knows the seed can undo suppressions.
        output: The file for the released days. The default is standard output.
        as_json: Print JSON.
    """
    files.check_distinct([output], [policy, days])
    loaded = read_policy(policy)
    mask = MaskIt(loaded, secure() if seed is None else seeded(seed))
    masked = [DayRecord(day.name, mask.filter_day(day.labels)) for day in read_policy_days(days, loaded)]
    comment = None if seed is None else f"seeded with {seed}: for simulation only"
    if output is None:
        write_days(sys.stdout, masked, comment)
    else:
        with output.open("w", encoding="utf-8", newline="") as file:
            write_days(file, masked, comment)
    report = f"{in_json(mask.report().to_json()) if as_json else mask.report()}\n"
    (write_notes if output is None or not as_json else sys.stdout.write)(report)


@app.command(name="explain")
def explain_step(
    policy: Path,
    /,
    *,
    at: str,
    context: list[str] | None = None,
    released: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a policy suppresses or releases each context at a step.

    Args:
        policy: The policy.
        at: A local time of day such as 08:30, or the number of a step.
        context: Explain this context only. May be repeated.
        released: The last release before the step, as 08:00=home or 16=home, or `start` for none since the day began.
            The default is the most likely one.
        as_json: Print JSON.
    """
    loaded = read_policy(policy)
    step = step_at(at, loaded.horizon)
    with busy("Computing beliefs"):
        found = explain(loaded, step, _release(released, loaded.horizon), contexts=context)
    if as_json:
        write_json(found.to_json())
        return
    screen = terminal()
    last = "nothing was released before"
    if found.released is not None:
        last = f"{found.released[1]!r} was released last, at {time_of(found.released[0], loaded.horizon)}"
    how = "" if found.likelihood is None else f" (the most likely case, {percent(found.likelihood)} of days)"
    screen.print(f"At {time_of(step, loaded.horizon)} (step {step}), when {last}{how}:\n")
    rows = new_table("context", "suppressed", "why")
    impossible = []
    for each in found.contexts:
        if each.suppression is None:
            impossible.append(repr(each.context))
        else:
            rows.add_row(each.context, percent(each.suppression), reason(each, loaded.horizon, found.hidden))
    screen.print(rows)
    if impossible:
        screen.print(f"\nRuled out by the chain, and suppressed as off-model if they occur: {', '.join(impossible)}.")


def _release(text: str | None, horizon: int) -> tuple[int, str] | Literal["start"] | None:
    if text is None:
        return None
    if text == "start":
        return "start"
    time, equals, label = text.partition("=")
    if not equals:
        raise ValueError(f"--released is a time and a context, as in 08:00=home, or start: got {text!r}")
    return step_at(time, horizon), label
