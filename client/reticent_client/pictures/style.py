"""Shared by the pictures: colours, fonts and the axis of the time of day.

Colours follow Paul Tol's light scheme, which is made for labelled cells and for colour-blind eyes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reticent_client.mask.times_of_day import time_of

WIDTH, DPI = 10.0, 150  # inches, dots per inch
LEFT, RIGHT = 1.5, 0.25  # inches beside the axes

INK, FAINT, HAIR = "#22252a", "#6b7078", "#d5d8dd"
ALARM, CALM, BAND = "#c43c0c", "#174f91", "#dbe7f5"
RELEASED, SUPPRESSED, OFF_MODEL, LOST, GAP = "#77aadd", "#dddddd", "#eedd88", "#99ddff", "#ffffff"
PALETTE = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")

TITLE, TEXT, SMALL = 15, 9.5, 8  # points

_STYLE: dict[Any, Any] = {  # the keys are of a type that matplotlib does not name
    "font.family": "DejaVu Sans",  # the one that matplotlib brings
    "font.size": TEXT,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "hatch.linewidth": 0.5,
    "hatch.color": "#b4b9c0",
}


@contextlib.contextmanager
def picture(path: Path, height: float, title: str, subtitle: str) -> Iterator[Figure]:
    """A figure with a heading, written to a PNG at the end."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(0.022, 1 - 0.32 / height, plain(title), fontsize=TITLE, fontweight="bold", va="center")
        figure.text(0.022, 1 - 0.68 / height, plain(subtitle), color=FAINT, va="center")
        yield figure
        figure.savefig(path, format="png", metadata={"Software": None})


def axes_at(figure: Figure, top: float, height: float) -> Axes:
    """Axes of the full width, by inches from the top."""
    whole = float(figure.get_figheight())
    place = LEFT / WIDTH, 1 - (top + height) / whole, (WIDTH - LEFT - RIGHT) / WIDTH, height / whole
    axes = figure.add_axes(place, facecolor="none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    return axes


def set_times(axes: Axes, horizon: int) -> None:
    """The time of day from left to right, one unit a step."""
    count = next(parts for parts in (8, 6, 4, 3, 2, 1) if horizon % parts == 0)
    steps = [k * horizon // count for k in range(count)] if horizon > 12 else list(range(horizon))
    axes.set_xlim(0, horizon)
    axes.set_xticks(steps, [time_of(step, horizon) for step in steps], fontsize=SMALL)


def plain(text: str) -> str:
    """A text in which no label starts a formula."""
    return text.replace("$", r"\$")
