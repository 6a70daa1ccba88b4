"""The frame of the pictures of experiments: heading, axes, lines with intervals, legend and source."""

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
from reticent_sim.experiments.systems import HYBRID, SWEPT
from reticent_sim.report.style import GREY, LIGHT_GREY, STYLE, TINY, style_of

WIDTH, DPI = 10.0, 100  # inches, dots per inch
LEFT, RIGHT = 0.075, 0.98  # of the width
HEADING = 0.85  # inches above the axes
FOOTING = 1.0  # inches below them


Draw = Callable[[Figure], None]


@dataclass(frozen=True)
class Heading:
    """The text above a picture, and the height of the picture in inches."""

    height: float
    title: str
    text: str
    intervals: bool = True
    """Whether the picture shows intervals."""


def save_figure(path: Path, result: Result, heading: Heading, draw: Draw) -> None:
    """Write a picture with its heading and its source."""
    height = heading.height
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(0.022, 1 - 0.26 / height, heading.title, fontsize=15, fontweight="bold", va="center")
        figure.text(0.022, 1 - 0.58 / height, heading.text, fontsize=9.5, color=GREY, va="center", linespacing=1.45)
        draw(figure)
        source = _source(result) + (
            f"; bars are 95 % intervals over {result.settings['intervals']}" if heading.intervals else ""
        )
        figure.text(RIGHT, 0.1 / height, source, fontsize=TINY, color=GREY, ha="right")
        figure.savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})


def _source(result: Result) -> str:
    """The command, and the people or worlds that the numbers come from."""
    settings = result.settings
    quick = ", quick" if settings["quick"] else ""
    return f"reticent experiment {result.name}, seed {settings['seed']}{quick}: {settings['sample']}"


def panel(figure: Figure, left: float, right: float, bottom: float = FOOTING, top: float = HEADING) -> Axes:
    """Axes without a box, between two shares of the width; `bottom` and `top` are distances in inches."""
    height = figure.get_figheight()
    axes = figure.add_axes((left, bottom / height, right - left, 1 - (bottom + top) / height))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=LIGHT_GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def percents(axes: Axes, label: str) -> None:
    """A vertical scale from 0 to 100 %."""
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_ylabel(label, color=GREY)


def lines(axes: Axes, rows: list[Row], x: str, offset: float) -> list[Any]:
    """A line with intervals for each system, with a small offset in x so that error bars do not cover one another."""
    drawn = []
    for number, system in enumerate(SWEPT):
        style = style_of(system)
        own_rows = [row for row in rows if row["system"] == system]
        values = [estimate(row, "utility") for row in own_rows]
        places = [float(str(row[x])) + (number - 2.5) * offset for row in own_rows]
        drawn.append(
            axes.errorbar(
                places,
                [value.value for value in values],
                yerr=error_lengths(values),
                color=style.colour,
                linestyle=style.line,
                marker=style.marker,
                linewidth=style.width,
                markersize=5.5,
                elinewidth=0.9,
                capsize=2,
                label=system,
                zorder=3 if system == HYBRID else 2,
            )
        )
    return drawn


def error_lengths(values: list[Estimate]) -> tuple[list[float], list[float]]:
    """The lengths of the error bars below and above the values."""
    below = [0.0 if value.low is None else value.value - value.low for value in values]
    above = [0.0 if value.high is None else value.high - value.value for value in values]
    return below, above


def legend(figure: Figure, drawn: list[Any], labels: list[str]) -> None:
    """A legend below the axes, on one line."""
    place = (0.5, 0.24 / figure.get_figheight())
    figure.legend(
        drawn, labels, loc="lower center", bbox_to_anchor=place, ncol=len(labels), frameon=False, fontsize=9.5
    )


def estimate(row: Row, name: str) -> Estimate:
    """A value of a row that has an interval."""
    value = row[name]
    if not isinstance(value, Estimate):
        raise ValueError(f"{name} must be an estimate: got {value!r}")
    return value


def number(row: Row, name: str) -> float:
    """A value of a row without an interval."""
    value = row[name]
    if not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number: got {value!r}")
    return float(value)
