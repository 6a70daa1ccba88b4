"""The rules by which the parties of the counting protocol are driven, whatever world they live in."""

from __future__ import annotations

import sys
from asyncio import gather
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.privacy.mechanisms import NoiseKind
from reticent.protocol import Refusal, Refused
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from tests.system.counting.invariants import DEALT, Invariants
from tests.system.counting.phones import Device
from tests.system.counting.strangers import BAD, WRONG_REQUEST, made_bad, made_wrong, signed
from tests.system.counting.world import AGGREGATION, KEYS, MIN_HONEST, Fault, Kill, World

__all__ = ["CountingMachine"]

MAX_PHONES = 10
MAX_QUERIES = 8
ROUNDS = 3
"""Visits of each phone until nothing is left to do, when nothing fails."""
HOUR, DAY = 3600, 86_400

WHICH = st.integers(0, 999)
FAULTY = st.sampled_from([Fault.NONE, Fault.NONE, *Fault])
FAULTS = st.lists(FAULTY, max_size=6)
DEATHS = st.none() | st.none() | st.builds(Kill, st.integers(1, 6), st.booleans())
DEATH = st.none() | st.builds(Kill, st.integers(1, 2), st.booleans())
COUNTERS = [Counter("steps", 0, 2_000), Counter("change", -1_200, 1_200)]
KINDS: st.SearchStrategy[tuple[NoiseKind, str | None]] = st.sampled_from(
    [("skellam", None), ("skellam", None), ("gaussian", None), ("skellam", "walks"), ("gaussian", "weights")]
)


class PlannedQuery(NamedTuple):
    """What an analyst wants to know."""

    kind: tuple[NoiseKind, str | None]
    cohorts: int
    more: int
    without: int
    enough: bool
    dear: bool
    closes_after: int


ASKED = st.builds(
    PlannedQuery,
    kind=KINDS,
    cohorts=st.integers(1, 3),
    more=st.sampled_from([0, 0, 1, 2]),
    without=st.integers(0, 2),
    enough=st.booleans(),
    dear=st.booleans(),
    closes_after=st.sampled_from([60, HOUR, DAY, DAY]),
)


