"""What an analyst wants to know, in Python or in a file, becomes a query that fits together."""

import datetime as dt
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.privacy import Counter, Query
from reticent_analyst.plan import plan
from reticent_analyst.question import Question, QuestionSequence
from tests.analyst.queries import SAMPLES

SAMPLE = """
id = "gym"
epsilon = 1.0
delta = 1e-6
[counters]
visits = [0, 7]
[expected]
absent = 0.2
"""


def wanted(**changes: Any) -> Question:
    fields: dict[str, Any] = {
        "id": "q",
        "counters": [Counter("a", 0, 3), Counter("b", -2, 1)],
        "epsilon": 1.0,
        "delta": 1e-6,
        "absent": 0.2,
    }
    return Question(**{**fields, **changes})


def test_missing_bounds_follow_from_the_counters() -> None:
    query = wanted().to_query(1000, "k1")
    assert (query.l1, query.l2_squared, query.cohorts, query.min_contributions, query.liars) == (5, 13, 1, 760, 38)
    assert (query.key_id, query.population, query.closes_after, query.fraction_bits) == ("k1", 1000, 86_400, 0)


def test_an_analyst_may_tolerate_no_liars_explicitly() -> None:
    text = SAMPLE.replace("delta = 1e-6", "delta = 1e-6\nliars = 0")
    assert Question.from_toml(text).to_query(1000, "k1").liars == 0
    assert Question.from_toml(SAMPLE).to_query(1000, "k1").liars == 38


