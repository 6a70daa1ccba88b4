"""The figures of what an adversary learned, and of what was released."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from reticent_sim.report.run import facts
from reticent_sim.report.run.bars import Bar, Part, bars
from reticent_sim.report.run.facts import UNMASKED, Data
from reticent_sim.report.run.frame import NumberTable, figure, panel
from reticent_sim.report.run.markup import Markup, join, tag
from reticent_sim.report.run.numbers import count, decimal, finite, percent, plural
from reticent_sim.report.run.plot import LETTER, Axis, Plot, log_ticks, ticks

__all__ = ["days", "rises", "shares"]

HEIGHT = 92.0
LEAST = 0.5
"""The bottom of a logarithmic scale of counts, so that one is above it."""


def rises(data: Data) -> Markup | None:
    """The rises of an adversary's belief under each check: their sizes and numbers."""
    sentence = facts.rises(data)
    found = [mask for masked in (False, True) for mask in facts.masks(data, masked=masked)]
    drawn = [mask for mask in found if (mask.get("rises") or {}).get("histogram")]
    if sentence is None or not drawn:
        return None
    delta = finite(data.get("delta"))
    most = max(max(mask["rises"]["histogram"]["counts"], default=1) for mask in drawn)
    panels = [_panel(number, mask, most, delta, last=mask is drawn[-1]) for number, mask in enumerate(drawn)]
    how = (
        "Days of phones, by the largest rise on a day of the belief that the user is at a sensitive place. Each line "
        f"across is ten times the one below. Hatched bars are days with a rise above delta.{_strayed(found)}"
    )
    table = [
        [_name(mask), decimal(low), decimal(high), count(number)]
        for mask in drawn
        for low, high, number in _bins(mask)
        if number
    ]
    numbers = NumberTable(("check", "rise from", "to", "days"), table)
    return figure("rises", sentence, how, tag("div", *panels, class_="panels"), numbers, wide=True)


def _panel(number: int, mask: Data, most: float, delta: float | None, *, last: bool) -> Markup:
    bins = _bins(mask)
    x = Axis(min(0.0, bins[0][0]), max(bins[-1][1], delta or 0))
    heading = f"{plural(facts.breaches([mask]), 'hour')} above delta, largest rise {decimal(facts.largest(mask))}"
    places = log_ticks(max(most, 10))
    plot = Plot(
        f"rises-{number}", f"Rises of belief, {_name(mask)}", heading, HEIGHT,
        x, Axis(LEAST, max(most, 10), is_log=True),
        left=LETTER * max(5, len(count(places[-1]))) + 12, right=18,
        top=10 if number else 26, bottom=44 if last else 26,
    )  # fmt: skip
    plot.y_axis([(place, count(place)) for place in places])
    for low, high, size in bins:
        if size:
            above = delta is not None and low >= delta - 1e-9
            gap = (high - low) * 0.06
            class_, series = ("harm", "above") if above else ("safe", "below")
            plot.bar(low + gap, high - gap, plot.down(size), plot.height, class_, series=series, value=size)
    plot.x_axis([(tick, decimal(tick)) for tick in ticks(x.low, x.high, 6)], "rise of the belief" if last else "")
    if delta is not None:
        at = plot.across(delta)
        plot.add(tag("line", class_="delta", x1=at, x2=at, y1=-6, y2=plot.height))
        if not number:
            plot.add(plot.text(at, -13, f"delta = {decimal(delta)}", anchor="start", class_="strong", dx=-3))
    return panel(_name(mask), heading, plot.svg())


def _strayed(found: Sequence[Data]) -> str:
    strayed = max(int(mask.get("strayed") or 0) for mask in found)
    if not strayed:
        return ""
    return (
        f" Left out: {plural(strayed, 'day')} that the learned habits rule out: no check promises anything about them."
    )


def _bins(mask: Data) -> list[tuple[float, float, int]]:
    histogram = mask["rises"]["histogram"]
    edges = [float(edge) for edge in histogram["edges"]]
    return list(zip(edges, edges[1:], map(int, histogram["counts"]), strict=False))


def _name(mask: Data) -> str:
    return "no mask" if mask.get("check") == UNMASKED else str(mask.get("check"))


def shares(data: Data) -> Markup | None:
    """The share that each check releases."""
    sentence = facts.shares(data)
    if sentence is None:
        return None
    found = [mask for mask in data["masks"] if finite(mask.get("released")) is not None]
    found.sort(key=lambda mask: -float(mask["released"]))
    rows = [
        Bar(
            _name(mask),
            percent(mask["released"]),
            [Part(float(mask["released"]), "other" if mask.get("check") == UNMASKED else "safe", _name(mask))],
        )
        for mask in found
    ]
    picture = bars("shares-bars", "Share of contexts released", sentence, rows)
    table = [
        [_name(mask), percent(mask["released"]), count(mask.get("breaches")), decimal(facts.largest(mask)),
         decimal((mask.get("rises") or {}).get("mean")), count(mask.get("phones")), count(mask.get("days"))]
        for mask in found
    ]  # fmt: skip
    head = ("check", "released", "hours above delta", "largest rise", "mean rise", "phones", "days")
    how = (
        "The same people, days and delta under each check. Without a mask everything is released, whatever it reveals."
    )
    return figure("shares", sentence, how, picture, NumberTable(head, table))


MOST_DAYS, WEEK = 14, 7
"""More days than these are shown by the week."""
PARTS = (("released", "safe"), ("suppressed", "hatched"), ("missing", "empty"))


def days(data: Data) -> Markup | None:
    """The fate of the contexts of each day."""
    sentence = facts.released(data)
    if sentence is None:
        return None
    known = [day for day in facts.rows(data, "days") if day.get("steps")]
    size = 1 if len(known) <= MOST_DAYS else WEEK
    rows = [_fates(known[first : first + size]) for first in range(0, len(known), size)]
    picture = bars("days-bars", "Contexts released, suppressed and missing, by day", sentence, rows)
    how = join(
        f"Each bar is all contexts of a {'day' if size == 1 else 'week'}: ",
        *(tag("span", tag("span", class_=f"swatch {class_}"), name, class_="key") for name, class_ in PARTS),
    )
    table = [[_date(day), count(day["steps"]), *(count(day.get(key)) for key, _ in PARTS)] for day in known]
    return figure("days", sentence, how, picture, NumberTable(("day", "contexts", *(name for name, _ in PARTS)), table))


def _fates(known: Sequence[Data]) -> Bar:
    """A bar for some days."""
    steps = sum(day["steps"] for day in known)
    sums = {key: sum(day.get(key) or 0 for day in known) / steps for key, _ in PARTS}
    name = _date(known[0]) if len(known) == 1 else f"days {known[0].get('day')} to {known[-1].get('day')}"
    parts = [Part(sums[key], class_, key) for key, class_ in PARTS if sums[key]]
    return Bar(name, f"{percent(sums['released'])} released", parts)


def _date(day: Data) -> str:
    try:
        date = dt.date.fromisoformat(str(day.get("date")))
    except ValueError:
        return f"day {day.get('day')}"
    return f"day {day.get('day')}, {date:%a} {date.day} {date:%b}"
