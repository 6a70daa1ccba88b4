"""The picture of a day: what happened, what was released of it, and what an adversary believed.

Contexts have colours after Paul Tol's light scheme, which is made for labelled cells and for colour-blind eyes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

from reticent_sim.report.example_day import ExampleDay, Floats
from reticent_sim.report.style import BLUE, DARK, FONT, GREY, LIGHT_GREY, PURPLE, RED, STYLE, TINY
from reticent_sim.world.people import HOSPITAL, HOURS, Day, weekday

WIDTH, HEIGHT, DPI = 10.0, 6.2, 200  # inches, inches, dots per inch

BAND, EDGE, VISIT = "#dbe7f5", "#6382a8", "#fbe9e2"
LINES = ((RED, 2.4), (PURPLE, 1.4), (BLUE, 2.4))  # of the checks, in their order

COLOURS = {
    "home": "#dddddd",
    "work": "#77aadd",
    "transit": "#bbcc33",
    "cafe": "#eedd88",
    "shop": "#f3b08d",
    "gym": "#44bb99",
    "friends": "#ffaabb",
    "pharmacy": "#99ddff",
    HOSPITAL: RED,
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHARES = (0, 0.25, 0.5, 0.75, 1)
CLOCK = {0: "midnight", 6: "6:00", 12: "noon", 18: "18:00", 24: "midnight"}

SMALL, CELL = 8.5, 8.0  # points

MARGIN, LEFT, RIGHT = 0.022, 0.152, 0.978  # of the width
CONTEXTS, RELEASED, STRIP, PITCH = 0.725, 0.652, 0.052, 0.064  # of the height: bottoms, a strip's height and distance
BELIEVED, PANEL = 0.092, 0.335
EDGES = 0.06  # hours of a cell that stay white
HOUR = WIDTH * (RIGHT - LEFT) * 72 / HOURS  # points


def draw(example: ExampleDay, path: Path) -> None:
    """Write the picture of an example day as a PNG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        _heading(figure, example)
        _contexts(figure, example)
        _released(figure, example)
        _beliefs(figure, example)
        figure.savefig(path, metadata={"Software": None})


def _heading(figure: Figure, example: ExampleDay) -> None:
    leaky, *_, best = example.checked
    figure.text(MARGIN, 0.945, "Hiding the hospital is not enough", fontsize=17, fontweight="bold", va="center")
    rise = np.max(best.beliefs - example.prior)
    lines = (
        f"A {DAYS[weekday(example.day)]} of a made-up person whose habits the observer knows. {leaky.check} hides the "
        f"hospital alone: its silence tells.\n{best.check} releases {best.released} of {HOURS} hours, and belief in "
        f"the hospital rises by {rise:.2f} at most (delta = {example.delta:g})."
    )
    figure.text(MARGIN, 0.878, lines, fontsize=9.5, color=GREY, va="center", linespacing=1.5)
    origin = f"reticent experiment month, seed {example.seed}: person {example.person}, day {example.day}"
    figure.text(RIGHT, 0.016, origin, fontsize=TINY, color=GREY, ha="right")


def _contexts(figure: Figure, example: ExampleDay) -> None:
    axes = _axes(figure, CONTEXTS, STRIP)
    axes.text(-0.3, 0.5, "what happened", ha="right", va="center", fontweight="bold")
    _strip(axes, example.contexts)
    taken = [0.0, 0.0]  # the ends of the two lines of names that do not fit into their cells
    for start, stop, context in _runs(example.contexts):
        if context is None or _width(context, CELL) < stop - start - EDGES:
            continue
        middle, half = (start + stop) / 2, _width(context, SMALL) / 2
        line = int(taken[0] > middle - half)
        taken[line] = middle + half + 0.3
        colour = RED if context == HOSPITAL else DARK
        axes.text(middle, 1.15 + 0.46 * line, context, ha="center", fontsize=SMALL, color=colour)
        if line:
            axes.plot([middle, middle], [1.08, 1.52], color=GREY, linewidth=0.6, clip_on=False)


def _released(figure: Figure, example: ExampleDay) -> None:
    last = RELEASED - (len(example.checked) - 1) * PITCH
    _visits(_axes(figure, last, CONTEXTS - last), example.contexts)
    for number, checked in enumerate(example.checked):
        axes = _axes(figure, RELEASED - number * PITCH, STRIP)
        axes.text(-0.3, 0.74, checked.check, ha="right", va="center", color=LINES[number][0])
        released = f"{checked.released} of {HOURS} h released"
        axes.text(-0.3, 0.2, released, ha="right", va="center", fontsize=TINY, color=GREY)
        _strip(axes, checked.outputs)


def _beliefs(figure: Figure, example: ExampleDay) -> None:
    axes = _axes(figure, BELIEVED, PANEL)
    _visits(axes, example.contexts)
    _scales(axes)
    edges = np.arange(HOURS + 1)
    prior = _closed(example.prior)
    axes.fill_between(edges, prior, prior + example.delta, step="post", color=BAND, linewidth=0)
    axes.step(edges, prior, where="post", color=GREY, linewidth=1.2, linestyle=(0, (3, 2)))
    for checked, (colour, width) in zip(example.checked, LINES, strict=True):
        axes.step(edges, _closed(checked.beliefs), where="post", color=colour, linewidth=width, solid_joinstyle="miter")
    title = "belief that the person is in the hospital, given the whole day's releases"
    axes.text(0, 1.11, title, fontweight="bold")
    _line_names(axes, example)


