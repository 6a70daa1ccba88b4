"""A plot of the statistics of a release: one panel for each unit, one for each histogram."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reticent.console.text import printable
from reticent.privacy import Bin
from reticent_analyst.intervals import Statistic

__all__ = ["save_plot"]

INK, FAINT, BAR, LINE = "#22252a", "#6b7078", "#77aadd", "#174f91"
STYLE: dict[Any, Any] = {  # the keys are of a type that matplotlib does not name
    "font.family": "DejaVu Sans",  # the one that matplotlib brings
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": INK,
    "text.parse_math": False,  # names come from others
}
WIDTH, DPI = 7.0, 150  # inches, dots per inch
ROW, BARS, FRAME = 0.42, 2.0, 0.75  # inches: of a number, of a histogram's bars, and of what surrounds a panel
NAME = 32
"""Characters of a name that are shown."""
TITLES = {"total": "Totals", "mean": "Means over the contributors", "ratio": "Ratios"}


def save_plot(statistics: Sequence[Statistic], path: Path, *, title: str, level: float = 0.95) -> None:
    """Write a plot of the statistics; the file's ending names the format, such as .png, .svg or .pdf.

    Args:
        statistics: The statistics.
        path: The file.
        title: The title of the plot.
        level: The level of the intervals, for the caption.
    """
    panels = [(title, list(each)) for title, each in groupby(sorted(statistics, key=_order), key=_panel)]
    heights = [(BARS if each[0].kind == "share" else ROW * len(each)) + FRAME for _, each in panels]
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a name may have any letters
        figure = Figure(figsize=(WIDTH, sum(heights) + FRAME), dpi=DPI, facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for (name, each), ax in zip(panels, axes, strict=True):
            ax.set_title(name)
            (_bars if each[0].kind == "share" else _points)(ax, each)
        figure.suptitle(_short(title), x=0.02, ha="left", fontsize=12, fontweight="bold")
        figure.supxlabel(
            f"lines: all intervals together contain the truth with probability {level:g}", fontsize=8, color=FAINT
        )
        figure.savefig(path)


def _panel(statistic: Statistic) -> str:
    found = Bin.of(statistic.name)
    if statistic.kind == "share" and found is not None:
        return f"{_short(found.number)}: share of the contributors"
    return TITLES[statistic.kind]


def _order(statistic: Statistic) -> tuple[int, str]:
    return ["total", "mean", "ratio", "share"].index(statistic.kind), _panel(statistic)


def _points(ax: Axes, statistics: Sequence[Statistic]) -> None:
    """A point for each value, with its interval, and both in numbers: rows may have different units."""
    names = []
    for row, each in enumerate(statistics):
        numbers = "unbounded: the denominator may be 0"
        if math.isfinite(each.low):
            numbers = f"{each.value:,.5g} ({each.low:,.5g} to {each.high:,.5g})"
            ax.plot([each.low, each.high], [row, row], color=LINE, linewidth=2, solid_capstyle="butt")
            ax.plot(each.value, row, "o", color=INK, markersize=4)
        names.append(f"{_short(each.name)}\n{numbers}")
    ax.set_yticks(range(len(statistics)), names)
    ax.set_ylim(len(statistics) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(lambda number, _: f"{number:,.6g}")
    if not any(math.isfinite(each.low) for each in statistics):
        ax.set_xticks([])


def _bars(ax: Axes, statistics: Sequence[Statistic]) -> None:
    """A bar for each bin, with its interval; an estimate below 0 is noise, and is drawn as it is."""
    places = range(len(statistics))
    ax.bar(places, [each.value for each in statistics], color=BAR, width=0.9)
    for place, each in zip(places, statistics, strict=True):
        ax.plot([place, place], [each.low, each.high], color=LINE, linewidth=2, solid_capstyle="butt")
    names = [Bin.of(each.name) for each in statistics]
    ranges = [found.name.removeprefix(found.number) if found else "" for found in names]
    ax.set_xticks(places, [f"{found}\n{each.value:.1%}" for found, each in zip(ranges, statistics, strict=True)])
    ax.tick_params(axis="x", length=0)
    ax.axhline(0, color=FAINT, linewidth=0.8)
    ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."
