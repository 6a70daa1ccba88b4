"""A week in which rates are learned privately from what phones log: ads earn nearly as much as with exact rates."""

from dataclasses import replace

import numpy as np
import pytest

from reticent.privacy import Query
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_analyst.question import Question
from reticent_analyst.rates import estimate
from reticent_sim.ad_log import AdLog
from reticent_sim.engine.questions import rates_options
from reticent_sim.engine.scenario import Scenario
from reticent_sim.local_counts import LocalCounts
from reticent_sim.world.outcomes import AdDay, Request, rates_progress, shown_ads
from reticent_sim.world.people import HOSPITAL, HOURS
from reticent_sim.world.rate_tables import ASSUMED_RATE, combined
from reticent_sim.world.world import UserSearch, World

DELTA = 0.1
HIDDEN = 0.3
"""The share of other labels that a mask suppresses, in this model of it."""
ABSENT = 0.1
EPSILON, ENTRIES = 4.0, 8
View = tuple[int, int, int, bool]
"""The person, the context, the ad and whether it was clicked."""


def requests(world: World, day: int) -> list[Request]:
    """What phones with a mask request on a day."""
    found = []
    for number in range(world.people):
        lived, coins = world.person(number).day(day), seeded(world.seed, "mask", number, day).random(HOURS)
        for step, query in world.searches(number, day):
            label = None if lived[step] == HOSPITAL or coins[step] < HIDDEN else lived[step]
            found.append(Request(number, day, step, query, label))
    return found


def views(world: World, asked: list[Request], table: RateTable) -> list[View]:
    """What the phones log that counts: views in exact contexts."""
    return [
        (
            each.number,
            world.hierarchy.leaf(world.context(each.number, each.day, UserSearch(each.step, each.query))),
            world.ad_names.index(ad),
            world.clicks(each.number, each.day, each.step, ad),
        )
        for each, ad in zip(asked, shown_ads(world, asked, table, delta=DELTA), strict=True)
        if ad is not None and each.label is not None
    ]


def learned(world: World, logged: list[View], day: int) -> RateTable:
    """An estimate over all phones' logs."""
    user, context, ad, clicked = map(np.array, zip(*logged, strict=True))
    log = AdLog(
        hierarchy=world.hierarchy,
        ads=world.ad_names,
        users=world.people,
        user=user,
        context=context,
        ad=ad,
        clicked=clicked,
    )

    def to_query(question: Question) -> Query:
        return question.to_query(world.people, "simulated")

    return estimate(
        LocalCounts(seeded(world.seed, "noise", day), absent=ABSENT),
        world.hierarchy,
        world.bids,
        name=f"rates-{day}",
        epsilon=EPSILON,
        delta=1e-5,
        entries=ENTRIES,
        to_query=to_query,
        counters=log.sample(ENTRIES, seeded(world.seed, "entries", day)).counters,
        **rates_options(Scenario(phones=world.people, entries=ENTRIES, absent=ABSENT)),
    )


def replaced(table: RateTable, *, rate: float, views: float) -> RateTable:
    """A table with the same numbers everywhere."""
    rates, one = np.full(len(table), rate), np.ones(len(table))
    return replace(table, rate=rates, low=0 * one, high=one, views=views * one, epsilon=1.0)


def week(world: World, days: int) -> AdDay:
    """The outcome of the last of some days, each of which begins with the rates of all evenings before."""
    logged: list[View] = []
    estimates: list[RateTable] = []
    for day in range(days - 1):
        asked = requests(world, day)
        known = combined(estimates) if estimates else None
        logged += views(world, asked, world.served_rates(known))
        estimates.append(learned(world, logged, day))
    return rates_progress(world, requests(world, days - 1), combined(estimates), delta=DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_learned_rates_close_four_fifths_of_the_way_to_exact_ones(seed: int) -> None:
    """With 1,000 people, within a week, at epsilon 4 for each evening's estimate."""
    outcome = week(World(seed, people=1000), days=7)
    low, high = outcome.interval
    assert 0.8 <= low < outcome.progress < high
    assert outcome.revenue_none < 0.6 * outcome.revenue_exact
    assert 0.1 < outcome.precision < 0.5


def test_the_mean_of_estimates_has_the_weight_of_their_views() -> None:
    """An estimate from few views counts little, and one that has no views of an ad counts for nothing."""
    world = World(seed=5, people=20)
    table = world.exact_rates()
    few = replaced(table, rate=0.5, views=10.0)
    many = replaced(table, rate=0.2, views=100.0)
    both = combined([few, many])
    np.testing.assert_allclose(both.rate, (0.5 * 10**2 + 0.2 * 100**2) / (10**2 + 100**2))
    np.testing.assert_allclose(both.views, 110)
    assert both.epsilon == few.epsilon + many.epsilon


def test_every_ad_has_an_assumed_rate_until_one_is_learned() -> None:
    world = World(seed=5, people=20)
    begun = world.served_rates(None)
    assert begun.ad.tolist() == list(range(len(world.ad_names)))
    assert set(begun.rate.tolist()) == {ASSUMED_RATE}
    known = world.served_rates(replaced(world.exact_rates(), rate=0.5, views=1e9))
    np.testing.assert_allclose(known.rate, 0.5, atol=1e-6)
    lucky = world.served_rates(replaced(world.exact_rates(), rate=0.9, views=10.0))
    assert max(lucky.rate) < 0.2
