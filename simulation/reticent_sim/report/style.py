"""The colours, fonts and line styles of all pictures.

Colours are after Paul Tol's schemes for colour-blind eyes, and no two systems differ by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reticent_sim.experiments.systems import (
    ADAPTIVE,
    HYBRID,
    LEAKY,
    OPTIMAL,
    ORDERS,
    PROBABILISTIC,
    SIMULATABLE,
)

DARK, GREY, LIGHT_GREY = "#22252a", "#6b7078", "#d5d8dd"
RED, PURPLE, BLUE = "#c43c0c", "#8c64b4", "#174f91"

FONT = "DejaVu Sans"  # the one that matplotlib brings
TINY = 7.5  # points
STYLE: dict[Any, Any] = {  # the keys are of a type that matplotlib does not name
    "font.family": FONT,
    "font.size": 10,
    "text.color": DARK,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "hatch.linewidth": 0.5,
    "hatch.color": "#c3c7cd",
}


@dataclass(frozen=True)
class SystemStyle:
    """The colour, line and marker of a system."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str
    width: float = 1.6


_STYLES = {
    LEAKY: SystemStyle(RED, (0, (5, 2)), "X"),
    SIMULATABLE: SystemStyle("#b08a00", (0, (1, 1)), "s"),
    PROBABILISTIC: SystemStyle(PURPLE, (0, (3, 1, 1, 1)), "D"),
    HYBRID: SystemStyle(DARK, "-", "o", 2.4),
    ORDERS: SystemStyle(PURPLE, "-", "p"),
    ADAPTIVE: SystemStyle("#1f8f7a", "-", "^"),
    OPTIMAL: SystemStyle(BLUE, "-", "v"),
}


def style_of(system: str) -> SystemStyle:
    """The style of a system; a check without a style of its own is grey."""
    return _STYLES.get(system, SystemStyle(GREY, "-", "*"))
