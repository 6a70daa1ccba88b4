"""How plans, queries and releases are shown to an analyst."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from reticent.console.text import printable
from reticent.privacy import Release
from reticent.privacy.defaults import MIN_LIARS_SHARE
from reticent.protocol.phases import in_words
from reticent_analyst.handle import Progress
from reticent_analyst.plan import LEVEL, Plan

__all__ = ["show_plan", "show_release", "show_standing", "terminal"]

_LOST = "will never be decided: the key server was restored from a backup"
_UNITS = ("B", "KB", "MB", "GB", "TB")


def terminal(*, is_for_errors: bool = False) -> Console:
    """Where things are shown: what others have written there stands for itself, and for no colour or picture."""
    return Console(stderr=is_for_errors, markup=False, emoji=False)


def show_plan(console: Console, plan: Plan) -> None:
    """What to expect of a query."""
    query = plan.query
    console.print(
        f"{printable(query.id)}: {_number(query.population)} phones, {plan.absent:.1%} of them absent", highlight=False
    )
    counters = _table("counter", "standard error", "95 %", "half left", "by median", "pulled")
    for each in plan.estimates:
        counters.add_row(
            printable(each.counter),
            _figure(each.standard_error),
            f"± {_figure(each.reach)}",
            _figure(each.worst) if query.cohorts > 1 else "-",
            "-" if each.by_median is None else _figure(each.by_median),
            _pulled(plan, each.pull),
        )
    console.print(counters)
    facts = Table.grid(padding=(0, 2))
    for name, fact in _facts(plan):
        facts.add_row(name, fact)
    console.print(facts, highlight=False)


def show_standing(console: Console, found: Sequence[Progress]) -> None:
    """How far queries are."""
    table = _table("query", "phase", "contributors", "asked", "cohorts decided", "closes in")
    for each in found:
        closes = f"{each.closes_in:.0f} s" if each.closes_in else "-"
        phase = in_words([str(outcome) for outcome in each.outcomes]) if each.phase == "decided" else each.phase
        decided = f"{each.decided} of {each.query.cohorts}"
        contributors = _number(sum(each.contributors))
        asked = _number(each.query.population)
        table.add_row(printable(each.query.id), phase, contributors, asked, decided, closes)
    console.print(table)
    for each in found:
        why = each.refusal if each.phase == "refused" else _LOST if each.phase == "lost" else None
        if why is not None:
            console.print(f"{printable(each.query.id)}: {printable(why)}", highlight=False)


def show_release(console: Console, release: Release, progress: Progress) -> None:
    """What a query gave."""
    table = _table("counter", "value", "95 % from", "to", "cohorts far off")
    for name, value, (low, high), outlying in zip(
        release.counters, release.value, release.interval(LEVEL), release.cohorts_outlying, strict=True
    ):
        table.add_row(printable(name), _figure(value), _figure(low), _figure(high), _listed(outlying))
    console.print(table)
    facts = Table.grid(padding=(0, 2))
    facts.add_row("contributors", _number(release.contributors))
    facts.add_row("cost", f"({release.epsilon:g}, {release.delta:g}) for each")
    void = [number for number, outcome in enumerate(progress.outcomes) if outcome == "void"]
    burnt = [number for number in release.cohorts_left_out if number not in void]
    if burnt:
        facts.add_row("cohorts burnt", f"{_listed(burnt)}: too few contributed, and their budget is not spent")
    if void:
        facts.add_row("cohorts void", f"{_listed(void)}: somebody lied or falsified, and their budget is spent")
    if release.seeded:
        facts.add_row("seeded", "somebody can replay the noise: this protects nobody")
    console.print(facts, highlight=False)


def _facts(plan: Plan) -> list[tuple[str, str]]:
    query, load = plan.query, plan.load
    error = plan.estimates[0].standard_error
    return [
        ("cost", f"({query.epsilon:g}, {query.delta:g}) for each phone{_shared(plan)}"),
        ("cohorts", f"{query.cohorts}, each decrypted with at least {_number(query.min_contributions)} contributions"),
        ("short of phones", f"one cohort {_chance(plan.short)}, any {_chance(plan.any_left_out)}"),
        ("no answer", f"{_chance(plan.lost)} if nobody lies"),
        ("liars", _liars(plan)),
        ("privacy", _privacy(plan)),
        *(("refused", f"by {' and '.join(each.by)} with default settings: {each.why}") for each in plan.refusals),
        ("noise", f"{query.noise}, {error / plan.trusted:.2f} x a trusted server's"),
        *_theorem(plan),
        (
            "a phone",
            f"{_count(load.ciphertexts, 'ciphertext')}, {_bytes(load.phone_bytes)}{_seconds(load.phone_seconds)}",
        ),
        ("the server", f"receives {_bytes(load.received_bytes)}, keeps up to {_bytes(load.kept_bytes)}"),
    ]


def _theorem(plan: Plan) -> list[tuple[str, str]]:
    if plan.published is None:
        return []
    return [("theorem 1", f"would have {plan.published / plan.trusted:.2f} x a trusted server's")]


def _privacy(plan: Plan) -> str:
    """Against how many it holds, and how likely a cohort is to have more, if any are expected."""
    liars = plan.liars
    most = f"at most {_number(liars.allowed)}" if liars.allowed else "none"
    default = f" (the default, {MIN_LIARS_SHARE:.0%})" if liars.is_default else ""
    more = f"; more are in a cohort {_chance(liars.crowded)}" if liars.liars else ""
    fewest = _number(plan.query.min_contributions)
    return f"holds if {most} of {fewest} contributions are of liars or colluders{default}{more}"


def _pulled(plan: Plan, pull: float) -> str:
    if plan.liars.liars == 0:
        return "-"
    return "anywhere" if pull == math.inf else f"by {_figure(pull)}"


def _liars(plan: Plan) -> str:
    liars = plan.liars
    borne = f"{_number(liars.bearable)} are borne, whatever they do, with a risk of {plan.risk:g}"
    if plan.query.cohorts == 1:
        borne = "one can put the sum anywhere, or void it"
    if liars.liars == 0:
        return borne
    hit = _count(liars.hit, "cohort")
    return f"{_number(liars.liars)}, in up to {hit}; no answer {_chance(liars.lost)}; {borne}"


def _shared(plan: Plan) -> str:
    return "" if plan.query.sequence is None else f", once for all of the sequence {plan.query.sequence!r}"


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None, padding=(0, 2, 0, 0))
    for each in others:
        table.add_column(each, justify="right")
    return table


def _count(number: int, thing: str) -> str:
    return f"{_number(number)} {thing}{'' if number == 1 else 's'}"


def _number(number: int) -> str:
    return f"{number:,}"


def _figure(number: float) -> str:
    """As many digits as anybody wants to read."""
    return f"{number:,.1f}" if abs(number) < 1000 else f"{number:,.0f}"


def _chance(chance: float) -> str:
    if chance < 1e-12:
        return "never"
    return f"once in {1 / chance:,.0f}" if chance < 0.1 else f"{chance:.0%} of the time"


def _bytes(number: int) -> str:
    size, unit = float(number), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f", {seconds * 1000:.0f} ms of a processor like this one"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "-"
