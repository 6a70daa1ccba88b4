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

from reticent_sim.scene import Floats, Scene
from reticent_sim.world.people import HOSPITAL, HOURS, Day, weekday

WIDTH, HEIGHT, DPI = 10.0, 6.2, 200  # inches, inches, dots per inch

INK, FAINT, HAIR = "#22252a", "#6b7078", "#d5d8dd"
ALARM, BETWEEN, CALM = "#c43c0c", "#8c64b4", "#174f91"
BAND, EDGE, VISIT = "#dbe7f5", "#6382a8", "#fbe9e2"
LINES = ((ALARM, 2.4), (BETWEEN, 1.4), (CALM, 2.4))  # of the views, in their order

COLOURS = {
    "home": "#dddddd",
    "work": "#77aadd",
    "transit": "#bbcc33",
    "cafe": "#eedd88",
    "shop": "#f3b08d",
    "gym": "#44bb99",
    "friends": "#ffaabb",
    "pharmacy": "#99ddff",
    HOSPITAL: ALARM,
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHARES = (0, 0.25, 0.5, 0.75, 1)
CLOCK = {0: "midnight", 6: "6:00", 12: "noon", 18: "18:00", 24: "midnight"}

FONT = "DejaVu Sans"  # the one that matplotlib brings
STYLE: dict[Any, Any] = {  # the keys are of a type that matplotlib does not name
    "font.family": FONT,
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "hatch.linewidth": 0.5,
    "hatch.color": "#c3c7cd",
}
SMALL, CELL, TINY = 8.5, 8.0, 7.5  # points

MARGIN, LEFT, RIGHT = 0.022, 0.152, 0.978  # of the width
HAPPENED, RELEASED, STRIP, PITCH = 0.725, 0.652, 0.052, 0.064  # of the height: bottoms, a strip's height and distance
BELIEVED, PANEL = 0.092, 0.335
EDGES = 0.06  # hours of a cell that stay white
HOUR = WIDTH * (RIGHT - LEFT) * 72 / HOURS  # points


def draw(scene: Scene, path: Path) -> None:
    """Write the picture of a scene as a PNG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        _heading(figure, scene)
        _happened(figure, scene)
        _released(figure, scene)
        _believed(figure, scene)
        figure.savefig(path, metadata={"Software": None})


def _heading(figure: Figure, scene: Scene) -> None:
    leaky, *_, best = scene.views
    figure.text(MARGIN, 0.945, "Hiding the hospital is not enough", fontsize=17, fontweight="bold", va="center")
    rise = np.max(best.beliefs - scene.prior)
    lines = (
        f"A {DAYS[weekday(scene.day)]} of a made-up person whose habits the observer knows. {leaky.check} hides the "
        f"hospital alone: its silence tells.\n{best.check} releases {best.released} of {HOURS} hours, and belief in "
        f"the hospital rises by {rise:.2f} at most (delta = {scene.delta:g})."
    )
    figure.text(MARGIN, 0.878, lines, fontsize=9.5, color=FAINT, va="center", linespacing=1.5)
    origin = f"reticent demo, seed {scene.seed}: person {scene.person}, day {scene.day}"
    figure.text(RIGHT, 0.016, origin, fontsize=TINY, color=FAINT, ha="right")


def _happened(figure: Figure, scene: Scene) -> None:
    axes = _axes(figure, HAPPENED, STRIP)
    axes.text(-0.3, 0.5, "what happened", ha="right", va="center", fontweight="bold")
    _strip(axes, scene.happened)
    taken = [0.0, 0.0]  # on the two lines for names that have no room in their cells
    for start, stop, context in _runs(scene.happened):
        if context is None or _width(context, CELL) < stop - start - EDGES:
            continue
        middle, half = (start + stop) / 2, _width(context, SMALL) / 2
        line = int(taken[0] > middle - half)
        taken[line] = middle + half + 0.3
        colour = ALARM if context == HOSPITAL else INK
        axes.text(middle, 1.15 + 0.46 * line, context, ha="center", fontsize=SMALL, color=colour)
        if line:
            axes.plot([middle, middle], [1.08, 1.52], color=FAINT, linewidth=0.6, clip_on=False)


def _released(figure: Figure, scene: Scene) -> None:
    last = RELEASED - (len(scene.views) - 1) * PITCH
    _visits(_axes(figure, last, HAPPENED - last), scene.happened)
    for number, view in enumerate(scene.views):
        axes = _axes(figure, RELEASED - number * PITCH, STRIP)
        axes.text(-0.3, 0.74, view.check, ha="right", va="center", color=LINES[number][0])
        released = f"{view.released} of {HOURS} h released"
        axes.text(-0.3, 0.2, released, ha="right", va="center", fontsize=TINY, color=FAINT)
        _strip(axes, view.outputs)


def _believed(figure: Figure, scene: Scene) -> None:
    axes = _axes(figure, BELIEVED, PANEL)
    _visits(axes, scene.happened)
    _scales(axes)
    edges = np.arange(HOURS + 1)
    prior = _closed(scene.prior)
    axes.fill_between(edges, prior, prior + scene.delta, step="post", color=BAND, linewidth=0)
    axes.step(edges, prior, where="post", color=FAINT, linewidth=1.2, linestyle=(0, (3, 2)))
    for view, (colour, width) in zip(scene.views, LINES, strict=True):
        axes.step(edges, _closed(view.beliefs), where="post", color=colour, linewidth=width, solid_joinstyle="miter")
    title = "belief that the person is in the hospital, given the whole day's releases"
    axes.text(0, 1.11, title, fontweight="bold")
    _name(axes, scene)


def _name(axes: Axes, scene: Scene) -> None:
    """Put names beside the lines, around the hours that the first check gives away."""
    leaky, _, best = scene.views
    bound = scene.prior + scene.delta
    start, stop = _given_away(leaky.beliefs - bound)
    right, early = stop <= HOURS - 4, start <= 8 and stop <= HOURS - 8
    x, side = (stop + 0.25, "left") if right else (start - 0.25, "right")
    near = slice(stop, stop + 4) if right else slice(max(start - 4, 0), max(start, 1))

    top = leaky.beliefs[start:stop].max()
    sure = f"{leaky.check}\n{_percent(top)} sure at {start}:00"
    _say(axes, (x, top - 0.02), sure, color=ALARM, ha=side, va="top")

    above = np.max([bound[near], *(view.beliefs[near] for view in scene.views[1:])]) + 0.05
    unsure = f"{best.check}\nat most {_percent(best.beliefs.max())} sure"
    _say(axes, (x, above), unsure, color=CALM, ha=side)

    edge, side, last = (HOURS - 0.15, "right", -1) if early else (0.15, "left", 0)
    promise = "prior + delta:\nno private check lets\nbelief rise above this band"
    _say(axes, (edge, bound[last] + 0.035), promise, color=EDGE, ha=side, fontsize=SMALL)

    if early:
        hour = stop + int(np.argmax(scene.prior[stop:]))
        x = float(np.clip(hour + 0.5, stop + 6.5, HOURS - 8))
        hour = hour if scene.prior[hour] > 0 else int(x)
    else:
        hour = start - 1 - int(np.argmax(scene.prior[:start][::-1])) if start else 0
        x = float(np.clip(hour + 0.5, 7.5, start - (2.3 if right else 6.5)))
    _say(axes, (x, 0.4), "prior: what\nhabits alone tell", color=FAINT, ha="center", fontsize=SMALL)
    axes.plot([x, hour + 0.5], [0.385, scene.prior[hour] + 0.01], color=FAINT, linewidth=0.7)


def _given_away(excess: Floats) -> tuple[int, int]:
    """The stretch of hours around the largest excess at which there is any: from when, until when."""
    start = stop = int(np.argmax(excess))
    while start > 0 and excess[start - 1] > 0:
        start -= 1
    while stop < len(excess) and (excess[stop] > 0 or stop == start):
        stop += 1
    return start, stop


def _say(axes: Axes, place: tuple[float, float], words: str, **how: Any) -> None:
    """Write words that no grid line crosses."""
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.text(*place, words, linespacing=1.35, bbox=behind, zorder=1.9, **how)


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
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _axes(figure: Figure, bottom: float, height: float) -> Axes:
    """A day from left to right, without any frame."""
    axes = figure.add_axes((LEFT, bottom, RIGHT - LEFT, height), facecolor="none")
    axes.set(xlim=(0, HOURS), ylim=(0, 1))
    axes.axis("off")
    return axes


def _visits(axes: Axes, day: Day) -> None:
    """A column behind the hours in the hospital."""
    for start, stop, context in _runs(day):
        if context == HOSPITAL:
            axes.axvspan(start, stop, facecolor=VISIT, zorder=0)


def _strip(axes: Axes, day: Day) -> None:
    """A cell for each stay, with its name where there is room; hatched where nothing is released."""
    for start, stop, context in _runs(day):
        place, width, middle = (start + EDGES / 2, 0.0), stop - start - EDGES, (start + stop) / 2
        if context is None:
            axes.add_patch(Rectangle(place, width, 1, facecolor="white", edgecolor=HAIR, hatch="//////", linewidth=0.8))
            label, colour, room = "suppressed", FAINT, width - 0.6
        else:
            axes.add_patch(Rectangle(place, width, 1, facecolor=COLOURS[context]))
            label, colour, room = context, "white" if context == HOSPITAL else INK, width
        if _width(label, CELL) < room:
            text = axes.text(middle, 0.47, label, ha="center", va="center", fontsize=CELL, color=colour)
            text.set_bbox(None if context else {"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _width(label: str, size: float) -> float:
    """In hours."""
    return float(TextPath((0, 0), label, size=size, prop=FontProperties(family=FONT)).get_extents().width / HOUR)


def _closed(values: Floats) -> Floats:
    """With the last hour's value at its end too."""
    return np.append(values, values[-1])


def _runs(day: Day) -> Iterator[tuple[int, int, str | None]]:
    """The stays of a day: from when, until when, where."""
    start = 0
    for context, hours in groupby(day):
        stop = start + len(list(hours))
        yield start, stop, context
        start = stop
