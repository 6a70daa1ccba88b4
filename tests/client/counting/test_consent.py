"""What a user may allow, as data; and when to come back."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from reticent.privacy import Cost
from reticent_client import Participation
from reticent_client.errors import Declined
from tests.client.counting.world import query

LIMITS = st.none() | st.floats(1e-9, 1e9)
COUNTS = st.none() | st.integers(0, 10**9)
POLICIES = st.builds(
    Participation,
    max_epsilon=LIMITS,
    max_delta=LIMITS,
    max_budget_share=LIMITS,
    queries=st.lists(st.text(), max_size=3).map(tuple),
    counters=st.lists(st.text(), max_size=3).map(tuple),
    min_honest=st.integers(0, 1000),
    min_liars_share=st.floats(0, 1, exclude_max=True),
    only_charging=st.booleans(),
    only_unmetered=st.booleans(),
    max_queries_per_day=COUNTS,
    max_bytes_per_day=COUNTS,
)


@given(POLICIES)
def test_a_policy_is_data(policy: Participation) -> None:
    assert Participation.from_text(policy.to_text()) == policy


def test_a_policy_as_toml() -> None:
    text = 'max_epsilon = 1\nqueries = ["gym-*"]\nonly_charging = true\nmax_bytes_per_day = 100_000\n'
    assert Participation.from_toml(text) == Participation(
        max_epsilon=1, queries=("gym-*",), only_charging=True, max_bytes_per_day=100_000
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_epsilon": 0}, "max_epsilon must be a positive number, or None: got 0"),
        ({"max_delta": float("nan")}, "max_delta must be a positive number, or None: got nan"),
        ({"max_budget_share": True}, "max_budget_share must be a positive number, or None: got True"),
        ({"max_epsilon": "1"}, "max_epsilon must be a positive number, or None: got '1'"),
        ({"max_queries_per_day": -1}, "max_queries_per_day must be a whole number of at least 0: got -1"),
        ({"max_bytes_per_day": 1.5}, "max_bytes_per_day must be a whole number of at least 0: got 1.5"),
        ({"min_honest": None}, "min_honest must be a whole number of at least 0: got None"),
        ({"min_liars_share": 1}, "min_liars_share must be at least 0 and less than 1: got 1"),
        ({"min_liars_share": float("nan")}, "min_liars_share must be at least 0 and less than 1: got nan"),
        ({"only_charging": 1}, "only_charging is true or false: got 1"),
        ({"queries": "gym-?"}, r"queries are patterns, a list of texts: got 'gym-\?'"),
        ({"counters": [1]}, r"counters are patterns, a list of texts: got \[1\]"),
        ({"queries": None}, "queries are patterns, a list of texts: got None"),
    ],
)
def test_bad_policies_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        Participation(**arguments)


@pytest.mark.parametrize(("text", "fault"), [("queries = [", "Invalid value"), ("queries = " + "[" * 10_000, "nested")])
def test_a_file_that_is_no_policy(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^this is no policy: .*{fault}"):
        Participation.from_toml(text)


@pytest.mark.parametrize("text", ["[", "[]", "3", '{"colour": "red"}', '{"max_epsilon": 1}'])
def test_text_that_is_no_policy(text: str) -> None:
    with pytest.raises(ValueError, match=r"^this is not a participation policy written by Reticent$"):
        Participation.from_text(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": "red"}, "a policy has the keys"),
        ({"max_epsilon": -1}, "max_epsilon must"),
        ({"version": 2}, "the participation policy has format version 2: this program reads 1"),
    ],
    ids=str,
)
def test_a_policy_that_is_wrong_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Participation.from_text(json.dumps(json.loads(Participation().to_text()) | change))


def test_what_is_exactly_allowed_is_allowed() -> None:
    example = query()
    policy = Participation(
        max_epsilon=example.epsilon,
        max_delta=example.delta,
        max_budget_share=0.25,
        queries=("other", "g?m"),
        counters=("visits", "swims"),
        min_honest=example.min_contributions - example.liars,
        min_liars_share=1 / 11,
        max_queries_per_day=1,
        max_bytes_per_day=1000,
    )
    policy.check(example, Cost(4.0, 4e-6))
    policy.check_daily_limits(example, 400, queries=0, sent=600)


@pytest.mark.parametrize(("min_contributions", "liars"), [(21, 1), (21, 0), (19, 1), (400, 19), (5572, 278)])
def test_by_default_a_phone_hides_among_twenty_honest_ones_and_some_liars(min_contributions: int, liars: int) -> None:
    example = query(population=6000, min_contributions=min_contributions, liars=liars)
    with pytest.raises(Declined, match="are required"):
        Participation().check(example, Cost(4.0, 1e-5))
    Participation(min_honest=2, min_liars_share=0.0).check(example, Cost(4.0, 1e-5))


@pytest.mark.parametrize(("min_contributions", "liars"), [(22, 2), (140, 7), (400, 20), (5572, 279)])
def test_by_default_a_phone_takes_an_allowance_of_a_twentieth(min_contributions: int, liars: int) -> None:
    Participation().check(query(population=6000, min_contributions=min_contributions, liars=liars), Cost(4.0, 1e-5))


def test_a_budget_without_delta_has_no_share_to_give() -> None:
    with pytest.raises(Declined, match="share of the budget"):
        Participation(max_budget_share=1.0).check(query(), Cost(4.0, 0.0))
