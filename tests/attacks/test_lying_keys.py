"""A key server that keeps a sum and signs that it was burnt, so that phones would take their budget back."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reticent.paillier import PublicKey
from reticent.privacy import QueryLimits
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub
from reticent_keys import Identity, KeyPairStore, KeyServer, QueryKeyStore, SqlJournal, administration
from reticent_sim.engine import ServerPair
from tests.attacks.lying_keys import LyingDecider, serving
from tests.parties.key_pairs import pair
from tests.parties.phone import Phone
from tests.parties.queries import visits

pytestmark = pytest.mark.slow  # a real process, some seconds

PHONES = 4
TIMEOUT = 30.0


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@contextlib.asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[tuple[ServerPair, KeyServer, LyingDecider]]:
    """A real aggregation server whose key server lies."""
    servers, identity = ServerPair(folder), Identity()
    with contextlib.closing(SqlJournal(folder / "journal.db")) as journal:
        query_keys = QueryKeyStore(None)
        keys = KeyServer(
            journal,
            identity,
            KeyPairStore(None),
            query_keys,
            now=now,
            limits=QueryLimits(min_honest=2, min_liars_share=0.0),
            generate=lambda: pair(1024),
        )
        keys.decider = liar = LyingDecider(journal, identity, keys.keyring, query_keys, now)
        liar.kept = []
        async with serving(keys, servers.certs) as service:
            servers.deciding.address = service.decisions.address
            servers.keys.log.write_text(f"identity {identity.public.hex()}\n")
            with servers:
                await asyncio.to_thread(servers.aggregation.start)
                yield servers, keys, liar


async def contributed(servers: ServerPair, keys: KeyServer) -> wire.DecisionsRequest:
    """A query to which all phones contribute; what they ask then."""
    tokens = administration.invite(keys.journal, PHONES, expires=dt.datetime(2099, 1, 1, tzinfo=dt.UTC))
    phones = [Phone(token) for token in tokens]
    for phone in phones:
        phone.membership = keys.members.join(phone.joining())
    key = PublicKey.from_bytes(keys.terms().public_key, simulation=True)
    query = visits(key, PHONES, enough=PHONES)
    async with servers.counting.channel() as analysts, servers.collecting.channel() as way:
        counting, collecting = CountingStub(analysts), CollectingStub(way)
        await counting.Announce(wire.AnnounceRequest(query=query.to_bytes()))
        for phone in phones:
            asked = wire.AnnouncementsRequest(phone=phone.id)
            [announcement] = (await collecting.Announcements(asked)).announcements
            await collecting.Contribute(phone.message(query, key, announcement.agreement_key, 0, (1,)))
    return wire.DecisionsRequest(wanted=[wire.DecisionWanted(query=query.digest)])


async def told(servers: ServerPair, wanted: wire.DecisionsRequest) -> list[wire.Decision]:
    async with servers.collecting.channel() as way:
        return list((await CollectingStub(way).Decisions(wanted)).decisions)


@pytest.mark.parametrize("contributors", [None, 2])
def test_a_key_server_that_has_had_a_sum_cannot_have_it_told_that_it_was_burnt(
    tmp_path: Path, contributors: int | None
) -> None:
    """However many contributions it says there were. When it says what is true, phones are told."""

    async def attack() -> None:
        async with attacked(tmp_path) as (servers, keys, liar):
            liar.contributors = contributors
            wanted = await contributed(servers, keys)
            async with asyncio.timeout(TIMEOUT):
                while len(liar.kept) < 3:  # it is asked again and again
                    assert not await told(servers, wanted)
                    await asyncio.sleep(0.05)
            assert "the key server reports it as burnt" in servers.aggregation.end_of_log()
            liar.lies = False
            async with asyncio.timeout(TIMEOUT):
                while not (decisions := await told(servers, wanted)):  # noqa: ASYNC110  # nobody tells the test
                    await asyncio.sleep(0.05)
            assert [each.outcome for each in decisions] == [wire.RELEASED]

    asyncio.run(attack())
