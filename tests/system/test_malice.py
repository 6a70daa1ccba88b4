"""Malicious phones of every kind at real servers: what the count still promises, and what is noticed of them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from reticent.privacy import CohortSum, Cost, Counter, Query, estimate
from reticent.protocol import packing_of
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent.tls.certificates import Certificate
from reticent_analyst import Analyst
from reticent_client import Participant, Participation, PhoneStore, Situation
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import enrol, take_part
from reticent_sim.engine import ANALYST, ServerPair, launched
from reticent_sim.engine.malice import (
    DecidedCount,
    MaliceFinding,
    MaliciousPhone,
    assign,
    collusions,
    findings,
    honest_kinds,
)
from reticent_sim.engine.malice.attacks import wild_numbers

pytestmark = pytest.mark.slow  # real servers, some seconds in all

SEED = 1
START = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
PHONES, COHORTS, COUNTERS = 56, 7, 20
MIX = {"wild": 2, "garbage": 1, "replay": 2, "flood": 1, "silence": 1, "colluder": 8}
HOW = {
    "garbage": "the aggregation server refused its calls: BAD_CIPHERTEXTS (4), BAD_SIGNATURE (4), MALFORMED (4), "
    "WRONG_COHORT (2); it contributed to 0 of 2 counts",
    "replay": "the aggregation server refused its calls: BAD_SIGNATURE (2), NOT_DEALT (2); 4 exact repeats were "
    "acknowledged again, like retries, and changed no sum; it contributed to 2 of 2 counts",
    "flood": "the aggregation server refused its calls: BUSY (2); it contributed to 2 of 2 counts",
    "silence": "it contributed to 0 of 2 counts; no party can tell this from absence",
}
HOUR, KEY_BITS = 3600, 1024
FALSE_ALARM = 1e-6


def noise(number: int, query: Query) -> np.random.Generator:
    return seeded(SEED, "noise", number, query.id)


def values(number: int) -> list[int]:
    return [int(each) for each in seeded("values", number).integers(3, size=COUNTERS)]


def counters(number: int, _: Query) -> dict[str, float]:
    return {f"c{place}": each for place, each in enumerate(values(number))}


def question(number: int, key_id: str) -> Query:
    return Query(
        id=f"count-{number}",
        counters=[Counter(f"c{each}", 0, 2) for each in range(COUNTERS)],
        epsilon=2.0,
        delta=1e-5,
        l2_squared=4 * COUNTERS,
        l1=2 * COUNTERS,
        noise="skellam",
        population=PHONES,
        cohorts=COHORTS,
        min_contributions=7,
        liars=1,
        key_id=key_id,
        closes_after=HOUR,
    )


@dataclass
class Person:
    """A phone, malicious or not."""

    number: int
    participant: Participant
    servers: Callable[[Invitation], Servers]


@dataclass
class Run:
    """Two counts with all phones."""

    people: list[Person] = field(default_factory=list)
    malicious: dict[int, MaliciousPhone] = field(default_factory=dict)
    counts: list[DecidedCount] = field(default_factory=list)

    def kind(self, number: int) -> str:
        return self.malicious[number].kind if number in self.malicious else "honest"

    def of(self, kind: str) -> list[MaliciousPhone]:
        return [phone for phone in self.malicious.values() if phone.kind == kind]

    def contributors(self, query: Query, cohort: int) -> list[int]:
        """The phones whose contributions count."""
        return [
            person.number
            for person in self.people
            if (record := person.participant.records.of(query.digest)) is not None
            and record.cohort == cohort
            and self.kind(person.number) in {"honest", "wild", *honest_kinds}
        ]

    def cohort_sum(self, query: Query, cohort: int) -> CohortSum:
        """The result that follows from the values of these, their noise, and what wild phones add to the plaintexts."""
        numbers = self.contributors(query, cohort)
        rows = [np.array(values(number)) + query.share(noise(number, query)) for number in numbers]
        packing = packing_of(query, KEY_BITS)
        plaintexts = np.array(packing.pack(np.sum(rows, axis=0).tolist(), [0] * packing.plaintexts), dtype=object)
        for number in numbers:
            if self.kind(number) == "wild":
                plaintexts += wild_numbers(packing, KEY_BITS, seeded(SEED, "malice", number, query.id))
        sums = packing.unpack(plaintexts.tolist())
        is_released = len(numbers) >= query.min_contributions and not any(sums.tags)
        return CohortSum(len(numbers), tuple(sums.counters) if is_released else None)

    def wild(self, count: DecidedCount, outcome: str) -> set[int]:
        """The cohorts with wild phones and this outcome."""
        cohorts = {
            attempts.cohort
            for phone in self.of("wild")
            for attempts in phone.experience.attempts
            if attempts.query == count.query.id
        }
        return {cohort for cohort in cohorts if count.progress.outcomes[cohort] == outcome}


async def enrolled(servers: ServerPair, run: Run, now: Callable[[], dt.datetime], store: PhoneStore) -> None:
    """Let all phones join."""
    kinds = assign(SEED, PHONES, MIX)
    for number, invitation in enumerate(servers.invitations(PHONES)):
        own = store.of(f"phone {number}")
        participant = Participant(
            own,
            Cost(10.0, 1e-3),
            rng=partial(noise, number),
            now=now,
            policy=Participation(min_honest=2, min_liars_share=0.0),
            counters=partial(counters, number),
            simulation=True,
        )
        person = Person(number, participant, Servers)
        if number in kinds:
            phone = MaliciousPhone(kinds[number], number, own, seed=SEED)
            run.malicious[number], person.servers = phone, phone.servers
        run.people.append(person)
        participant.enrolment.join(invitation)
        async with person.servers(invitation) as connected:
            await enrol(participant, connected)


async def rounds(people: list[Person]) -> None:
    """One round of every phone."""

    async def one(person: Person) -> None:
        async with person.servers(person.participant.enrolment.invitation) as servers:
            done = await take_part(person.participant, servers, Situation())
        assert not done.failures

    await asyncio.gather(*map(one, people))


async def counted(servers: ServerPair, store: PhoneStore) -> Run:
    """Two counts, one after the other."""
    run, instant = Run(), START
    await enrolled(servers, run, lambda: instant, store)
    certificate = Certificate.load(servers.certs, ANALYST)
    with contextlib.closing(Analyst(servers.counting.address, certificate, servers.identity)) as analyst:
        for number in range(2):
            handle = await asyncio.to_thread(analyst.start, question(number, analyst.terms().key_id))
            while handle.progress.phase != "collecting":
                await asyncio.to_thread(handle.status)
            await rounds(run.people)
            instant += dt.timedelta(seconds=HOUR)
            await asyncio.to_thread(servers.move_clocks, instant)
            release = await asyncio.to_thread(handle.result, 120.0)
            run.counts.append(DecidedCount(handle.progress, release))
            await rounds(run.people)
            for phone in run.of("replay"):
                phone.overhear(each for other in run.of("replay") if other is not phone for each in other.sent)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    pair = ServerPair(
        tmp_path_factory.mktemp("malice"),
        clock=START,
        keys_options=("--seed", str(SEED), "--min-honest", "2", "--min-liars-share", "0"),
    )
    with launched(pair) as servers, contextlib.closing(PhoneStore()) as store:
        yield asyncio.run(counted(servers, store))


def test_honest_sums_are_exact_and_wild_phones_cost_their_own_cohorts_only(run: Run) -> None:
    """Wild values leave the sums of other cohorts alone, also where they exceed all bounds."""
    for count in run.counts:
        query, release = count.query, count.release
        assert release is not None
        expected = [run.cohort_sum(query, cohort) for cohort in range(COHORTS)]
        assert release == estimate(query, expected, seeded=True)
        assert all(run.wild(count, "released") <= set(cohorts) for cohorts in release.cohorts_outlying)
        everybody = [number for cohort in range(COHORTS) for number in run.contributors(query, cohort)]
        truth = np.sum([values(number) for number in everybody], axis=0)
        low, high = release.interval(1 - FALSE_ALARM).T
        assert release.contributors == len(everybody) == PHONES - 2
        assert ((low <= truth) & (truth <= high)).all()
    assert all(any(run.wild(count, outcome) for count in run.counts) for outcome in ("void", "released"))


def test_every_kind_is_noticed_by_whom_it_concerns_or_honestly_not(run: Run) -> None:
    found = findings([phone.experience for phone in reversed(run.malicious.values())], run.counts)
    assert [each.phone for each in found] == sorted(run.malicious)
    assert Tally(each.kind for each in found) == MIX
    by_kind: dict[str, list[MaliceFinding]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    for kind, how in HOW.items():
        assert {each.how for each in by_kind[kind]} == {how}
    for kind in ("garbage", "replay", "flood"):
        assert {(each.noticed, each.by) for each in by_kind[kind]} == {(True, ("aggregation server",))}
    for kind in ("silence", "colluder"):
        assert {(each.noticed, each.by) for each in by_kind[kind]} == {(False, ())}
    assert all(each.noticed for each in by_kind["wild"])
    assert {party for each in by_kind["wild"] for party in each.by} == {"key server", "analyst"}


def test_colluders_lower_the_noise_of_their_cohorts_by_their_shares_and_the_query_states_whether_that_is_planned_for(
    run: Run,
) -> None:
    told = {
        (attempts.query, phone.number): attempts.noise
        for phone in run.of("colluder")
        for attempts in phone.experience.attempts
    }
    for count in run.counts:
        query = count.query
        for phone in run.of("colluder"):
            assert told[query.id, phone.number] == tuple(query.share(noise(phone.number, query)))
    gains = collusions([phone.experience for phone in run.malicious.values()], run.counts)
    assert {gain.is_covered for gain in gains} == {False, True}
    queries = {count.query.id: count.query for count in run.counts}
    for gain in gains:
        query = queries[gain.query]
        numbers = run.contributors(query, gain.cohort)
        honest = [number for number in numbers if run.kind(number) != "colluder"]
        assert (gain.contributors, gain.colluders) == (len(numbers), len(numbers) - len(honest))
        assert gain.left == pytest.approx((len(honest) - 1) * query.share_variance)
        assert gain.is_covered == (len(honest) >= query.min_contributions - query.liars)


def test_honest_phones_take_part_beside_the_others_and_pay_what_was_decrypted_once(run: Run) -> None:
    outcomes = {
        (count.query.id, cohort): outcome
        for count in run.counts
        for cohort, outcome in enumerate(count.progress.outcomes)
    }
    for person in run.people:
        if run.kind(person.number) == "honest":
            records = [person.participant.records.of(count.query.digest) for count in run.counts]
            for record in records:
                assert record is not None
                assert outcomes[record.id, record.cohort] == record.state.name.lower()
    entries = run.people[0].participant.ledger.entries()  # of all phones of the file
    assert len(entries) == sum(each != "burnt" for each in outcomes.values()) * PHONES // COHORTS
    assert {entry.state for entry in entries} == {"spent"}
