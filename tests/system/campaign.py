"""Phones, and queries that they answer, while both servers are killed again and again.

    held = await campaign(servers, chance, phones=240, by_clock=[False, True] * 3, kills=(10, 20, 16))

Phones add no noise here. The i-th one adds 10^(i mod 8) to the counter i // 8, so that a sum's digits tell how often
each phone is in it.
"""

import asyncio
import contextlib
import datetime as dt
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import Refusal, Refused, Unreachable, signed_by, statements
from reticent.randomness import secure
from reticent.storage.databases import open_database
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub, DecidingStub, EnrolmentStub
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.driver import LEASE
from reticent_keys.sql_schema import JOURNAL
from reticent_sim.engine import ServerPair
from tests.parties.aggregation import requests
from tests.parties.callers import CallsInFlight
from tests.parties.calls import in_turn
from tests.parties.decision_requests import sums
from tests.parties.phone import Phone
from tests.parties.waiting import until
from tests.system.killer import Killer, at_shares

MIN_IN_FLIGHT = 20  # requests in flight at each kill
START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
ALLOWED = ("--min-honest", "2", "--min-liars-share", "0")
DIGITS = 8  # phones in a counter
COHORTS = 4
AT_A_TIME, AGAIN = 48, 32
"""Joins and contributions that are sent at a time, and renewals of those that have joined."""
REPEATED, PAUSE = 64, 0.03
"""Acknowledged contributions that are repeated at a time, and the seconds in between. All at once, for many must be in
flight at a kill; with pauses, for the aggregation server limits the calls of each phone."""
RACING = 3  # closers of each cohort
QUIET = 4  # each fourth phone never repeats a contribution that was acknowledged: a repetition could restore a lost one
TWICE = 0.25  # of the joins are said twice, and of the contributions by two at a time


@dataclass
class CampaignQuery:
    """A query, and what became of each phone's contribution: acknowledged, or refused."""

    query: Query
    by_clock: bool
    """Closed by the clock, before all have contributed; otherwise it closes when all have."""
    messages: list[wire.Contribution] = field(default_factory=list)
    cohorts: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    refused: dict[int, Refusal] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        return len(self.acknowledged) + len(self.refused)


