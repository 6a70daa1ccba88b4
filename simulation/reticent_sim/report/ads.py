"""Figures 4.4, 4.5, 4.6 and 5.2: precision and coverage of ads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from reticent_sim.experiments.ads import communication, disclosure, min_ctr, private_rates
from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.report.figure import FOOTING, LEFT, RIGHT, Heading, error_lengths, legend, number, panel, save_figure
from reticent_sim.report.style import BLUE, DARK, GREY, PURPLE, RED

HEIGHT = 4.7  # inches
GAP = 0.075  # between panels, of the width
TOP, TALL_FOOTING = 1.2, 1.35  # inches above the axes, and below them for a legend of three lines

GREEN, OCHRE = "#1f8f7a", "#b08a00"


@dataclass(frozen=True)
class Line:
    """A curve: its name, the rows of its points, and its style."""

    name: str
    rows: Sequence[Row]
    colour: str
    marker: str = "o"
    style: str | tuple[int, tuple[int, ...]] = "-"
    width: float = 1.6


def draw_min_ctr(result: Result, path: Path) -> None:
    """Figure 4.4."""
    text = (
        "An ad is shown if its estimated click-through rate reaches the threshold. A high one leaves few ads, and "
        "those are clicked\nmore often. Rates of few views are too high where they are chosen: ten are better than two."
    )
    published, ours = min_ctr.SUPPORTS

    def draw(figure: Figure) -> None:
        rows = {support: [row for row in result.rows if row["support"] == support] for support in (published, ours)}
        lines = [
            Line(f"rates of {published:g} views and more, as published", rows[published], DARK, width=2.2),
            Line(f"rates of {ours:g} views and more", rows[ours], BLUE, "s", (0, (4, 2))),
        ]
        drawn: list[Any] = []
        for axes, measure in zip(_panels(figure, 3), ("precision", "coverage", "revenue"), strict=True):
            drawn = [_over(axes, line, "least_rate", measure) for line in lines]
            _finish(axes, measure, "threshold")
        legend(figure, drawn, [line.name for line in lines])

    save_figure(path, result, Heading(HEIGHT, "A threshold trades coverage for precision", text), draw)


def draw_communication(result: Result, path: Path) -> None:
    """Figure 4.5."""
    text = (
        "The service knows the context at level (4, 2, 2) and sends so many ads. The phone shows the best one for its "
        "exact context.\nServer-only selection sends one ad, which the phone shows whatever its context."
    )

    def draw(figure: Figure) -> None:
        hybrid = [row for row in result.rows if row["strategy"] == communication.HYBRID]
        lines = [
            Line(
                f"threshold {least_rate:g}" if least_rate else "no threshold",
                [row for row in hybrid if row["least_rate"] == least_rate],
                colour,
                marker,
                width=2.0,
            )
            for least_rate, colour, marker in zip(communication.LEAST_RATES, (GREEN, DARK), ("^", "o"), strict=True)
        ]
        alone = Line(
            "server-only", [row for row in result.rows if row["strategy"] == communication.SERVER_ONLY], RED, "X"
        )
        drawn: list[Any] = []
        for axes, measure in zip(_panels(figure, 3), ("precision", "coverage", "revenue"), strict=True):
            drawn = [_over(axes, line, "ads", measure) for line in (*lines, alone)]
            axes.set_xscale("log")
            axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
            axes.minorticks_off()
            _finish(axes, measure, "ads that are sent")
        legend(figure, drawn, [line.name for line in (*lines, alone)])

    save_figure(path, result, Heading(HEIGHT, "A few ads to choose from are worth most of many", text), draw)


def draw_disclosure(result: Result, path: Path) -> None:
    """Figure 4.6."""
    text = (
        "Each curve is one level of generalisation of location, interest and query; its points are thresholds on the "
        "click-through rate.\nUp and to the right is better. Client-only selection sends the query, and nothing else."
    )
    styles = dict(
        zip(
            (*disclosure.LEVELS, disclosure.CLIENT_ONLY),
            ((DARK, "o"), (BLUE, "s"), (GREEN, "^"), (PURPLE, "D"), (OCHRE, "v"), (RED, "X")),
            strict=True,
        )
    )

    def draw(figure: Figure) -> None:
        drawn: list[Any] = []
        for axes, ads in zip(_panels(figure, 2), disclosure.NUMBERS, strict=True):
            drawn = []
            for name, (colour, marker) in styles.items():
                rows = [row for row in result.rows if row["disclosed"] == name and row["ads"] == ads]
                drawn.append(
                    _curve(axes, Line(name, rows, colour, marker, width=3.2 if name == disclosure.EXACT else 1.5))
                )
            _finish_curve(axes, f"{ads} ads")
        legend(figure, drawn, list(styles))

    save_figure(
        path, result, Heading(HEIGHT + 0.5, "Limited privacy costs little, and more ads buy back the rest", text), draw
    )


def draw_private_rates(result: Result, path: Path) -> None:
    """Figure 5.2."""
    text = (
        "Points are thresholds on the click-through rate. Phones count clicks and views with delta = 0.02 and at most "
        "4\nentries of each user, on three levels of the hierarchy unless stated. Up and to the right is better."
    )

    def rows(series: private_rates.Series) -> list[Row]:
        return [row for row in result.rows if all(row[name] == value for name, value in series._asdict().items())]

    left = [
        Line("exact", rows(private_rates.EXACT), DARK, width=2.4),
        Line("ε = 1", rows(private_rates.ONE), BLUE, "s", width=2.0),
        Line("ε = 0.5", rows(private_rates.HALF), PURPLE, "D"),
        Line("ε = 1, trusted server", rows(private_rates.TRUSTED), GREEN, "^", (0, (4, 2))),
        Line("ε = 1, one level", rows(private_rates.SHALLOW), OCHRE, "v", (0, (1, 1))),
    ]
    colours = (GREEN, OCHRE, RED)
    right = [Line("nobody", rows(private_rates.ONE), BLUE, "s", width=2.0)]
    for which, style in (("tolerated", "-"), ("absent", (0, (2, 1)))):
        many = private_rates.TOLERATED if which == "tolerated" else private_rates.ABSENT
        right += [
            Line(f"{series.tolerated:.0%} {which}", rows(series), colour, marker, style)
            for series, colour, marker in zip(many, colours, "^vX", strict=True)
        ]

    def draw(figure: Figure) -> None:
        for axes, lines, title in zip(
            _panels(figure, 2, TALL_FOOTING),
            (left, right),
            ("exact and private rates", "phones that may be absent, or are (ε = 1)"),
            strict=True,
        ):
            drawn = [_curve(axes, line) for line in lines]
            _finish_curve(axes, title)
            axes.legend(
                drawn,
                [line.name for line in lines],
                frameon=False,
                fontsize=8.5,
                ncol=3,
                columnspacing=1.2,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.13),
            )

    save_figure(path, result, Heading(HEIGHT + 0.8, "The price of private rates", text), draw)


def _panels(figure: Figure, count: int, bottom: float = FOOTING) -> Iterable[Axes]:
    width = (RIGHT - LEFT - GAP * (count - 1)) / count
    for number_ in range(count):
        left = LEFT + number_ * (width + GAP)
        yield panel(figure, left, left + width, bottom, TOP)


def _over(axes: Axes, line: Line, variable: str, measure: str) -> Any:
    """A measure over a variable, with intervals."""
    points = [(number(row, variable), row[measure]) for row in line.rows]
    known = [(x, value) for x, value in points if isinstance(value, Estimate)]
    return axes.errorbar(
        [x for x, _ in known],
        [value.value for _, value in known],
        yerr=error_lengths([value for _, value in known]),
        **_style(line),
    )


def _curve(axes: Axes, line: Line) -> Any:
    """Coverage over precision, with intervals of both."""
    known = [
        (precision, coverage)
        for row in line.rows
        if isinstance(precision := row["precision"], Estimate)
        and isinstance(coverage := row["coverage"], Estimate)
        and precision.low is not None
    ]
    precisions, coverages = [each for each, _ in known], [each for _, each in known]
    return axes.errorbar(
        [each.value for each in precisions],
        [each.value for each in coverages],
        xerr=error_lengths(precisions),
        yerr=error_lengths(coverages),
        **_style(line),
    )


def _style(line: Line) -> dict[str, Any]:
    return {
        "color": line.colour,
        "linestyle": line.style,
        "marker": line.marker,
        "linewidth": line.width,
        "markersize": 4.5,
        "elinewidth": 0.9,
        "capsize": 1.5,
    }


def _finish(axes: Axes, measure: str, label: str) -> None:
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label, color=GREY, labelpad=2)
    axes.set_title(_TITLES[measure], fontsize=10.5, fontweight="bold", loc="left")
    if measure != "revenue":
        axes.yaxis.set_major_formatter(_percents)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _finish_curve(axes: Axes, title: str) -> None:
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.grid(axis="x", linewidth=0.6, alpha=0.4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percents)
    axes.xaxis.set_major_locator(MultipleLocator(0.05))
    axes.set_xlabel("precision: clicked, of the ads that are shown", color=GREY, labelpad=2)
    axes.set_ylabel("coverage: contexts with an ad", color=GREY)
    axes.set_title(title, fontsize=10.5, fontweight="bold", loc="left")


_TITLES = {
    "precision": "precision: ads clicked",
    "coverage": "coverage: contexts with an ad",
    "revenue": "revenue of a context",
}


def _percents(value: float, _: object) -> str:
    return f"{100 * value:.0f} %" if value else "0"
