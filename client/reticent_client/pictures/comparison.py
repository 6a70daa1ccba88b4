"""The picture of a comparison: what each check releases, and how long it takes, by delta."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from reticent_client.mask.comparison import ComparedPolicy
from reticent_client.pictures.style import ALARM, HAIR, INK, SMALL, picture, plain

HEIGHT = 4.6  # inches
TOP = 1.02  # of the axis of shares
COLOURS = ("#77aadd", "#44bb99", "#aa8811", "#8c64b4", "#174f91")


def draw_comparison(rows: Sequence[ComparedPolicy], sensitive: str, weights: str, path: Path) -> None:
    """Write the picture of a comparison as a PNG."""
    deltas = sorted({row.delta for row in rows if row.delta is not None})
    names = list(dict.fromkeys(row.check for row in rows if row.delta is not None))
    subtitle = f"Of {rows[0].contexts if rows else 0:.2f} contexts on an average day; sensitive: {sensitive}"
    if weights:
        subtitle += f"; weights: {weights}"
    with picture(path, HEIGHT, "What the checks release, and how long they take", subtitle) as figure:
        left = figure.add_axes((0.07, 0.12, 0.40, 0.63))
        right = figure.add_axes((0.67, 0.12, 0.31, 0.63))
        places = []
        for number, name in enumerate(names):
            own = [row for row in rows if row.check == name]
            line = {"color": COLOURS[number % len(COLOURS)], "marker": "o", "markersize": 4.0}
            left.plot(deltas, [row.share for row in own], **line)  # type: ignore[arg-type]  # keywords of several types
            right.plot(deltas, [row.seconds for row in own], **line)  # type: ignore[arg-type]  # the same
            places.append((name, own[-1].share, COLOURS[number % len(COLOURS)]))
        most = [row.ceiling / row.readings for row in rows if row.ceiling is not None and row.readings]
        if most:
            left.plot(deltas, most, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        for row in rows:
            if row.delta is None:
                left.axhline(row.share, color=ALARM, linewidth=1)
                places.append((f"{row.check} (leaks)", row.share, ALARM))
        _name_lines(left, places)
        measure = "released share by weights" if weights else "released share"
        _title(left, measure + (", and the most possible (dashed)" if most else ""))
        _title(right, "seconds to compute")
        left.set_ylim(0, TOP)
        left.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        right.set_yscale("log")
        right.yaxis.set_major_formatter("{x:g}")
        right.yaxis.set_minor_formatter("")
        for axes in (left, right):
            axes.set_xticks(deltas, [f"{delta:g}" for delta in deltas])
            axes.set_xlabel("delta")
            axes.tick_params(labelsize=SMALL, length=0)
            axes.grid(axis="y", color=HAIR, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right", "left"]].set_visible(False)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=SMALL + 1, fontweight="bold")


def _name_lines(axes: Axes, places: Sequence[tuple[str, float, str]]) -> None:
    """Names at the right of the lines, moved apart where they would touch."""
    last = -1.0
    for name, share, colour in sorted(places, key=lambda place: place[1]):
        last = max(share / TOP, last + 0.055)
        axes.annotate(plain(name), (1.02, last), xycoords="axes fraction", color=colour, fontsize=SMALL, va="center")
