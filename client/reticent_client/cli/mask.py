"""`reticent mask`: compute, run, explain and audit what a phone releases or suppresses."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from reticent.console.options import AsJson
from reticent.randomness import secure, seeded
from reticent.storage import files
from reticent_client.cli.audit import audit_days
from reticent_client.cli.inspection import inspect_traces
from reticent_client.cli.learn import learn
from reticent_client.cli.mask_files import (
    OptionalOutput,
    Output,
    busy,
    new_table,
    read_any_days,
    read_chain,
    read_policy,
    read_policy_days,
    sensitive_state,
    terminal,
    write_json,
)
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.checks.registry import CHECKS, Check
from reticent_client.mask.days_file import DayRecord, write_days
from reticent_client.mask.explanation import explain
from reticent_client.mask.explanation_text import percent, reason
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.occupancy import release_probabilities
from reticent_client.mask.policy import Policy
from reticent_client.mask.times_of_day import step_at, time_of

if TYPE_CHECKING:
    CheckName = str
else:
    CheckName = Literal[tuple(CHECKS)]

app = App(
    name="mask",
    default_parameter=Parameter(negative=()),
)

app.command(learn)
app.command(inspect_traces, name="inspect")
app.command(audit_days, name="audit")


@app.command
def fit(days: Path | None = None, /, *, output: Output, smoothing: float = 0.0) -> None:
    """Learn a user's chain from days.

    The days are not protected: policies made from the chain are public.

    Args:
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        output: The file for the chain.
        smoothing: A number that is added to every count.
    """
    files.check_distinct([output], [days])
    MarkovChain.fit((day.labels for day in read_any_days(days)), smoothing=smoothing).save(output)


@app.command
def policy(
    chain: Path,
    /,
    *,
    sensitive: list[str],
    output: Output,
    check: CheckName = "hybrid",
    delta: float | None = None,
    plan: Literal["greedy", "best"] | None = None,
    search: Literal["greedy", "exact"] | None = None,
    grid: int | None = None,
    effort: int | None = None,
    time_limit: float | None = None,
    against: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a policy, and show what it will release.

    Args:
        chain: The user's chain, from `fit` or `learn`.
        sensitive: A sensitive context: LABEL, or STEP:LABEL for one step. May be repeated.
        output: The file for the policy.
        check: The algorithm that computes the policy.
        delta: The most by which the belief in a sensitive context may rise.
        plan: Where simulatable releases: at the first safe step, or at the safe steps that release most.
        search: How probabilistic searches.
        grid: The number of parts into which probabilistic divides a probability.
        effort: The number of rounds that a check searches.
        time_limit: The number of seconds after which a search stops.
        against: The chains that adversaries may know for certain, in place of the user's own.
        as_json: Write JSON.
    """
    files.check_distinct([output], [chain, *(against or ())])
    options: dict[str, object] = {
        "delta": delta,
        "plan": plan,
        "search": search,
        "grid": grid,
        "effort": effort,
        "time_limit": time_limit,
        "against": against,
    }
    options = {name: value for name, value in options.items() if value is not None}
    _check_options(CHECKS[check], options)
    user = read_chain(chain)
    if against is not None:
        options["against"] = [read_chain(path) for path in against]
    states = {sensitive_state(text, user) for text in sensitive}
    with busy(f"Computing the {check} policy"):
        found = CHECKS[check].compute(user, sensitive=states, **options)
        found.save(output)
        expected, released = user.prior.sum(axis=0), release_probabilities(found).sum(axis=0)
    _show_policy(found, [*zip(found.contexts, expected.tolist(), released.tolist(), strict=True)], as_json=as_json)


@app.command(name="filter")
def filter_days(
    policy: Path,
    days: Path | None = None,
    /,
    *,
    seed: int | None = None,
    output: OptionalOutput = None,
) -> None:
    """Run a policy over days. The output has the same form; a suppressed step has an empty context.

    A report goes to standard error.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        seed: A seed for the coins. For simulation only: anyone who knows the seed can undo suppressions.
        output: The file for the released days. The default is standard output.
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
    sys.stderr.write(f"{mask.report()}\n")


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
        as_json: Write JSON.
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
            rows.add_row(each.context, percent(each.suppression), reason(each, loaded.horizon))
    screen.print(rows)
    if impossible:
        screen.print(f"\nRuled out by the chain, and suppressed as off-model if they occur: {', '.join(impossible)}.")


def _check_options(check: Check, options: Collection[str]) -> None:
    """Refuse what the check does not take, and a missing delta."""
    for name in options:
        if name not in check.options:
            takers = ", ".join(other.name for other in CHECKS.values() if name in other.options)
            raise ValueError(f"--{name.replace('_', '-')} is no option of the check {check.name}: it is for {takers}")
    if check.private and "delta" not in options:
        raise ValueError(f"--delta is missing: the check {check.name} needs it")


def _show_policy(found: Policy, contexts: list[tuple[str, float, float]], *, as_json: bool) -> None:
    """Print a policy's expected releases a day, and those of each context."""
    share = found.utility / found.ceiling if found.ceiling else None
    if as_json:
        write_json(
            {
                "check": found.check,
                "steps": found.horizon,
                "utility": found.utility,
                "ceiling": found.ceiling,
                "complete": found.complete,
                "contexts": [
                    {"context": label, "expected": often, "released": seen} for label, often, seen in contexts
                ],
            }
        )
        return
    screen = terminal()
    reached = "" if share is None else f", {percent(share)} of the most that is possible"
    screen.print(
        f"{found.check}: releases {found.utility:.2f} of {found.horizon} steps on an average day "
        f"({percent(found.utility / found.horizon)}){reached}"
    )
    if not found.complete:
        screen.print("The search was cut short. The policy is private; a longer search may release more.")
    screen.print("Most suppressed contexts:\n")
    rows = new_table("context", "steps a day", "suppressed")
    for label, often, seen in sorted(contexts, key=lambda row: row[2] - row[1])[:10]:
        rows.add_row(label, f"{often:.2f}", percent(1 - seen / often) if often > 0 else "-")
    screen.print(rows)


def _release(text: str | None, horizon: int) -> tuple[int, str] | Literal["start"] | None:
    if text is None:
        return None
    if text == "start":
        return "start"
    time, equals, label = text.partition("=")
    if not equals:
        raise ValueError(f"--released is a time and a context, as in 08:00=home, or start: got {text!r}")
    return step_at(time, horizon), label
