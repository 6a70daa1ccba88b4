"""Rows with a name, a value and a bar below, as wide as the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reticent_sim.report.run.markup import Markup
from reticent_sim.report.run.plot import Axis, Plot

__all__ = ["Bar", "Part", "bars"]

ROW = 42.0
"""The height of a row, of which the bar has the lower part."""
THICKNESS = 14.0


@dataclass(frozen=True)
class Part:
    """A part of a bar, from where the part before it ends."""

    size: float
    class_: str
    series: str


@dataclass(frozen=True)
class Bar:
    """A row: its name on the left, its value in words on the right, and the parts of its bar."""

    name: str
    value: str
    parts: Sequence[Part]


def bars(
    name: str, title: str, description: str, rows: Sequence[Bar], *, high: float = 1.0, limit: float | None = None
) -> Markup:
    """Bars from 0 to `high`, and a line across all at `limit`."""
    plot = Plot(name, title, description, ROW * len(rows), Axis(0, high), Axis(0, 1), left=1, right=1, top=2, bottom=4)
    for number, row in enumerate(rows):
        bottom = ROW * (number + 1) - 6
        top, at = bottom - THICKNESS, 0.0
        plot.row(top - 7, row.name, row.value)
        plot.bar(0, high, top, bottom, "track")
        for part in row.parts:
            plot.bar(at, at + part.size, top, bottom, part.class_, series=part.series, value=part.size)
            at += part.size
        if limit is not None:
            plot.mark(plot.across(limit), (top + bottom) / 2, "limit", "limit", series="limit", value=limit)
    return plot.svg()