class CountingMachine(RuleBasedStateMachine):
    """Rules that nothing forbids; one that has nothing to work on does nothing."""

    seen: ClassVar[Tally[str]]
    """How often what has happened, in all schedules."""

    failures: ClassVar[list[Exception]]
    """What broke, in the order in which it did: in real processes it may not break again."""

    world: World
    truths: Invariants

    def __init_subclass__(cls) -> None:
        cls.seen, cls.failures = Tally(), []

    def begin(self) -> World:
        """The world that is driven."""
        raise NotImplementedError

    @initialize(
        phones=st.integers(5, 8),
        asked=st.lists(ASKED, min_size=1, max_size=2),
        answers=st.integers(0, 8),
        faults=FAULTS,
    )
    def begins(self, phones: int, asked: Sequence[PlannedQuery], answers: int, faults: Sequence[Fault]) -> None:
        self.asked: list[Query] = []
        self.rotations = 0
        self.world = self.begin()
        self.truths = Invariants(self.world, self.world.identity)
        for _ in range(phones):
            self.world.enrol()
        for each in asked:
            self._ask(each, Fault.NONE)
            self.world.countersign(Fault.NONE)
        for device in self.world.devices[:answers]:
            self.world.visit(device, faults)

    # Membership.

    @rule(which=WHICH, change=st.sampled_from(["join", "join", "leave", "revoke", "rejoin"]), faults=FAULTS)
    def membership_changes(self, which: int, change: str, faults: Sequence[Fault]) -> None:
        device = self._device(which)
        if change == "join" and len(self.world.devices) < MAX_PHONES:
            self.world.enrol(faults)
        elif change == "leave":
            self.world.leave(device, faults)
        elif change == "revoke" and device.phone:
            self.world.revoke(device.phone)
        else:
            self.world.rejoin(device)

    # Analysts.

    @rule(asked=ASKED, fault=FAULTY, countersigned=FAULTY)
    def announce(self, asked: PlannedQuery, fault: Fault, countersigned: Fault) -> None:
        self._ask(asked, fault)
        self.world.countersign(countersigned)

    @rule(which=WHICH, fault=FAULTY, said=st.sampled_from(["again", "again", "otherwise", "abort"]))
    def analyst_says_more(self, which: int, fault: Fault, said: str) -> None:
        if not self.asked:
            return
        place = which % len(self.asked)
        if said == "again":
            self._announce(self.asked[place], fault)
        elif said == "abort":
            self._abort(self.asked[place], fault)
        else:
            self._announce_another_of_the_same_name(place)

    # Phones.

    @rule(which=st.lists(WHICH, min_size=1, max_size=4), faults=FAULTS, death=DEATHS)
    def some_visit(self, which: Sequence[int], faults: Sequence[Fault], death: Kill | None) -> None:
        first, *others = which
        self.world.visit(self._device(first), faults, death)
        for each in others:
            self.world.visit(self._device(each), faults)

    @rule(which=WHICH, faults=FAULTS, death=DEATHS)
    def many_visit(self, which: int, faults: Sequence[Fault], death: Kill | None) -> None:
        self.world.visit(self._device(which), faults, death)
        for device in self.world.devices[1:]:
            self.world.visit(device)

    @rule(which=st.lists(WHICH, min_size=1, max_size=4), fault=FAULTY)
    def replay(self, which: Sequence[int], fault: Fault) -> None:
        """What was on the wire once is sent by anybody, several at a time."""
        sent = list(self.world.evidence.honest.values())
        if sent:
            chosen = [sent[each % len(sent)] for each in which]
            self.world.runner.run(self._all_at_once(chosen))
            self.world.upload(chosen[0], fault)

    @rule(which=WHICH, other=WHICH, bad=BAD)
    def upload_what_is_bad(self, which: int, other: int, bad: str) -> None:
        sent = list(self.world.evidence.honest.values())
        if not sent:
            return
        refused = self.world.upload(self._made_bad(sent[which % len(sent)], sent[other % len(sent)], bad))
        assert refused is not None, f"what is bad was taken: {bad}"
        allowed = {
            Refusal.BAD_SIGNATURE, Refusal.WRONG_COHORT, Refusal.CONFLICT, Refusal.LATE, Refusal.NOT_DEALT,
            Refusal.BAD_CIPHERTEXTS, Refusal.UNKNOWN_QUERY, Refusal.MALFORMED,
        }  # fmt: skip
        assert refused.refusal in allowed

    @rule(which=WHICH, phone=WHICH, number=st.integers(-(2**40), 2**40), fault=FAULTY)
    def lie(self, which: int, phone: int, number: int, fault: Fault) -> None:
        """A member sends a number of its own choosing, without tags or pads, before it says what is true."""
        queries = self.world.queries()
        if not queries:
            return
        query = queries[which % len(queries)]
        dealt = sorted(
            ((self.world.evidence.members[one].device, one, cohort) for one, cohort in
             self.world.journal(DEALT, query.digest) if one in self.world.evidence.members)
        )  # fmt: skip
        if dealt:
            _, member, cohort = dealt[phone % len(dealt)]
            key = self.world.pair(query.key_id).public
            ciphertexts = ciphertexts_to(key.encrypt([number], secure()), key)
            message = wire.Contribution(
                query=query.digest, phone=member, cohort=cohort, agreement_key=bytes(32), ciphertexts=ciphertexts
            )
            signed(message, self.world.evidence)
            self.world.evidence.lied(message)
            self.world.upload(message, fault)

    # Time, and both servers.

    @rule(
        seconds=st.sampled_from([1, 1, 61, HOUR + 1, DAY + 1]), ahead=st.sampled_from([KEYS, AGGREGATION, "phone 1"]),
        by=st.sampled_from([0, 1, 90]), death=DEATH, faults=FAULTS,
    )  # fmt: skip
    def time_passes(self, seconds: int, ahead: str, by: int, death: Kill | None, faults: Sequence[Fault]) -> None:
        self.world.pass_time(seconds, ahead=ahead, by=by)
        self.world.close_due(death)
        for fault in faults[:2]:
            self.world.decide(fault, 0)

    @rule(death=DEATH, fault=FAULTY)
    def close_and_countersign(self, death: Kill | None, fault: Fault) -> None:
        self.world.close_due(death)
        self.world.countersign(fault)

    @rule(faults=FAULTS, which=WHICH)
    def decide(self, faults: Sequence[Fault], which: int) -> None:
        for number, fault in enumerate(faults):
            self.world.decide(fault, which + number)

    @rule(which=WHICH, wrong=WRONG_REQUEST)
    def ask_for_another_decision(self, which: int, wrong: str) -> None:
        heads = self._requests()
        if heads:
            self._ask_wrongly(heads[which % len(heads)], wrong)

    @rule(death=DEATH)
    def rotate(self, death: Kill | None) -> None:
        if self.rotations < self.world.most_rotations:
            self.rotations += 1
            self.world.rotate(death)

    @rule(which=WHICH, party=st.sampled_from([KEYS, AGGREGATION, "a phone"]))
    def kill(self, which: int, party: str) -> None:
        if party == "a phone":
            self._device(which).restart()
        else:
            self.world.kill(party)

    @invariant()
    def all_is_well(self) -> None:
        self.truths.check()

    def teardown(self) -> None:
        """Drive everything to its end, without further faults."""
        if not hasattr(self, "world"):
            return
        failure = sys.exc_info()[1]
        if isinstance(failure, Exception):
            type(self).failures.append(failure)
        try:
            if hasattr(self, "truths") and failure is None:  # or what is broken would break again
                self._finish()
        except Exception as error:
            type(self).failures.append(error)
            raise
        finally:
            self.world.close()

    def _finish(self) -> None:
        self.world.settle()
        self._all_visit()
        self.world.settle()
        self.world.pass_time(2 * DAY)
        self.world.settle()
        for _ in range(ROUNDS):
            self._all_visit()
        for head in self._requests():
            self._ask_wrongly(head, "burn")
        self.truths.check_end()
        seen = self.world.seen
        seen.update(wire.Outcome.Name(each.made.outcome) for each in self.truths.decided.values())
        evidence = self.world.evidence
        seen["contributions"] += len(evidence.honest)
        seen.update(f"contributions with {evidence.queries[query].noise} noise" for query, _ in evidence.honest)
        seen["promises"] += len(self.world.evidence.promised)
        seen["schedules"] += 1
        type(self).seen.update(seen)

    async def _all_at_once(self, messages: Sequence[wire.Contribution]) -> None:
        answers = await gather(
            *(self.world.call("Contribute", message, Fault.NONE) for message in messages), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Refused):
                raise answer

    def _all_visit(self) -> None:
        for device in self.world.devices:
            self.world.visit(device)

    def _ask(self, asked: PlannedQuery, fault: Fault) -> None:
        """Announce a query to as many as can be asked, or a few less."""
        terms = self.world.terms()
        population = terms.population - asked.without
        if len(self.asked) == MAX_QUERIES or population < MIN_HONEST:
            return
        cohorts = min(asked.cohorts, population // MIN_HONEST)
        smallest = population // cohorts
        noise, sequence = asked.kind
        min_contributions = MIN_HONEST + (
            0 if sequence else min(asked.more, smallest - MIN_HONEST)
        )  # the queries of a sequence say the same
        query = Query(
            id=self.world.name_of(len(self.asked)),
            counters=COUNTERS,
            epsilon=1.0 if sequence or asked.dear else 0.5,
            delta=1e-6,
            l2_squared=2_000**2,
            l1=2_400,
            noise=noise,
            population=population,
            cohorts=cohorts,
            min_contributions=min_contributions,
            liars=0,
            key_id=PublicKey.from_bytes(terms.public_key, simulation=True).key_id.hex(),
            closes_after=asked.closes_after,
            enough=smallest if asked.enough else None,
            sequence=sequence and self.world.name_of(sequence),
        )
        self.asked.append(query)
        self._announce(query, fault)

    def _device(self, which: int) -> Device:
        return self.world.devices[which % len(self.world.devices)]

    def _announce(self, query: Query, fault: Fault) -> None:
        self.world.evidence.asked(query)
        try:
            self.world.ask("Announce", wire.AnnounceRequest(query=query.to_bytes()), fault)
        except Refused as refused:
            assert refused.refusal in {  # noqa: PT017  # whichever it is
                Refusal.TOO_FEW_ENROLLED, Refusal.KEY_RETIRED, Refusal.CONFLICT,
            }  # fmt: skip

    def _made_bad(self, sent: wire.Contribution, other: wire.Contribution, bad: str) -> wire.Contribution:
        key = self.world.pair(self.world.evidence.queries[sent.query].key_id).public
        return made_bad(sent, other, bad, key, self.world.evidence)

    def _requests(self) -> list[wire.DecideHead]:
        """What the key server was or will be asked."""
        found = self.world.collected("SELECT head FROM requests ORDER BY query, cohort")
        heads = [wire.DecideHead.FromString(head) for (head,) in found]
        return [head for head in heads if self.world.is_ours(head.query)]

    def _ask_wrongly(self, head: wire.DecideHead, wrong: str) -> None:
        """What was decided is decided; what was not is not decided by what is wrong."""
        decided = self.truths.decided.get((head.query, head.cohort))
        receipts = [
            wire.Receipt(phone=phone, ciphertexts_hash=contents, seeded=bool(seeded), signature=signature)
            for phone, contents, seeded, signature in self.world.collected(RECEIPTS, head.query, head.cohort)
        ]
        if decided is None and (not head.ciphertexts or wrong in {"again", "burn"}):
            return  # that would be a decision
        if not made_wrong(head, receipts, wrong):
            return
        try:
            made = self.world.runner.run(self.world.ask_to_decide(head, receipts))
        except Refused as refused:
            allowed = {Refusal.BAD_RECEIPTS, Refusal.ALREADY_DECIDED if decided else Refusal.BAD_CIPHERTEXTS}
            assert refused.refusal in allowed  # noqa: PT017  # whichever it is
        else:
            assert decided is not None, "what is wrong was decided"
            assert made == decided.made, "there are two decisions"

    def _announce_another_of_the_same_name(self, place: int) -> None:
        other = replace(self.asked[place], closes_after=self.asked[place].closes_after + 1)
        try:
            self.world.ask("Announce", wire.AnnounceRequest(query=other.to_bytes()))
        except Refused as refused:
            # Of the first one, or of another one of its name that was refused.
            assert refused.refusal in {Refusal.CONFLICT, Refusal.TOO_FEW_ENROLLED}  # noqa: PT017
        else:  # the first one was lost, or refused
            self.asked[place] = other
            self.world.evidence.asked(other)

    def _abort(self, query: Query, fault: Fault) -> None:
        self.world.evidence.aborted.add(query.id)
        try:
            self.world.ask("Abort", wire.AbortRequest(id=query.id), fault)
        except Refused as refused:
            assert refused.refusal in {  # noqa: PT017  # whichever it is
                Refusal.UNKNOWN_QUERY, Refusal.TOO_FEW_ENROLLED, Refusal.KEY_RETIRED,
            }  # fmt: skip


RECEIPTS = (
    "SELECT phone, ciphertexts_hash, seeded, signature FROM receipts JOIN queries ON queries.number = receipts.query"
    " WHERE digest = ? AND receipts.cohort = ? ORDER BY phone"
)
