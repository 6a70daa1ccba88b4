"""Table 3.2 as a picture: seconds on a logarithmic scale, ours beside the published ones."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reticent_sim.experiments.results import Result
from reticent_sim.experiments.systems import HYBRID, PROBABILISTIC, SIMULATABLE
from reticent_sim.report.figure import (
    RIGHT,
    Heading,
    error_lengths,
    estimate,
    legend,
    number,
    panel,
    save_figure,
)
from reticent_sim.report.style import DARK, LIGHT_GREY, style_of

HEIGHT = 4.2  # inches
MARKS = {1e-6: "1 µs", 1e-3: "1 ms", 1.0: "1 s", 900.0: "15 min"}
PUBLISHED = {
    "initialise": {PROBABILISTIC: 15 * 60.0, HYBRID: 18 * 60.0},
    "decide": {SIMULATABLE: 0.036, PROBABILISTIC: 0.001, HYBRID: 0.036},
}
"""In seconds, on a PC; for probabilistic less than a millisecond, and for hybrid at most."""


def draw_times(result: Result, path: Path) -> None:
    """Table 3.2."""
    text = "The mean over people, and the slowest of them, on one core of the machine that drew this picture."

    def draw(figure: Figure) -> None:
        middle = (0.13 + RIGHT) / 2
        drawn: list[object] = []
        for left, right, what, title in (
            (0.13, middle - 0.02, "initialise", "to compute a policy"),
            (middle + 0.02, RIGHT, "decide", "to decide on a step"),
        ):
            axes = panel(figure, left, right, top=1.0)
            drawn = _dots(axes, result, what)
            axes.set_title(title, fontsize=10.5, fontweight="bold", loc="left")
            if what == "decide":
                axes.set_yticklabels([])
        legend(figure, drawn, ["mean, with interval", "slowest person", "published, on a PC"])

    save_figure(path, result, Heading(HEIGHT, "How long it takes", text), draw)


def _dots(axes: Axes, result: Result, what: str) -> list[object]:
    drawn: list[object] = []
    axes.grid(axis="x", color=LIGHT_GREY, linewidth=0.6)
    for place, row in enumerate(result.rows):
        style, mean = style_of(str(row["system"])), estimate(row, f"{what}_s")
        point = axes.errorbar(
            mean.value, -place, xerr=error_lengths([mean]), color=style.colour, marker=style.marker, capsize=2
        )
        most = axes.scatter(number(row, f"{what}_most_s"), -place, 30, color=style.colour, marker="|")
        known = PUBLISHED[what].get(str(row["system"]))
        if known is not None:
            drawn = [point, most, axes.scatter(known, -place, 55, facecolors="none", edgecolors=DARK)]
    axes.set_xscale("log")
    axes.set_xlim(3e-7, 3e3)
    axes.set_xticks(list(MARKS), list(MARKS.values()))
    axes.minorticks_off()
    axes.set_yticks([-place for place in range(len(result.rows))], [str(row["system"]) for row in result.rows])
    axes.tick_params(axis="y", colors=DARK)
    axes.set_ylim(-len(result.rows) + 0.4, 0.6)
    return drawn
