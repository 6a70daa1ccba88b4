"""What the pictures share: the frame, and a colour, a line and a mark for each system.

Colours are after Paul Tol's schemes for colour-blind eyes, and no two systems differ by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.experiments.systems import (
    ADAPTIVE,
    HYBRID,
    LEAKY,
    OPTIMAL,
    ORDERS,
    PROBABILISTIC,
    SIMULATABLE,
    SWEPT,
)
from reticent_sim.picture import ALARM, CALM, FAINT, HAIR, STYLE, TINY

WIDTH, DPI = 10.0, 100  # inches, dots per inch
LEFT, RIGHT = 0.075, 0.98  # of the width
HEADING = 0.85  # inches above the axes
FOOTING = 1.0  # inches below them


@dataclass(frozen=True)
class Look:
    """How a system is drawn."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    mark: str
    width: float = 1.6


LOOKS = {
    LEAKY: Look(ALARM, (0, (5, 2)), "X"),
    SIMULATABLE: Look("#b08a00", (0, (1, 1)), "s"),
    PROBABILISTIC: Look("#8c64b4", (0, (3, 1, 1, 1)), "D"),
    HYBRID: Look("#22252a", "-", "o", 2.4),
    ORDERS: Look("#8c64b4", "-", "p"),
    ADAPTIVE: Look("#1f8f7a", "-", "^"),
    OPTIMAL: Look(CALM, "-", "v"),
}


def look_of(system: str) -> Look:
    """How a system is drawn; a check that has no look of its own yet is grey."""
    return LOOKS.get(system, Look(FAINT, "-", "*"))


Painter = Callable[[Figure], None]


@dataclass(frozen=True)
class Heading:
    """What stands above a picture, and how high it all is, in inches."""

    height: float
    title: str
    words: str
    intervals: bool = True
    """Whether it shows any."""


def paint(path: Path, result: Result, heading: Heading, painter: Painter) -> None:
    """Write a picture with a heading, and where it comes from."""
    height = heading.height
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(0.022, 1 - 0.26 / height, heading.title, fontsize=15, fontweight="bold", va="center")
        figure.text(0.022, 1 - 0.58 / height, heading.words, fontsize=9.5, color=FAINT, va="center", linespacing=1.45)
        painter(figure)
        origin = _origin(result) + ("; bars are 95 % intervals over people" if heading.intervals else "")
        figure.text(RIGHT, 0.1 / height, origin, fontsize=TINY, color=FAINT, ha="right")
        figure.savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})


def _origin(result: Result) -> str:
    """The run that the numbers come from."""
    settings = result.settings
    quick = ", quick" if settings["quick"] else ""
    return (
        f"reticent experiment {result.name}, seed {settings['seed']}{quick}: {settings['people']} people "
        f"({settings['source']}), {settings['steps']} steps a day"
    )


def panel(figure: Figure, left: float, right: float, bottom: float = FOOTING, top: float = HEADING) -> Axes:
    """Axes between two shares of the width, and inches from below and above, without a box."""
    height = figure.get_figheight()
    axes = figure.add_axes((left, bottom / height, right - left, 1 - (bottom + top) / height))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def percents(axes: Axes, label: str) -> None:
    """A vertical scale from nothing to everything."""
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_ylabel(label, color=FAINT)


def lines(axes: Axes, rows: list[Row], x: str, nudge: float) -> list[Any]:
    """A line with intervals for each system; the systems stand a little apart so that their bars do not cover."""
    drawn = []
    for number, system in enumerate(SWEPT):
        look = look_of(system)
        mine = [row for row in rows if row["system"] == system]
        values = [estimate(row, "utility") for row in mine]
        places = [float(str(row[x])) + (number - 2.5) * nudge for row in mine]
        drawn.append(
            axes.errorbar(
                places,
                [value.value for value in values],
                yerr=reaches(values),
                color=look.colour,
                linestyle=look.line,
                marker=look.mark,
                linewidth=look.width,
                markersize=5.5,
                elinewidth=0.9,
                capsize=2,
                label=system,
                zorder=3 if system == HYBRID else 2,
            )
        )
    return drawn


def reaches(values: list[Estimate]) -> tuple[list[float], list[float]]:
    """How far the intervals reach down and up."""
    below = [0.0 if value.low is None else value.value - value.low for value in values]
    above = [0.0 if value.high is None else value.high - value.value for value in values]
    return below, above


def legend(figure: Figure, drawn: list[Any], labels: list[str]) -> None:
    """Below everything, on one line."""
    place = (0.5, 0.24 / figure.get_figheight())
    figure.legend(
        drawn, labels, loc="lower center", bbox_to_anchor=place, ncol=len(labels), frameon=False, fontsize=9.5
    )


def estimate(row: Row, name: str) -> Estimate:
    """A number of a row that has an interval."""
    value = row[name]
    if not isinstance(value, Estimate):
        raise ValueError(f"{name} is no estimate: got {value!r}")
    return value


def number(row: Row, name: str) -> float:
    """A number of a row that has none."""
    value = row[name]
    if not isinstance(value, int | float):
        raise ValueError(f"{name} is no number: got {value!r}")
    return float(value)
