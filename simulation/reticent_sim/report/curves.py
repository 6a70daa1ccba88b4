"""Figures 3.7 to 3.9: the utility of all systems while one thing varies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from reticent_sim.experiments.results import Result
from reticent_sim.experiments.systems import SWEPT
from reticent_sim.report.figure import LEFT, RIGHT, Heading, legend, lines, panel, percents, save_figure
from reticent_sim.report.style import GREY

HEIGHT = 4.9  # inches
GAP = 0.05  # between panels, of the width


@dataclass(frozen=True)
class Scale:
    """The quantity on the axis."""

    varies: str
    label: str
    offset: float
    """The distance between the systems at each value, so that their bars do not cover one another."""


OVER_DELTA = Scale("delta", "delta", 0.0022)
OVER_CONTEXTS = Scale("sensitive_contexts", "sensitive contexts", 0.06)


def draw_delta(result: Result, path: Path) -> None:
    """Figure 3.7."""
    text = (
        "What is released of the second half of the days, over delta: the left for one sensitive context at random, "
        "the right for home.\nMaskSensitive promises nothing, and so has no delta."
    )
    _draw(result, path, Heading(HEIGHT, "What a smaller delta costs", text), OVER_DELTA)


def draw_contexts(result: Result, path: Path) -> None:
    """Figure 3.8."""
    text = (
        "What is released of the second half of the days, over how many contexts are sensitive, for people with "
        "15 to 20 contexts.\nMaskSensitive hides them all; a private check may release those that are no secret."
    )
    _draw(result, path, Heading(HEIGHT, "The more is sensitive, the less is released", text), OVER_CONTEXTS)


def draw_activities(result: Result, path: Path) -> None:
    """Figure 3.9."""
    text = (
        "What is released of the second half of the days, over delta, with one sensitive context at random.\n"
        'An activity is what is done with the phone and how one moves, such as "riding, app".'
    )
    _draw(result, path, Heading(HEIGHT, "Activities instead of places", text), OVER_DELTA)


def _draw(result: Result, path: Path, heading: Heading, scale: Scale) -> None:
    series = list(dict.fromkeys(row["series"] for row in result.rows))

    def draw(figure: Figure) -> None:
        width = (RIGHT - LEFT - GAP * (len(series) - 1)) / len(series)
        for number, name in enumerate(series):
            left = LEFT + number * (width + GAP)
            axes = panel(figure, left, left + width, top=1.15)
            rows = [row for row in result.rows if row["series"] == name]
            drawn = lines(axes, rows, scale.varies, scale.offset)
            percents(axes, "" if number else "released")
            axes.set_xticks(sorted({float(str(row[scale.varies])) for row in rows}))
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            axes.set_xlabel(scale.label, color=GREY, labelpad=2)
            if len(series) > 1:
                axes.set_title(str(name), fontsize=10.5, fontweight="bold", loc="left")
            if not number:
                legend(figure, drawn, list(SWEPT))

    save_figure(path, result, heading, draw)
