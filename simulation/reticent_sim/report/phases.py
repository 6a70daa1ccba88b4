"""Figure 5.3: the number of phases over the probability of absence, and over the number of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reticent_sim.experiments.phases import ABSENT, USERS
from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.report.figure import LEFT, RIGHT, Heading, error_lengths, legend, panel, save_figure
from reticent_sim.report.style import BLUE, GREY, PURPLE, RED, SystemStyle
from reticent_sim.rivals.phases import OURS, PROTOCOLS, RASTOGI_NATH, SHI, law

HEIGHT = 4.9  # inches
GAP = 0.05  # between panels, of the width
TOP, OUTSIDE = 1e6, 30.0
"""The end of the scale, and a logarithm far beyond it, to which lines are cut."""
GRID = 200
"""The points of a line."""

STYLES = {
    SHI: SystemStyle(RED, "-", "X"),
    RASTOGI_NATH: SystemStyle(PURPLE, (0, (5, 2)), "D"),
    OURS: SystemStyle(BLUE, "-", "o", 2.4),
}


def draw_phases(result: Result, path: Path) -> None:
    """Figure 5.3."""
    text = (
        "The mean number of phases until a query succeeds. Lines are the closed form, markers the simulation.\n"
        "Ours tolerates absent users; the rivals need every user of their setup, and so they leave the picture."
    )

    def draw(figure: Figure) -> None:
        width = (RIGHT - LEFT - GAP) / 2
        halves = (
            ("absent", "users", USERS, "p: probability that a user is absent in a phase", f"N = {USERS:,} users"),
            ("users", "absent", ABSENT, "N: users", f"p = {ABSENT:g}"),
        )
        for place, (x, kept, value, label, title) in enumerate(halves):
            left = LEFT + place * (width + GAP)
            axes = panel(figure, left, left + width, top=1.2)
            rows = [row for row in result.rows if float(str(row[kept])) == value]
            drawn = _lines(axes, rows, x)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(1, TOP)
            axes.minorticks_off()
            axes.set_xlabel(label, color=GREY, labelpad=2)
            axes.set_ylabel("" if place else "phases of a query", color=GREY)
            axes.set_title(title, fontsize=10.5, fontweight="bold", loc="left")
            if not place:
                legend(figure, drawn, [protocol.name for protocol in PROTOCOLS])

    save_figure(path, result, Heading(HEIGHT, "Only ours does not wait for everybody", text), draw)


def _lines(axes: Axes, rows: list[Row], x: str) -> list[Any]:
    """A line and its markers for each protocol."""
    drawn = []
    for protocol, style in STYLES.items():
        own = [(float(str(row[x])), row["simulated"]) for row in rows if row["protocol"] == protocol.name]
        known = [(place, value) for place, value in own if isinstance(value, Estimate)]
        grid = np.geomspace(min(place for place, _ in own), max(place for place, _ in own), GRID)
        curve = [
            law(protocol, USERS, place) if x == "absent" else law(protocol, round(place), ABSENT) for place in grid
        ]
        exact = [10 ** min(OUTSIDE, each.log10_mean) for each in curve]
        axes.plot(grid, exact, color=style.colour, linestyle=style.line, linewidth=style.width)
        drawn.append(
            axes.errorbar(
                [place for place, _ in known],
                [value.value for _, value in known],
                yerr=error_lengths([value for _, value in known]),
                color=style.colour,
                linestyle="none",
                marker=style.marker,
                markersize=5.5,
                elinewidth=0.9,
                capsize=2,
            )
        )
    return drawn
