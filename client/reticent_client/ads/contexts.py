"""From a released label and an app's query to the exact context, and to the generalised one that the service sees."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Context, Hierarchy, Node, Tree
from reticent_client.ads.choice import AdRules
from reticent_client.ads.settings import AdSettings
from reticent_client.ads.shared_cuts import UserCut, nodes_above, parents_of, read_hierarchy, uniform_cut

__all__ = ["UserContext", "UserContexts"]

LOCATION, INTEREST, QUERY = "location", "interest", "query"
"""The attributes of a hierarchy that a phone has values for."""


@dataclass(frozen=True)
class UserContext:
    """A context of the user, exact and generalised.

    Args:
        values: The values of the exact context; None where the location is not known.
        path: The numbers of the nodes at or above it that the hierarchy has, the lowest first.
        node: The number of the generalised context: the first of those on the cut, or above it.
    """

    values: Context | None
    path: tuple[int, ...]
    node: int


class UserContexts:
    """The contexts of a user in a hierarchy, and the user's cut.

    Args:
        settings: The user's settings.

    Raises:
        ValueError: They do not fit the hierarchy.
    """

    def __init__(self, settings: AdSettings) -> None:
        self._settings = settings
        self.hierarchy = hierarchy = read_hierarchy(settings.hierarchy)
        if unknown := [each.name for each in hierarchy.attributes if each.name not in {LOCATION, INTEREST, QUERY}]:
            raise ValueError(f"a phone knows {LOCATION}, {INTEREST} and {QUERY}: the hierarchy asks for {unknown[0]!r}")
        self.fingerprint = bytes.fromhex(hierarchy.fingerprint)
        self.parents = parents_of(hierarchy)
        self._check_values()
        self.rules = AdRules(
            max_per_day=settings.max_per_day,
            quiet=settings.quiet,
            categories=self._with_descendants(settings.disliked_categories),
            ads=frozenset(settings.disliked_ads),
        )
        events = tuple(Node.parse(each) if isinstance(each, str) else each for each in settings.sensitive)
        if settings.prior is None:
            self._own = uniform_cut(hierarchy, events, settings.delta, settings.level)
        else:
            prior = _read_prior(settings.prior, hierarchy)
            self._own = UserCut(hierarchy, events, settings.delta, settings.level, prior)
        self.cut = self._own.cut

    @property
    def disclosure(self) -> dict[str, float]:
        """The largest increase of the service's belief in each sensitive event, by its text."""
        return self._own.disclosure

    def situated(self, label: str | None, query: str) -> UserContext:
        """The context of a user with a released label who searches for something.

        Args:
            label: The label; None where nothing is released, which leads to the root.
            query: The query of the app.
        """
        place = None if label is None else self._settings.places.get(label)
        if place is None:
            return UserContext(None, (0,), 0)
        values = self._values(place, query or self._settings.default_query)
        path = self.path_of(values)
        return UserContext(values, path, next((node for node in path if node in self._own.nodes), path[0]))

    def path_of(self, values: Context | None) -> tuple[int, ...]:
        """The numbers of the nodes at or above a context, the lowest first; the root alone where it is not known."""
        try:
            return (0,) if values is None else nodes_above(self.hierarchy, values)
        except ValueError:  # an entry of another hierarchy, or a query that is not a text of categories
            return (0,)

    def is_exact(self, node: int) -> bool:
        """Whether a node is an exact context."""
        return node >= int(self.hierarchy.leaves[0])

    def _values(self, place: str, query: str) -> Context:
        known = {LOCATION: place, INTEREST: self._settings.interest, QUERY: query}
        return tuple(known[each.name] for each in self.hierarchy.attributes)

    def _check_values(self) -> None:
        """Refuse places and interests that no context can have."""
        for attribute in self.hierarchy.attributes:
            settings = self._settings
            given = {LOCATION: settings.places.values(), INTEREST: [settings.interest], QUERY: []}
            for value in given[attribute.name]:
                if not value:
                    raise ValueError(f"settings for ads need the {attribute.name}, which is part of each context")
                attribute.path(value)

    def _with_descendants(self, categories: Sequence[str]) -> frozenset[str]:
        """The categories, and all below them in the trees of the hierarchy."""
        found = set(categories)
        for tree in self.hierarchy.attributes:
            if isinstance(tree, Tree):
                found |= {each for each in tree.parents if found.intersection(tree.path(each))}
        known = {each for tree in self.hierarchy.attributes if isinstance(tree, Tree) for each in tree.parents}
        if unknown := sorted(found - known):
            raise ValueError(f"the hierarchy has no category {unknown[0]!r}, which the user dislikes")
        return frozenset(found)


def _read_prior(path: Path, hierarchy: Hierarchy) -> npt.NDArray[np.float64]:
    """(contexts,): the probabilities of a CSV file; a context that is not in it has 0."""
    header = [*(each.name for each in hierarchy.attributes), "probability"]
    prior = np.zeros(len(hierarchy.contexts))
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not CSV in UTF-8: {error}") from error
    if not rows or rows[0] != header:
        raise ValueError(f"{path} must have the header {','.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        try:
            *values, probability = row
            prior[hierarchy.leaf(tuple(values))] += float(probability)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return prior
