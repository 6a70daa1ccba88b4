"""An audit as text and as CSV: in all, by day, by time of day, and step by step."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal, NamedTuple, TextIO

from reticent_client.mask.audit import Audit, DayTotals, Gain, StepAudit
from reticent_client.mask.description import weights_text
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.occupancy import AverageDay
from reticent_client.mask.policy import Policy
from reticent_client.mask.times_of_day import time_of

Row = tuple[str, ...]

ON_MODEL, OFF_MODEL = "on the model", "off the model"
GROUP_HEADER: Row = ("released", "visits", "breaches", "largest gain")
CSV_HEADER: Row = (
    *("day", "step", "time", "model", "context", "outcome", "output"),
    *("visit", "breach", "largest_gain", "gain_context"),
)
_NONE = "-"


def general_rows(audit: Audit) -> Iterator[Row]:
    """Names and values that do not depend on the days."""
    policy = audit.policy
    yield "check", policy.check
    yield "expected", f"{AverageDay.of(policy).released_contexts:.2f} contexts a day"
    unit = "contexts a day"
    if policy.chosen_weights:
        unit = "a day by weights"
        yield "weights", weights_text(policy.chosen_weights)
        yield "expected by weights", f"{policy.utility:.2f} a day"
    if audit.ceiling is not None:
        part = f" ({policy.utility / audit.ceiling:.0%} reached)" if audit.ceiling > 0 else ""
        yield "at most possible", f"{audit.ceiling:.2f} {unit}{part}"
    if audit.seeded:
        yield "seeded", "for simulation only"


def comparison_rows(audit: Audit) -> list[Row]:
    """Names, and values on the model and off the model; no values where there are no days."""
    on, off = (_column(totals, audit.policy) for totals in (audit.on_model, audit.off_model))
    if off.keys() != {"days"}:
        off["breaches"] += ", with no promise"
    return [(name, on.get(name, _NONE), off.get(name, _NONE)) for name in max(on, off, key=len)]


def breach_rows(audit: Audit) -> Iterator[Row]:
    """The day, time, context, gain and model of each breach."""
    horizon = audit.policy.horizon
    for day in audit.days:
        for gain in day.breaches:
            yield day.day, _time(gain, horizon), gain.context, f"{gain.rise:.3f}", _model(day.on_model)


class StepGroup(NamedTuple):
    """The totals of the steps of one day, or of one time of day."""

    name: str
    on_model: bool
    contexts: int
    released: int
    """The number of released contexts."""
    visits: int
    breaches: int
    largest_gain: float | None
    """The largest rise of the belief in a sensitive context; None if no step has any."""


def groups(audit: Audit, by: Literal["day", "time"]) -> Iterator[StepGroup]:
    """A group for each day, or for each time of day; on the model and off it apart."""
    horizon = audit.policy.horizon
    key: Callable[[StepAudit], tuple[bool, str | int]] = (
        (lambda each: (not each.on_model, each.step)) if by == "time" else (lambda each: (False, each.day))
    )
    steps = sorted(audit.steps(), key=key) if by == "time" else audit.steps()
    for _, group in groupby(steps, key):
        cells = list(group)
        contexts = [each for each in cells if each.context is not None]
        rise = max(each.rise for each in cells)
        yield StepGroup(
            name=time_of(cells[0].step, horizon) if by == "time" else cells[0].day,
            on_model=cells[0].on_model,
            contexts=len(contexts),
            released=sum(each.decision.outcome == "released" for each in contexts),
            visits=sum(each.visit for each in cells),
            breaches=sum(each.breach for each in cells),
            largest_gain=rise if rise > -1 else None,
        )


def group_rows(audit: Audit, by: Literal["day", "time"]) -> Iterator[Row]:
    """A row for each group."""
    for name, on_model, contexts, released, visits, breaches, gain in groups(audit, by):
        largest = _NONE if gain is None else f"{gain:.3f}"
        yield name, _model(on_model), _part(released, contexts), str(visits), str(breaches), largest


def write_csv(file: TextIO, audit: Audit) -> None:
    """A line for each step of each day."""
    horizon = audit.policy.horizon
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for each in audit.steps():
        output, outcome = each.decision
        bounded = each.rise > -1
        writer.writerow(
            (
                each.day,
                each.step,
                time_of(each.step, horizon),
                "on" if each.on_model else "off",
                each.context or "",
                outcome,
                output or "",
                int(each.visit),
                int(each.breach),
                f"{each.rise:.6f}" if bounded else "",
                each.rising if bounded else "",
            )
        )


def _column(totals: DayTotals, policy: Policy) -> dict[str, str]:
    horizon = policy.horizon
    if not totals.days:
        return {"days": "0"}
    worth = {"released by weights": f"{totals.worth / totals.days:.2f} a day"} if policy.chosen_weights else {}
    return {
        "days": f"{totals.days} of {horizon} steps",
        "released": f"{_part(totals.released, totals.contexts)} contexts",
        "released a day": f"{totals.released / totals.days:.2f} contexts",
        **worth,
        "suppressed": f"{totals.suppressed} contexts",
        "off-model": f"{totals.off_model} contexts, {totals.gaps_off_model} gaps",
        "after lost memory": f"{totals.suspended} contexts",
        "gaps": f"{totals.gaps}, {totals.gaps_released} of them released",
        "impossible outputs": str(totals.impossible),
        "sensitive visits": str(totals.visits),
        "breaches": str(totals.breaches),
        "largest gain": _gain(totals.largest, horizon),
        "largest gain at some step": _gain(totals.some, horizon),
    }


def _part(part: int, whole: int) -> str:
    share = f" ({percent(part / whole)})" if whole else ""
    return f"{part} of {whole}{share}"


def _gain(gain: Gain | None, horizon: int) -> str:
    if gain is None:
        return _NONE
    return f"{gain.rise:.3f}: {gain.context!r}, {gain.day} {_time(gain, horizon)}".rstrip()


def _time(gain: Gain, horizon: int) -> str:
    return "" if gain.step is None else time_of(gain.step, horizon)


def _model(on_model: bool) -> str:  # the one thing that it is about
    return ON_MODEL if on_model else OFF_MODEL
