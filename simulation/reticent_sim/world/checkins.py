"""Logs of check-ins as logs of ads: a visited venue is the click, as a visited business is in section 4.4.1.

A folder has `checkins.csv` or `checkins.csv.gz` with the columns user, venue, category_id, lat, lon and local_time. Its
`categories.csv` has the columns category_id and path, such as "Food > Asian Restaurant > Ramen Restaurant".

Check-ins have no queries, no places from which a user searched, and no views of other venues. We choose:

- Only venues below one category count, "Food" by default, as section 4.4.1 keeps one category of businesses.
- The location is where the user's check-in before was, of any category. A user's first check-in is left out.
- The query is the category of the venue. Levels 0 and 1 of a query are the same, because there are no texts. Level 2
  is the category below the root, such as "Asian Restaurant".
- The interests are the user's two most visited categories in the training part.
- The views of a search are a page. It has the `PAGE` venues with the most clicks in the context's node at level
  (3, 2, 2), and `OTHERS` more at random, by their clicks in the node at level (4, 2, 2). So at level (3, 2, 2) and
  below, the rate of a venue is its part of all check-ins. Above, the other venues keep it low.
- Users with fewer than three clicks are left out. The first 90 % in time are for training. Users and venues that occur
  only later are no test.
- All payments are 1.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Context, Decimals, Hierarchy, Tree
from reticent.randomness import seeded
from reticent_sim.ad_log import AdLog
from reticent_sim.world.ads import TRAINING, AdData
from reticent_sim.world.businesses import Floats, Numbers

ROOT = "Food"
LEAST_CLICKS = 3
INTERESTS = 2
PAGE, OTHERS = 20, 5
PAGE_LEVEL, WIDE_LEVEL = 7, 8
"""The levels (3, 2, 2) and (4, 2, 2) of the generalisation sequence."""
COLUMNS = ("user", "venue", "category_id", "lat", "lon", "local_time")
ARROW, ALL = " > ", "all "


@dataclass(frozen=True)
class _Visit:
    user: str
    venue: str
    category: str
    location: str
    """The place of the check-in before."""


def read_checkins(folder: Path, *, root: str = ROOT, seed: int = 1) -> AdData:
    """The check-ins of a folder as a log of ads.

    Args:
        folder: The folder with the files.
        root: The category whose venues count.
        seed: The other venues of each page follow from it.

    Raises:
        ValueError: A file is malformed, or has too few check-ins.
    """
    paths = _categories(folder / "categories.csv", root)
    visits = _with_enough_clicks(list(_visits(_file(folder), paths)))
    split = int(TRAINING * len(visits))
    interests = _interests(visits[:split])
    known = {visit.venue for visit in visits[:split]}
    kept = [number for number, each in enumerate(visits) if each.user in interests and each.venue in known]
    visits, split = [visits[number] for number in kept], int(np.searchsorted(kept, split))
    if not 0 < split < len(visits):
        raise ValueError(f"{folder} has too few check-ins below {root!r} of users with {LEAST_CLICKS} or more")
    contexts: list[Context] = [(each.location, interests[each.user], _typed(each.category)) for each in visits]
    hierarchy = Hierarchy(_attributes(paths), set(contexts))
    leaves = {context: number for number, context in enumerate(hierarchy.contexts)}
    context = np.array([leaves[each] for each in contexts])
    venues = sorted(known)
    numbers = {venue: number for number, venue in enumerate(venues)}
    venue = np.array([numbers[each.venue] for each in visits])
    users = {user: number for number, user in enumerate(sorted(interests))}
    user = np.array([users[each.user] for each in visits[:split]])
    row, ad = _pages(hierarchy, context[:split], venue[:split], seeded(seed, "check-ins"))
    training = AdLog(
        hierarchy=hierarchy,
        ads=tuple(venues),
        user=user[row],
        context=context[row],
        ad=ad,
        clicked=ad == venue[row],
        users=len(users),
    )

    def clicks(tests: npt.NDArray[np.integer], ads: npt.NDArray[np.integer]) -> Floats:
        return np.asarray(venue[np.asarray(tests) + split] == ads, dtype=np.float64)

    everywhere = np.zeros(len(venues), dtype=np.int64)
    return AdData(training, context[split:], clicks, np.ones(len(venues)), everywhere)


def _file(folder: Path) -> Path:
    found = [path for name in ("checkins.csv", "checkins.csv.gz") if (path := folder / name).exists()]
    if not found:
        raise ValueError(f"{folder} has neither checkins.csv nor checkins.csv.gz")
    return found[0]


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
            raise ValueError(f"{path} needs a column {missing[0]!r}")
        for row in reader:
            if None in row.values() or None in row:
                raise ValueError(f"{path}, line {reader.line_num}: it has not as many values as the header")
            yield row


def _categories(path: Path, root: str) -> dict[str, tuple[str, ...]]:
    """The path of each category below the root, the category itself last."""
    found = {row["category_id"]: tuple(row["path"].split(ARROW)) for row in _rows(path, ("category_id", "path"))}
    below = {name: each for name, each in found.items() if each[0] == root}
    if not below:
        raise ValueError(f"{path} has no category below {root!r}")
    return below


def _visits(path: Path, paths: Mapping[str, tuple[str, ...]]) -> Iterator[_Visit]:
    """The check-ins at venues that count, in the order of time."""
    before: dict[str, str] = {}
    for row in sorted(_rows(path, COLUMNS), key=lambda row: row["local_time"]):
        user, location = row["user"], f"{row['lat']},{row['lon']}"
        if row["category_id"] in paths and user in before:
            yield _Visit(user, row["venue"], paths[row["category_id"]][-1], before[user])
        before[user] = location


def _with_enough_clicks(visits: list[_Visit]) -> list[_Visit]:
    counts = Counter(visit.user for visit in visits)
    return [visit for visit in visits if counts[visit.user] >= LEAST_CLICKS]


def _interests(visits: list[_Visit]) -> dict[str, str]:
    """The categories that each user has visited most, joined by "+"."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for visit in visits:
        counts[visit.user][visit.category] += 1
    return {
        user: "+".join(sorted(sorted(counted, key=lambda name: (-counted[name], name))[:INTERESTS]))
        for user, counted in counts.items()
    }


