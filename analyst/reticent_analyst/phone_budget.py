"""The budget that an analyst's queries take of one phone: how many more queries like the planned one it can join."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reticent.privacy import DEFAULT_BUDGET, Query, sum_of_costs

__all__ = ["BudgetForecast", "forecast_budget"]


@dataclass(frozen=True)
class BudgetForecast:
    """The rest of the default budget of a phone that contributed to all earlier queries of the analyst.

    Phones may have other budgets, and may have spent on queries of other analysts, which this analyst cannot see.

    Args:
        epsilon_spent: The epsilon that the earlier queries took.
        delta_spent: The delta that they took.
        queries_left: The number of queries at the planned cost that still fit, including the planned one.
        is_paid: Whether an earlier query of the same sequence has paid for the planned one.
    """

    epsilon_spent: float
    delta_spent: float
    queries_left: int
    is_paid: bool

    @property
    def is_exhausted(self) -> bool:
        """Whether such a phone declines the planned query."""
        return self.queries_left == 0 and not self.is_paid


def forecast_budget(query: Query, earlier: Iterable[Query] = ()) -> BudgetForecast:
    """The budget that is left for a query, if costs add up, as on phones with default settings.

    Args:
        query: The planned query.
        earlier: The queries that phones have contributed to, or may still. A sequence costs once.

    >>> from reticent.privacy import Counter
    >>> query = Query(
    ...     id="gym", counters=[Counter("visits", 0, 1)], epsilon=1.5, delta=1e-6, l2_squared=1, l1=1, noise="skellam",
    ...     population=100, cohorts=1, min_contributions=80, liars=4, key_id="k1", closes_after=60,
    ... )
    >>> forecast_budget(query).queries_left
    2
    """
    costs = {each.account: each.cost for each in earlier if each.id != query.id}
    spent = sum_of_costs(list(costs.values()))
    left = [limit - used for limit, used in zip(sum_of_costs([DEFAULT_BUDGET]), spent, strict=True)]
    fits = min(part // cost for part, cost in zip(left, sum_of_costs([query.cost]), strict=True))
    return BudgetForecast(float(spent[0]), float(spent[1]), max(0, int(fits)), query.account in costs)
