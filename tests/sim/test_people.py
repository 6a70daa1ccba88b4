"""The made-up population: the same for the same seed, labelled, with gaps, and with habits worth learning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import MarkovChain
from reticent_sim.world.people import (
    CONTEXTS,
    EVERY_DAY,
    HOME,
    HOSPITAL,
    HOURS,
    WEEKDAYS,
    Day,
    Habit,
    weekday,
)
from reticent_sim.world.routine import CARE
from reticent_sim.world.world import Citizen, World

SEEDS = st.integers(0, 2**32)
NUMBERS = st.integers(0, 10_000)
SEASON = range(84)


def person(seed: int, number: int) -> Citizen:
    """A person who shares no habits with others."""
    return World(seed, number + 1, routines=number + 1).person(number)


@given(SEEDS, NUMBERS, NUMBERS)
def test_a_day_is_labelled_and_replayed_by_its_seed(seed: int, number: int, day: int) -> None:
    lived = person(seed, number).day(day)
    assert len(lived) == HOURS
    assert set(lived) <= {*CONTEXTS, None}
    assert person(seed, number).day(day) == lived


@given(SEEDS, NUMBERS, st.lists(NUMBERS, min_size=1, max_size=5))
def test_a_day_is_the_same_whatever_else_is_asked_for(seed: int, number: int, days: list[int]) -> None:
    """Neither other people nor other days change it."""
    alone = [person(seed, number).day(day) for day in days]
    person(seed, number + 1).days(days)
    who = person(seed, number)
    assert who.days(reversed(days)) == alone[::-1]


def test_seeds_people_and_days_differ() -> None:
    lives = {
        (seed, number): tuple(map(tuple, person(seed, number).days(SEASON))) for seed in (1, 2) for number in range(10)
    }
    assert len(set(lives.values())) == len(lives)
    assert all(len(set(life)) > 10 for life in lives.values())


@pytest.mark.parametrize("number", range(20))
def test_everybody_goes_to_hospital_again_and_again_and_home_most_of_all(number: int) -> None:
    days = person(1, number).days(SEASON)
    assert sum(HOSPITAL in day for day in days) >= 8
    hours = [context for day in days for context in day]
    assert max(set(hours), key=hours.count) == HOME
    assert 0 < hours.count(None) < 0.2 * len(hours)


@pytest.mark.parametrize("number", range(20))
def test_habits_are_strong_and_learned_chains_sparse(number: int) -> None:
    """From where somebody is, the next hour is usually sure, and seldom open between many places."""
    days = person(1, number).days(day for day in SEASON if weekday(day) in WEEKDAYS)
    chain = MarkovChain.fit(days)
    moves = chain.transitions[chain.reachable[:-1]]  # (states, n)
    likely = (chain.prior[:-1][..., None] * chain.transitions).max(axis=2).sum(axis=1)
    assert likely.mean() > 0.8
    assert (moves > 0).sum(axis=1).mean() < 3


def test_some_go_to_hospital_at_fixed_hours_and_some_at_any() -> None:
    starts = [
        {day.index(HOSPITAL) for day in person(1, number).days(SEASON) if HOSPITAL in day}
        for number in range(len(CARE))
    ]
    assert min(map(len, starts)) == 1
    assert max(map(len, starts)) >= 5


def test_some_stops_tell() -> None:
    """There are people who go to the pharmacy after the hospital, and hardly ever otherwise."""
    days = person(1, 2).days(SEASON)
    after = [day[hour + 1] for day in days for hour in range(HOURS - 1) if day[hour] == HOSPITAL != day[hour + 1]]
    assert after.count("pharmacy") > 0.8 * len(after)
    assert after.count("pharmacy") > 0.5 * sum(day.count("pharmacy") for day in days)


def test_nobody_works_at_weekends_and_most_do_in_the_week() -> None:
    worked = [{weekday(number) for number in SEASON if "work" in person(1, who).day(number)} for who in range(20)]
    assert set.union(*worked) == set(WEEKDAYS)
    assert sum(map(bool, worked)) > 10


@pytest.mark.parametrize(
    ("habit", "expected"),
    [
        (Habit("gym", EVERY_DAY, 1, (1,), (2,)), [HOME, "gym", "gym", *[HOME] * 21]),
        (Habit("gym", EVERY_DAY, 1, (1,), (2,), "shop", "cafe"), ["shop", "gym", "gym", "cafe", *[HOME] * 20]),
        (Habit("gym", EVERY_DAY, 1, (0,), (1,), "shop"), ["gym", *[HOME] * 23]),
        (Habit("gym", EVERY_DAY, 1, (22,), (4,), after="cafe"), [*[HOME] * 22, "gym", "gym"]),
        (Habit(None, EVERY_DAY, 1, (23,)), [*[HOME] * 23, None]),
        (Habit("gym", EVERY_DAY, 0, (1,), (2,), "shop", "cafe"), [HOME] * 24),
    ],
)
def test_a_habit_takes_its_place_in_a_day(habit: Habit, expected: Day) -> None:
    day: Day = [HOME] * HOURS
    habit.join(day, seeded(1))
    assert day == expected


def test_a_habit_begins_and_lasts_as_often_as_it_says() -> None:
    """Hours that are given twice are twice as likely."""
    habit, rng = Habit("gym", EVERY_DAY, 0.5, (6, 9, 9), (1, 2)), seeded(1, "habit")
    found = np.zeros((HOURS + 1, 3))
    for _ in range(4000):
        day: Day = [HOME] * HOURS
        habit.join(day, rng)
        found[day.index("gym") if "gym" in day else HOURS, day.count("gym")] += 1
    expected = {(HOURS, 0): 1 / 2, (6, 1): 1 / 12, (6, 2): 1 / 12, (9, 1): 1 / 6, (9, 2): 1 / 6}
    for place, share in expected.items():
        assert abs(found[place] / 4000 - share) < 0.03
    assert sum(found[place] for place in expected) == 4000