def _attributes(paths: Mapping[str, tuple[str, ...]]) -> tuple[Decimals, Tree, Tree]:
    """A category, the one below the root, and the root; for queries, a text instead of the root."""
    categories: dict[str, str | None] = {}
    for path in paths.values():
        general, top = f"{ALL}{path[min(1, len(path) - 1)]}", f"{ALL}{path[0]}"
        categories |= {path[-1]: general, top: None} | ({general: top} if general != top else {})
    queries = {name: above for name, above in categories.items() if not name.startswith(ALL)}
    typed: dict[str, str | None] = {_typed(name): name for name in queries}
    return Decimals("location"), Tree("interest", 3, categories), Tree("query", 3, queries | typed)


def _typed(category: str) -> str:
    """The text of a query for a category."""
    return category.lower()


def _pages(hierarchy: Hierarchy, context: Numbers, venue: Numbers, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """The views: the number of the search and the venue of each."""
    venues = int(venue.max()) + 1
    near, wide = (hierarchy.at_level(level)[context].astype(np.int64) for level in (PAGE_LEVEL, WIDE_LEVEL))
    keys, clicks = np.unique(near * venues + venue, return_counts=True)
    order = np.lexsort((keys, -clicks, keys // venues))
    node, listed = keys[order] // venues, keys[order] % venues
    starts = np.searchsorted(node, near)
    lengths = np.minimum(np.searchsorted(node, near, side="right") - starts, PAGE)
    search = np.repeat(np.arange(len(near)), lengths)
    shown = listed[np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(len(search))]
    by_wide = np.argsort(wide, kind="stable")
    first, end = (np.searchsorted(wide[by_wide], wide, side=side) for side in ("left", "right"))
    drawn = first[:, None] + (rng.random((len(wide), OTHERS)) * (end - first)[:, None]).astype(np.int64)
    others = venue[by_wide[drawn]]
    views = np.unique(np.append(search * venues + shown, (np.arange(len(wide))[:, None] * venues + others).ravel()))
    return views // venues, views % venues
