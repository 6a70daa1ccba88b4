"""`reticent mask`: compute, run, explain and audit the policies that decide which contexts a phone releases."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from reticent.console.options import AsJson, in_json
from reticent.console.program import BAD_ANSWER
from reticent.randomness import secure, seeded
from reticent.storage import files
from reticent_client.cli.learn import learn
from reticent_client.errors import FileError
from reticent_client.mask.audit import audit
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.checks.optimal import ceiling
from reticent_client.mask.checks.registry import CHECKS, Check
from reticent_client.mask.days_file import DayRecord, read_days, write_days
from reticent_client.mask.explanation import explain
from reticent_client.mask.explanation_text import percent, reason
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.occupancy import release_probabilities
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import SensitiveState
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

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
OptionalOutput = Annotated[Path | None, Parameter(name=["--output", "-o"])]


@app.command
def fit(days: Path | None = None, /, *, output: Output, smoothing: float = 0.0) -> None:
    """Learn a Markov chain of a user's contexts from days.

    The chain and its policies reveal the user's habits: adversaries are assumed to know them.

    Args:
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        output: The file for the chain.
        smoothing: A number that is added to the count of every transition.
    """
    files.check_distinct([output], [days])
    MarkovChain.fit((day.labels for day in _days(days)), smoothing=smoothing).save(output)


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
        delta: The largest rise that is allowed for an adversary's belief in a sensitive context.
        plan: For simulatable: release at the first safe step (greedy), or at the safe steps that release most (best).
        search: For probabilistic: search fast (greedy), or find the best policy of the grid (exact; small chains only).
        grid: For probabilistic: the number of parts into which a probability is divided.
        effort: For checks that search: the number of rounds.
        time_limit: For checks that search: the seconds after which the search stops. The policy is still private.
        against: Protect against adversaries who know one of these chains, in place of the user's own.
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
    user = _chain(chain)
    if against is not None:
        options["against"] = [_chain(path) for path in against]
    states = {_state(text, user) for text in sensitive}
    with _busy(f"Computing the {check} policy"):
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
    """Run a policy over days, and write what it releases.

    The output has the form of the input. A suppressed step has an empty context. A report goes to standard error.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        seed: A seed for the random decisions. For simulation only: anyone who knows the seed can undo suppressions.
        output: The file for the released days. The default is standard output.
    """
    files.check_distinct([output], [policy, days])
    loaded = _policy(policy)
    mask = MaskIt(loaded, secure() if seed is None else seeded(seed))
    masked = [DayRecord(day.name, mask.filter_day(day.labels)) for day in _days(days, loaded.horizon)]
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
    loaded = _policy(policy)
    step = step_at(at, loaded.horizon)
    with _busy("Computing beliefs"):
        found = explain(loaded, step, _release(released, loaded.horizon), contexts=context)
    if as_json:
        _write_json(found.to_json())
        return
    console = _console()
    last = "nothing was released before"
    if found.released is not None:
        last = f"{found.released[1]!r} was released last, at {time_of(found.released[0], loaded.horizon)}"
    how = "" if found.likelihood is None else f" (the most likely case, {percent(found.likelihood)} of days)"
    console.print(f"At {time_of(step, loaded.horizon)} (step {step}), when {last}{how}:\n")
    table = _table("context", "suppressed", "why")
    impossible = []
    for each in found.contexts:
        if each.suppression is None:
            impossible.append(repr(each.context))
        else:
            table.add_row(each.context, percent(each.suppression), reason(each, loaded.horizon))
    console.print(table)
    if impossible:
        console.print(f"\nRuled out by the chain, and suppressed as off-model if they occur: {', '.join(impossible)}.")


@app.command(name="audit")
def audit_days(
    policy: Path,
    days: Path | None = None,
    /,
    *,
    delta: float | None = None,
    with_ceiling: Annotated[bool, Parameter(name="--ceiling")] = False,
    seed: int | None = None,
    as_json: AsJson = False,
) -> int:
    """Run a policy over days, and show what an adversary learned.

    Exits with 1 if the belief in a sensitive context rose by more than delta while the user was there.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        delta: A rise above this is a breach. The default is the policy's own delta.
        with_ceiling: Also compute the most that any private policy can release, unless the policy file states it.
        seed: A seed for the random decisions. For simulation only.
        as_json: Write JSON.
    """
    loaded = _policy(policy)
    if delta is None and loaded.check in CHECKS and not CHECKS[loaded.check].private:
        raise ValueError(f"--delta is missing: a {loaded.check} policy has none of its own")
    real = _days(days, loaded.horizon)
    with _busy("Auditing") as show:
        most = _ceiling(loaded, delta) if with_ceiling and loaded.ceiling is None else None
        found = audit(
            loaded,
            [day.labels for day in real],
            delta=delta,
            rng=secure() if seed is None else seeded(seed),
            ceiling=most,
            progress=lambda done: show(f"Auditing: {done} of {len(real)} days"),
        )
    if as_json:
        _write_json(found.to_json())
    else:
        table = _table()
        for name, value in found.rows():
            table.add_row(name, value)
        _console().print(table)
    return BAD_ANSWER if found.breaches else 0


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
        _write_json(
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
    console = _console()
    reached = "" if share is None else f", {percent(share)} of the most that is possible"
    console.print(
        f"{found.check}: releases {found.utility:.2f} of {found.horizon} steps on an average day "
        f"({percent(found.utility / found.horizon)}){reached}"
    )
    if not found.complete:
        console.print("The search was cut short. The policy is private; a longer search may release more.")
    console.print("Most suppressed contexts:\n")
    table = _table("context", "steps a day", "suppressed")
    for label, often, seen in sorted(contexts, key=lambda row: row[2] - row[1])[:10]:
        table.add_row(label, f"{often:.2f}", percent(1 - seen / often) if often > 0 else "-")
    console.print(table)


def _ceiling(policy: Policy, delta: float | None) -> float:
    """The most that a policy with these deltas can release."""
    own = policy.chain.to_json()
    if policy.against and all(other.to_json() != own for other in policy.against):
        raise ValueError("--ceiling is for policies made against the user's own chain")
    deltas = {state: limit if delta is None else delta for state, limit in policy.sensitive.items()}
    return ceiling(policy.chain, sensitive=deltas)


def _state(text: str, chain: MarkovChain) -> SensitiveState:
    """A context, or the context of a step."""
    state = re.fullmatch(r"(\d+):(.*)", text)
    if chain.find(text) is not None or state is None:
        return text
    return int(state[1]), state[2]


def _release(text: str | None, horizon: int) -> tuple[int, str] | Literal["start"] | None:
    if text is None:
        return None
    if text == "start":
        return "start"
    time, equals, label = text.partition("=")
    if not equals:
        raise ValueError(f"--released is a time and a context, as in 08:00=home, or start: got {text!r}")
    return step_at(time, horizon), label


def _chain(path: Path) -> MarkovChain:
    with _bad_file():
        return MarkovChain.load(path)


def _policy(path: Path) -> Policy:
    with _bad_file():
        return Policy.load(path)


def _days(path: Path | None, horizon: int | None = None) -> list[DayRecord]:
    if path is None:
        return read_days(sys.stdin, "standard input", horizon)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return read_days(file, str(path), horizon)


@contextlib.contextmanager
def _bad_file() -> Iterator[None]:
    """Report a bad file as bad input (exit code 2)."""
    try:
        yield
    except FileError as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def _busy(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error; yields the function that changes its text."""
    with Console(stderr=True).status(text) as status:
        yield status.update


def _console() -> Console:
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)


def _table(*headers: str) -> Table:
    return Table(*headers, box=None, show_header=bool(headers), pad_edge=False)


def _write_json(data: dict[str, Any]) -> None:
    sys.stdout.write(in_json(data) + "\n")
