"""The surface of disclosure, revenue and bytes, on which a user can choose a point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from reticent_sim.experiments.ads import surface
from reticent_sim.experiments.results import Result, Row
from reticent_sim.report.figure import LEFT, RIGHT, Heading, error_lengths, estimate, number, panel, save_figure
from reticent_sim.report.style import BLUE, DARK, GREY, PURPLE, RED

HEIGHT = 5.6  # inches
SHIFT, SPLIT, GAP = 0.015, 0.6, 0.09  # of the width
TOP = 1.25  # inches above the axes
SIZES = 1_000, 3_000, 10_000, 30_000, 100_000
"""The marks of bytes."""
MIDDLE = 0.5  # of the disclosure: the name of the default is on its side with more room
CONTOURS = 0.5, 0.75, 0.9, 0.97
"""Of the largest revenue."""
SECTIONS = {2_000: (RED, "X"), 10_000: (PURPLE, "D"), 110_000: (BLUE, "s")}
"""The largest replies of the sections, with their styles."""

Floats = npt.NDArray[np.float64]


def draw_surface(result: Result, path: Path) -> None:
    """The heat map of revenue, with the points that no other one beats, and sections through it."""
    text = (
        "Left: the most revenue with so much disclosure and replies of so many bytes. Each dot is a choice that no "
        "other\none beats: of delta, the ads of a reply and their rates. Right: sections for three sizes of replies."
    )
    by_delta = [row for row in result.rows if row["delta"] is not None]
    [default] = [
        row for row in result.rows if row["delta"] is None and (row["ads"], row["rates_per_ad"]) == surface.DEFAULT[1:]
    ]
    best = max(estimate(row, "revenue").value for row in result.rows)

    def draw(figure: Figure) -> None:
        axes = panel(figure, LEFT + SHIFT, SPLIT, bottom=0.75, top=TOP)
        _heat_map(figure, axes, by_delta, best)
        _dots(axes, result.rows, default)
        axes = panel(figure, SPLIT + GAP, RIGHT, bottom=0.75, top=TOP)
        _sections(axes, by_delta, default)

    save_figure(path, result, Heading(HEIGHT, "What disclosure and bytes buy: choose a point", text), draw)


def _heat_map(figure: Figure, axes: Axes, rows: list[Row], best: float) -> None:
    deltas = np.array(sorted({number(row, "delta") for row in rows}))
    sizes = np.geomspace(min(number(row, "bytes") for row in rows), max(number(row, "bytes") for row in rows), 60)
    values = np.array([[_most(rows, delta, size) for delta in deltas] for size in sizes]) / best
    mesh = axes.pcolormesh(deltas, sizes, values, cmap="YlGnBu", vmin=0, vmax=1, shading="nearest", rasterized=True)
    lines = axes.contour(deltas, sizes, values, CONTOURS, colors="white", linewidths=1.2)
    for text in axes.clabel(lines, fmt=lambda level: f"{100 * level:.0f} %", fontsize=8.5):
        text.set_path_effects([withStroke(linewidth=2, foreground=DARK)])
    axes.set_yscale("log")
    axes.set_yticks(SIZES, [f"{size // 1000} kB" for size in SIZES])
    axes.minorticks_off()
    axes.grid(visible=False)
    axes.set_ylabel("bytes of a reply", color=GREY, labelpad=0)
    axes.set_xlabel("disclosure: largest rise of the service's belief in a need in a building", color=GREY)
    height = figure.get_figheight()
    bar = figure.add_axes((LEFT + SHIFT, 1 - (TOP - 0.1) / height, 0.2, 0.1 / height))
    figure.colorbar(mesh, cax=bar, orientation="horizontal")
    bar.xaxis.set_ticks_position("top")
    bar.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"], fontsize=8.5)
    bar.text(1.13, 0.5, "of the largest revenue", fontsize=8.5, color=GREY, va="center", transform=bar.transAxes)


def _most(rows: list[Row], delta: float, size: float) -> float:
    """The largest revenue at a delta with replies that are no larger."""
    found = [
        estimate(row, "revenue").value
        for row in rows
        if number(row, "delta") == delta and number(row, "bytes") <= size * (1 + 1e-9)
    ]
    return max(found, default=0.0)


def _dots(axes: Axes, rows: Any, default: Row) -> None:
    front = [row for row in rows if row["on_front"] and row["delta"] is not None]  # of equal choices, one
    axes.scatter(
        [number(row, "delta") for row in front],
        [number(row, "bytes") for row in front],
        9,
        color="white",
        edgecolors=DARK,
        linewidths=0.5,
        zorder=3,
    )
    place = estimate(default, "disclosure").value, number(default, "bytes")
    axes.scatter(*place, 170, marker="*", color=RED, edgecolors="white", linewidths=0.9, zorder=4, clip_on=False)
    text = axes.annotate(
        "default: level (4, 2, 2), 10 ads",
        place,
        (10 if place[0] < MIDDLE else -12, -14),
        textcoords="offset points",
        ha="left" if place[0] < MIDDLE else "right",
        fontsize=9,
        fontweight="bold",
        color=RED,
        zorder=5,
    )
    text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _sections(axes: Axes, rows: list[Row], default: Row) -> None:
    for limit, (colour, marker) in SECTIONS.items():
        points = []
        for delta in sorted({number(row, "delta") for row in rows}):
            suited = [row for row in rows if number(row, "delta") == delta and number(row, "bytes") <= limit]
            if suited:
                points.append((delta, max((estimate(row, "revenue") for row in suited), key=lambda each: each.value)))
        values = [value for _, value in points]
        axes.errorbar(
            [delta for delta, _ in points],
            [value.value for value in values],
            yerr=error_lengths(values),
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.6,
            elinewidth=0.9,
            capsize=1.5,
            label=f"at most {limit // 1000} kB",
        )
    own = estimate(default, "revenue")
    axes.errorbar(
        estimate(default, "disclosure").value,
        own.value,
        yerr=error_lengths([own]),
        color=RED,
        marker="*",
        markersize=13,
        markeredgecolor="white",
        linestyle="none",
        label="default",
        zorder=4,
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("disclosure", color=GREY)
    axes.set_title("revenue of a context", fontsize=10.5, fontweight="bold", loc="left")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
