"""`reticent mask compare`: all checks and several deltas in one table and one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reticent.console.options import AsJson
from reticent.storage import files
from reticent_client.cli.mask_files import (
    busy,
    new_table,
    read_chain,
    sensitive_state,
    terminal,
    write_json,
)
from reticent_client.cli.policy import CheckName, Weights, read_weights
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.comparison import ComparedPolicy, compare
from reticent_client.mask.description import weights_text

DELTAS = (0.05, 0.1, 0.2)
SECONDS = 30.0
"""The default time for each search."""


def compare_checks(
    chain: Path,
    /,
    *,
    sensitive: list[str],
    delta: list[float] | None = None,
    check: list[CheckName] | None = None,
    weights: Weights = None,
    time_limit: float = SECONDS,
    picture: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Compare what the checks release for several deltas, and how long they take.

    Args:
        chain: The user's chain, from `fit` or `learn`.
        sensitive: A sensitive context: LABEL, or STEP:LABEL for one step. May be repeated.
        delta: The most by which the belief in a sensitive context may rise. May be repeated. The default is 0.05, 0.1
            and 0.2.
        check: Compare this check only. May be repeated.
        weights: What the release of a context is worth, from 0 to 1, as work=0.2. May be repeated.
        time_limit: The number of seconds after which each search stops.
        picture: A PNG of the comparison. It needs matplotlib.
        as_json: Print JSON.
    """
    outputs = [] if picture is None else [picture]
    files.check_distinct(outputs, [chain])
    files.check_writable(outputs)
    draw = None if picture is None else _drawing()
    user = read_chain(chain)
    states = {sensitive_state(text, user) for text in sensitive}
    deltas = sorted(set(delta or DELTAS))
    worth = read_weights(weights)
    with busy("Comparing") as show:
        rows = compare(
            user,
            states,
            deltas,
            checks=check,
            weights=worth,
            time_limit=time_limit,
            progress=lambda name, value: show(f"Computing {name}" + ("" if value is None else f", delta {value:g}")),
        )
        if draw is not None and picture is not None:
            draw(rows, ", ".join(sensitive), weights_text(worth), picture)
    if as_json:
        write_json({"rows": [row.to_json() for row in rows]})
    else:
        _show(rows, deltas, weights_text(worth), check)


def _drawing() -> Callable[[Sequence[ComparedPolicy], str, str, Path], None]:
    from reticent_client.pictures.comparison import draw_comparison  # noqa: PLC0415  # matplotlib is in an extra

    return draw_comparison


def _show(rows: Sequence[ComparedPolicy], deltas: Sequence[float], worth: str, wanted: Sequence[str] | None) -> None:
    """A row for each check, a column for each delta: releases, their share, and the time; by weights below it."""
    screen = terminal()
    if rows:
        screen.print(f"Released contexts of {rows[0].contexts:.2f} on an average day:")
        if worth:
            screen.print(f"By weights ({worth}), of {rows[0].readings:.2f}:")
        screen.print()
    table = new_table("", *(f"delta {delta:g}" for delta in deltas))
    for name in dict.fromkeys(row.check for row in rows):
        found = {row.delta: row for row in rows if row.check == name}
        columns = [found[None] if None in found else found[delta] for delta in deltas]
        table.add_row(name, *(_cell(row) for row in columns))
        if worth:
            table.add_row("  by weights", *(_part(row.utility, row.readings) for row in columns))
    ceilings = {row.delta: row.ceiling for row in rows if row.ceiling is not None}
    if ceilings:
        how = " by weights" if worth else ""
        table.add_row(f"at most possible{how}", *(f"{ceilings[delta]:.2f}" for delta in deltas))
    screen.print(table)
    leaky = [row.check for row in rows if not CHECKS[row.check].private]
    if leaky:
        screen.print(f"\n{leaky[0]} leaks: it promises no delta.")
    if not all(row.complete for row in rows):
        screen.print("\n+ The search was cut short: a longer --time-limit may release more.")
    missing = [name for name in wanted or CHECKS if name not in {row.check for row in rows}]
    for name in missing:
        screen.print(f"\n{name} is left out: it needs pip install 'reticent[{CHECKS[name].extra}]'.")


def _cell(row: ComparedPolicy) -> str:
    cut = "" if row.complete else "+"
    return f"{_part(row.released, row.contexts)}{cut} {_seconds(row.seconds)}"


def _part(part: float, whole: float) -> str:
    return f"{part:.2f} ({part / whole if whole else 0:.0%})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.05 else f"{1000 * seconds:.0f} ms"
