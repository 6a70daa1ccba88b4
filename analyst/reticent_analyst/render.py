"""Tables of plans, queries and releases for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from reticent.console.text import printable
from reticent.privacy import DEFAULT_BUDGET, QueryLimits, Release
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE, outcomes_text
from reticent_analyst.handle import Progress
from reticent_analyst.intervals import Statistic
from reticent_analyst.plan import LEVEL, CounterAccuracy, Plan

__all__ = ["show_plan", "show_queries", "show_release", "show_statistics", "table_of", "terminal"]

_LOST = "can no longer be decided: the key server was restored from a backup"
_UNITS = ("B", "KB", "MB", "GB", "TB")


def terminal(*, is_for_errors: bool = False) -> Console:
    """A console that takes text literally: markup and emoji codes of others have no effect."""
    return Console(stderr=is_for_errors, markup=False, emoji=False)


def table_of(first: str, *others: str) -> Table:
    """A table with a first column of text, and columns of numbers."""
    table = Table(first, box=None, padding=(0, 2, 0, 0))
    for each in others:
        table.add_column(each, justify="right")
    return table


def show_plan(console: Console, plan: Plan) -> None:
    """Show what to expect of a query."""
    query = plan.query
    console.print(
        f"{printable(query.id)}: {_number(query.population)} phones, {plan.absent:.1%} of them absent", highlight=False
    )
    counters = table_of("counter", "standard error", "95 %", "half left", "by median", "liars shift")
    for each in plan.accuracy:
        counters.add_row(
            printable(each.counter),
            _figure(each.standard_error),
            f"± {_figure(each.half_width)}",
            _figure(each.error_half_left) if query.cohorts > 1 else "-",
            "-" if each.error_by_median is None else _figure(each.error_by_median),
            _shift(plan, each),
        )
    console.print(counters)
    facts = Table.grid(padding=(0, 2))
    for name, fact in _facts(plan):
        facts.add_row(name, fact)
    console.print(facts, highlight=False)
    for warning in plan.warnings:
        console.print(f"warning: {printable(warning)}", highlight=False)


def show_queries(console: Console, queries: Sequence[Progress]) -> None:
    """Show the progress of queries."""
    table = table_of("query", "phase", "contributors", "population", "cohorts decided", "closes in")
    for each in queries:
        closes = f"{each.closes_in:.0f} s" if each.closes_in else "-"
        phase = outcomes_text([str(outcome) for outcome in each.outcomes]) if each.phase == "decided" else each.phase
        decided = f"{each.decided} of {each.query.cohorts}"
        contributors = _number(sum(each.contributors))
        population = _number(each.query.population)
        table.add_row(printable(each.query.id), phase, contributors, population, decided, closes)
    console.print(table)
    for each in queries:
        why = each.refusal if each.phase == "refused" else _LOST if each.phase == "lost" else None
        if each.is_key_server_unavailable:
            why = KEY_SERVER_UNAVAILABLE
        if why is not None:
            console.print(f"{printable(each.query.id)}: {printable(why)}", highlight=False)


def show_release(console: Console, release: Release, progress: Progress) -> None:
    """Show a release."""
    table = table_of("counter", "value", "95 % from", "to", "outlying cohorts")
    for name, value, (low, high), outlying in zip(
        release.counters, release.value, release.interval(LEVEL), release.cohorts_outlying, strict=True
    ):
        table.add_row(printable(name), _figure(value), _figure(low), _figure(high), _listed(outlying))
    console.print(table)
    facts = Table.grid(padding=(0, 2))
    facts.add_row("contributors", _number(release.contributors))
    facts.add_row("cost", f"({release.epsilon:g}, {release.delta:g}) for each phone")
    void = [number for number, outcome in enumerate(progress.outcomes) if outcome == "void"]
    burnt = [number for number in release.cohorts_left_out if number not in void]
    if burnt:
        facts.add_row("cohorts burnt", f"{_listed(burnt)}: too few contributions; their phones keep the budget")
    if void:
        facts.add_row("cohorts void", f"{_listed(void)}: a liar or a falsified sum; their phones spent the budget")
    if release.seeded:
        facts.add_row("seeded", "the noise can be replayed: it protects nobody")
    console.print(facts, highlight=False)


def show_statistics(console: Console, statistics: Sequence[Statistic]) -> None:
    """Show what follows from the totals: means, shares and ratios, with intervals that hold together."""
    derived = [each for each in statistics if each.kind != "total"]
    if not derived:
        return
    table = table_of("statistic", "value", "together 95 % from", "to")
    for each in derived:
        name = f"{'mean of ' if each.kind == 'mean' else ''}{printable(each.name)}"
        show = "{:.1%}".format if each.kind == "share" else "{:,.5g}".format
        table.add_row(
            name, *(show(number) if math.isfinite(number) else "-" for number in (each.value, each.low, each.high))
        )
    console.print(table)


def _facts(plan: Plan) -> list[tuple[str, str]]:
    query, resources = plan.query, plan.resources
    ciphertexts = _count(resources.ciphertexts, "ciphertext")
    error = plan.accuracy[0].standard_error * query.counters[0].scale
    return [
        ("cost", f"({query.epsilon:g}, {query.delta:g}) for each phone{_shared(plan)}"),
        ("budget", _budget(plan)),
        ("cohorts", f"{query.cohorts}, each decrypted with at least {_number(query.min_contributions)} contributions"),
        ("short cohorts", f"one: {_probability(plan.cohort_short)}; any: {_probability(plan.any_cohort_short)}"),
        ("no release", f"{_probability(plan.no_release)} if nobody lies"),
        ("liars", _liars(plan)),
        ("privacy", _privacy(plan)),
        *(
            ("refused", f"by {' and '.join(each.by)} with default settings: {each.why}")
            for each in plan.expected_refusals
        ),
        ("noise", f"{query.noise}, {error / plan.trusted_error:.2f} x a trusted server's"),
        *_theorem(plan),
        (
            "a phone",
            f"{ciphertexts}, {_bytes(resources.phone_bytes)}{_seconds(resources.phone_seconds)}",
        ),
        ("the server", f"receives {_bytes(resources.received_bytes)}, keeps up to {_bytes(resources.kept_bytes)}"),
    ]


def _budget(plan: Plan) -> str:
    """The number of such queries that a phone with the default budget can join."""
    budget = plan.budget
    limit = f"the default budget of a phone, ({DEFAULT_BUDGET.epsilon:g}, {DEFAULT_BUDGET.delta:g})"
    if budget.is_paid:
        return "an earlier query of the sequence has paid for this one"
    number = "one such query" if budget.queries_left == 1 else f"{_number(budget.queries_left)} such queries"
    suffices = f"{limit}, suffices for {number}"
    if not budget.epsilon_spent:
        return suffices
    return f"{suffices}: earlier ones took up to ({budget.epsilon_spent:g}, {budget.delta_spent:g})"


def _theorem(plan: Plan) -> list[tuple[str, str]]:
    if plan.theorem1_error is None:
        return []
    return [("theorem 1", f"{plan.theorem1_error / plan.trusted_error:.2f} x a trusted server's")]


def _privacy(plan: Plan) -> str:
    """The liars against whom privacy holds, and the probability that a cohort has more."""
    liars = plan.liars
    most = f"at most {_number(liars.allowed)}" if liars.allowed else "none"
    default = f" (the default, {QueryLimits.min_liars_share:.0%})" if liars.is_default else ""
    more = f"; more in a cohort: {_probability(liars.allowance_exceeded)}" if liars.count else ""
    fewest = _number(plan.query.min_contributions)
    return f"holds if {most} of {fewest} contributions are from liars or colluders{default}{more}"


def _shift(plan: Plan, accuracy: CounterAccuracy) -> str:
    if plan.liars.count == 0:
        return "-"
    return "unbounded" if accuracy.max_shift == math.inf else f"± {_figure(accuracy.max_shift)}"


def _liars(plan: Plan) -> str:
    liars = plan.liars
    limit = f"tolerates {_count(liars.tolerated, 'arbitrary liar')} (risk of no release {plan.risk:g})"
    if plan.query.cohorts == 1:
        limit = "one liar can set the sum to anything, or void it"
    if liars.count == 0:
        return limit
    hit = _count(liars.cohorts_hit, "cohort")
    return f"{_number(liars.count)} expected, in up to {hit}; no release: {_probability(liars.no_release)}; {limit}"


def _shared(plan: Plan) -> str:
    return "" if plan.query.sequence is None else f", once for the whole sequence {plan.query.sequence!r}"


def _count(number: int, thing: str) -> str:
    return f"{_number(number)} {thing}{'' if number == 1 else 's'}"


def _number(number: int) -> str:
    return f"{number:,}"


def _figure(number: float) -> str:
    """A number with the digits that matter."""
    return f"{number:,.1f}" if abs(number) < 1000 else f"{number:,.0f}"


def _probability(value: float) -> str:
    if value < 1e-12:
        return "never"
    return f"once in {1 / value:,.0f}" if value < 0.1 else f"{value:.0%} of the time"


def _bytes(number: int) -> str:
    size, unit = float(number), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f", {seconds * 1000:.0f} ms of CPU time, measured on this machine"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "-"
