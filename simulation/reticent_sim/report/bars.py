"""Figure 3.5: released and suppressed, sensitive and not, for each system."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.systems import LEAKY
from reticent_sim.report.figure import RIGHT, Heading, error_lengths, estimate, legend, number, panel, save_figure
from reticent_sim.report.style import BLUE, DARK, LIGHT_GREY, RED

HEIGHT = 4.7  # inches
THICK = 0.62
NUMBER_END = 0.1
"""The number in a bar ends before this share of the states."""
PARTS = {
    "released_other": ("released", "#77aadd"),
    "released_sensitive": ("released, sensitive", BLUE),
    "suppressed_sensitive": ("suppressed, sensitive", "#f3b08d"),
    "suppressed_other": ("suppressed", "#e4e6ea"),
}
BREACHED = "suppressed, sensitive and breached"


def draw_checks(result: Result, path: Path) -> None:
    """Figure 3.5."""
    text = (
        f"The states of the second half of the days; {result.settings['sensitive']} are sensitive, delta = "
        f"{result.settings['delta']:g}. A state is breached if\nbelief in it rose by more than delta, to an observer "
        "who knows the habits and the system and sees what is released."
    )

    def draw(figure: Figure) -> None:
        axes = panel(figure, 0.15, RIGHT - 0.12, top=0.95)
        axes.grid(visible=False)
        for place, row in enumerate(result.rows):
            _bar(axes, -place, row)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 % of all states"])
        axes.set_yticks([-place for place in range(len(result.rows))], [str(row["system"]) for row in result.rows])
        axes.tick_params(axis="y", colors=DARK)
        patches = [Patch(facecolor=colour) for _, colour in PARTS.values()]
        patches.append(Patch(facecolor=RED))
        legend(figure, patches, [name for name, _ in PARTS.values()] + [BREACHED])

    save_figure(path, result, Heading(HEIGHT, "Who releases what, and at what risk", text), draw)


def _bar(axes: Axes, place: float, row: Row) -> None:
    left = 0.0
    for part, (_, colour) in PARTS.items():
        width = estimate(row, part).value
        axes.barh(place, width, THICK, left, color=colour)
        if part == "suppressed_sensitive" and row["system"] == LEAKY:
            breached = width * estimate(row, "breaches_of_sensitive_states").value
            axes.barh(place, breached, THICK, left, color=RED)
        left += width
    utility = estimate(row, "utility")
    below, above = error_lengths([utility])
    axes.errorbar(utility.value, place, xerr=(below, above), color=DARK, elinewidth=1.1, capsize=3, linestyle="none")
    text = axes.text(
        0.012, place, f"{100 * utility.value:.1f} %", va="center", fontsize=10, fontweight="bold", zorder=5
    )
    if utility.low is not None and utility.low < NUMBER_END:
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # the error bar passes behind the number
    breaches = int(number(row, "breaches"))
    note = f"{breaches} breaches\nof {int(number(row, 'sensitive_states'))}" if breaches else "no breach"
    axes.text(1.015, place, note, va="center", fontsize=9, color=RED if breaches else DARK, linespacing=1.3)
    axes.axhline(place - 0.5, color=LIGHT_GREY, linewidth=0.4)
