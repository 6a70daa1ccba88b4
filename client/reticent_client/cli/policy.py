"""`reticent mask policy`: from a chain to a policy, and what it will release."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from reticent.console.options import AsJson
from reticent.errors import MissingExtra
from reticent.storage import files
from reticent_client.cli.mask_files import (
    Output,
    busy,
    new_table,
    read_chain,
    sensitive_state,
    terminal,
    write_json,
)
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.checks.optimal import ceiling
from reticent_client.mask.checks.registry import CHECKS, Check
from reticent_client.mask.description import weights_text
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.occupancy import AverageDay
from reticent_client.mask.policy import Policy

DEFAULT = "adaptive"
"""The check that releases most within seconds, on every chain."""

LONGER = "optimal"
"""The check that releases most, and may take minutes."""

BOUND_SECONDS = 5.0
"""The time limit for a policy and its ceiling together; the ceiling is looser if it is exceeded."""

SLOW = 10.0  # seconds: a search without a limit that takes longer is worth a note
SHOWN = 10  # contexts
CLOSE = 1e-6  # releases: a policy that is nearer to the bound reaches it

if TYPE_CHECKING:
    CheckName = str
else:
    CheckName = Literal[tuple(CHECKS)]

Weights = Annotated[list[str] | None, Parameter(name="--weight")]


def make_policy(
    chain: Path,
    /,
    *,
    sensitive: list[str],
    output: Output,
    check: CheckName = DEFAULT,
    delta: float | None = None,
    weights: Weights = None,
    plan: Literal["greedy", "best"] | None = None,
    search: Literal["greedy", "exact"] | None = None,
    grid: int | None = None,
    effort: int | None = None,
    time_limit: float | None = None,
    gap: float | None = None,
    against: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a policy, and show what it will release.

    Args:
        chain: The user's chain, from `fit` or `learn`.
        sensitive: A sensitive context: LABEL, or STEP:LABEL for one step. May be repeated.
        output: The file for the policy.
        check: The algorithm that computes the policy. The default releases most of those that take seconds; optimal
            may release more, and may take minutes.
        delta: The most by which the belief in a sensitive context may rise.
        weights: What the release of a context is worth, from 0 to 1, as work=0.2. May be repeated. The default is 1,
            and 0 for gaps ("unknown").
        plan: Where simulatable releases: at the first safe step, or at the safe steps that release most.
        search: How probabilistic searches.
        grid: The number of parts into which probabilistic divides a probability.
        effort: The number of rounds that a check searches.
        time_limit: The number of seconds after which a search stops.
        gap: The part of the most possible releases that optimal may miss, such as 0.02. It stops as soon as it misses
            no more. Ctrl-C stops it too, and keeps the best policy so far.
        against: The chains that adversaries may know for certain, in place of the user's own.
        as_json: Print JSON.
    """
    files.check_distinct([output], [chain, *(against or ())])
    options: dict[str, object] = {
        "delta": delta,
        "plan": plan,
        "search": search,
        "grid": grid,
        "effort": effort,
        "time_limit": time_limit,
        "gap": gap,
        "against": against,
    }
    options = {name: value for name, value in options.items() if value is not None}
    check_options(CHECKS[check], options)
    user = read_chain(chain)
    if against is not None:
        options["against"] = [read_chain(path) for path in against]
    states = {sensitive_state(text, user) for text in sensitive}
    worth = read_weights(weights)
    begin = time.monotonic()
    with busy(f"Computing the {check} policy") as show:
        if CHECKS[check].reports:
            options["progress"] = lambda value, most: show(
                f"Computing the {check} policy: {percent(1 - value / most if most else 0.0)} from the most possible"
            )
        found = CHECKS[check].compute(user, sensitive=states, weights=worth, **options)
        found.save(output)
        taken = time.monotonic() - begin
        if check == DEFAULT and against is None:
            show("Looking for what a longer search may add")
            # the search for the bound begins with the same work
            left = BOUND_SECONDS - taken
            _add_ceiling(found, max(left if time_limit is None else min(left, time_limit), 0.0))
            found.save(output)
    if taken > SLOW and time_limit is None and "time_limit" in CHECKS[check].options:
        sys.stderr.write(
            f"note: this took {taken:.0f} s. --time-limit stops the search earlier, with a private policy that may "
            "release less\n"
        )
    if as_json:
        write_json(_facts(found))
    else:
        _show(found)


def read_weights(given: Sequence[str] | None) -> dict[str, float]:
    """The weights of `--weight`, by context."""
    weights = {}
    for text in given or ():
        label, equals, number = text.rpartition("=")
        try:
            weights[label] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--weight is a context and a number, as in work=0.2: got {text!r}")
    return weights


