"""The timeline of a schedule of faults: a row for each fault, with its time, its target and how long it lasts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reticent_sim.engine.faults import CALL_KINDS, STEPS, Fault, FaultSchedule
from reticent_sim.report.figure import DPI, HEADING, WIDTH, panel
from reticent_sim.report.style import BLUE, DARK, GREY, LIGHT_GREY, PURPLE, RED, STYLE, TINY

__all__ = ["draw_timeline"]

LEFT, RIGHT = 0.285, 0.965  # of the width: the times and the targets stand on the left
TIMES, TARGETS = 0.022, 0.172  # where the columns begin
ROW, FOOTING = 0.235, 0.85  # inches
MAX_ROWS = 60
ROUND = 0.04
"""The width of a round of counting in the picture, in steps: they take minutes."""
TURN = 0.55  # faults that begin right of this share of the axis have their text on the left


class _KindGroup(NamedTuple):
    """Faults of one colour and marker."""

    name: str
    kinds: tuple[str, ...]
    colour: str
    marker: str


GROUPS = (
    _KindGroup("network", ("partition", *CALL_KINDS), BLUE, "o"),
    _KindGroup("processes and disks", ("crash", "full"), RED, "X"),
    _KindGroup("clocks", ("skew",), "#b08a00", "s"),
    _KindGroup("phones come and go", ("absent", "slow", "join", "leave"), PURPLE, "D"),
)


def draw_timeline(schedule: FaultSchedule, path: Path, *, title: str = "The faults of a run", source: str = "") -> None:
    """Draw a schedule as a PNG. Only the first 60 faults are drawn.

    Args:
        schedule: The faults.
        path: Of the picture.
        title: Above the picture.
        source: Below it, such as the command that has made the schedule.
    """
    with mpl.rc_context(STYLE):
        figure = timeline(schedule, title, source)
        figure.savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})


def timeline(schedule: FaultSchedule, title: str, source: str) -> Figure:
    """The picture of a schedule."""
    faults = schedule.faults[:MAX_ROWS]
    height = HEADING + FOOTING + ROW * max(1, len(faults))
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(TIMES, 1 - 0.26 / height, title, fontsize=15, fontweight="bold", va="center")
    figure.text(TIMES, 1 - 0.55 / height, _summary(schedule), fontsize=9.5, color=GREY, va="center")
    figure.text(RIGHT, 0.1 / height, source, fontsize=TINY, color=GREY, ha="right")
    axes = panel(figure, LEFT, RIGHT, bottom=FOOTING, top=HEADING)
    axes.grid(visible=False)
    _draw_axis(axes, faults)
    for row, fault in enumerate(faults):
        _draw_fault(axes, row, fault)
    _draw_legend(figure, faults)
    return figure


def _summary(schedule: FaultSchedule) -> str:
    count = len(schedule)
    if not count:
        return "There are no faults."
    more = f"; the first {MAX_ROWS} are shown" if count > MAX_ROWS else ""
    return f"{count} {'fault' if count == 1 else 'faults'}{more}. A bar is as long as the fault lasts."


def _draw_axis(axes: Axes, faults: tuple[Fault, ...]) -> None:
    """The days from the first fault to the last one."""
    first = min((fault.day for fault in faults), default=0)
    last = max((-(-_end(fault) // STEPS) for fault in faults), default=1.0)
    last = max(int(last), first + 1)
    axes.set_xlim(first * STEPS, last * STEPS)
    axes.set_ylim(max(1, len(faults)) - 0.4, -0.6)
    axes.set_yticks([])
    every = -(-(last - first) // 12)
    if last - first <= 2:  # hours fit beside the days
        hours = range(first * STEPS, last * STEPS + 1, 6)
        axes.set_xticks(
            hours, [f"day {each // STEPS}" if each % STEPS == 0 else f"{each % STEPS}:00" for each in hours]
        )
    else:
        days = range(first, last + 1, every)
        axes.set_xticks([day * STEPS for day in days], [f"day {day}" for day in days])
    for day in range(first, last + 1):
        axes.axvline(day * STEPS, color=LIGHT_GREY, linewidth=0.6, zorder=0)


def _draw_fault(axes: Axes, row: int, fault: Fault) -> None:
    """The time and the target, the bar, and what happens."""
    if row % 2:
        axes.axhspan(row - 0.5, row + 0.5, color="#f5f6f7", zorder=-1, linewidth=0)
    group = _group_of(fault)
    start, end = _start(fault), _end(fault)
    axes.plot([start, end], [row, row], color=group.colour, linewidth=4, solid_capstyle="butt", clip_on=False)
    axes.plot(start, row, color=group.colour, marker=group.marker, markersize=6, clip_on=False)
    low, high = axes.get_xlim()
    gap = 0.012 * (high - low)
    turned = start - low > TURN * (high - low)
    axes.text(
        start - 1.4 * gap if turned else end + gap,
        row,
        _text(fault),
        fontsize=8.5,
        ha="right" if turned else "left",
        va="center",
    )
    transform = axes.get_yaxis_transform()
    for place, text, colour in ((TIMES, _time(fault), GREY), (TARGETS, fault.target, DARK)):
        share = (place - LEFT) / (RIGHT - LEFT)
        axes.text(share, row, text, fontsize=8.5, color=colour, va="center", transform=transform)


def _draw_legend(figure: Figure, faults: tuple[Fault, ...]) -> None:
    """The groups that occur."""
    there = [group for group in GROUPS if any(fault.kind in group.kinds for fault in faults)]
    handles = [Line2D([], [], color=group.colour, marker=group.marker, linewidth=4, markersize=6) for group in there]
    if handles:
        figure.legend(
            handles,
            [group.name for group in there],
            loc="lower center",
            bbox_to_anchor=(0.5, 0.2 / figure.get_figheight()),
            ncol=len(handles),
            frameon=False,
            fontsize=9.5,
        )


def _group_of(fault: Fault) -> _KindGroup:
    return next(group for group in GROUPS if fault.kind in group.kinds)


def _start(fault: Fault) -> float:
    """The beginning of a fault, in steps; a round of counting is a small part of its step."""
    return fault.moment.steps_before + min(0.9, ROUND * fault.moment.phase)


def _end(fault: Fault) -> float:
    """The end of a fault; one of single calls is a point."""
    if fault.kind in {*CALL_KINDS, "join", "leave"}:
        return _start(fault)
    if fault.kind == "slow":
        return _start(fault) + ROUND * fault.rounds
    return fault.end.steps_before + min(0.95, ROUND * fault.end.phase)


def _time(fault: Fault) -> str:
    phase = "" if fault.phase is None else f", round {fault.phase}"
    return f"day {fault.day}, {fault.step}:00{phase}"


def _text(fault: Fault) -> str:
    """The kind of a fault, with what it is about."""
    unit = "step" if fault.phase is None else "round"
    lasting = f"{fault.steps} {unit}{'' if fault.steps == 1 else 's'}"
    if fault.kind in CALL_KINDS:
        times = "" if fault.times == 1 else f", {fault.times} times"
        return f"{fault.kind}: {fault.call}{times}"
    texts = {
        "partition": f"partition from {fault.server}, {lasting}",
        "crash": f"crash, down for {lasting}" if fault.steps else "crash, restarts at once",
        "skew": f"clock {abs(fault.seconds)} s {'ahead' if fault.seconds > 0 else 'behind'}, {lasting}",
        "full": f"disk full, {lasting}",
        "slow": f"late by {fault.rounds} round{'' if fault.rounds == 1 else 's'}",
        "absent": f"absent, {lasting}",
        "join": "joins",
        "leave": "leaves",
    }
    return texts[fault.kind]
