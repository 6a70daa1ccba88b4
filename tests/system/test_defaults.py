"""Parties with default settings agree: on what they take from each other, and on what the plan says they refuse."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import Field, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import Counter, Ledger, Query, QueryLimits
from reticent.protocol import Refused
from reticent_analyst.expected_refusals import KEY_SERVERS, PHONES, expected_refusals
from reticent_analyst.question import Question
from reticent_client import Declined, Participation
from reticent_client.counting.settings import DEFAULT_BUDGET
from reticent_keys.cli import app as keys
from tests.parties.queries import bits


def phones_take(query: Query) -> bool:
    """Whether a phone does that has answered nothing yet."""
    with closing(Ledger(DEFAULT_BUDGET)) as ledger:
        is_affordable = ledger.quote(query.id, query.cost).fits
    return is_affordable and not _refuses(lambda: Participation().check(query, DEFAULT_BUDGET))


def key_servers_take(query: Query, ciphertexts: int = 1) -> bool:
    return not QueryLimits().violations(query, ciphertexts)


def _refuses(check: Callable[[], None]) -> bool:
    try:
        check()
    except (Declined, Refused):
        return True
    return False


@given(
    population=st.integers(1000, 10**6),
    absent=st.floats(0, 0.4),
    lying=st.sampled_from([0.0, 1e-5, 0.01]),
    noise=st.sampled_from(["skellam", "gaussian"]),
)
def test_what_an_analyst_gets_by_default_is_taken_by_default(population: int, **said: Any) -> None:
    """One cohort, since many of few phones each are not what is asked by default."""
    question = Question(id="q", counters=[Counter("a", 0, 3)], epsilon=1.0, delta=1e-6, cohorts=1, **said)
    query = question.to_query(population, "k1")
    assert expected_refusals(query, 1) == ()
    assert phones_take(query)
    assert key_servers_take(query)


@given(
    cost=st.tuples(st.sampled_from([0.5, 4.0, 4.5]), st.sampled_from([1e-7, 1e-5, 2e-5, 1e-4, 2e-4])),
    population=st.integers(4, 120),
    cohorts=st.integers(1, 2),
    ciphertexts=st.sampled_from([1, 300, 301]),
    data=st.data(),
)
def test_what_the_plan_says_is_what_parties_do(
    cost: tuple[float, float], population: int, cohorts: int, ciphertexts: int, data: st.DataObject
) -> None:
    min_contributions = data.draw(st.integers(2, population // cohorts))
    liars = data.draw(st.integers(0, min(min_contributions - 2, 8)))
    epsilon, delta = cost
    query = bits(
        epsilon=epsilon,
        delta=delta,
        population=population,
        cohorts=cohorts,
        min_contributions=min_contributions,
        liars=liars,
    )
    by = {party for each in expected_refusals(query, ciphertexts) for party in each.by}
    assert phones_take(query) == (PHONES not in by)
    assert key_servers_take(query, ciphertexts) == (KEY_SERVERS not in by)


@pytest.mark.parametrize("limit", fields(QueryLimits), ids=lambda each: each.name)
def test_each_limit_is_an_option_of_the_key_server(limit: Field[Any]) -> None:
    value: Any = 5 if isinstance(limit.default, int) else 0.25
    option = f"--{limit.name.replace('_', '-')}"
    _, bound, _ = keys.parse_args(["serve", option, str(value)], exit_on_error=False, print_error=False)
    assert bound.arguments["limits"] == QueryLimits(**{limit.name: value})