def _line_names(axes: Axes, example: ExampleDay) -> None:
    """Write the names beside the lines, around the hours that the first check reveals."""
    leaky, _, best = example.checked
    bound = example.prior + example.delta
    start, stop = _revealed(leaky.beliefs - bound)
    right, early = stop <= HOURS - 4, start <= 8 and stop <= HOURS - 8
    x, side = (stop + 0.25, "left") if right else (start - 0.25, "right")
    near = slice(stop, stop + 4) if right else slice(max(start - 4, 0), max(start, 1))

    top = leaky.beliefs[start:stop].max()
    certain = f"{leaky.check}\n{_percent(top)} sure at {start}:00"
    _label(axes, (x, top - 0.02), certain, color=RED, ha=side, va="top")

    above = np.max([bound[near], *(checked.beliefs[near] for checked in example.checked[1:])]) + 0.05
    uncertain = f"{best.check}\nat most {_percent(best.beliefs.max())} sure"
    _label(axes, (x, above), uncertain, color=BLUE, ha=side)

    edge, side, last = (HOURS - 0.15, "right", -1) if early else (0.15, "left", 0)
    promise = "prior + delta:\nno private check lets\nbelief rise above this band"
    _label(axes, (edge, bound[last] + 0.035), promise, color=EDGE, ha=side, fontsize=SMALL)

    if early:
        hour = stop + int(np.argmax(example.prior[stop:]))
        x = float(np.clip(hour + 0.5, stop + 6.5, HOURS - 8))
        hour = hour if example.prior[hour] > 0 else int(x)
    else:
        hour = start - 1 - int(np.argmax(example.prior[:start][::-1])) if start else 0
        x = float(np.clip(hour + 0.5, 7.5, start - (2.3 if right else 6.5)))
    _label(axes, (x, 0.4), "prior: what\nhabits alone tell", color=GREY, ha="center", fontsize=SMALL)
    axes.plot([x, hour + 0.5], [0.385, example.prior[hour] + 0.01], color=GREY, linewidth=0.7)


def _revealed(excess: Floats) -> tuple[int, int]:
    """The first hour and the end of the stretch around the largest excess."""
    start = stop = int(np.argmax(excess))
    while start > 0 and excess[start - 1] > 0:
        start -= 1
    while stop < len(excess) and (excess[stop] > 0 or stop == start):
        stop += 1
    return start, stop


def _label(axes: Axes, place: tuple[float, float], text: str, **style: Any) -> None:
    """Write a text over a white box, which covers the grid lines."""
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.text(*place, text, linespacing=1.35, bbox=behind, zorder=1.9, **style)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _scales(axes: Axes) -> None:
    axes.axis("on")
    axes.set_ylim(-0.015, 1.03)
    axes.set_xticks(list(CLOCK), list(CLOCK.values()), fontsize=9)
    axes.set_xticks(range(HOURS + 1), minor=True)
    axes.set_yticks(SHARES, [_percent(share) for share in SHARES], fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=LIGHT_GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _axes(figure: Figure, bottom: float, height: float) -> Axes:
    """Axes for a day, without a frame."""
    axes = figure.add_axes((LEFT, bottom, RIGHT - LEFT, height), facecolor="none")
    axes.set(xlim=(0, HOURS), ylim=(0, 1))
    axes.axis("off")
    return axes


def _visits(axes: Axes, day: Day) -> None:
    """Shade the hours in the hospital."""
    for start, stop, context in _runs(day):
        if context == HOSPITAL:
            axes.axvspan(start, stop, facecolor=VISIT, zorder=0)


def _strip(axes: Axes, day: Day) -> None:
    """Draw a cell for each stay, with its name if there is room; suppressed hours are hatched."""
    for start, stop, context in _runs(day):
        place, width, middle = (start + EDGES / 2, 0.0), stop - start - EDGES, (start + stop) / 2
        if context is None:
            axes.add_patch(
                Rectangle(place, width, 1, facecolor="white", edgecolor=LIGHT_GREY, hatch="//////", linewidth=0.8)
            )
            label, colour, room = "suppressed", GREY, width - 0.6
        else:
            axes.add_patch(Rectangle(place, width, 1, facecolor=COLOURS[context]))
            label, colour, room = context, "white" if context == HOSPITAL else DARK, width
        if _width(label, CELL) < room:
            text = axes.text(middle, 0.47, label, ha="center", va="center", fontsize=CELL, color=colour)
            text.set_bbox(None if context else {"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _width(label: str, size: float) -> float:
    """The width of a text, in hours."""
    return float(TextPath((0, 0), label, size=size, prop=FontProperties(family=FONT)).get_extents().width / HOUR)


def _closed(values: Floats) -> Floats:
    """The values, with the last one repeated at the end of its hour."""
    return np.append(values, values[-1])


def _runs(day: Day) -> Iterator[tuple[int, int, str | None]]:
    """The stays of a day: first hour, end, context."""
    start = 0
    for context, hours in groupby(day):
        stop = start + len(list(hours))
        yield start, stop, context
        start = stop
