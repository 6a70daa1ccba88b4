"""A drawing area in SVG that is as wide as the page: x is in percent, y in pixels, and text keeps its size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reticent_sim.report.run.markup import Markup, tag

__all__ = ["LETTER", "Axis", "Plot", "Point", "cut", "log_ticks", "spread", "ticks"]

Point = tuple[float, float]

LETTER = 8.0
"""The width of a letter, in pixels, at most."""
ROW_LETTERS = 33
"""The letters of a row of text that fit on a phone."""
LINE = 17.0
"""The height of a line of text, in pixels."""

_MARKERS = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M-4.8-4.8h9.6v9.6h-9.6z",
    "triangle": "M0-5.5L5 4H-5z",
    "diamond": "M0-6L6 0L0 6L-6 0z",
    "cross": "M-4-4L4 4M-4 4L4-4",
    "dot": "M-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0z",
    "tick": "M0-8V8",
    "limit": "M0-11V11",
}


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis from the values `low` to `high` onto 0 to 1."""

    low: float
    high: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        if self.is_log:
            value, low, high = math.log(value), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values between two others: the finest of 1, 2, 5 times a power of ten that gives at most so many.

    >>> ticks(0, 1), ticks(-4.8, 4.8)
    ([0.0, 0.5, 1.0], [-4.0, -2.0, 0.0, 2.0, 4.0])
    """
    if high <= low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / most))
    found: list[float] = []
    for factor in (1, 2, 5, 10, 20):
        step = power * factor
        places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        found = [round(step * place, 12) + 0.0 for place in places]
        if len(found) <= most:
            break
    return found


def log_ticks(high: float) -> list[float]:
    """The powers of ten up to a value.

    >>> log_ticks(1500)
    [1, 10, 100, 1000]
    """
    return [10**k for k in range(math.floor(math.log10(max(high, 1)) + 1e-9) + 1)]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, in the same order, at least `gap` apart and between `low` and `high` if they fit.

    >>> spread([50, 52, 10], 10, 0, 100)
    [50, 60, 10]
    """
    placed = list(wanted)
    order = sorted(range(len(placed)), key=lambda k: (wanted[k], k))
    for before, after in itertools.pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    limit = high
    for k in reversed(order):
        placed[k] = min(placed[k], limit)
        limit = placed[k] - gap
    return [max(place, low) for place in placed]


def cut(text: str, most: int) -> str:
    """A text of at most so many letters.

    >>> cut("a long name", 7)
    'a long\N{HORIZONTAL ELLIPSIS}'
    """
    return text if len(text) <= most else f"{text[: max(most - 1, 0)].rstrip()}\N{HORIZONTAL ELLIPSIS}"


@dataclass
class Plot:
    """A drawing area and what is drawn in it.

    Args:
        name: A name of its own on the page.
        title: What the picture shows, for a screen reader.
        description: The same in more words.
        height: Of the area between the axes, in pixels, as are the margins.
    """

    name: str
    title: str
    description: str
    height: float
    x: Axis
    y: Axis
    left: float = 44
    right: float = 12
    top: float = 12
    bottom: float = 44
    _parts: list[Markup] = field(default_factory=list)

    def across(self, value: float) -> str:
        """The place of a value on the horizontal scale."""
        return f"{100 * self.x(value):.4g}%"

    def down(self, value: float) -> float:
        """The place of a value on the vertical scale."""
        return round(self.height * (1 - self.y(value)), 2)

    def add(self, *parts: Markup) -> None:
        """Draw elements."""
        self._parts.extend(parts)

    def x_axis(self, places: Iterable[tuple[float, str]], label: str, *, grid: bool = False) -> None:
        """Draw an axis below."""
        self.add(tag("line", class_="axis", x1="0", x2="100%", y1=self.height, y2=self.height))
        for value, text in places:
            x = self.across(value)
            self.add(
                tag(
                    "line",
                    class_="grid" if grid else "axis",
                    x1=x,
                    x2=x,
                    y1=0 if grid else self.height,
                    y2=self.height + 4,
                )
            )
            self.add(self.text(x, self.height + 18, text, class_="tick x", data_value=value))
        if label:
            self.add(self.text("100%", self.height + 37, label, class_="label", anchor="end"))

    def y_axis(self, places: Iterable[tuple[float, str]], label: str = "") -> None:
        """Draw the grid, its values on the left, and above what they are."""
        for value, text in places:
            y = self.down(value)
            self.add(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
            self.add(self.text("0", y, text, class_="tick y", anchor="end", dx=-7, middle=True, data_value=value))
        if label:
            self.add(self.text("0", -13, label, class_="label", anchor="start", dx=-self.left))

    def row(self, y: float, name: str, value: str) -> None:
        """Write a name on the left and a value on the right, the name only as far as both fit on a phone."""
        self.add(self.text("0", y, cut(name, ROW_LETTERS - len(value)), anchor="start", class_="name"))
        self.add(self.text("100%", y, value, anchor="end", class_="value"))

    def text(
        self,
        x: str,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        dx: float | None = None,
        middle: bool = False,
        class_: str | None = None,
        data_value: float | None = None,
    ) -> Markup:
        """A line of text at a place; `middle` if the place is the middle of its height."""
        place: dict[str, str | float | None] = {"x": x, "y": round(y, 2), "dx": dx, "dy": ".34em" if middle else None}
        return tag("text", text, text_anchor=anchor, class_=class_, data_value=data_value, **place)

    def path(self, points: Sequence[Point], class_: str, back: Sequence[Point] = ()) -> None:
        """Draw a line through points, or the area between that line and the line `back`."""
        every = [*points, *reversed(back)]
        steps = " ".join(f"{1000 * self.x(x):.1f},{self.down(y):g}" for x, y in every)
        shape = tag("path", class_=class_, d=f"M{steps}" + ("Z" if back else ""), vector_effect="non-scaling-stroke")
        box = {"viewBox": f"0 0 1000 {self.height:g}", "preserveAspectRatio": "none"}
        self.add(tag("svg", shape, width="100%", height=self.height, **box))

    def mark(
        self, x: str, y: float, shape: str, class_: str, *, series: str | None = None, value: float | None = None
    ) -> None:
        """Draw a marker."""
        path = tag("path", class_=f"mark {shape} {class_}", d=_MARKERS[shape])
        self.add(tag("svg", path, class_="at", x=x, y=y, data_series=series, data_value=value))

    def bar(
        self,
        low: float,
        high: float,
        top: float,
        bottom: float,
        class_: str,
        *,
        series: str | None = None,
        value: float | None = None,
    ) -> None:
        """Draw a bar between two values across, and two places down."""
        width = 100 * (self.x(high) - self.x(low))
        place: dict[str, str | float | None] = {
            "x": self.across(low),
            "width": f"{width:.4g}%",
            "y": round(top, 2),
            "height": round(bottom - top, 2),
        }
        self.add(tag("rect", class_=class_, data_series=series, data_value=value, **place))

    def svg(self) -> Markup:
        """The picture."""
        title, description = f"{self.name}-title", f"{self.name}-desc"
        height = self.top + self.height + self.bottom
        return tag(
            "svg",
            tag("title", self.title, id=title),
            tag("desc", self.description, id=description),
            *self._parts,
            class_="plot",
            role="img",
            aria_labelledby=f"{title} {description}",
            style=f"height:{height:g}px;padding:{self.top:g}px {self.right:g}px {self.bottom:g}px {self.left:g}px",
        )