def test_given_fields_are_used() -> None:
    changes = {
        "l1": 4,
        "l2_squared": 10,
        "cohorts": 4,
        "min_contributions": 100,
        "liars": 7,
        "enough": 150,
        "population": 800,
    }
    query = wanted(**changes).to_query(1000, "k1")
    assert {name: getattr(query, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("given", "l1", "l2_squared"),
    [
        ({"l1": 2}, 2, 4),
        ({"l2_squared": 4}, 3, 4),
        ({"l2_squared": 4, "noise": "gaussian"}, 3, 4),
        ({"l2_squared": 1}, 1, 1),
        ({"l2_squared": 99}, 5, 13),
        ({"l1": 2, "l2_squared": 50}, 2, 4),
        ({"l1": 99}, 5, 13),
        ({"l1": 99, "l2_squared": 4}, 3, 4),
    ],
)
def test_one_norm_bounds_the_other(given: dict[str, Any], l1: int, l2_squared: int) -> None:
    query = wanted(**given).to_query(1000, "k1")
    assert (query.l1, query.l2_squared) == (l1, l2_squared)


@pytest.mark.parametrize("sequence", [None, "week"])
@pytest.mark.parametrize("name", ["l1", "l2_squared", "population", "cohorts", "enough"])
@pytest.mark.parametrize("value", [0, -9, 2.5])
def test_a_number_below_one_is_refused_and_not_replaced(name: str, value: float, sequence: str | None) -> None:
    fields = {"l1": 7, "l2_squared": 7, "sequence": sequence, name: value}
    with pytest.raises(ValueError, match=rf"^{name} must be a whole number of at least 1: got {value}$"):
        wanted(**fields)


@pytest.mark.parametrize("bound", [{}, {"l1": 3}, {"l2_squared": 9}])
def test_the_bounds_of_a_sequence_do_not_follow_from_one_question(bound: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="the bounds l1 and l2_squared of the whole sequence 'week' must be given"):
        wanted(sequence="week", **bound)


def test_a_contradiction_of_a_sequence_quotes_the_given_bounds() -> None:
    with pytest.raises(ValueError, match="l1 = 3, l2_squared = 50"):
        wanted(sequence="week", l1=3, l2_squared=50).to_query(1000, "k1")


BOUNDS = st.tuples(st.integers(-40, 0), st.integers(0, 40)).filter(lambda bounds: bounds[0] < bounds[1])


@given(
    bounds=st.lists(BOUNDS, min_size=1, max_size=6),
    l2_squared=st.none() | st.integers(1, 3000),
    noise=st.sampled_from(["skellam", "gaussian"]),
    population=st.integers(200, 5000),
    cohorts=st.none() | st.integers(1, 5),
    absent=st.floats(0, 0.6),
    lying=st.sampled_from([0.0, 0.001]),
)
def test_every_question_makes_a_query_that_fits_together(bounds: list[tuple[int, int]], **fields: Any) -> None:
    population = fields.pop("population")
    question = wanted(counters=[Counter(f"c{k}", *each) for k, each in enumerate(bounds)], **fields)
    query = question.to_query(population, "k1")
    assert Query.from_bytes(query.to_bytes()) == query
    tallest = sum(max(-low, high) ** 2 for low, high in bounds)
    assert query.l2_squared <= (fields["l2_squared"] or tallest)


def test_a_grid_is_as_fine_as_its_noise_needs() -> None:
    query = wanted(noise="gaussian").to_query(100_000, "k1")
    with pytest.raises(ValueError, match=f"at least {query.fraction_bits} fraction bits"):
        wanted(noise="gaussian", fraction_bits=query.fraction_bits - 1).to_query(100_000, "k1")


def test_the_expected_number_of_liars() -> None:
    assert [wanted(lying=lying).liars_among(1000) for lying in (0.0, 0.001, 0.0101, 0.029)] == [0, 1, 11, 29]


@pytest.mark.parametrize("name", ["gym", "flu", "walking"])
def test_the_sample_files_are_questions(name: str) -> None:
    question = Question.load(SAMPLES / f"{name}.toml")
    query = question.to_query(question.population or 0, "k1")
    assert query.id.startswith(name)
    assert query.min_contributions > 0.5 * query.population / query.cohorts


def test_there_are_no_other_sample_files() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == {"gym", "flu", "walking"}


def test_a_file_has_the_keys_of_a_question() -> None:
    text = SAMPLE.replace("[counters]", 'closes_after = "1h30min"\nenough = 5\nnoise = "gaussian"\n[counters]')
    assert Question.from_toml(text) == wanted(
        id="gym", counters=[Counter("visits", 0, 7)], closes_after=5400, enough=5, noise="gaussian"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("epsilon = 1.0", "", "needs epsilon: got"),
        ("absent = 0.2", "", r"needs \[expected\] absent: got delta"),
        ("epsilon", "epsilom", "got epsilom"),
        ("absent = 0.2", "l1 = 3", r"\[expected\] has the keys absent, lying, risk: got 'l1'"),
        ("absent = 0.2", 'absent = "few"', "absent must be a number: got 'few'"),
        ("absent = 0.2", "absent = true", "absent must be a number: got True"),
        ('id = "gym"', "id = 3", "id must be text: got 3"),
        ("[0, 7]", "[0, 7, 8]", "visits = \\[0, 7, 8\\]"),
        ("[0, 7]", "[0, 7.5]", r"two whole numbers as bounds, as in visits = \[0, 7\], .* got visits"),
        ("[0, 7]", "[0, 1e300]", "two whole numbers"),
        ("absent = 0.2", "absent = 0.2\nlies = 1", r"\[expected\] has the keys absent, lying, risk: got 'lies'"),
        ("epsilon", "epsilom = 2\nepsilon", r"\[bounds\] l1, \[bounds\] l2_squared"),
        ("delta = 1e-6", "delta = 1e-6\nenough = " + "9" * 400, "enough is too large"),
        ("[0, 7]", "7", "got visits = 7"),
        ("visits = [0, 7]", "", "at least one counter"),
        ("[counters]\nvisits = [0, 7]", "counters = 3", r"\[counters\] must be a table: got 3"),
        ("delta = 1e-6", 'delta = 1e-6\ncloses_after = "soon"', "a duration such as 1d"),
        ("absent = 0.2", "absent = 1.0", "absent must lie in"),
        ("absent = 0.2", "absent = 0.2\nrisk = 0", "risk must lie in"),
        ("delta = 1e-6", "delta = ", "Invalid value"),
        ("delta = 1e-6", "delta = " + "[" * 10_000, "it is nested too deeply"),
    ],
)
def test_an_invalid_file_is_one_sentence(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    assert right in SAMPLE
    path = tmp_path / "gym.toml"
    path.write_text(SAMPLE.replace(right, wrong, 1))
    with pytest.raises(ValueError, match=message) as refused:
        Question.load(path)
    assert str(refused.value).startswith(str(path))


def test_questions_share_the_fields_of_their_sequence() -> None:
    week = QuestionSequence(name="week", epsilon=1.0, delta=1e-6, l2_squared=7, l1=7, noise="skellam")
    queries = [week.question(day, [Counter("a", 0, 1)], absent=0.1).to_query(500, "k1") for day in ("Mon", "Tue")]
    assert {(q.account, q.l1, q.l2_squared, q.cost) for q in queries} == {
        ("sequence week", 7, 7, queries[0].cost),
    }
    assert [q.id for q in queries] == ["Mon", "Tue"]
    with pytest.raises(ValueError, match="sets epsilon, l1 for all"):
        week.question("Wed", [Counter("a", 0, 1)], absent=0.1, epsilon=2.0, l1=3)


def test_closes_after_may_be_a_timedelta() -> None:
    assert wanted(closes_after=dt.timedelta(minutes=90)) == wanted(closes_after=5400)
    assert wanted(closes_after=dt.timedelta(minutes=90)).to_query(1000, "k1").closes_after == 5400
    with pytest.raises(ValueError, match="a whole number of seconds: got 0:00:01"):
        wanted(closes_after=dt.timedelta(seconds=1.5))


def test_bounds_may_be_whole_numbers_with_a_point() -> None:
    question = Question.from_toml(SAMPLE.replace("[0, 7]", "[0.0, 7.0]"))
    assert list(question.counters) == [Counter("visits", 0, 7)]
    assert type(question.counters[0].high) is int


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
@pytest.mark.parametrize("odd", [{"epsilon": 1e-308}, {"epsilon": 1e13}, {"delta": 5e-324}, {"epsilon": math.nan}])
def test_noise_that_cannot_be_computed_is_one_sentence(noise: Any, odd: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        wanted(noise=noise, **odd).to_query(1000, "k1")


# Scales.

MIXED = [Counter("kilometres", 0, 100), Counter("walked", 0, 1), Counter("balance", -30, 10)]


def test_a_balanced_question_gives_each_counter_about_the_same_relative_error() -> None:
    """As if each counter had a query of its own with d times the variance, for d counters."""
    plain, balanced = (
        plan(wanted(counters=MIXED, scaling=scaling).to_query(10_000, "k1")) for scaling in ("none", "balanced")
    )
    assert [counter.scale for counter in balanced.query.counters] == [1, 100, 3]
    assert (balanced.query.l2_squared, balanced.query.l1) == (100**2 + 100**2 + 90**2, 290)
    relative = [
        each.standard_error / counter._replace(scale=1).most
        for each, counter in zip(balanced.accuracy, MIXED, strict=True)
    ]
    assert max(relative) < 1.2 * min(relative)
    assert balanced.accuracy[1].standard_error < plain.accuracy[1].standard_error / 60
    assert balanced.accuracy[0].standard_error < 1.8 * plain.accuracy[0].standard_error
    [warning] = plain.warnings
    assert "the bounds of 'walked' are more than 4 times smaller" in warning
    assert not balanced.warnings


def test_no_other_scales_have_a_smaller_sum_of_squared_relative_errors() -> None:
    """Enumerated: with errors l2 / scale, relative to the bound of each counter."""
    most = np.array([6, 3, 1])

    def badness(scales: tuple[int, ...]) -> float:
        sizes = most * scales
        return float((sizes @ sizes) * (1 / sizes**2).sum())

    counters = [Counter(f"c{each}", 0, int(each)) for each in most]
    chosen = tuple(each.scale for each in wanted(counters=counters, scaling="balanced").to_query(1000, "k1").counters)
    assert badness(chosen) == min(map(badness, itertools.product(range(1, 20), repeat=3))) == 9


def test_a_file_may_state_scales() -> None:
    stated = SAMPLE.replace("[0, 7]", "{ bounds = [0, 7], scale = 3 }")
    assert list(Question.from_toml(stated).counters) == [Counter("visits", 0, 7, scale=3)]
    assert Question.from_toml(stated).to_query(1000, "k1").l2_squared == 21**2
    balanced = Question.from_toml('scaling = "balanced"\n' + SAMPLE.replace("visits", "fever = [0, 1]\nvisits"))
    assert [counter.scale for counter in balanced.to_query(1000, "k1").counters] == [7, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scaling": "best"}, "scaling must be one of none, balanced: got 'best'"),
        ({"scaling": "balanced", "l1": 3}, "l1 and l2_squared bound the scaled vector"),
    ],
)
def test_scaling_that_makes_no_sense_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wanted(**changes)
