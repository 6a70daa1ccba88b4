"""The counters of click-through rates: a phone contributes views of its log to queries (Götz, section 5.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from reticent.privacy import Query
from reticent.rates import click_counter, counter_prefix, node_counter, parse_counter, view_counter
from reticent.times import Now
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.log import LoggedView, PrivateLog

__all__ = ["RateCounters"]


class RateCounters:
    """The source of the counters for queries of rates.

    Args:
        contexts: The contexts of the user, in the phone's hierarchy.
        log: The log.
        now: What time it is.
        rng: Which views are chosen; a secure generator on a phone.
    """

    def __init__(self, contexts: UserContexts, log: PrivateLog, now: Now, rng: np.random.Generator) -> None:
        self._contexts = contexts
        self._prefix = counter_prefix(contexts.hierarchy)
        self._log = log
        self._now = now
        self._rng = rng

    def for_query(self, query: Query) -> Mapping[str, float] | None:
        """The counters for a query; None where it asks for none of rates, which its names alone decide.

        At most m random views of the log count, where m is the upper bound of the counters. They are chosen once for
        all queries of a sequence, and stored. A phone with another hierarchy, or without views, has no counter but
        zeros: whether a phone takes part does not depend on its log.

        A view counts at every level or at none, so that children sum to their parents. Views in a context that the
        hierarchy does not have, as in a suppressed step, do not count.
        """
        bounds = [counter.high for counter in query.counters if parse_counter(counter.name) is not None]
        if not bounds:
            return None
        found: Counter[str] = Counter()
        for view in self._log.chosen(query.account, max(bounds), self._now(), self._rng, self._has_exact_context):
            counter = click_counter if view.clicked else view_counter
            for node in self._contexts.path_of(view.context):
                found[node_counter(self._prefix, node)] += 1
                found[counter(self._prefix, node, view.ad)] += 1
        return found

    def _has_exact_context(self, view: LoggedView) -> bool:
        return self._contexts.is_exact(self._contexts.path_of(view.context)[0])
