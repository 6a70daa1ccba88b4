"""The picture of an audit: what became of each step by date and time, and what an adversary learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reticent_client.mask.audit import Audit, DayAudit
from reticent_client.mask.audit_text import OFF_MODEL as OFF_MODEL_NAME
from reticent_client.mask.audit_text import ON_MODEL as ON_MODEL_NAME
from reticent_client.mask.report import Outcome
from reticent_client.pictures.style import (
    ALARM,
    CALM,
    FAINT,
    GAP,
    HAIR,
    INK,
    LOST,
    OFF_MODEL,
    RELEASED,
    SMALL,
    SUPPRESSED,
    axes_at,
    picture,
    plain,
    set_times,
)

HEADING, GAIN, SPACE, FOOT = 1.3, 1.5, 0.55, 0.45  # inches
ROW, LOWEST, HIGHEST = 0.16, 0.3, 6.0  # inches: a day, and the limits of all days of a kind
NAMED = 45  # days that are named one by one
MARKED = 400  # days whose visits are marked; breaches always are

COLOURS: dict[Outcome, str] = {
    "released": RELEASED,
    "suppressed": SUPPRESSED,
    "off_model": OFF_MODEL,
    "suspended": LOST,
    "missing": GAP,
    "missed": GAP,
}
NAMES = {"released": RELEASED, "suppressed": SUPPRESSED, "off-model": OFF_MODEL, "memory lost": LOST, "gap": GAP}


def draw_audit(audit: Audit, path: Path) -> None:
    """Write the picture of an audit as a PNG."""
    kinds = [
        (name, days, min(max(ROW * len(days), LOWEST), HIGHEST))
        for name, on_model in ((ON_MODEL_NAME, True), (OFF_MODEL_NAME, False))
        if (days := [day for day in audit.days if day.on_model == on_model])
    ]
    height = HEADING + sum(rows + SPACE for _, _, rows in kinds) + GAIN + FOOT
    with picture(path, height, f"What {audit.policy.check} released, and what it revealed", _subtitle(audit)) as figure:
        figure.legend(
            handles=_legend(),
            loc="upper left",
            ncols=7,
            bbox_to_anchor=(0.012, 1 - 0.85 / height),
            fontsize=SMALL,
            frameon=False,
            handlelength=1.2,
            columnspacing=1.4,
        )
        top = HEADING
        for name, days, rows in kinds:
            axes = axes_at(figure, top, rows)
            note = ", nothing is promised" if name == OFF_MODEL_NAME else ""
            axes.set_title(f"days {name}: {len(days)}{note}", loc="left", fontsize=SMALL + 1, fontweight="bold", pad=3)
            _draw_days(axes, days, audit.policy.horizon)
            top += rows + SPACE
        _draw_gains(axes_at(figure, top, GAIN), audit)


def _subtitle(audit: Audit) -> str:
    kinds = (ON_MODEL_NAME, audit.on_model), (OFF_MODEL_NAME, audit.off_model)
    return "Breaches " + "; ".join(
        f"{name}: {totals.breaches} of {totals.visits} sensitive visits" for name, totals in kinds if totals.days
    )


def _legend() -> list[Patch | Line2D]:
    patches = [Patch(facecolor=colour, edgecolor=HAIR, label=name) for name, colour in NAMES.items()]
    dot = {"color": "none", "marker": "o", "markersize": 5.0}
    return [
        *patches,
        Line2D([], [], markeredgecolor=INK, markerfacecolor="none", label="sensitive visit", **dot),  # type: ignore[arg-type]  # keywords of several types
        Line2D([], [], markeredgecolor=ALARM, markerfacecolor=ALARM, label="breach", **dot),  # type: ignore[arg-type]  # the same
    ]


def _draw_days(axes: Axes, days: Sequence[DayAudit], horizon: int) -> None:
    """A row for each day, a cell for each step."""
    colours = {outcome: to_rgb(colour) for outcome, colour in COLOURS.items()}
    gap = to_rgb(GAP)
    cells = np.array(
        [
            [
                gap if context is None else colours[decision.outcome]
                for context, decision in zip(day.contexts, day.decisions, strict=True)
            ]
            for day in days
        ]
    )
    axes.imshow(cells, extent=(0, horizon, len(days), 0), aspect="auto", interpolation="none")
    radius = 1.8 if len(days) <= NAMED else 0.8
    for breach, colour, fill in ((False, INK, "none"), (True, ALARM, ALARM)):
        marks = np.array(
            [
                (step.step + 0.5, row + 0.5)
                for row, day in enumerate(days)
                for step in day.steps()
                if step.visit and step.breach == breach and (breach or len(days) <= MARKED)
            ]
        ).reshape(-1, 2)
        axes.scatter(marks[:, 0], marks[:, 1], (2 * radius) ** 2, edgecolors=colour, facecolors=fill, linewidths=0.7)
    every = -(-len(days) // NAMED)
    axes.set_yticks(
        [row + 0.5 for row in range(0, len(days), every)],
        [plain(day.day) for day in days[::every]],
        fontsize=SMALL - 1.5,
    )
    if len(days) <= NAMED:
        axes.hlines(range(1, len(days)), 0, horizon, color="white", linewidth=0.6)
    axes.vlines(range(1, horizon), 0, len(days), color="white", linewidth=0.6)
    axes.spines["bottom"].set_visible(False)
    set_times(axes, horizon)
    axes.set_ylim(len(days), 0)


def _draw_gains(axes: Axes, audit: Audit) -> None:
    """The largest gain of all days at each time of day, and the deltas."""
    horizon = audit.policy.horizon
    axes.set_title(
        "largest rise of the belief in a sensitive context", loc="left", fontsize=SMALL + 1, fontweight="bold", pad=3
    )
    edges = np.arange(horizon + 1)
    for on_model, colour, name in ((True, CALM, ON_MODEL_NAME), (False, ALARM, OFF_MODEL_NAME)):
        rises = [day.rises for day in audit.days if day.on_model == on_model]
        if rises:
            most = np.maximum(np.max(rises, axis=0), 0.0)
            axes.step(edges, [*most, most[-1]], where="post", color=colour, linewidth=1.6, label=name)
    delta = audit.policy.delta
    if delta is not None:
        axes.axhline(delta, color=FAINT, linewidth=1, linestyle=(0, (3, 2)))
        axes.text(horizon, delta, f"delta = {delta:g}", ha="right", va="bottom", fontsize=SMALL, color=FAINT)
    axes.set_ylim(0, max(1.25 * axes.get_ylim()[1], 0.05))
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.96), ncols=2, fontsize=SMALL, frameon=False)
    set_times(axes, horizon)
