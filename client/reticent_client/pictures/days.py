"""The picture of days under a policy: what happened, what was released, and why the rest was silent.

One day is drawn with the beliefs of an adversary; several days are drawn as rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.day_view import BeliefView, DayView, Reason
from reticent_client.mask.policy import Policy
from reticent_client.pictures.style import (
    ALARM,
    BAND,
    CALM,
    FAINT,
    HAIR,
    INK,
    LEFT,
    PALETTE,
    RIGHT,
    SMALL,
    WIDTH,
    axes_at,
    picture,
    plain,
    set_times,
)

HEADING, FOOT, PANEL, SPACE = 1.55, 0.35, 1.9, 0.5  # inches
STRIP, GAP, PITCH = 0.26, 0.04, 0.74  # inches: a strip, between the strips of a day, from day to day
LETTER = 0.085  # inches
SENSITIVE, UNCOMMON, BLANK = "#ee8866", "#cccccc", "#ffffff"
HATCH = "/////"
NAMED = 8  # contexts in the legend

REASONS: dict[Reason, tuple[str, str]] = {
    "reveals": ("silent: it would reveal too much", "#f7c9b9"),
    "cover": ("silent: cover for others", "#eeeeee"),
    "mask": ("silent: sensitive", "#f7c9b9"),
    "off_model": ("silent: off the model", "#fdf0b8"),
    "after_off_model": ("silent: an earlier step was off the model", "#fdf9e3"),
    "suspended": ("silent: memory lost", "#dbe7f5"),
    "gap": ("no reading", BLANK),
}


def draw_days(policy: Policy, days: Sequence[DayView], path: Path) -> None:
    """Write the picture of days as a PNG."""
    colours = _colours(policy, days)
    beliefs = days[0].beliefs if len(days) == 1 else ()
    height = HEADING + PITCH * len(days) + (PANEL + SPACE) * len(beliefs) + FOOT
    contexts = [
        reason == "released"
        for day in days
        for reason, context in zip(day.reasons, day.contexts, strict=True)
        if context is not None
    ]
    title = days[0].day if len(days) == 1 else f"{days[0].day} to {days[-1].day}"
    worst = max((day.worst for day in days), key=lambda belief: belief.rise)
    subtitle = (
        f"{policy.check} releases {sum(contexts)} of {len(contexts)} contexts; "
        f"the belief{_adversary(policy, worst)} in a sensitive context rises by {worst.rise:.3f} at most"
    )
    with picture(path, height, title, subtitle) as figure:
        _legend(figure, days, colours, height)
        top = HEADING
        for day in days:
            axes = axes_at(figure, top, 2 * STRIP + GAP)
            _draw_day(axes, day, colours, times=day is days[-1], alone=len(days) == 1)
            top += PITCH
        for each in beliefs:
            top += SPACE
            _draw_belief(axes_at(figure, top, PANEL), each, _adversary(policy, each))
            top += PANEL


def _colours(policy: Policy, days: Sequence[DayView]) -> dict[str, str]:
    """A colour for each context: the most frequent ones have their own, and sensitive ones share one."""
    sensitive = {belief.context for day in days for belief in day.beliefs}
    often = Counter(context for day in days for context in day.contexts if context is not None)
    others = [context for context, _ in often.most_common() if context not in sensitive]
    palette = [colour for colour in PALETTE if colour != SENSITIVE]
    found = {context: palette[k] if k < len(palette) else UNCOMMON for k, context in enumerate(others)}
    return dict.fromkeys(policy.contexts, UNCOMMON) | found | dict.fromkeys(sensitive, SENSITIVE) | {UNKNOWN: BLANK}


def _legend(figure: Figure, days: Sequence[DayView], colours: dict[str, str], height: float) -> None:
    """The contexts, and the reasons for silence, that occur."""
    often = Counter(context for day in days for context in day.contexts if context is not None)
    sensitive = {belief.context for day in days for belief in day.beliefs}
    reasons = {reason for day in days for reason in day.reasons}
    rows = [
        [
            Patch(facecolor=colours[context], label=plain(context) + (" (sensitive)" if context in sensitive else ""))
            for context, _ in often.most_common(NAMED)
        ],
        [
            Patch(facecolor=colour, edgecolor=HAIR, hatch="" if reason == "gap" else HATCH, label=text)
            for reason, (text, colour) in REASONS.items()
            if reason in reasons
        ],
    ]
    for number, handles in enumerate(rows):
        figure.legend(
            handles=handles,
            loc="upper left",
            ncols=len(handles),
            bbox_to_anchor=(0.012, 1 - (0.85 + 0.24 * number) / height),
            fontsize=SMALL,
            frameon=False,
            handlelength=1.4,
            columnspacing=1.2,
        )


Cell = tuple[str, str, bool]
"""The label, the colour and whether it is hatched."""


def _draw_day(axes: Axes, day: DayView, colours: dict[str, str], *, times: bool, alone: bool) -> None:
    """Two strips: what happened above, what was released below."""
    horizon = len(day.contexts)
    size = STRIP / (2 * STRIP + GAP)
    axes.set_xlim(0, horizon)
    axes.set_ylim(0, 1)
    happened: list[Cell] = [(context or "", colours[context or UNKNOWN], False) for context in day.contexts]
    released: list[Cell] = [
        (output or "", colours[output or UNKNOWN], False)
        if reason in {"released", "gap"}
        else ("", REASONS[reason][1], True)
        for output, reason in zip(day.outputs, day.reasons, strict=True)
    ]
    _draw_strip(axes, happened, 1 - size, size)
    _draw_strip(axes, released, 0, size)
    names = ("what happened", "released") if alone else (plain(day.day), "" if day.on_model else "off the model")
    axes.set_yticks([1 - size / 2, size / 2], names, fontsize=SMALL)
    if not alone:
        axes.get_yticklabels()[0].set_color(INK)
    axes.spines["bottom"].set_visible(False)
    if times:
        set_times(axes, horizon)
    else:
        axes.set_xticks([])


def _draw_strip(axes: Axes, cells: Sequence[Cell], bottom: float, height: float) -> None:
    """A box for each stretch of equal cells, with its label where there is room."""
    inches = (WIDTH - LEFT - RIGHT) / len(cells)
    start = 0
    for (label, colour, hatched), group in groupby(cells):
        steps = len(list(group))
        edge = HAIR if hatched or colour == BLANK else "white"
        hatch = HATCH if hatched else ""
        box = Rectangle((start, bottom), steps, height, facecolor=colour, edgecolor=edge, hatch=hatch, linewidth=0.8)
        axes.add_patch(box)
        if LETTER * len(label) < inches * steps:
            place = start + steps / 2, bottom + height * 0.47
            axes.text(*place, plain(label), ha="center", va="center", fontsize=SMALL - 1)
        start += steps


def _adversary(policy: Policy, belief: BeliefView) -> str:
    """The name of the adversary with this belief, if the policy is against several."""
    several = len(policy.against) > 1
    return f" of adversary {belief.adversary + 1} of {len(policy.against)}" if several else ""


def _draw_belief(axes: Axes, belief: BeliefView, adversary: str) -> None:
    """Prior, bound and belief of one sensitive context."""
    horizon = len(belief.prior)
    edges = np.arange(horizon + 1)
    prior, bound, after = ([*values, values[-1]] for values in (belief.prior, belief.bound, belief.belief))
    axes.fill_between(edges, prior, bound, step="post", color=BAND, linewidth=0, label="allowed")
    axes.step(edges, prior, where="post", color=FAINT, linewidth=1.2, linestyle=(0, (3, 2)), label="from habits alone")
    broken = bool((belief.belief > belief.bound + 1e-9).any())
    axes.step(
        edges, after, where="post", color=ALARM if broken else CALM, linewidth=2, label="after the day's releases"
    )
    title = f"belief{adversary} in {plain(belief.context)}"
    axes.set_title(title, loc="left", fontsize=SMALL + 1, fontweight="bold", pad=4)
    axes.set_ylim(-0.015, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"], fontsize=SMALL)
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=3, fontsize=SMALL, frameon=False)
    set_times(axes, horizon)
