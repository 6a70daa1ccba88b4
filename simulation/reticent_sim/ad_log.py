"""A log of shown ads of many simulated users, and the counters that their phones would contribute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_integer
from reticent.hierarchy import Hierarchy
from reticent.privacy import Query, SparseRows
from reticent.rates import RateTable, counter_prefix, parse_counter

__all__ = ["AdLog"]

BLOCK = 65_536
"""The phones of one block of rows, which bounds the memory."""

_NEVER = np.iinfo(np.int64).max  # the key of no counter

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class AdLog:
    """Shown ads: an entry for each, in the order of the users.

    Args:
        hierarchy: The hierarchy of contexts.
        ads: The names of the ads.
        users: The number of users.
        user: The user of each entry, from 0 on.
        context: The number of its exact context.
        ad: The number of the ad.
        clicked: Whether the user clicked on it.

    Raises:
        ValueError: The entries are not of one length, or an entry has a user, a context or an ad that does not exist.
    """

    hierarchy: Hierarchy
    ads: tuple[str, ...]
    users: int
    user: Numbers
    context: Numbers
    ad: Numbers
    clicked: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len({len(self.user), len(self.context), len(self.ad), len(self.clicked)}) != 1:
            raise ValueError("each entry of a log has a user, a context, an ad and whether it was clicked on")
        contexts = len(self.hierarchy.contexts)
        for name, size in (("user", self.users), ("context", contexts), ("ad", len(self.ads))):
            numbers = getattr(self, name)
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < size:
                raise ValueError(
                    f"the {name} of an entry lies from 0 to {size - 1}: got {numbers.min()} to {numbers.max()}"
                )
        order = np.argsort(self.user, kind="stable")
        for name in ("user", "context", "ad"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64)[order])
        object.__setattr__(self, "clicked", np.asarray(self.clicked, dtype=np.bool_)[order])

    def __len__(self) -> int:
        return len(self.user)

    def sample(self, entries: int, rng: np.random.Generator) -> AdLog:
        """The log with at most so many random entries of each user, as each phone chooses them once for all levels."""
        checked_integer("entries", entries, 1)
        order = np.lexsort((rng.random(len(self)), self.user))
        rank = np.arange(len(self)) - np.searchsorted(self.user, self.user)
        kept = np.sort(order[rank < entries])
        return replace(
            self, user=self.user[kept], context=self.context[kept], ad=self.ad[kept], clicked=self.clicked[kept]
        )

    def rates(self, source: str) -> RateTable:
        """The exact frequencies and rates of all nodes, without noise: they protect nobody.

        Args:
            source: The name of the log.
        """
        size, found = len(self.hierarchy.nodes), []
        for level in range(self.hierarchy.height):
            key = self.ad * size + self.hierarchy.at_level(level)[self.context]
            pairs, place = np.unique(key, return_inverse=True)
            found.append((pairs, np.bincount(place), np.bincount(place, self.clicked)))
        pairs, views, clicks = (np.concatenate(each) for each in zip(*found, strict=True))
        ad, node = np.divmod(pairs, size)
        entries = np.bincount(self.context, minlength=len(self.hierarchy.contexts))
        return RateTable(
            hierarchy=self.hierarchy.fingerprint,
            ads=self.ads,
            frequency=self.hierarchy.sums(entries) / max(1, len(self)),
            ad=ad.astype(np.int32),
            node=node.astype(np.int32),
            rate=clicks / views,
            low=clicks / views,
            high=clicks / views,
            views=views.astype(np.float64),
            epsilon=math.inf,
            delta=0.0,
            level=0.95,
            seeded=False,
            source=source,
        )

    def counters(self, query: Query) -> Iterator[SparseRows]:
        """The counters of all users' phones: of nodes, of clicks and of views without a click.

        Counters of another hierarchy or of unknown ads are 0, as are all others.
        """
        places = self._places(query)
        for first in range(0, self.users, BLOCK):
            last = min(first + BLOCK, self.users)
            entries = slice(*np.searchsorted(self.user, [first, last]))
            columns = places[:, entries]
            rows = np.broadcast_to(self.user[entries] - first, columns.shape)
            cells = (rows * query.size + columns)[columns >= 0]
            found, value = np.unique(cells, return_counts=True)
            row, column = np.divmod(found, query.size)
            yield SparseRows(last - first, row, column, value)

    def _places(self, query: Query) -> Numbers:
        """The columns in which each entry counts, or -1.

        Returns:
            For each level of the query, the column of the entry's node, and that of its ad there.  # (2 levels, n)
        """
        prefix, size = counter_prefix(self.hierarchy), len(self.hierarchy.nodes)
        numbers: dict[str | None, int] = {ad: number for number, ad in enumerate(self.ads)}
        numbers[None] = len(self.ads)  # stands for a counter of a node
        columns: dict[int, int] = {}
        for place, counter in enumerate(query.counters):
            name = parse_counter(counter.name)
            if name is not None and name.prefix == prefix and name.node < size and name.ad in numbers:
                columns[(2 * numbers[name.ad] + (name.kind == "click")) * size + name.node] = place
        keys, place_of = np.array([*sorted(columns.items()), (_NEVER, -1)], dtype=np.int64).T
        found = [np.full((0, len(self)), _NEVER)]
        for level in np.unique(self.hierarchy.node_levels[keys[:-1] % size]).tolist():
            node = self.hierarchy.at_level(level)[self.context].astype(np.int64)
            for kind in (np.full(len(self), 2 * len(self.ads)), 2 * self.ad + self.clicked):
                wanted = kind * size + node
                nearest = np.searchsorted(keys, wanted)
                found.append(np.where(keys[nearest] == wanted, place_of[nearest], -1)[None])
        return np.concatenate(found)
