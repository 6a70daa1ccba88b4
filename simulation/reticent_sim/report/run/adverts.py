"""The figures of ads over days: precision, coverage and revenue, as rates are learned."""

from __future__ import annotations

from dataclasses import dataclass

from reticent_sim.report.run import facts
from reticent_sim.report.run.facts import Data
from reticent_sim.report.run.frame import NumberTable, figure
from reticent_sim.report.run.markup import Markup
from reticent_sim.report.run.numbers import count, decimal, finite, percent
from reticent_sim.report.run.plot import LINE, Axis, Plot, Point, spread, ticks

__all__ = ["coverage", "precision", "progress", "revenue"]

HEIGHT = 190.0


@dataclass(frozen=True)
class DailyValues:
    """The values of some days: a line with a name and a marker."""

    name: str
    marker: str
    points: list[Point]


STYLES = (("exact", "exact rates", "triangle"), ("none", "no rates", "square"), ("learned", "learned rates", "circle"))
"""Of each line its key, its label and its marker; the last is drawn over the others."""
MOST_MARKS = 12
"""The most markers of a line; the last day has one always."""


def revenue(data: Data) -> Markup | None:
    """Revenue with no rates, learned rates and exact rates."""
    sentence = facts.revenue(data)
    if sentence is None:
        return None
    lines = [DailyValues(key, marker, _points(data, "revenue", key)) for key, _, marker in STYLES]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    labels = {key: label for key, label, _ in STYLES}
    high = max(y for line in lines for _, y in line.points)
    plot = _plot("revenue-lines", "Expected revenue of a request, by day", sentence, data, high=high, right=112)
    plot.y_axis([(tick, f"{tick:,g}") for tick in ticks(0, high)], "expected revenue of a request")
    ends = spread([plot.down(line.points[-1][1]) for line in lines], LINE, 6, HEIGHT)
    for line, end in zip(lines, ends, strict=True):
        _draw(plot, line)
        plot.add(
            plot.text("100%", end, labels[line.name], anchor="start", dx=12, middle=True, class_=f"end {line.name}")
        )
    how = "What advertisers are expected to pay for a request, by the true probabilities of a click."
    table = [
        [
            f"day {day['day']}",
            *(decimal((day["ads"].get("revenue") or {}).get(key)) for key in ("none", "learned", "exact")),
        ]
        for day in facts.ad_days(data)
    ]
    head = ("day", "no rates", "learned", "exact")
    return figure("revenue", sentence, how, plot.svg(), NumberTable(head, table))


def progress(data: Data) -> Markup | None:
    """The part of the way from no rates to exact ones, with its interval."""
    sentence = facts.progress(data)
    if sentence is None:
        return None
    line = DailyValues("progress", "circle", _points(data, "progress"))
    intervals = [
        (float(day["day"]), *map(float, interval))
        for day in facts.ad_days(data)
        if len(interval := day["ads"].get("progress_interval") or []) == 2
    ]
    lows, highs = [low for _, low, _ in intervals], [high for *_, high in intervals]
    low, high = min([0.0, *lows, *(y for _, y in line.points)]), max([1.0, *highs, *(y for _, y in line.points)])
    plot = _plot(
        "progress-line", "Share of the possible gain in revenue, by day", sentence, data, high=high, low=low, right=70
    )
    plot.y_axis([(tick, percent(tick)) for tick in ticks(low, high)], "share of the possible gain")
    plot.path([(x, top) for x, _, top in intervals], "band", back=[(x, bottom) for x, bottom, _ in intervals])
    _draw(plot, line)
    _end(plot, line)
    table = [
        [
            f"day {day['day']}",
            *(percent(value) for value in (day["ads"].get("progress"), *(day["ads"].get("progress_interval") or ()))),
        ]
        for day in facts.ad_days(data)
    ]
    how = "0 % is the revenue without rates, 100 % that with exact ones. The band is the 95 % interval over the users."
    return figure("progress", sentence, how, plot.svg(), NumberTable(("day", "progress", "low", "high"), table))


def precision(data: Data) -> Markup | None:
    """The expected share of shown ads that are clicked."""
    how = "Precision: the expected share of clicked ads, of those that phones show, by the true probabilities."
    return _share(data, "precision", facts.precision(data), how)


def coverage(data: Data) -> Markup | None:
    """The share of requests that get an ad."""
    how = "Coverage: requests with an ad, of all requests."
    return _share(data, "coverage", facts.coverage(data), how)


def _share(data: Data, key: str, sentence: str | None, how: str) -> Markup | None:
    if sentence is None:
        return None
    line = DailyValues(key, "circle", _points(data, key))
    high = max(*(y for _, y in line.points), 0.01)
    plot = _plot(f"{key}-line", f"{key.capitalize()} of each day", sentence, data, high=high, right=66)
    plot.y_axis([(tick, percent(tick)) for tick in ticks(0, high)], key)
    _draw(plot, line)
    _end(plot, line)
    table = [
        [
            f"day {day['day']}",
            percent(day["ads"].get(key)),
            *(count(day["ads"].get(name)) for name in ("requests", "shown", "clicks")),
        ]
        for day in facts.ad_days(data)
    ]
    return figure(key, sentence, how, plot.svg(), NumberTable(("day", key, "requests", "shown", "clicks"), table))


def _points(data: Data, *keys: str) -> list[Point]:
    """The values of the days that have one."""
    points = []
    for day in facts.ad_days(data):
        value = day["ads"]
        for key in keys:
            value = (value or {}).get(key)
        if (number := finite(value)) is not None:
            points.append((float(day["day"]), number))
    return points


def _plot(name: str, title: str, description: str, data: Data, *, high: float, right: float, low: float = 0.0) -> Plot:
    """A plot whose horizontal axis is the days with ads."""
    days = [int(day["day"]) for day in facts.ad_days(data)]
    x = Axis(min(days) - 0.25, max(days) + 0.25) if len(days) == 1 else Axis(min(days), max(days))
    plot = Plot(
        name, title, description, HEIGHT, x, Axis(low, high + 0.05 * (high - low)), left=56, right=right, top=30
    )
    whole = [tick for tick in ticks(min(days), max(days), 8) if tick == int(tick)]
    plot.x_axis([(tick, f"{tick:g}") for tick in whole], "day")
    return plot


def _draw(plot: Plot, line: DailyValues) -> None:
    plot.path(line.points, f"line {line.name}")
    step = -(-len(line.points) // MOST_MARKS)
    for x, y in line.points[::-1][::step]:
        plot.mark(plot.across(x), plot.down(y), line.marker, line.name, series=line.name, value=y)


def _end(plot: Plot, line: DailyValues) -> None:
    """Write the last value at the end of its line."""
    x, y = line.points[-1]
    plot.add(plot.text(plot.across(x), plot.down(y), percent(y), anchor="start", dx=10, middle=True, class_="strong"))
