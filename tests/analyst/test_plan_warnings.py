"""A plan warns of queries that are not worth their cost, and foresees that phones' budgets end."""

from typing import Any

import pytest

from reticent.privacy import DEFAULT_BUDGET, Counter, Ledger, Query
from reticent_analyst.phone_budget import forecast_budget
from reticent_analyst.plan import plan
from tests.analyst.queries import census
from tests.analyst.test_plan import shown
from tests.parties.queries import bits


def test_a_plan_warns_if_the_noise_exceeds_all_that_can_be_counted() -> None:
    few = bits(population=30, min_contributions=22, liars=2, epsilon=0.1, counters=[Counter("fever", 0, 1)])
    planned = plan(few, absent=0.1)
    [warning] = planned.warnings
    assert "interval of 'fever'" in warning
    assert "exceeds all that can be counted, 27:" in warning
    assert planned.accuracy[0].half_width >= 27
    assert planned.to_json()["warnings"] == [warning]
    assert f"warning: {warning}\n" in shown(planned)


@pytest.mark.parametrize("epsilon", [0.005, 0.02, 0.03, 0.1])
def test_the_warning_begins_where_the_interval_of_a_unanimous_count_reaches_zero(epsilon: float) -> None:
    planned = plan(census(epsilon=epsilon))
    assert bool(planned.warnings) == (600 - planned.accuracy[0].half_width <= 0)


def test_a_bound_on_the_vector_limits_what_can_be_counted() -> None:
    counters = [Counter("steps", 0, 1000)]
    wide, narrow = (
        plan(bits(population=60, min_contributions=40, counters=counters, epsilon=0.2, l2_squared=norm**2, l1=norm))
        for norm in (1000, 10)
    )
    assert wide.warnings
    assert "all that can be counted, 60,000:" in wide.warnings[0]
    assert "all that can be counted, 600:" in narrow.warnings[0]


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [({"epsilon": 1.0}, [4, 3, 2, 1, 0]), ({"epsilon": 1.5}, [2, 1, 0]), ({"delta": 4e-6}, [2, 1, 0])],
)
def test_the_end_of_the_default_budget_is_foreseen(changes: dict[str, Any], numbers: list[int]) -> None:
    queries = [census(**{"delta": 1e-7, **changes, "id": f"q{number}"}) for number in range(len(numbers))]
    plans = [plan(query, earlier=queries[:number]) for number, query in enumerate(queries)]
    assert [each.budget.queries_left for each in plans] == numbers
    assert [each.budget.is_exhausted for each in plans] == [number == 0 for number in numbers]
    assert [bool(each.warnings) for each in plans] == [number == 0 for number in numbers]
    assert "has spent up to" in plans[-1].warnings[0]
    number = "one such query" if numbers[1] == 1 else f"{numbers[1]} such queries"
    assert f"suffices for {number}: earlier ones took up to" in shown(plans[1])


def test_a_phone_declines_where_the_forecast_ends() -> None:
    """The forecast is that of the phone's own ledger."""
    queries = [census(epsilon=0.7, delta=1e-7, id=f"q{number}") for number in range(9)]
    ledger, joined = Ledger(DEFAULT_BUDGET), 0
    while ledger.quote(queries[joined].account, queries[joined].cost).fits:
        ledger.reserve(queries[joined].account, queries[joined].cost)
        joined += 1
    assert joined == forecast_budget(queries[0]).queries_left


def test_a_sequence_costs_once() -> None:
    def day(name: str) -> Query:
        return census(id=name, sequence="week", epsilon=3.0)

    budget = forecast_budget(day("Tuesday"), [day("Monday")])
    assert (budget.epsilon_spent, budget.is_paid, budget.is_exhausted) == (3.0, True, False)
    assert "an earlier query of the sequence has paid for this one" in shown(
        plan(day("Tuesday"), earlier=[day("Monday")])
    )
    assert forecast_budget(census(id="other", epsilon=3.0), [day("Monday"), day("Tuesday")]).epsilon_spent == 3.0