def vector(phone: int, phones: int) -> list[int]:
    """What a phone adds: a digit of its own."""
    values = [0] * -(-phones // DIGITS)
    values[phone // DIGITS] = 10 ** (phone % DIGITS)
    return values


def times(counters: Sequence[int], phones: int) -> list[int]:
    """How often each phone is in a sum."""
    return [counters[phone // DIGITS] // 10 ** (phone % DIGITS) % 10 for phone in range(phones)]


def questions(phones: int, key: PublicKey, by_clock: Sequence[bool]) -> list[CampaignQuery]:
    """Some close by the clock, an hour after the other; the rest when all have contributed."""
    most = 10 ** (DIGITS - 1)
    parts: dict[str, Any] = {
        "counters": [Counter(f"{place}", 0, most) for place in range(len(vector(0, phones)))],
        "epsilon": 4.0,
        "delta": 1e-4,
        "l2_squared": most**2,
        "l1": most,
        "noise": "gaussian",  # no phone could draw Skellam noise for counters as wide
        "population": phones,
        "cohorts": COHORTS,
        "min_contributions": phones // COHORTS // 2 + 1,
        "liars": 0,
        "key_id": key.key_id.hex(),
    }
    return [
        CampaignQuery(Query(id=f"query {each}", closes_after=3600 * (1 + each if early else 1000), **parts), early)
        for each, early in enumerate(by_clock)
    ]


class Campaign:
    """Phones, and the queries that they answer, at servers that may be killed meanwhile.

    Args:
        servers: Both of them.
        chance: When they are killed, and all else that is left to chance.
        database: The PostgreSQL database of both, instead of files.
    """

    def __init__(self, servers: ServerPair, chance: random.Random, database: str | None = None) -> None:
        self.servers = servers
        self.chance = chance
        self.database = database
        self.to_keys = CallsInFlight(chance)
        self.to_aggregation = CallsInFlight(chance)
        self.keys = Killer(servers.keys, self.to_keys, MIN_IN_FLIGHT)
        self.aggregation = Killer(servers.aggregation, self.to_aggregation, MIN_IN_FLIGHT)
        self.phones: list[Phone] = []
        self.asked: list[CampaignQuery] = []
        self.contradictions: list[str] = []
        """What was both acknowledged and refused."""
        self.answers: dict[tuple[bytes, int], set[bytes]] = {}
        """What was ever answered to those who asked for a decision."""

    @property
    def kills(self) -> list[int]:
        return self.keys.in_flight + self.aggregation.in_flight

    async def join(self, count: int, kills: int) -> None:
        """Phones join, and renew once they have, while the key server is killed."""
        self.phones = [Phone(each.token) for each in await asyncio.to_thread(self.servers.invitations, count)]
        joined: list[Phone] = []
        async with self.servers.enrolment.channel() as channel, asyncio.TaskGroup() as group:
            stub = EnrolmentStub(channel)
            renewing = [group.create_task(self._renew(stub, joined)) for _ in range(AGAIN)]
            joining = group.create_task(
                in_turn([partial(self._join, stub, phone, joined) for phone in self.phones], AT_A_TIME)
            )
            for share in at_shares(count, kills, self.chance):
                await self.keys.kill(lambda share=share: len(joined) >= share)  # type: ignore[misc]
            await joining
            for each in renewing:
                each.cancel()
        assert len({phone.id for phone in self.phones}) == count

    async def _join(self, stub: Any, phone: Phone, joined: list[Phone]) -> None:
        """Say the same until it is answered; some say it again."""
        phone.membership = await self.to_keys.retried(stub.Join, phone.joining())
        joined.append(phone)
        if self.chance.random() < TWICE:  # not all: no more than 200 of one address may join at a time
            again = await self.to_keys.retried(stub.Join, phone.joining())
            assert again == phone.membership, "a phone became two"

    async def _renew(self, stub: Any, joined: list[Phone]) -> None:
        """Have memberships renewed, for ever: as the clock stands still, they stay what they are."""
        while True:
            if joined:
                phone = self.chance.choice(joined)
                assert await self.to_keys.retried(stub.Renew, phone.renewing()) == phone.membership
            else:
                await asyncio.sleep(0.01)

    async def announce(self, by_clock: Sequence[bool]) -> None:
        """Queries are asked, and all contributions made before the first one is sent."""
        async with self.servers.counting.channel() as channel:
            stub = CountingStub(channel)
            terms = await self.to_aggregation.retried(stub.GetTerms, wire.TermsRequest())
            assert terms.population == len(self.phones)
            key = PublicKey.from_bytes(terms.public_key, simulation=True)
            self.asked = questions(len(self.phones), key, by_clock)
            for asked in self.asked:
                announced = wire.AnnounceRequest(query=asked.query.to_bytes())
                status = await self.to_aggregation.retried(stub.Announce, announced)
                assert status.phase == wire.COLLECTING
        async with self.servers.collecting.channel() as channel:
            phones_stub = CollectingStub(channel)
            for number, phone in enumerate(self.phones):
                told = wire.AnnouncementsRequest(phone=phone.id)
                reply = await self.to_aggregation.retried(phones_stub.Announcements, told)
                told_of = {each.query: each for each in reply.announcements}
                for asked in self.asked:
                    self._prepare(asked, number, told_of[asked.query.digest], key)

    def _prepare(self, asked: CampaignQuery, number: int, announced: wire.Announcement, key: PublicKey) -> None:
        phone, cohort = self.phones[number], announced.cohort
        values = vector(number, len(self.phones))
        asked.messages.append(phone.message(asked.query, key, announced.agreement_key, cohort, values))
        asked.cohorts.append(cohort)

    async def contribute(self, kills: int) -> None:
        """Phones contribute to one query after the other; the server is killed meanwhile, and at closings."""
        total = len(self.asked) * len(self.phones)
        async with self.servers.collecting.channel() as channel, asyncio.TaskGroup() as group:
            stub = CollectingStub(channel)
            repeating = group.create_task(self._repeat_for_ever(stub))
            working = group.create_task(self._contributed(stub))
            for share in at_shares(total, kills, self.chance):
                await self.aggregation.kill(lambda share=share: self._settled >= share)  # type: ignore[misc]
            await working
            await self._repeat_some(stub)  # after the last kill, too
            repeating.cancel()

    @property
    def _settled(self) -> int:
        return sum(asked.settled for asked in self.asked)

    async def _contributed(self, stub: Any) -> None:
        for asked in self.asked:
            order = self.chance.sample(range(len(self.phones)), len(self.phones))
            closing = asyncio.create_task(self._closed(asked))
            await in_turn([partial(self._contribute, stub, asked, number) for number in order], AT_A_TIME)
            await closing

    async def _closed(self, asked: CampaignQuery) -> None:
        """Let a query's time pass, where it has one, and kill the server about when it closes."""
        early = len(self.phones) * 9 // 10 if asked.by_clock else len(self.phones)
        await until(lambda: asked.settled >= early, "the end of a query", within=120)
        moving = asyncio.create_task(self._move(asked)) if asked.by_clock else None
        await self.aggregation.kill(lambda: True, self.chance.uniform(0, 0.03))
        if moving is not None:
            await moving

    async def _move(self, asked: CampaignQuery) -> None:
        end = START + dt.timedelta(seconds=asked.query.closes_after)
        with contextlib.suppress(Unreachable):  # it is killed, and begins at that time then
            await asyncio.to_thread(self.servers.move_clocks, end)

    async def _contribute(self, stub: Any, asked: CampaignQuery, number: int) -> None:
        """Say the same until it is acknowledged or refused, some by two ways at a time."""
        copies = 2 if self.chance.random() < TWICE else 1
        said = [self.to_aggregation.retried(stub.Contribute, asked.messages[number]) for _ in range(copies)]
        outcomes = await asyncio.gather(*said, return_exceptions=True)
        if len({type(outcome) for outcome in outcomes}) > 1:
            self.contradictions.append(f"{asked.query.id}, phone {number}: {outcomes}")
        outcome = next((each for each in outcomes if not isinstance(each, BaseException)), outcomes[0])
        if isinstance(outcome, Refused):
            asked.refused[number] = outcome.refusal
            return
        if isinstance(outcome, BaseException):
            raise outcome
        asked.acknowledged.add(number)

    async def _repeat_for_ever(self, stub: Any) -> None:
        while True:
            await self._repeat_some(stub)
            await asyncio.sleep(PAUSE)

    async def _repeat_some(self, stub: Any) -> None:
        """Repeat contributions that were acknowledged."""
        known = [(asked, number) for asked in self.asked for number in asked.acknowledged if number % QUIET]
        if known:
            await asyncio.gather(*(self._repeat(stub, *each) for each in self.chance.choices(known, k=REPEATED)))

    async def _repeat(self, stub: Any, asked: CampaignQuery, number: int) -> None:
        """It is acknowledged again, whatever has become of the query."""
        try:
            await self.to_aggregation.retried(stub.Contribute, asked.messages[number])
        except Refused as refused:
            self.contradictions.append(f"{asked.query.id}, phone {number}: acknowledged, and then {refused}")

    async def decide(self, kills: int) -> None:
        """Several closers race for each cohort, and the key server is killed meanwhile."""
        with contextlib.closing(self._aggregation_server()) as server:
            wanted = [(head, list(server.closing.messages(head))) for head in requests(server)]
        assert len(wanted) == COHORTS * len(self.asked), "some were decided while there was no key server"
        async with self.servers.deciding.channel() as channel, asyncio.TaskGroup() as group:
            stub = DecidingStub(channel)
            racing = [group.create_task(self._race(stub, *each)) for each in wanted * RACING]
            for share in at_shares(len(wanted), kills, self.chance):
                await self.keys.kill(lambda share=share: len(self.answers) >= share)  # type: ignore[misc]
            await until(lambda: len(self.answers) == len(wanted), "the last decision", within=60)
            for each in racing:
                each.cancel()

    async def _race(self, stub: Any, head: wire.DecideHead, messages: Sequence[wire.DecideRequest]) -> None:
        async def told() -> AsyncIterator[wire.DecideRequest]:
            for each in messages:
                yield each

        while True:
            decision = await self.to_keys.retried(stub.Decide, told)
            self.answers.setdefault((head.query, head.cohort), set()).add(
                decision.SerializeToString(deterministic=True)
            )

    def _aggregation_server(self) -> AggregationServer:
        """Another one over the same data."""
        return AggregationServer(
            SqlStore(self.database or self.servers.database),
            identity=self.servers.identity,
            now=lambda: START,
            rng=secure(),
            simulation=True,
        )

    async def decisions(self, within: float = 90.0) -> dict[tuple[bytes, int], wire.Decision]:
        """What the aggregation server tells phones in the end, or after so many seconds."""
        wanted = [
            wire.DecisionWanted(query=asked.query.digest, cohort=cohort)
            for asked in self.asked
            for cohort in range(COHORTS)
        ]
        found: list[wire.Decision] = []
        end = asyncio.get_running_loop().time() + within
        async with self.servers.collecting.channel() as channel:
            stub = CollectingStub(channel)
            while len(found) < len(wanted) and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.1)
                asked = wire.DecisionsRequest(wanted=wanted)
                found = list((await self.to_aggregation.retried(stub.Decisions, asked)).decisions)
        return {(each.query, each.cohort): each for each in found}

    def wrong(self, decided: dict[tuple[bytes, int], wire.Decision]) -> list[str]:
        """All that is wrong."""
        return self.contradictions + [each for asked in self.asked for each in self._check(asked, decided)]

    def _check(self, asked: CampaignQuery, decided: dict[tuple[bytes, int], wire.Decision]) -> Iterator[str]:
        """What is wrong with the sums of a query."""
        for cohort in range(COHORTS):
            decision = decided.get((asked.query.digest, cohort))
            if decision is None:
                yield f"{asked.query.id}, cohort {cohort}: not decided"
                continue
            if decision.outcome != wire.RELEASED:
                yield f"{asked.query.id}, cohort {cohort}: {wire.Outcome.Name(decision.outcome)}"
                continue
            if not signed_by(self.servers.identity, statements.decision(decision), decision.signature):
                yield f"{asked.query.id}, cohort {cohort}: not signed"
            counted = times(sums(decision), len(self.phones))
            for number, there in enumerate(counted):
                should = int(asked.cohorts[number] == cohort and number in asked.acknowledged)
                if there != should:
                    yield f"{asked.query.id}, cohort {cohort}: phone {number} is counted {there} times, not {should}"


async def campaign(
    servers: ServerPair,
    chance: random.Random,
    *,
    phones: int,
    by_clock: Sequence[bool],
    kills: tuple[int, int, int],
    database: str | None = None,
) -> Campaign:
    """All of it, in the order of a query's life, and what must be true in the end.

    Args:
        servers: Both of them.
        chance: When they are killed, and all else that is left to chance.
        phones: How many join.
        by_clock: Of each query, whether it is closed by the clock.
        kills: How often, while phones join, while they contribute, and while it is decided; and at each closing.
        database: The PostgreSQL database of both servers, instead of files.
    """
    joining, contributing, deciding = kills
    held = Campaign(servers, chance, database)
    await held.join(phones, joining)
    await held.announce(by_clock)
    servers.keys.kill()  # so that nothing is decided yet
    await held.contribute(contributing)
    await asyncio.to_thread(servers.keys.start)
    await held.decide(deciding)
    servers.aggregation.kill()
    ends = max(asked.query.closes_after for asked in held.asked if asked.by_clock)
    servers.move_clocks(START + dt.timedelta(seconds=ends) + LEASE)  # in PostgreSQL, what it was sending stays leased
    servers.aggregation.start()
    decided = await held.decisions()
    wrong = held.wrong(decided)
    assert not wrong, wrong
    assert len(held.kills) == sum(kills) + len(by_clock)
    assert min(held.kills) >= MIN_IN_FLIGHT
    assert {len(each) for each in held.answers.values()} == {1}, "two answers about one cohort"
    for place, decision in decided.items():
        assert held.answers[place] == {decision.SerializeToString(deterministic=True)}
    refusals = {refusal for asked in held.asked for refusal in asked.refused.values()}
    assert refusals <= {Refusal.LATE}
    assert all(not asked.refused for asked in held.asked if not asked.by_clock)
    cohorts = COHORTS * len(by_clock)
    with contextlib.closing(open_database(database or servers.journal, JOURNAL)) as journal, journal.reading() as run:
        for question, answer in (
            ("SELECT count(*) FROM phones", phones),
            ("SELECT count(*) FROM decisions", cohorts),
            ("SELECT count(DISTINCT decision) FROM decisions", cohorts),
        ):
            assert run(question).fetchone() == (answer,), question
    return held
