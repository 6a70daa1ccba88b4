"""The made-up population: the size and shape of the published one, from one seed, with a routine and departures."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client.habits.sampling import Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.chain import UNKNOWN
from reticent_sim.engine.observer import follows
from reticent_sim.experiments.subjects import Subject, from_population, from_traces
from reticent_sim.world import FIRST_DAY, MAX_DAYS, Resident, resident, write_traces
from reticent_sim.world.people import HOME, HOURS, Day
from reticent_sim.world.phone import APP, CALL, IDLE, RIDING, SITTING, TEXT, WALKING
from reticent_sim.world.resident import AWAY

SEEDS, NUMBERS, DAYS = st.integers(0, 2**32), st.integers(0, 10_000), st.integers(0, MAX_DAYS)


@pytest.fixture(scope="module")
def everybody() -> list[Resident]:
    return [resident(1, number) for number in range(91)]


@pytest.fixture(scope="module")
def lives(everybody: list[Resident]) -> list[list[Day]]:
    """The days of everybody."""
    return [who.days() for who in everybody]


@given(SEEDS, NUMBERS, DAYS)
def test_a_day_is_labelled_and_replayed_by_its_seed(seed: int, number: int, day: int) -> None:
    lived = resident(seed, number).day(day)
    assert len(lived) == HOURS
    assert all(place is None or place for place in lived)
    assert resident(seed, number).day(day) == lived


@given(SEEDS, NUMBERS, st.lists(DAYS, min_size=1, max_size=5))
def test_a_day_is_the_same_whatever_else_is_asked_for(seed: int, number: int, days: list[int]) -> None:
    alone = [resident(seed, number).day(day) for day in days]
    resident(seed, number + 1).days(days)
    who = resident(seed, number)
    assert who.days(reversed(days)) == alone[::-1]


def test_seeds_and_people_differ() -> None:
    lives = [tuple(map(tuple, resident(seed, number).days(range(14)))) for seed in (1, 2) for number in range(20)]
    assert len(set(lives)) == len(lives)


def test_there_are_as_many_contexts_and_days_as_in_the_published_traces(
    everybody: list[Resident], lives: list[list[Day]]
) -> None:
    """Which are of 91 people, with 19 contexts (7 to 40) and 122 days (30 to 269) on average."""
    sizes = [len({place for day in days for place in day if place is not None}) for days in lives]
    assert min(sizes) >= 7
    assert max(sizes) <= 40
    assert max(sizes) > 30
    assert 17 < sum(sizes) / len(sizes) < 21
    lengths = [who.recorded for who in everybody]
    assert min(lengths) >= 30
    assert max(lengths) <= MAX_DAYS
    assert 110 < sum(lengths) / len(lengths) < 134


def test_the_activities_of_23_of_91_people_are_recorded(everybody: list[Resident]) -> None:
    active = [who for who in everybody if who.uses]
    assert len(active) == 23
    other = next(who for who in everybody if not who.uses)
    with pytest.raises(ValueError, match=f"activities of {other.name} were not recorded"):
        other.activities(0)


def test_an_activity_is_a_use_of_the_phone_and_a_way_of_moving(everybody: list[Resident]) -> None:
    who = everybody[1]
    seen: Counter[str] = Counter()
    for number in range(who.recorded):
        places, doing = who.day(number), who.activities(number)
        assert [place is None for place in places] == [activity is None for activity in doing]
        for place, activity in zip(places, doing, strict=True):
            if place is not None and activity is not None:
                moving, use = activity.split(", ")
                assert (moving == RIDING) == place.startswith("station")
                assert moving in {SITTING, WALKING, RIDING}
                seen[use] += 1
    assert set(seen) == {IDLE, CALL, TEXT, APP}
    assert seen[IDLE] > seen[APP] > seen[CALL] > 0


@pytest.mark.slow
def test_most_nights_are_spent_at_home_and_most_days_at_work(everybody: list[Resident], lives: list[list[Day]]) -> None:
    """Whoever looks for a home in the traces finds it."""
    for who, days in zip(everybody, lives, strict=True):
        nights = Counter(day[3] for day in days if day[3] is not None)
        assert nights.most_common(1)[0][0] == HOME
        assert Subject(who.name, tuple(map(tuple, days))).home == HOME
    worked = sum("work" in day for days in lives for day in days)
    assert 0.4 < worked / sum(who.recorded for who in everybody) < 0.7


def test_some_readings_are_missing_of_everybody(lives: list[list[Day]]) -> None:
    for days in lives:
        hours = [place for day in days for place in day]
        assert 0 < hours.count(None) < 0.3 * len(hours)


def test_people_go_away_and_come_back(everybody: list[Resident]) -> None:
    travellers = [who for who in everybody if who.holidays and who.holidays[0].last < who.recorded]
    assert len(travellers) > 30
    holiday = travellers[0].holidays[0]
    away = [AWAY in day for day in travellers[0].days(range(holiday.last + 7))]
    assert not any(away[: holiday.first])
    assert sum(away[holiday.first : holiday.last + 1]) > 0
    assert not any(away[holiday.last + 1 :])


def test_habits_are_strong_and_departures_common(everybody: list[Resident], lives: list[list[Day]]) -> None:
    """A chain tells the next hour well, and yet many days do something that it never saw."""
    sure, strayed, judged = [], 0, 0
    for who, days in list(zip(everybody, lives, strict=True))[::3]:
        subject = Subject(who.name, tuple(map(tuple, days)))
        chain = subject.chain
        sure.append((chain.prior[:-1][..., None] * chain.transitions).max(axis=2).sum(axis=1).mean())
        judged += len(subject.judged)
        strayed += sum(not follows(chain, list(day)) for day in subject.judged)
    assert min(sure) > 0.75
    assert 0.2 < strayed / judged < 0.6


@pytest.mark.parametrize("activities", [False, True])
def test_written_as_traces_the_population_is_the_same(tmp_path: Path, activities: bool) -> None:
    people = [resident(3, number) for number in (1, 5)]
    lines = write_traces(tmp_path / "traces.csv", people, activities=activities)
    assert lines == HOURS * sum(who.recorded for who in people)
    read = from_traces(tmp_path / "traces.csv", steps=HOURS)
    made = [who for who in from_population(3, 6, steps=HOURS, activities=activities) if who.name in {"p01", "p05"}]
    assert read == made


def test_traces_begin_on_a_monday_and_say_where_nothing_was_read(tmp_path: Path) -> None:
    write_traces(tmp_path / "traces.csv", [resident(1, 0)])
    first, *_ = (tmp_path / "traces.csv").read_text().splitlines()[1:]
    assert first == "p00,2027-01-04T00:00:00,home"
    assert FIRST_DAY.weekday() == 0
    traces = read_traces(tmp_path / "traces.csv")
    sampled = Sampling(min_filled=0, lead=dt.timedelta()).days(traces).days
    lived = [day for day in resident(1, 0).days() if any(day)]
    assert [list(day.labels) for day in sampled] == lived
    assert UNKNOWN not in traces.users
