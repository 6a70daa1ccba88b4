"""The world of the simulator: the same people for the same seed, whose ads earn more the more is known of them."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.rates import resolve
from reticent_agg.ads.catalogue import Catalogue
from reticent_client.ads.contexts import UserContexts
from reticent_sim.world.outcomes import Request, rates_progress, shown_ads
from reticent_sim.world.people import CONTEXTS, HOME, HOSPITAL, HOURS
from reticent_sim.world.town import ATTENTION
from reticent_sim.world.world import COUNTER_MOST, World

WORLD = World(seed=5, people=40, routines=6)
FEW = World(seed=5, people=10, routines=6)


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 400))
@settings(max_examples=20)
def test_a_person_does_not_depend_on_the_others_or_on_the_process(seed: int, number: int, day: int) -> None:
    """Nor on what was asked before."""
    world, larger = World(seed, 31, routines=4), World(seed, 10_000, routines=4)
    other = pickle.loads(pickle.dumps(larger))  # noqa: S301  # it was made here
    larger.searches(number + 1, day)
    for each in (larger, other):
        assert each.person(number) == world.person(number)
        assert each.person(number).day(day) == world.person(number).day(day)
        assert each.searches(number, day) == world.searches(number, day)
        assert each.counters(number, day) == world.counters(number, day)


def test_people_of_a_routine_have_its_habits_and_live_their_own_days() -> None:
    one, other, routine = WORLD.person(2), WORLD.person(8), WORLD.routine(2)
    assert one.routine == other.routine == routine.number
    assert one.habits == other.habits == routine.habits
    days = [one.days(range(7)), other.days(range(7)), routine.days(7)]
    assert days[0] != days[1] != days[2] != days[0]
    assert len({tuple(WORLD.searches(2, day)) for day in range(7)}) == 7
    assert all(HOSPITAL in {label for day in WORLD.routine(number).days(56) for label in day} for number in range(6))


@given(st.integers(0, 39), st.integers(0, 60))
@settings(max_examples=20)
def test_counters_count_the_hours_and_visits_of_a_day(number: int, day: int) -> None:
    lived, counters = WORLD.person(number).day(day), WORLD.counters(number, day)
    assert tuple(counters) == WORLD.counter_names
    assert len(counters) == 64
    for label in CONTEXTS:
        assert sum(counters[name] for name in counters if name.startswith(f"hours {label} ")) == lived.count(label)
        starts = sum(lived[hour] == label and (hour == 0 or lived[hour - 1] != label) for hour in range(HOURS))
        assert counters[f"visits {label}"] == min(starts, COUNTER_MOST)
    assert counters["searches"] == min(len(WORLD.searches(number, day)), COUNTER_MOST)


def test_a_search_has_an_exact_context_where_the_person_is() -> None:
    found = {
        (WORLD.person(number).day(day)[search.step] or HOME, WORLD.context(number, day, search)[0], number)
        for number in range(40)
        for day in range(2)
        for search in WORLD.searches(number, day)
        if WORLD.hierarchy.leaf(WORLD.context(number, day, search)) >= 0
    }
    assert {label for label, _, _ in found} == set(CONTEXTS)
    assert all(WORLD.location(number, label) == location for label, location, number in found)


def test_clicks_follow_their_probability_and_need_a_search() -> None:
    """The click on an ad that is shown twice is not one coin for both."""
    chances, clicks = [], []
    for number in range(40):
        for day in range(5):
            steps = {search.step: search for search in WORLD.searches(number, day)}
            assert not any(WORLD.clicks(number, day, step, "coffee-1") for step in set(range(HOURS)) - set(steps))
            for step, search in steps.items():
                ad = f"{search.query[:-2].replace(' ', '-')}-1"
                chances.append(WORLD.click_probability(number, WORLD.context(number, day, search), ad))
                clicks.append(WORLD.clicks(number, day, step, ad))
    expected, deviation = sum(chances), np.sqrt(sum(each * (1 - each) for each in chances))
    assert abs(sum(clicks) - expected) < 4 * deviation
    assert 0.02 < min(chances) < max(chances) < 0.8


def test_the_files_are_those_of_the_service_and_the_phones(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    catalogue = Catalogue.load(tmp_path / "catalogue.csv", WORLD.hierarchy)
    assert catalogue.ads == WORLD.ad_names
    contexts = UserContexts(WORLD.settings(3, "localhost:1", tmp_path, 0.1))
    assert max(contexts.disclosure.values()) <= 0.1
    for label in CONTEXTS:
        exact = contexts.situated(label, "sushi 1").values
        assert exact is not None
        assert exact[0] == WORLD.location(3, label)
        assert contexts.is_exact(contexts.situated(label, "sushi 1").node)
        assert not contexts.is_exact(contexts.situated(label, "clinic 1").node)


def test_exact_rates_are_the_click_probabilities_of_the_mean_person() -> None:
    table = FEW.exact_rates()
    exact = resolve(table, FEW.hierarchy, 20)
    assert len(exact.columns) == len(WORLD.hierarchy.contexts)  # each context has a column of its own
    own = WORLD.hierarchy.node_levels[table.node[exact.entry]] == 0  # not that of the root, where an ad does not bid
    means = ATTENTION * WORLD.appeal[np.array(exact.column), np.array(exact.ad)]
    np.testing.assert_allclose(exact.rate[own], means[own])


def requests(world: World, day: int) -> list[Request]:
    """Of all people; the mask releases every label but the hospital."""
    labels = [
        (number, search, world.person(number).day(day)[search.step])
        for number in range(world.people)
        for search in world.searches(number, day)
    ]
    return [
        Request(number, day, search.step, search.query, None if label == HOSPITAL else label)
        for number, search, label in labels
    ]


def test_exact_rates_earn_more_than_none_and_close_all_of_the_way() -> None:
    found = requests(FEW, 2)
    none = rates_progress(FEW, found, None, delta=0.1)
    exact = rates_progress(FEW, found, FEW.exact_rates(), delta=0.1)
    assert none.revenue_learned == none.revenue_none < 0.8 * none.revenue_exact
    assert none.progress == 0
    assert (exact.progress, *exact.interval) == pytest.approx((1, 1, 1))
    assert exact.precision > none.precision
    assert exact.requests == len(found)


def test_a_phone_without_a_released_label_shows_no_ad() -> None:
    """Ads bid on categories of queries, and nothing is known there."""
    found = requests(FEW, 1)
    shown = shown_ads(FEW, found, FEW.exact_rates(), delta=0.1)
    assert all(ad is None for request, ad in zip(found, shown, strict=True) if request.label is None)
    assert sum(ad is not None for ad in shown) > 0.8 * len(shown)


def test_a_person_sees_an_ad_as_often_as_its_cap_allows() -> None:
    found = requests(FEW, 1)
    shown = shown_ads(FEW, found, FEW.served_rates(None), delta=0.1)
    views = Counter((request.number, ad) for request, ad in zip(found, shown, strict=True) if ad is not None)
    assert max(views.values()) == 2
    assert {cap for _, _, _, _, cap, _ in FEW.ads} == {2}


def test_an_ad_bids_on_the_queries_of_its_general_category() -> None:
    assert [str(node) for node in FEW.bids["tea-room-1"]] == [
        f"4|40.5,-73.8|business|{kind}" for kind in ("bakery", "coffee", "tea room")
    ]
    assert len(FEW.bids) == len(FEW.ads) == 12


@pytest.mark.parametrize("number", [-1, 40])
def test_there_is_nobody_else(number: int) -> None:
    with pytest.raises(ValueError, match=f"a person has a number from 0 to 39: got {number}"):
        WORLD.person(number)
