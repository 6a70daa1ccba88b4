"""Queries of rates: which views of the log a phone contributes, once for all levels."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reticent import privacy
from reticent.privacy import Query
from reticent.randomness import secure, seeded
from reticent.rates import click_counter, counter_prefix, node_counter, view_counter
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.log import LogEntry, PrivateLog
from reticent_client.ads.rate_counters import RateCounters
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore
from tests.client.ads.world import HIERARCHY, LATTE, settings_for
from tests.client.apps.phones import limited
from tests.client.counting.world import START, query

PREFIX = counter_prefix(HIERARCHY)
DAY = dt.timedelta(days=1)
RAMEN = ("40.72,-74.02", "wine", "ramen")


def entry(number: int, context: tuple[str, ...] | None = LATTE, *, ad: str | None = None) -> LogEntry:
    """The view of an ad of its own."""
    name = f"ad {number}" if ad is None else ad
    return LogEntry(START, START.date(), "weather", None, context, "", name, f"token {number}", None)


def log_of(store: PhoneStore, views: int) -> PrivateLog:
    log = PrivateLog(store)
    for number in range(views):
        log.add(entry(number, LATTE if number % 2 else RAMEN), 90 * DAY)
    return log


def node(context: tuple[str, ...], level: int) -> int:
    return next(HIERARCHY.index(each) for each in HIERARCHY.ancestors(context) if each.level == level)


def asked(names: list[str], most: int = 2, sequence: str | None = "rates", **changes: object) -> Query:
    """A query for counters of these names."""
    counters = [privacy.Counter(name, 0, most) for name in names]
    size = most * min(len(names), 10)
    return query(counters=counters, l1=size, l2_squared=size * most, sequence=sequence, **changes)


def source(folder: Path, log: PrivateLog, rng: np.random.Generator | None = None) -> RateCounters:
    contexts = UserContexts(settings_for(folder, "127.0.0.1:1"))
    return RateCounters(contexts, log, lambda: START, secure() if rng is None else rng)


def test_a_phone_counts_views_clicks_and_contexts_at_every_level(tmp_path: Path) -> None:
    with contextlib.closing(PhoneStore()) as store:
        log = PrivateLog(store)
        log.add(entry(1, LATTE, ad="shoes"), 90 * DAY)
        log.add(entry(2, LATTE, ad="shoes"), 90 * DAY)
        log.add(entry(3, None, ad="boots"), 90 * DAY)  # in a suppressed step
        log.add(entry(4, ("40.71,-74.01", "jazz", "tea"), ad="boots"), 90 * DAY)  # in a context of no hierarchy
        log.add(
            LogEntry(START, START.date(), "weather", None, RAMEN, "", None, None, None), 90 * DAY
        )  # no ad was shown
        log.click("weather", "token 2", START)
        log.click("weather", "token 3", START)
        found = source(tmp_path, log).for_query(asked([node_counter(PREFIX, 0)], 2))
        expected: dict[str, float] = {}
        for each in HIERARCHY.ancestors(LATTE):
            place = HIERARCHY.index(each)
            expected[node_counter(PREFIX, place)] = 2
            expected |= {view_counter(PREFIX, place, "shoes"): 1, click_counter(PREFIX, place, "shoes"): 1}
        assert found == expected


def test_the_views_are_chosen_once_for_all_levels_and_later_ones_never_enter(tmp_path: Path) -> None:
    """Also after a restart, with other coins, and after a click on one of them."""
    path = tmp_path / "phone.db"
    first = asked([node_counter(PREFIX, 0)], 3)
    with contextlib.closing(PhoneStore(path)) as store:
        log = log_of(store, 10)
        found = source(tmp_path, log).for_query(first)
    with contextlib.closing(PhoneStore(path)) as store:
        log = PrivateLog(store)
        for number in range(10):
            log.click("weather", f"token {number}", START)
        for number in range(10, 20):
            log.add(entry(number), 90 * DAY)
        second = asked([node_counter(PREFIX, 1)], 3, id="level 2")
        assert source(tmp_path, log).for_query(second) == found
        other = source(tmp_path, log).for_query(asked([node_counter(PREFIX, 1)], 3, "another", id="other"))
        assert other != found


def test_each_view_is_chosen_equally_often() -> None:
    """Chi-squared, which a preference of a third for early or late views exceeds."""
    views, most, rounds = 6, 2, 1500
    rng = seeded(3)
    with contextlib.closing(PhoneStore()) as store:
        log = log_of(store, views)
        counted = Counter(
            view.ad for number in range(rounds) for view in log.chosen(f"account {number}", most, START, rng)
        )
    share = rounds * most / views

    def statistic(counts: Mapping[str, float]) -> float:
        return sum((counts[f"ad {number}"] - share) ** 2 / share for number in range(views))

    assert sum(counted.values()) == rounds * most
    assert statistic(counted) < 20.5  # 5 degrees of freedom: exceeded once in 1000
    assert statistic(counted) > 0.05  # nor is it more even than coins are
    for tilt in (1.15, 0.85):
        biased = {f"ad {number}": share * (tilt if number < 3 else 2 - tilt) for number in range(views)}
        assert statistic(biased) > 20.5


def test_a_phone_with_fewer_views_contributes_all(tmp_path: Path) -> None:
    with contextlib.closing(PhoneStore()) as store:
        found = source(tmp_path, log_of(store, 2)).for_query(asked([node_counter(PREFIX, 0)], 5))
        assert found is not None
        assert found[node_counter(PREFIX, 0)] == 2


def test_whether_a_phone_takes_part_does_not_depend_on_its_log(tmp_path: Path) -> None:
    """An empty log, and another hierarchy, are zeros; only the names of a query say that it is not one of rates."""
    with contextlib.closing(PhoneStore()) as store:
        empty = source(tmp_path, PrivateLog(store))
        assert empty.for_query(asked([node_counter(PREFIX, 0)])) == {}
        assert empty.for_query(asked(["visits"])) is None
        full = source(tmp_path, log_of(store, 3))
        foreign = [node_counter("0123456789abcdef", 0), "visits"]
        found = full.for_query(asked(foreign, sequence="other"))
        assert found is not None
        assert not found.keys() & set(foreign)


@limited
async def test_a_phone_answers_queries_of_rates_from_its_log_and_others_from_its_apps(tmp_path: Path) -> None:
    """Without settings for ads, a phone has nothing for a query of rates."""
    rates, other = asked([node_counter(PREFIX, 0)]), asked(["visits"], sequence="other")
    for ads in (settings_for(tmp_path, "127.0.0.1:1"), None):
        async with Phone(ads=ads, counters=lambda query: {"visits": 2} if query.id == "visits" else None) as phone:
            log_of(phone.store, 3)
            assert phone.counting._counters(replace(other, id="visits")) == {"visits": 2}
            found = phone.counting._counters(rates)
            assert found is None if ads is None else found is not None and found[node_counter(PREFIX, 0)] == 2


def test_twenty_thousand_counters_are_quick(tmp_path: Path) -> None:
    """A phone has other things to do."""
    names = [click_counter(PREFIX, number, f"ad {number}") for number in range(20_000)]
    large = asked(names, 1)
    with contextlib.closing(PhoneStore()) as store:
        rates = source(tmp_path, log_of(store, 20))
        begun = time.process_time()
        assert rates.for_query(large)
        assert time.process_time() - begun < 0.5


@pytest.mark.parametrize("level", [0, 1, 3])
def test_no_more_views_than_the_bound_enter_any_counter(tmp_path: Path, level: int) -> None:
    with contextlib.closing(PhoneStore()) as store:
        found = source(tmp_path, log_of(store, 50)).for_query(asked([node_counter(PREFIX, 0)], 4))
        assert found is not None
        own = {node_counter(PREFIX, node(context, level)) for context in (LATTE, RAMEN)}
        assert sum(found.get(name, 0) for name in own) == 4
