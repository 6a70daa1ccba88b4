"""`reticent mask audit`: what an adversary learned from days under a policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from reticent.console.options import AsJson
from reticent.errors import ExitCode
from reticent.randomness import secure, seeded
from reticent.storage import files
from reticent_client.cli.mask_files import (
    busy,
    new_table,
    place_of,
    read_policy,
    read_policy_days,
    terminal,
    write_json,
)
from reticent_client.cli.policy import BOUND_SECONDS, policy_ceiling, reaches_ceiling
from reticent_client.mask import audit_text
from reticent_client.mask.audit import Audit, audit
from reticent_client.mask.checks.registry import CHECKS

LISTED = 20
"""The number of breaches that are listed as text."""

EVERY = 100
"""The progress shows every so many days."""


def audit_days(
    policy: Path,
    days: Path | None = None,
    /,
    *,
    delta: float | None = None,
    by: Literal["day", "time"] | None = None,
    csv: Path | None = None,
    picture: Path | None = None,
    with_ceiling: Annotated[bool, Parameter(name="--ceiling")] = False,
    time_limit: float = BOUND_SECONDS,
    seed: int | None = None,
    as_json: AsJson = False,
) -> int:
    """Run a policy over days, and show what an adversary learned.

    Days that the chain can produce are *on the model*; nothing is promised for the others, which are counted apart.
    Exits with 1 if, at a visit to a sensitive context, the belief in it rose by more than delta.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        delta: A rise above this is a breach. The default is the policy's own delta.
        by: Also show a row for each day, or for each time of day.
        csv: A file for a line for each step. It contains what the user did.
        picture: A PNG of all days by time of day. It shows what the user did, and needs matplotlib.
        with_ceiling: Also compute the most that any private policy can release, unless the policy reaches it.
        time_limit: With --ceiling, the number of seconds after which its search stops, with a looser bound.
        seed: A seed for the coins. For simulation only.
        as_json: Print JSON.
    """
    outputs = [path for path in (csv, picture) if path is not None]
    files.check_distinct(outputs, [policy, days])
    files.check_writable(outputs)
    loaded = read_policy(policy)
    if delta is None and loaded.check in CHECKS and not CHECKS[loaded.check].private:
        raise ValueError(f"--delta is missing: a {loaded.check} policy has none of its own")
    draw = None if picture is None else _drawing()
    real = read_policy_days(days, loaded)
    if not real:
        raise ValueError(f"{place_of(days)}: there are no days to audit")
    with busy("Auditing") as show:
        known = loaded.ceiling if delta is None else None  # the policy's own is for its own deltas
        searched = with_ceiling and (known is None or not reaches_ceiling(loaded))
        most = policy_ceiling(loaded, delta, time_limit) if searched else known
        found = audit(
            loaded,
            [day.labels for day in real],
            names=[day.name for day in real],
            delta=delta,
            rng=secure() if seed is None else seeded(seed),
            ceiling=most,
            progress=lambda done: None if done % EVERY else show(f"Auditing: {done} of {len(real)} days"),
        )
        if csv is not None:
            with csv.open("w", encoding="utf-8", newline="") as file:
                audit_text.write_csv(file, found)
        if draw is not None and picture is not None:
            draw(found, picture)
    if as_json:
        grouped = {} if by is None else {f"by_{by}": [group._asdict() for group in audit_text.groups(found, by)]}
        write_json(found.to_json() | grouped)
    else:
        _show(found, by)
    return ExitCode.BAD_ANSWER if found.breaches else ExitCode.DONE


def _drawing() -> Callable[[Audit, Path], None]:
    from reticent_client.pictures.audit import draw_audit  # noqa: PLC0415  # matplotlib is in an extra

    return draw_audit


def _show(found: Audit, by: Literal["day", "time"] | None) -> None:
    """Print an audit."""
    screen = terminal()
    general, compared = new_table(), new_table("", audit_text.ON_MODEL, audit_text.OFF_MODEL)
    for row in audit_text.general_rows(found):
        general.add_row(*row)
    for row in audit_text.comparison_rows(found):
        compared.add_row(*row)
    screen.print(general, "", compared)
    if found.off_model.days:
        screen.print("\nNothing is promised for days off the model: the chain rules them out.")
    if found.breaches:
        listed = new_table("day", "time", "context", "gain", "")
        for row in list(audit_text.breach_rows(found))[:LISTED]:
            listed.add_row(*row)
        screen.print("\nBreaches: visits at which the belief in the context rose by more than delta.\n", listed)
        if len(found.breaches) > LISTED:
            screen.print(f"and {len(found.breaches) - LISTED} more: --csv FILE lists all")
    if by is not None:
        grouped = new_table(by, "", *audit_text.GROUP_HEADER)
        for row in audit_text.group_rows(found, by):
            grouped.add_row(*row)
        screen.print("", grouped)
