"""From an app to a sum: apps report numbers, phones contribute them, and real servers release the sum."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from reticent.privacy import Cost, Counter, Query
from reticent.tls.certificates import Certificate
from reticent_analyst import Analyst
from reticent_client import Broker, Participation, Phone, PhoneStore, connect
from reticent_sim.engine import ANALYST, ServerPair, launched

PHONES = 5
LIMIT = 90.0  # seconds
EPSILON = 100.0  # so that the sum of a few phones shows what they reported
POLICY = Participation.from_toml("""
min_honest = 2
min_liars_share = 0
[apps.fitness]
counters = { visits = [0, 1000] }
""")


@pytest.mark.slow
def test_what_apps_report_is_in_the_sum(tmp_path: Path) -> None:
    keys_options = ("--min-honest", "2", "--min-liars-share", "0", "--max-epsilon", str(EPSILON))
    with launched(
        ServerPair(tmp_path, keys_options=keys_options, aggregation_options=("--poll-interval", "1"))
    ) as servers:
        asyncio.run(asyncio.wait_for(_count(servers, tmp_path), LIMIT))


async def _count(servers: ServerPair, folder: Path) -> None:
    invitations = await asyncio.to_thread(servers.invitations, PHONES)
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(contextlib.closing(PhoneStore(folder / "phones.db")))
        for number, invitation in enumerate(invitations):
            phone = await stack.enter_async_context(
                Phone(store=store.of(f"{number}"), participation=POLICY, budget=Cost(EPSILON, 1e-5), simulation=True)
            )
            broker = await stack.enter_async_context(Broker(phone))
            await phone.counting.join(invitation)
            with connect(broker.address, phone.apps.add("fitness")) as app:
                await asyncio.to_thread(app.report, {"visits": 100 * (number + 1)})
        certificate = Certificate.load(servers.certs, ANALYST)
        analyst = stack.enter_context(Analyst(servers.counting.address, certificate, servers.identity))
        release = await asyncio.to_thread(lambda: analyst.count(_query(analyst)))
    assert release.contributors == PHONES
    expected = sum(100 * (number + 1) for number in range(PHONES))
    [value] = release.value
    assert abs(value - expected) <= 6 * release.variance[0] ** 0.5
    assert release.variance[0] ** 0.5 < expected / 5  # or the sum would say nothing


def _query(analyst: Analyst) -> Query:
    terms = analyst.terms()
    return Query(
        id="reports",
        counters=[Counter("visits", 0, 1000)],
        epsilon=EPSILON,
        delta=1e-5,
        l2_squared=1000**2,
        l1=1000,
        noise="gaussian",
        fraction_bits=0,
        population=terms.population,
        cohorts=1,
        min_contributions=PHONES - 1,
        liars=1,
        key_id=terms.key_id,
        closes_after=60,
    )