def check_options(check: Check, options: Collection[str]) -> None:
    """Refuse what the check does not take, and a missing delta."""
    for name in options:
        if name not in check.options:
            takers = ", ".join(other.name for other in CHECKS.values() if name in other.options)
            raise ValueError(f"--{name.replace('_', '-')} is no option of the check {check.name}: it is for {takers}")
    if check.private and "delta" not in options:
        raise ValueError(f"--delta is missing: the check {check.name} needs it")


def _add_ceiling(found: Policy, seconds: float) -> None:
    """Look for the ceiling of a policy in this time; without the solver, take a looser one."""
    try:
        most = policy_ceiling(found, seconds=seconds)
    except MissingExtra:
        most = policy_ceiling(found, seconds=0)
    found.provenance = replace(found.provenance, ceiling=most)


def policy_ceiling(policy: Policy, delta: float | None = None, seconds: float = BOUND_SECONDS) -> float:
    """The most that a private policy for the same chain can release, as far as it is found in this time.

    The policy's own deltas are used unless another is given.
    """
    own = policy.chain.to_json()
    if policy.against and all(other.to_json() != own for other in policy.against):
        raise ValueError("--ceiling is for policies made against the user's own chain")
    deltas = {state: limit if delta is None else delta for state, limit in policy.sensitive.items()}
    if math.inf in deltas.values():
        raise ValueError(f"--ceiling is for policies with a delta: {policy.check} promises none, so it has no ceiling")
    effort = 0 if seconds == 0 else 1
    found = ceiling(policy.chain, sensitive=deltas, effort=effort, time_limit=seconds, weights=policy.weights)
    known = policy.ceiling if delta is None else None
    return found if known is None else min(found, known)


def reaches_ceiling(policy: Policy) -> bool:
    """Whether no private policy releases more than this one, up to rounding in the solver."""
    return policy.ceiling is not None and policy.ceiling - policy.utility <= CLOSE


def _facts(found: Policy) -> dict[str, Any]:
    day = AverageDay.of(found)
    return {
        "check": found.check,
        "steps": found.horizon,
        "readings": found.readings,
        "utility": found.utility,
        "ceiling": found.ceiling,
        "gap": found.gap,
        "complete": found.complete,
        "contexts": [
            {"context": label, "weight": found.weights[label], "expected": often, "released": seen}
            for label, often, seen in zip(found.contexts, day.expected.tolist(), day.released.tolist(), strict=True)
        ],
    }


def _show(found: Policy) -> None:
    """Print a policy's expected releases a day, and those of each context."""
    screen = terminal()
    day = AverageDay.of(found)
    rows = list(zip(found.contexts, day.expected.tolist(), day.released.tolist(), strict=True))
    contexts = [row for row in rows if row[0] != UNKNOWN]
    seen, often = day.released_contexts, day.contexts
    screen.print(
        f"{found.check}: releases {seen:.2f} of {often:.2f} contexts on an average day ({_share(seen, often)})"
    )
    how = ""
    if found.chosen_weights:
        how = " by these weights"
        worth, part = weights_text(found.chosen_weights), _share(found.utility, found.readings)
        screen.print(f"Weighted by {worth}: {found.utility:.2f} of {found.readings:.2f} ({part}).")
    for _, gaps, told in (row for row in rows if row[0] == UNKNOWN):
        screen.print(f"Of {gaps:.2f} steps without a reading, {told:.2f} are released as {UNKNOWN!r}.")
    if not found.complete:
        screen.print("The search was cut short. The policy is private; a longer search may release more.")
    if found.ceiling is not None:
        screen.print(_ceiling_text(found, found.ceiling, how))
    screen.print("Most suppressed contexts:\n")
    table = new_table("context", "steps a day", "suppressed")
    for label, occurs, told in sorted(contexts, key=lambda row: row[2] - row[1])[:SHOWN]:
        table.add_row(label, f"{occurs:.2f}", percent(1 - told / occurs) if occurs > 0 else "-")
    screen.print(table)


def _ceiling_text(found: Policy, most: float, how: str) -> str:
    """The distance of the policy from the best possible one."""
    if reaches_ceiling(found):
        return f"No private policy releases more{how}."
    text = f"No private policy releases more than {math.ceil(100 * most) / 100:.2f}{how}"
    return (
        f"{text}: the gap is {percent(found.gap or 0.0)}."
        if found.check == LONGER
        else f"{text}: --check {LONGER} may add up to {most - found.utility:.2f}."
    )


def _share(part: float, whole: float) -> str:
    return percent(part / whole) if whole else "none occurs"
