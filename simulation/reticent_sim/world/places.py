"""A resident's places: home, a few places that everybody has, and more of the kinds that there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from reticent_sim.world.people import EVERY_DAY, HOME, WEEKDAYS, WEEKEND

MIN_PLACES, USUAL, MAX_PLACES = 7, 20.5, 39
"""Places of a resident, besides where holidays are spent: Reality Mining's users have 7 to 40, on average 19."""
SPREAD = 0.42  # of the logarithm of their number


@dataclass(frozen=True)
class Kind:
    """A kind of place: when people go there, and for how long."""

    name: str
    share: float
    """Its frequency among the places that are not everybody's."""
    hours: tuple[int, ...]
    lasts: tuple[int, ...] = (1,)
    weekdays: tuple[int, ...] = EVERY_DAY


WORK, STATION, SHOP, CAFE, FRIEND = "work", "station", "shop", "cafe", "friend"

KINDS = (
    Kind(SHOP, 0.2, (10, 11, 12, 16, 17, 18, 19), (1, 1, 2)),
    Kind(CAFE, 0.14, (8, 9, 10, 12, 15, 16)),
    Kind(FRIEND, 0.15, (14, 18, 19, 20), (2, 3, 4)),
    Kind("restaurant", 0.1, (12, 18, 19, 20), (1, 2)),
    Kind("bar", 0.06, (20, 21, 22), (1, 2, 3), (3, 4, 5)),
    Kind("gym", 0.06, (7, 17, 18, 19), (1, 2)),
    Kind("park", 0.07, (8, 13, 16, 17, 18), (1, 2)),
    Kind(STATION, 0.06, (8, 9, 12, 17, 18, 22)),
    Kind("office", 0.04, (9, 10, 13, 14), (2, 3), WEEKDAYS),
    Kind("library", 0.04, (10, 13, 15, 17), (2, 3)),
    Kind("clinic", 0.03, (8, 9, 10, 14, 16), (1, 2), WEEKDAYS),
    Kind("church", 0.02, (9, 10, 18), (1, 2), (2, 6)),
    Kind("family", 0.03, (11, 12, 16), (4, 5, 6), WEEKEND),
)
"""The kinds of a resident's places, besides those that everybody has."""

EVERYBODY = (HOME, WORK, STATION, SHOP, CAFE, FRIEND)
"""The places that everybody has; for the retired, `work` is where they help out."""


@dataclass(frozen=True)
class Place:
    """A place of one resident."""

    label: str
    kind: Kind


def places(rng: np.random.Generator) -> list[Place]:
    """The places of a resident beside those of `EVERYBODY`, the dearest first."""
    total = round(float(np.clip(rng.lognormal(np.log(USUAL) - SPREAD**2 / 2, SPREAD), MIN_PLACES, MAX_PLACES)))
    shares = np.array([kind.share for kind in KINDS])
    chosen = rng.choice(len(KINDS), size=total - len(EVERYBODY), p=shares / shares.sum())
    taken = Counter(EVERYBODY)
    found = []
    for number in chosen.tolist():
        kind = KINDS[number]
        taken[kind.name] += 1
        count = taken[kind.name]
        found.append(Place(kind.name if count == 1 else f"{kind.name} {count}", kind))
    return found
