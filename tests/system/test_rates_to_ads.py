"""Twenty phones, both servers and an ad service over TLS: from private logs to an ad that is shown."""

import asyncio
import contextlib
import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from reticent.hierarchy import Hierarchy
from reticent.privacy import Cost
from reticent.rates import RateTable, click_counter, counter_prefix, node_counter, view_counter
from reticent.tls.certificates import Certificate
from reticent_analyst import Analyst
from reticent_analyst.rates import estimate
from reticent_analyst.rates.state import Attempt
from reticent_client import Broker, Participation, Phone, PhoneStore, connect
from reticent_client.ads.log import LogEntry, LoggedView, PrivateLog
from reticent_sim.engine import ANALYST, ServerPair, launched
from reticent_sim.sandbox_ads import APP, CATALOGUE, AdSandbox

PHONES, ABSENT = 20, 7
ENTRIES, DEPTH = 4, 1
EPSILON, DELTA = 100.0, 1e-5
"""The noise has a deviation of about one: the released sums are compared with the phones' own logs."""
NOISE = 8.0  # more than the noise of any counter, in all of them together once in 10^9
POPULAR = 60
"""Further views of one ad on each phone; the others have twelve."""
TIMEOUT = 120.0


def participation() -> Participation:
    return Participation(min_honest=8)


async def estimated(servers: ServerPair, ads: AdSandbox, state: Path) -> RateTable:
    """The rates that the analyst estimates, in a thread: the phones live in this one."""

    def ask() -> RateTable:
        with Analyst(servers.counting.address, Certificate.load(servers.certs, ANALYST), servers.identity) as analyst:
            return estimate(
                analyst,
                ads.hierarchy,
                {name: () for name, *_ in CATALOGUE},
                name="rates",
                epsilon=EPSILON,
                delta=DELTA,
                entries=ENTRIES,
                absent=0.4,
                depth=DEPTH,
                min_support=0,
                to_query=analyst.query,
                min_contributions=PHONES - ABSENT - 1,
                closes_after=60,
                enough=PHONES - ABSENT,
                state=state,
            )

    return await asyncio.wait_for(asyncio.to_thread(ask), TIMEOUT)


def add_popular(store: PhoneStore, hierarchy: Hierarchy) -> None:
    """Views of one ad, so many that its rate is distinct even if a third of twenty phones is absent."""
    log, now = PrivateLog(store), dt.datetime.now(dt.UTC) - dt.timedelta(days=2)  # today, the ad has a cap
    for number in range(POPULAR):
        showing = f"{store.phone}, {number}"
        context = hierarchy.contexts[number % len(hierarchy.contexts)]
        log.add(LogEntry(now, now.date(), APP, None, context, "", CATALOGUE[0][0], showing, None), dt.timedelta(days=9))
        if number % 2:
            log.click(APP, showing, now)


def views_of(stores: Sequence[PhoneStore]) -> list[LoggedView]:
    """The views that phones have chosen for the estimate."""
    found: list[LoggedView] = []
    for store in stores:
        [(account,)] = _rows(store)
        own = PrivateLog(store).chosen(account, 0, None, None)  # type: ignore[arg-type]  # it was chosen before
        assert len(own) == ENTRIES
        found += own
    return found


def _rows(store: PhoneStore) -> list[tuple[str]]:
    with store.database.reading() as run:
        return run("SELECT account FROM chosen_views WHERE phone = ?", (store.phone,)).fetchall()


@pytest.mark.slow
def test_rates_of_twenty_phones_reach_the_ads_of_one(tmp_path: Path) -> None:
    options = ("--join-rate", str(PHONES), "--min-honest", "8", "--max-epsilon", str(EPSILON))
    polling = ("--poll-interval", "0.2")

    async def live(servers: ServerPair, ads: AdSandbox) -> None:
        invitations = servers.invitations(PHONES)
        async with contextlib.AsyncExitStack() as stack:
            file = stack.enter_context(contextlib.closing(PhoneStore(tmp_path / "phones.db")))
            stores = [file.of(f"phone {number}") for number in range(PHONES)]
            phones = []
            for number, store in enumerate(stores):
                ads.add_views(store, number)
                add_popular(store, ads.hierarchy)
                phones.append(
                    Phone(
                        store=store,
                        participation=participation(),
                        budget=Cost(2 * EPSILON, 1e-3),
                        ads=ads.settings(),
                        simulation=True,
                    )
                )
            for number, invitation in enumerate(invitations):
                async with contextlib.AsyncExitStack() as away:  # who is absent joins, and leaves
                    await (away if number < ABSENT else stack).enter_async_context(phones[number])
                    await phones[number].counting.join(invitation)
            table = await estimated(servers, ads, tmp_path / "state.json")
            assert not any(_rows(store) for store in stores[:ABSENT])
            check(tmp_path / "state.json", ads, views_of(stores[ABSENT:]))
            assert not table.seeded
            table.save(tmp_path / "rates.npz")
            servers.run(
                *("ads", "load", "--folder", ads.server.files, "--rates", tmp_path / "rates.npz"),
                *("--least-support", "1", "--wait"),  # of few phones
            )
            await show(phones[-1], table, ads)

    with launched(ServerPair(tmp_path, keys_options=options, aggregation_options=polling)) as servers:
        ads = AdSandbox(servers)
        ads.server.start()
        try:
            asyncio.run(live(servers, ads))
        finally:
            ads.server.kill()
        assert "40.713" not in ads.server.log.read_text()


def check(state: Path, ads: AdSandbox, views: Sequence[LoggedView]) -> None:
    """What was released about each level is what the phones chose from their logs, and noise."""
    assert len(views) == (PHONES - ABSENT) * ENTRIES
    attempts = [Attempt.from_json(each) for each in json.loads(state.read_text())["attempts"]]
    assert [each.depth for each in attempts] == list(range(DEPTH + 1))
    for attempt in attempts:
        assert attempt.release is not None
        assert not attempt.release.seeded
        assert attempt.release.contributors == PHONES - ABSENT
        counted = counters_of(ads.hierarchy, attempt.depth, views)
        released = dict(zip(attempt.release.counters, attempt.release.value, strict=True))
        assert attempt.depth or counted.keys() <= released.keys()  # below the root, rare ads are not counted
        assert max(abs(value - counted[name]) for name, value in released.items()) < NOISE


def counters_of(hierarchy: Hierarchy, depth: int, views: Sequence[LoggedView]) -> Counter[str]:
    """The counters of views at one level, added up."""
    found: Counter[str] = Counter()
    prefix = counter_prefix(hierarchy)
    for view in views:
        assert view.context is not None
        node = hierarchy.index(hierarchy.ancestors(view.context)[-1 - depth])
        found[node_counter(prefix, node)] += 1
        found[(click_counter if view.clicked else view_counter)(prefix, node, view.ad)] += 1
    return found


async def show(phone: Phone, table: RateTable, ads: AdSandbox) -> None:
    """An app shows an ad, and reports a click, which the phone keeps to itself."""
    token = phone.apps.add(APP)
    async with Broker(phone) as broker:

        def shown() -> str:
            with connect(broker.address, token) as connection:
                ad = connection.show_ad("espresso")
                assert ad is not None
                connection.clicked(ad.showing)
                return ad.id

        assert await asyncio.to_thread(shown) in table.ads
    [entry] = PrivateLog(phone.store).last(1)
    assert entry.clicked
    assert entry.node == str(ads.hierarchy.nodes[0])  # there is no mask, so the service learns nothing
