"""Figure 3.6: two checks for each person, the better one's lead, and the hybrid's choice."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reticent_sim.experiments.maskit import users
from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.statistics import percent
from reticent_sim.experiments.systems import HYBRID, LEAKY, PROBABILISTIC, SIMULATABLE
from reticent_sim.report.figure import (
    LEFT,
    RIGHT,
    Heading,
    estimate,
    legend,
    number,
    panel,
    percents,
    save_figure,
)
from reticent_sim.report.style import DARK, GREY, LIGHT_GREY, style_of

HEIGHT = 4.7  # inches


def draw_users(result: Result, path: Path) -> None:
    """Figure 3.6."""
    people = sorted(result.people, key=lambda row: (_lead(row), number(row, SIMULATABLE)))
    shares = {str(row["measure"]): percent(estimate(row, "share")) for row in result.rows}
    text = (
        f"What is released of the second half of the days. {_capital(SIMULATABLE)} is the better check for "
        f"{shares[users.better(SIMULATABLE)]} of the people, {PROBABILISTIC} for\n"
        f"{shares[users.better(PROBABILISTIC)]}. The hybrid picks the better one for {shares[users.PICKED]}."
    )

    def draw(figure: Figure) -> None:
        axes = panel(figure, LEFT, RIGHT, top=0.95)
        for place, row in enumerate(people):
            ends = number(row, SIMULATABLE), number(row, PROBABILISTIC)
            axes.plot(
                [place, place],
                ends,
                color=style_of(str(row["better"])).colour if any(ends) and ends[0] != ends[1] else LIGHT_GREY,
                linewidth=1.2,
            )
        drawn = [_markers(axes, people, system, 26) for system in (SIMULATABLE, PROBABILISTIC)]
        drawn.append(
            axes.scatter(
                range(len(people)),
                [number(row, HYBRID) for row in people],
                75,
                facecolors="none",
                edgecolors=DARK,
                linewidths=1.1,
            )
        )
        drawn.append(_markers(axes, people, LEAKY, 16))
        percents(axes, "released")
        axes.set_xlim(-1, len(people))
        axes.set_xticks([])
        axes.set_xlabel(
            "people, from those for whom probabilistic leads most to those for whom simulatable does", color=GREY
        )
        legend(figure, drawn, [SIMULATABLE, PROBABILISTIC, "the hybrid's choice", LEAKY])

    save_figure(path, result, Heading(HEIGHT, "Two checks, and which is better for whom", text, intervals=False), draw)


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]


def _markers(axes: Axes, people: list[Row], system: str, size: float) -> object:
    style = style_of(system)
    values = [number(row, system) for row in people]
    return axes.scatter(range(len(people)), values, size, color=style.colour, marker=style.marker, linewidths=0)


def _lead(row: Row) -> float:
    return number(row, SIMULATABLE) - number(row, PROBABILISTIC)
